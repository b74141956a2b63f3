"""``package.module:function``: what a person's own code does wrong is told by its line."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

from workbench.model import models, user_code
from workbench.model.spec import read_spec

SOURCE = """\
import sys
import torch

def raises():
    return helper()

def helper():
    raise RuntimeError("no weights\\nare here")

def leaves():
    sys.exit(7)

def wrong_type():
    return len(3)

def alone():
    return torch.nn.Linear(4, 4)

def number():
    return torch.nn.Linear(4, 4), (3.0,)

def needs(*, n):
    return torch.nn.Linear(n, 4), (torch.ones(1, n),)

class Broken(torch.nn.Module):
    def forward(self, x):
        raise ValueError("not today")

def broken():
    return Broken(), (torch.ones(3),)

class Branches(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

def branches():
    return Branches(), torch.ones(3)

class Talks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        print("forward")
        return {"a": self.layer(x), "b": [x * 2]}

def talks():
    print("building")
    return Talks(), torch.ones(1, 4)

def nan():
    return torch.nn.Linear(4, 4), torch.full((1, 4), float("nan"))

value = 3
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The modules that the tests name, importable from the current folder."""
    (tmp_path / "own_model.py").write_text(SOURCE)
    (tmp_path / "own_syntax.py").write_text("def f(:\n")
    (tmp_path / "own_import.py").write_text("import torch\nimport no_such_package\n")
    (tmp_path / "own_raise.py").write_text("def f():\n    pass\n\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [n for n in sys.modules if n.startswith("own_")]:
        del sys.modules[name]


WRONG = {
    "own_model:raises": ["RuntimeError at {f}/own_model.py:8: no weights"],
    "own_model:leaves": ["SystemExit at {f}/own_model.py:11: 7"],
    "own_model:wrong_type": ["TypeError at {f}/own_model.py:14: object of type 'int'"],
    "own_model:alone": ["did not return (model, example inputs)"],
    "own_model:number": ["example input 0 is of type float"],
    "own_model:needs": ["missing a required", "'n'"],
    "own_model:broken": ["ValueError at {f}/own_model.py:27: not today"],
    "own_model:branches": ["at {f}/own_model.py:34", "data-dependent"],
    "own_model:value": ["expected a function", "int"],
    "own_model:raise": ["'raise' not found", "did you mean raises?"],
    "own_syntax:f": ["SyntaxError at", "own_syntax.py:1"],
    "own_import:f": ["ModuleNotFoundError at {f}/own_import.py:2", "no_such_package"],
    "own_raise:f": ["ZeroDivisionError at {f}/own_raise.py:4"],
    "own_absent.part:f": ["module 'own_absent' not found"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line_that_names_the_persons_own(command, code, name):
    got, out, err = command("compile", name)
    assert (got, out) == (2, "")
    assert err.startswith(f"workbench: {name}: ")
    assert err.count("\n") == 1
    for part in WRONG[name]:
        assert part.format(f=code) in err
    got, out, err = command("compile", name, "--json")
    assert (got, err) == (2, "")
    assert list(json.loads(out)["error"]) == ["what", "where", "fix"]


def test_what_it_prints_is_no_part_of_the_answer_and_it_is_built_once(command, code):
    """The weights are not seeded: a second call of the function would be another model."""
    got, out, err = command("run", "own_model:talks", "--against", "torch", "--json")
    assert got == 0
    assert json.loads(out)["worst_relative_error"] < 1e-4
    assert err.count("building") == 1
    assert "forward" in err


def test_inputs_that_hold_nan_give_the_nans_of_the_framework(command, code):
    got, out, _ = command("run", "own_model:nan", "--against", "torch", "--json")
    assert got == 0
    assert json.loads(out)["worst_relative_error"] == 0.0
    model = models.load(read_spec("own_model:nan"))
    assert np.isnan(model.inputs[0]).all()


PASS = """\
from dataclasses import dataclass
from core_compiler.passes.base import Pass

@dataclass(frozen=True)
class Mine(Pass):
    \"\"\"Changes nothing.\"\"\"
    half = "intent"
    VALUE = 1

    def run(self, module, context):
        return module
"""


def test_an_edit_of_the_same_second_and_size_is_the_one_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine_of_this_second.py"
    for value in ("1", "2"):
        path.write_text(PASS.replace("VALUE = 1", f"VALUE = {value}"))
        os.utime(path, (1_700_000_000, 1_700_000_000))
        assert vars(type(user_code.load_pass(f"{path}:Mine")))["VALUE"] == int(value)
    del sys.modules["mine_of_this_second"]
