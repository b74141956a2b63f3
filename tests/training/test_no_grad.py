"""Parts of a model under ``no_grad`` and what it detaches: gradients are torch's, or it is said why
there are none."""

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import core_compiler as cc
from core_compiler.support.errors import UserError


class Model(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.first, self.side, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.between = between

    def forward(self, x):
        return self.last(self.between(self, self.first(x)))


def nested(model, y):
    with torch.no_grad():
        held = torch.relu(y)
        with torch.enable_grad():
            side = model.side(held)
        doubled = side * 2
    return side + doubled + y


def tracked_mean(model, y):
    with torch.no_grad():
        model.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
    return y - model.mean


def fresh_mask(model, y):
    with torch.no_grad():
        mask = torch.zeros_like(y)
        mask[:, 1:] = 1
        mask.mul_(y.sign())
    return y * mask


def outer_mask(model, y):
    mask = torch.ones(4)
    with torch.no_grad():
        mask[2] = 0
    return y * mask


def straight_through(model, y):
    return y + (torch.round(y) - y).detach()


@pytest.mark.slow
@pytest.mark.parametrize(
    "between",
    [nested, tracked_mean, fresh_mask, outer_mask, straight_through],
    ids=lambda f: f.__name__,
)
def test_gradients_are_torchs(between):
    torch.manual_seed(0)
    model = Model(between)
    x, classes = torch.randn(8, 4), torch.arange(8) % 3
    training = cc.Training(loss="cross_entropy", optimizer="sgd", keep_gradients=True)
    step = cc.compile(model, [x, classes], training=training)
    step(x, classes)
    model.mean.zero_()
    F.cross_entropy(model(x), classes).backward()
    found = step.gradients
    for name, parameter in model.named_parameters():
        wanted = parameter.grad
        if wanted is None:
            assert name not in found or not np.any(found[name])
        else:
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(step.state_dict()["mean"], model.mean, rtol=1e-6)


def doubled(model, y):
    with torch.no_grad():
        y.mul_(2)
    return y


def masked_view(model, y):
    with torch.no_grad():
        y.view(-1, 2, 2)[:, 0] = 0
    return y


def returned(model, y):
    with torch.no_grad():
        y = y.add_(model.mean)
    return y


def through_detach(model, y):
    y.detach()[:, 0].fill_(1.0)
    return y


@pytest.mark.slow
@pytest.mark.parametrize(
    "between", [doubled, masked_view, returned, through_detach], ids=lambda f: f.__name__
)
def test_a_write_that_gradients_do_not_see_is_refused_with_its_line(between):
    """Torch computes on with what was written, and gradients pass as if it had not been."""
    x, classes = torch.randn(8, 4), torch.arange(8) % 3
    training = cc.Training(loss="cross_entropy", optimizer="sgd")
    with pytest.raises(UserError, match=r"_ writes under no_grad") as refused:
        cc.compile(Model(between), [x, classes], training=training)
    line = int(re.search(r"test_no_grad\.py:(\d+)$", refused.value.where)[1])
    assert "self.between(" in linecache.getline(__file__, line)  # torch tells lines of `forward`
    assert "(new - x).detach()" in refused.value.fix
    cc.compile(Model(between).eval(), [x])  # without gradients there is nothing to miss


class Square(torch.autograd.Function):
    """Its gradient is not that of x * x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 5 * gradient * x


def own_function(model, y):
    return Square.apply(y)


def hooked(model, y):
    y.register_hook(lambda gradient: 3 * gradient)
    return y


def _hooked_module(model):
    model.last.register_full_backward_hook(lambda *_: None)


def _hooked_parameter(model):
    model.first.weight.register_hook(lambda gradient: 3 * gradient)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("between", "change", "said", "where"),
    [
        (own_function, None, "Square defines its own backward pass", r"test_no_grad\.py:\d+$"),
        (hooked, None, "a tensor has a hook on its gradient", r"test_no_grad\.py:\d+$"),
        (nested, _hooked_module, "module last has a backward hook", "Model"),
        (nested, _hooked_parameter, "parameter first.weight has a hook on its gradient", "Model"),
    ],
)
def test_gradients_of_a_persons_own_code_are_refused(between, change, said, where):
    """An export keeps the forward pass: its derivative would be taken, silently."""
    x, classes = torch.randn(8, 4), torch.arange(8) % 3
    model = Model(between)
    if change is not None:
        change(model)
    apply, hook = torch.autograd.Function.apply, torch.Tensor.register_hook
    with pytest.raises(UserError) as refused:
        cc.compile(model, [x, classes], training=cc.Training(loss="cross_entropy"))
    assert said in refused.value.what and re.search(where, refused.value.where)
    assert torch.autograd.Function.apply == apply and torch.Tensor.register_hook is hook
    if between is not hooked:
        cc.compile(model, [x])  # for inference it means what it says
