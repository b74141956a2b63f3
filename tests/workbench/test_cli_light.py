"""Help, and commands that compile nothing, import neither the compiler nor any framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workbench.commands.cli import COMMANDS

HEAVY = ("torch", "numba", "llvmlite", "panel", "onnx", "onnxruntime", "transformers", "sklearn")
PROBE = """
import sys
from workbench.commands.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print("\\nLOADED", code, *loaded)
"""


def loaded(*words: str) -> tuple[int, set[str], str]:
    """(exit code, top-level modules imported, output) of a command in a process of its own."""
    run = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True)
    output, _, tail = run.stdout.rpartition("\nLOADED ")
    code, *names = tail.split()
    return int(code), set(names), output + run.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("models",),
        ("models", "--json"),
        ("compile", "--help"),
        ("open", "--help"),
        ("doctor", "--help"),
        ("nonsense",),
    ],
    ids=" ".join,
)
def test_what_needs_no_compiler_imports_none(words):
    code, names, _ = loaded(*words)
    assert code == (2 if words == ("nonsense",) else 0)
    assert not names & {*HEAVY, "numpy"}


def test_a_query_imports_no_compiler_and_no_framework(recording):
    code, names, output = loaded("query", str(recording), "SELECT count(*) AS stages FROM stage")
    assert code == 0
    assert "stages" in output
    assert not names & {*HEAVY, "numpy"}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_is_light_and_says_what_it_does(name):
    code, names, output = loaded(name, "--help")
    assert code == 0
    assert COMMANDS[name][1] in " ".join(output.split())
    assert "--json" in output
    assert not names & set(HEAVY)


def test_the_overview_lists_every_command():
    _, _, output = loaded("--help")
    text = " ".join(output.split())
    for name, (_, line) in COMMANDS.items():
        assert f"{name} {line}" in text


CRASH = """
import os, signal, sys
from workbench.commands import cli
import workbench.commands.check_machine as command

def reads_outside(arguments):
    os.kill(os.getpid(), signal.SIGSEGV)

command.run = reads_outside
sys.argv = ["workbench", "doctor"]
cli.main()
"""


def test_where_native_code_ends_the_command_what_called_it_is_told():
    run = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True)
    assert run.returncode < 0 and "in reads_outside" in run.stderr
