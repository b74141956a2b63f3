"""`python -m core_compiler new-...`: what is written passes its own test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core_compiler.__main__ import main
from core_compiler.driver import skeletons
from core_compiler.support.errors import UserError
from tests.slow import slow_but

ROOT = Path(__file__).resolve().parent.parent
#: Kind -> the files that it writes or changes for the name ``two_words``.
FILES = {
    "op": [
        "core_compiler/ops/activation.py",
        "tests/ops/samples/composites.py",
        "tests/ops/test_two_words.py",
    ],
    "pass": ["core_compiler/passes/two_words.py", "tests/passes/test_two_words.py"],
    "view": [
        "workbench/views/two_words.py",
        "workbench/views/two_words.js",
        "workbench/state/view_state.py",
        "tests/workbench/test_two_words.py",
    ],
    "target": [
        "two_words/pyproject.toml",
        "two_words/two_words.py",
        "two_words/test_two_words.py",
    ],
}


def _checkout(folder: Path) -> Path:
    for part in ("core_compiler", "workbench", "tests", "widgets"):
        left_out = shutil.ignore_patterns("node_modules", "__pycache__", "results", "snapshots*")
        shutil.copytree(ROOT / part, folder / part, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("kind", slow_but(["pass"], list(FILES)))
def test_a_skeleton_passes_its_own_test(kind, tmp_path):
    folder = tmp_path if kind == "target" else _checkout(tmp_path)
    touched = skeletons.write(kind, "two_words", folder)
    assert [path.relative_to(folder).as_posix() for path in touched] == FILES[kind]
    (test,) = [path for path in touched if path.name.startswith("test_")]
    paths = os.pathsep.join([str(folder), str(test.parent), str(ROOT)])
    made = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-1000:]


def test_nothing_is_written_over_or_outside_a_checkout(tmp_path, capsys):
    with pytest.raises(UserError, match="the file exists already"):
        skeletons.write("pass", "canonicalise", ROOT)
    with pytest.raises(UserError, match="the file is missing"):
        skeletons.write("op", "two_words", tmp_path)
    assert not any(tmp_path.iterdir())
    assert main(["new-pass", "Two-Words", "--folder", str(tmp_path)]) == 2
    assert "invalid name 'Two-Words'" in capsys.readouterr().err


def test_the_command_lists_what_it_wrote(tmp_path, capsys):
    assert main(["new-target", "two_words", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f) for f in FILES["target"]]
