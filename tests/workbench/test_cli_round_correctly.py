"""The optional pass ``round_correctly`` from the command line."""

from __future__ import annotations

from tests.workbench.conftest import MODEL


def test_it_is_inserted_by_name_and_checked(command, tmp_path):
    path = tmp_path / "out.run"
    command.json(
        "compile",
        *MODEL,
        "--insert",
        "round_correctly@after:recompose",
        "--set",
        "round_correctly.functions=exp,log",
        "--check",
        "-o",
        path,
    )
    told = command.json("passes", path)
    names = [stage["pass"] for stage in told["passes"]]
    stage = told["passes"][names.index("round_correctly")]
    assert names[names.index("round_correctly") - 1] == "recompose"
    assert not stage["exact"] and stage["half"] == "meaning"
    assert stage["options"]["functions"] == "exp,log" and "failed" not in stage["verdicts"]


def test_a_function_that_it_does_not_have_is_refused(command):
    code, _, err = command(
        "compile", *MODEL, "--insert", "round_correctly", "--set", "round_correctly.functions=sinh"
    )
    assert code == 2 and "sinh is already rounded once" in err
