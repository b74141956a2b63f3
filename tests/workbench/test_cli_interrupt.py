"""Ctrl-C ends a command with one line and keeps what was recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from core_compiler.record import Recording
from tests.workbench.conftest import MODEL

#: A pass after which the compile waits for somebody to stop it.
SLOW = """
import sys, time
from core_compiler.passes.choose_layouts import ChooseLayouts
from workbench.commands.cli import main

right = ChooseLayouts.run

def run(self, module, context):
    print("waiting", flush=True)
    time.sleep(60)
    return right(self, module, context)

ChooseLayouts.run = run
sys.exit(main(sys.argv[1:]))
"""


def stopped(*words, how=signal.SIGINT, times=1) -> tuple[int, str, str]:
    """(exit code, output, errors) of a compile that is stopped in the middle of its passes."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "compile", *MODEL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        # To the whole group, as a terminal does it: compile workers must stay quiet too.
        for _ in range(times):
            os.killpg(process.pid, how)
            time.sleep(0.02)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, out, err


def test_ctrl_c_leaves_a_recording_that_can_be_read(tmp_path, command):
    path = tmp_path / "x.run"
    code, out, err = stopped("-o", path)
    assert (code, out) == (130, "")
    assert err == f"workbench: {path}: stopped; what was recorded is kept\n"
    assert [p.name for p in tmp_path.iterdir()] == ["x.run"]  # one file, nothing beside it
    with Recording.open(path) as recording:
        assert recording.status == "cancelled"
        names = [stage.pass_name for stage in recording.stages()]
        assert names[0] == "import"
        assert names[-1] == "lay_out_weights"
        assert list(recording.module(len(names) - 1).walk())
    assert "this recording is cancelled" in command.text("passes", path)
    code, _, err = command("memory", path)
    assert code == 2
    assert "no memory was planned" in err


@pytest.mark.slow
def test_ctrl_c_with_json_is_an_object(tmp_path):
    path = tmp_path / "x.run"
    code, out, err = stopped("-o", path, "--json")
    assert (code, err) == (130, "")
    error = {"what": "stopped", "where": str(path), "fix": "what was recorded is kept"}
    assert json.loads(out) == {"error": error}


def test_ctrl_c_of_a_compile_that_is_not_recorded_says_so():
    code, out, err = stopped()
    assert (code, out, err) == (130, "", "workbench: stopped; nothing was recorded\n")


@pytest.mark.slow
def test_an_impatient_hand_does_not_disturb_the_end(tmp_path):
    path = tmp_path / "x.run"
    code, out, err = stopped("-o", path, times=4)
    assert (code, out) == (130, "")
    assert err == f"workbench: {path}: stopped; what was recorded is kept\n"
    assert [p.name for p in tmp_path.iterdir()] == ["x.run"]
    with Recording.open(path) as recording:
        assert recording.status == "cancelled"


def test_a_killed_compile_leaves_every_finished_stage(tmp_path, command):
    path = tmp_path / "x.run"
    code, _, _ = stopped("-o", path, how=signal.SIGKILL)
    assert code == -signal.SIGKILL
    text = command.text("passes", path)
    assert "lay_out_weights" in text
    assert "this recording is interrupted" in text
