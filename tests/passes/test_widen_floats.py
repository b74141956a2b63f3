"""Models of bf16 and f16 become integers, too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import core_compiler as cc
from core_compiler.driver.quantization_report import report
from core_compiler.frontends.open import as_arrays
from core_compiler.passes.quantize import widen_floats
from tests.passes.quantised import MODELS, broken
from tests.slow import slow_but

#: "lookup" mixes dtypes in a way that torch refuses.
NAMES = [name for name in MODELS if name != "lookup"]
NARROW = {"bf16": torch.bfloat16, "f16": torch.float16}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", slow_but(("norms",), NAMES))
def test_a_narrow_model_becomes_integers(name, dtype):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, kind = make().eval().to(NARROW[dtype]), NARROW[dtype]
    x = torch.randn(shape).to(kind)
    made = cc.compile(model, (x,), quantize=cc.Quantization(), check=True)
    assert not broken(made) and made.finding is None
    found = report(made)
    assert found["left_float"] == []
    wide = model.float()(x.float()).detach().numpy()
    ours = made(x)[0]
    assert ours.dtype == as_arrays([torch.zeros(1, dtype=kind)])[0].dtype
    noise = np.square(ours.astype(np.float64) - wide).sum()
    assert 10 * np.log10(np.square(wide, dtype=np.float64).sum() / noise) > 18


def test_each_op_has_the_same_bits_in_f32():
    """The first half of the pass is exact, the second one drops roundings."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return F.relu(x @ x.T + 1) * torch.sigmoid(x[:, :5])

    x = torch.randn(5, 7).bfloat16()
    made = cc.compile(Model(), (x,), quantize=cc.Quantization(), check=True)
    (stage,) = (s for s in made.stages if s.name == "widen_floats")
    records = [r for r in made.checks[stage.index] if r.rewrite is not None]
    exact = {r.verdict for r in records if r.rewrite.rule == "in f32"}
    dropped = [r for r in records if r.rewrite.rule == "not rounded between"]
    assert exact == {"bitwise"} and dropped
    assert {r.verdict for r in dropped} <= {"bitwise", "within"}


def test_f32_is_left_alone():
    made = cc.compile(torch.nn.Linear(3, 2), (torch.ones(1, 3),), quantize=cc.Quantization())
    (stage,) = (s for s in made.stages if s.name == "widen_floats")
    assert not stage.rewrites


def test_f64_says_what_to_do():
    x = torch.ones(2, 3, dtype=torch.float64)
    model = torch.nn.Linear(3, 2).double()
    made = cc.compile(model, (x,), quantize=cc.Quantization(), check=True)
    found = report(made)
    assert made.finding is None and found["ops"] == 0
    assert {left["op"] for left in found["left_float"]} >= {"core.matmul"}
    assert all("convert the model to f32 first" in left["reason"] for left in found["left_float"])


def test_a_wrong_constant_is_named(monkeypatch):
    """Exact rules are held to every bit, though the pass as a whole changes results."""
    right = widen_floats.constant_array
    monkeypatch.setattr(widen_floats, "constant_array", lambda op, held: np.abs(right(op, held)))
    x = torch.randn(2, 6).bfloat16()
    model = torch.nn.Linear(6, 3).bfloat16()
    made = cc.compile(model, (x,), quantize=cc.Quantization(), check=True)
    assert (made.finding.pass_label, made.finding.rewrite.rule) == ("widen_floats", "in f32")
