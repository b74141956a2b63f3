"""``workbench open`` and ``benchmarks/ui.py --json`` as other programs call them: what they print
is fixed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_open_prints_its_url_first_and_the_url_answers_then(recording):
    pytest.importorskip("panel", reason="the page needs panel")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["open", recording, "--port", str(port), "--no-browser"]
    command = [sys.executable, "-m", "workbench", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        try:
            url = running.stdout.readline().strip()
            assert url.startswith(f"http://127.0.0.1:{port}/"), url
            with urllib.request.urlopen(url) as answer:  # once: it is ready when it says so
                assert answer.status == 200
                assert "Compiler Workbench" in answer.read().decode()
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(60)


@pytest.mark.slow
@pytest.mark.playwright
def test_the_benchmark_of_the_page_prints_one_object_with_these_keys():
    command = [sys.executable, "benchmarks/ui.py", "--json", "--short", "--sizes", "200", "1000"]
    made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    sizes = json.loads(made.stdout)["sizes"]
    assert [*sizes] == ["200", "1000"]
    for figures in sizes.values():
        assert {*figures} >= {"first_paint_s", "step_ms", "pan_frame_ms", "server_bytes"}
        assert {*figures["step_ms"]} >= {"median", "p95"}
        assert figures["server_bytes"] > 0
        assert figures["first_paint_s"] > 0
        assert figures["pan_frame_ms"] > 0
