"""The optional pass ``saturate`` from the command line: inserted by name, checked, refused."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.workbench.conftest import MODEL

PLACE = "saturate@after:lower_control_flow"


def test_it_is_inserted_by_name_and_checked(command, tmp_path):
    pytest.importorskip("egglog", reason="egglog is not installed (extra: egglog)")
    path = tmp_path / "out.run"
    command.json(
        "compile", *MODEL, "--insert", PLACE, "--set", "saturate.nodes=900", "--check", "-o", path
    )
    told = command.json("passes", path)
    names = [stage["pass"] for stage in told["passes"]]
    stage = told["passes"][names.index("saturate")]
    assert names[names.index("saturate") - 1] == "lower_control_flow"
    assert stage["exact"] and stage["half"] == "implementation"
    assert stage["options"]["nodes"] == 900 and "failed" not in stage["verdicts"]
    assert any("nothing more to find" in text for text in told["diagnostics"])


def test_without_egglog_it_says_what_to_install(command, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "egglog" else found(name, *rest),
    )
    code, out, err = command(
        "compile", *MODEL, "--insert", PLACE, "-o", tmp_path / "out.run", "--json"
    )
    assert code == 3 and "compiler-workbench[egglog]" in json.loads(out or err)["error"]["fix"]
    assert command("compile", *MODEL, "-o", tmp_path / "plain.run")[0] == 0


def test_tolerant_rules_belong_to_the_meaning_half(command):
    code, _, err = command("compile", *MODEL, "--insert", PLACE, "--set", "saturate.rules=tolerant")
    assert code == 2 and "may change bits" in err
