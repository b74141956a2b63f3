"""Batch normalisation with `momentum=None`: the running statistics are plain averages.

After pytorch/pytorch#19902 and exports of cumulative averages that lost the count.
"""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.frontends.pytorch import import_module
from core_compiler.training.optimisers.optimizers import SGD


class Model(torch.nn.Module):
    def __init__(self, dimensions: int, momentum=None, **options):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        kind = getattr(torch.nn, f"BatchNorm{dimensions}d")
        self.norm = kind(3, momentum=momentum, **options)
        self.shape = (3, *[1] * dimensions)[: max(dimensions + 1, 1)] if dimensions > 1 else (3,)

    def forward(self, x):
        h = self.norm(self.linear(x).reshape(-1, *self.shape))
        return h.pow(3).mean() + h.sum()


def _batches(count: int):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 3, generator=generator) * 3 + i for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimensions", "options"), [(1, {}), (2, {"affine": False}), (3, {"eps": 0.1})]
)
def test_three_steps_are_those_of_torch(dimensions, options):
    torch.manual_seed(0)
    model = Model(dimensions, **options).train()
    theirs = copy.deepcopy(model)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    batches = _batches(3)
    training = cc.Training(loss="own", optimizer=SGD(0.1))
    step = cc.compile(model, (batches[0],), check=True, training=training)
    for batch in batches:
        made = step(batch)
        optimizer.zero_grad()
        loss = theirs(batch)
        loss.backward()
        optimizer.step()
        assert made == pytest.approx(loss.item(), rel=1e-4)
    state = step.state_dict()
    assert int(state["norm.num_batches_tracked"]) == 3
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_allclose(state[name], tensor, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_the_model_is_left_as_it_was():
    model = Model(1).train()
    cc.compile(model, (_batches(1)[0],), training=cc.Training(loss="own", optimizer=SGD(0.1)))
    assert "forward" not in vars(model.norm) and int(model.norm.num_batches_tracked) == 0


@pytest.mark.slow
def test_evaluation_uses_the_statistics_that_are_held():
    model, (batch,) = Model(1), _batches(1)
    model.train()(batch)
    model.eval()
    (made,) = cc.compile(model, (batch,), check=True)(batch)
    np.testing.assert_allclose(made, model(batch).detach(), rtol=1e-5)


def test_its_ops_stand_at_the_line_of_the_model():
    model, (batch,) = Model(1).train(), _batches(1)
    imported = import_module(model, (batch,), training=True)
    _, start = inspect.getsourcelines(Model.forward)
    files = {
        (n.file, n.line)
        for op in imported.module.main.body.ops
        if op.origin is not None
        for n in op.origin.nodes()
        if n.file
    }
    assert (__file__, start + 1) in files
    assert {file for file, _ in files} == {__file__}
