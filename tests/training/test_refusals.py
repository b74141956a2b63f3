"""What a person may get wrong in a model, its loss and its batches: one line says what and what to
do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.graph.losses import CrossEntropy

X, Y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) + (x.to(torch.complex64) @ self.turn).abs()


class NamedValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, given):
        return self.layer(given["x"])


@pytest.fixture(scope="module")
def step():
    torch.manual_seed(0)
    return cc.compile(nn.Sequential(nn.Linear(4, 3)), (X, Y), training=cc.Training())


@pytest.mark.parametrize(
    ("model", "batch", "training", "said"),
    [
        (Complex, (X, Y), {}, r"the parameter turn is complex.*freeze=\('turn',\)"),
        (NamedValue, ({"x": X}, Y), {}, "example input 0: expected numbers"),
        (lambda: nn.Linear(4, 3), (None, Y), {}, "example input 0: expected numbers"),
        (lambda: nn.Linear(4, 3), (X.to_sparse(), Y), {}, r"example input 0: not an array \("),
        (
            lambda: nn.Conv2d(2, 3, 1),
            (torch.zeros(2, 2, 4, 4), torch.zeros(2, 4, 4).long()),
            {},
            r"got int64 2x4x4.*or use CrossEntropy\(axis=1\)",
        ),
        (lambda: nn.Linear(4, 3), (X, X), {}, "got float32 6x4.*or use another loss"),
    ],
)
def test_what_cannot_be_compiled_is_said(model, batch, training, said):
    with pytest.raises(UserError, match=said):
        cc.compile(model(), batch, training=cc.Training(**training))


def test_a_pattern_alone_freezes_what_it_names():
    step = cc.compile(nn.Sequential(nn.Linear(4, 3)), (X, Y), training=cc.Training(freeze="*.bias"))
    assert [step.roles.arguments[i][1] for i in step.roles.numbers("parameter")] == ["0.weight"]


@pytest.mark.slow
def test_a_complex_parameter_may_be_frozen():
    step = cc.compile(Complex(), (X, Y), training=cc.Training(freeze=("turn",)))
    assert np.isfinite(step(X, Y))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((torch.zeros(6, 4, device="meta"), Y), "tensor 0 of the batch: not an array"),
        ((X.to_sparse(), Y), "tensor 0 of the batch: not an array"),
        ((X, ["a"] * 6), "tensor 1 of the batch: expected numbers"),
        ((X, torch.full((6,), -100)), "all targets of the batch are -100.* the loss is undefined"),
    ],
)
def test_a_batch_that_is_none_changes_nothing(batch, said, step):
    before = step.digest
    with pytest.raises(UserError, match=said):
        step(*batch)
    assert step.digest == before


def test_a_view_of_negatives_is_read(step):
    digest, state = step.digest, step.whole_state()
    loss = step(-X, Y)
    step.load_state_dict(state)
    assert step.digest == digest
    assert step(torch._neg_view(X), Y) == loss


@pytest.mark.slow
def test_classes_on_another_axis():
    model = nn.Conv2d(2, 3, 1)
    x, y = torch.randn(2, 2, 4, 4), torch.arange(32).reshape(2, 4, 4) % 3
    step = cc.compile(model, (x, y), training=cc.Training(CrossEntropy(axis=1)))
    wanted = nn.functional.cross_entropy(model(x), y).item()
    assert step(x, y) == pytest.approx(wanted, rel=1e-6)
