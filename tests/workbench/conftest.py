"""Running commands, and the narrow model that their tests compile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workbench import two_blocks as two_blocks_network
from tests.workbench.two_blocks import TwoBlocks
from workbench.commands.cli import main

MODEL = ("digits-mlp", "--width", "0.25")


class Command:
    """Runs a command in this process: exit code, text, JSON."""

    def __init__(self, capsys):
        self._capsys = capsys

    def __call__(self, *words) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)."""
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *words, code: int = 0) -> dict:
        """The object that ``--json`` prints, which is all that is printed."""
        got, out, err = self(*words, "--json")
        assert (got, err) == (code, ""), out
        return json.loads(out, parse_constant=_refuse)

    def text(self, *words, code: int = 0) -> str:
        got, out, err = self(*words)
        assert (got, err) == (code, "")
        return out


def _refuse(constant: str):
    raise AssertionError(f"{constant} is no JSON")


@pytest.fixture
def command(capsys) -> Command:
    return Command(capsys)


@pytest.fixture(scope="session")
def recording(tmp_path_factory) -> Path:
    """A checked and executed compile of the narrow model, by the command itself."""
    path = tmp_path_factory.mktemp("recordings") / "mlp.run"
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "workbench.commands.cli",
            "compile",
            *MODEL,
            "-o",
            path,
            "--check",
            "--execute",
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return path


@pytest.fixture(scope="session")
def two_blocks(tmp_path_factory) -> TwoBlocks:
    """A small network of two blocks: checked and executed, and only compiled."""
    pytest.importorskip("torch", reason="the network is written in torch")
    return two_blocks_network.record(tmp_path_factory.mktemp("two_blocks"))
