"""The cache on disk: whole entries or none, damage found and repaired, a size that is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from core_compiler.runtime.cache_folder import MANIFEST, CacheFolder, default_root
from core_compiler.support.errors import UserError

KEY = "ab" * 32


def test_what_was_put_is_got(folder):
    place = folder.put("kernels", KEY, {"source.py": b"x = 1\n", "kernel.o": b"\0\1"})
    assert (place / "source.py").read_text() == "x = 1\n"
    assert folder.get("kernels", KEY, "kernel.o") == b"\0\1"
    assert set(folder.get_all("kernels", KEY)) == {"source.py", "kernel.o"}
    assert folder.keys("kernels") == [KEY]
    assert folder.get("kernels", "cd" * 32, "kernel.o") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "kernel.o").write_bytes(b"\0\2"),
        lambda place: (place / "kernel.o").write_bytes(b""),
        lambda place: (place / "kernel.o").unlink(),
        lambda place: (place / MANIFEST).write_text("{"),
        lambda place: (place / MANIFEST).write_text("[]"),
        lambda place: (place / MANIFEST).write_text('{"files": {}}'),
        lambda place: (place / MANIFEST).unlink(),
    ],
)
def test_a_damaged_entry_is_absent_and_can_be_put_again(folder, damage):
    damage(folder.put("kernels", KEY, {"kernel.o": b"\0\1"}))
    assert folder.get("kernels", KEY, "kernel.o") is None
    folder.put("kernels", KEY, {"kernel.o": b"\0\1"})
    assert folder.get("kernels", KEY, "kernel.o") == b"\0\1"


def test_an_entry_that_is_there_stays(folder):
    folder.put("k", KEY, {"a": b"first"})
    folder.put("k", KEY, {"a": b"again"})
    assert folder.get("k", KEY, "a") == b"first"


def test_the_longest_unread_go_first(tmp_path):
    folder = CacheFolder(tmp_path, limit=1 << 30)
    keys = [f"{i:02d}" * 32 for i in range(10)]
    for age, key in enumerate(keys):
        place = folder.put("k", key, {"data": bytes(1000)})
        long_ago = time.time() - 86400 * (10 - age)
        os.utime(place / MANIFEST, (long_ago, long_ago))
    assert folder.get("k", keys[0], "data")  # reading makes it young
    entry = folder.size() // 10
    folder.trim(4 * entry)
    assert folder.keys("k") == [keys[0], *keys[7:]]
    assert folder.size() <= 4 * entry


def test_writing_keeps_the_limit(tmp_path):
    folder = CacheFolder(tmp_path, limit=100_000)
    for i in range(60):
        folder.put("k", f"{i:02d}" * 32, {"data": bytes(5000)})
    assert folder.size() <= 100_000 * (1 + 1 / 16) + 6000


def test_several_processes_write_the_same_keys(tmp_path):
    code = """
import sys
from core_compiler.runtime.cache_folder import CacheFolder
folder = CacheFolder(sys.argv[1], limit=40_000)
for i in range(150):
    key = f"{i % 10:02d}" * 32
    want = bytes([i % 10]) * 3000
    folder.put("k", key, {"data": want})
    got = folder.get("k", key, "data")
    assert got in (None, want), key
    if i % 7 == 0:
        folder.remove("k", key)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        assert process.wait(timeout=120) == 0, process.stderr.read().decode()
    folder = CacheFolder(tmp_path)
    for key in folder.keys("k"):
        assert folder.get("k", key, "data") is not None
    assert not list(tmp_path.glob(".draft-*"))


def test_an_unwritable_cache_names_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="COMPILER_WORKBENCH_CACHE") as refused:
        CacheFolder(tmp_path / "file").put("k", KEY, {"a": b""})
    assert refused.value.exit_code == 3


def test_the_folder_is_chosen_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path / "mine"))
    assert default_root() == tmp_path / "mine"
    monkeypatch.delenv("COMPILER_WORKBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "compiler-workbench"
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE_LIMIT", "4 GB")
    with pytest.raises(UserError, match="COMPILER_WORKBENCH_CACHE_LIMIT"):
        CacheFolder()
