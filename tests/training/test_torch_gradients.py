"""Gradients where a function has a kink, a root of nothing or a logarithm of it: torch's, by what a
whole training step computes from an imported module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph import losses
from core_compiler.training.optimisers import optimizers
from tests.slow import slow_but


class Scaled(torch.nn.Module):
    """``of(x * weight)``, weighted element by element: the loss."""

    def __init__(self, of, shape):
        super().__init__()
        self.weight, self.of = torch.nn.Parameter(torch.ones(shape)), of

    def forward(self, x):
        made = self.of(x * self.weight)
        return (made * torch.linspace(1, 2, made.numel()).reshape(made.shape)).sum()


def gradients(model: torch.nn.Module, *inputs: torch.Tensor):
    """Those of a model's own loss by our step and by torch."""
    step = cc.compile(
        model,
        inputs,
        threads=1,
        training=Training(loss=None, optimizer=optimizers.SGD(0.0), keep_gradients=True),
    )
    loss = step(*inputs)
    model.zero_grad()
    theirs = model(*inputs)
    theirs.backward()
    np.testing.assert_allclose(loss, theirs.item(), rtol=1e-5)
    return step.gradients, {n: p.grad.numpy() for n, p in model.named_parameters()}


ROWS = [[0.0, 0.0, 0.0], [3.0, 0.0, -4.0]]
#: name -> (function, what is put in).
KINKS = {
    "relu6": (functional.relu6, [-1.0, 0.0, 3.0, 6.0, 7.0]),
    "hardtanh": (functional.hardtanh, [-2.0, -1.0, 0.0, 1.0, 2.0]),
    "clamp": (lambda x: x.clamp(-1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0]),
    "clamp to tensors": (
        lambda x: x.clamp(torch.tensor(-1.0), torch.tensor(1.0)),
        [-2.0, -1.0, 0.0, 1.0, 2.0],
    ),
    "maximum with 0": (lambda x: torch.maximum(x, torch.zeros(())), [-1.0, 0.0, 1.0]),
    "maximum with a slope": (lambda x: torch.maximum(x, 0.1 * x), [-1.0, 0.0, 1.0]),
    "where not negative": (lambda x: torch.where(x >= 0, x, 0.1 * x), [-1.0, 0.0, 1.0]),
    "where positive": (lambda x: torch.where(x > 0, x, 0.1 * x), [-1.0, 0.0, 1.0]),
    "minimum of a relu": (
        lambda x: torch.minimum(functional.relu(x), torch.tensor(6.0)),
        [-1.0, 0.0, 3.0, 6.0, 7.0],
    ),
    "fmax": (lambda x: torch.fmax(x, torch.zeros(())), [-1.0, 0.0, 1.0]),
    "max of equals": (lambda x: x.max(dim=1)[0], [[2.0, 2.0, 1.0], [0.0, 5.0, 5.0]]),
    "min of equals": (lambda x: x.min(dim=0)[0], [[2.0, 2.0, 1.0], [2.0, 5.0, 1.0]]),
    "adaptive max pool": (lambda x: functional.adaptive_max_pool1d(x, 2), [[2.0, 2.0, 2.0]]),
    "adaptive max pool 2d": (
        lambda x: functional.adaptive_max_pool2d(x, (2, 1)),
        [[[0.0, 5.0], [5.0, 0.0], [1.0, 1.0]]],
    ),
    "selu": (functional.selu, [-1.0, 0.0, 1.0, 100.0]),
    "celu": (lambda x: functional.celu(x, 2.0), [-1.0, 0.0, 1.0, 300.0]),
    "elu": (functional.elu, [-1.0, 0.0, 1.0, 100.0]),
    "norm": (lambda x: x.norm(dim=1), ROWS),
    "norm of order 3": (lambda x: torch.linalg.vector_norm(x, 3, dim=1), ROWS),
    "normalize": (lambda x: functional.normalize(x, dim=1), ROWS),
    "cosine similarity": (lambda x: functional.cosine_similarity(x, x + 1, dim=1), ROWS),
    "std": (lambda x: x.std(dim=1), ROWS),
    "distances": (lambda x: torch.cdist(x, torch.tensor([[0.0, 0.0, 0.0]])), ROWS),
    "sinc": (torch.sinc, [0.0, 0.5, 1.0]),
    "xlogy": (lambda x: torch.xlogy(x, torch.tensor([2.0, 0.5, 3.0])), [0.0, 1.0, 0.0]),
    "xlogy of nothing": (lambda x: torch.xlogy(x, torch.tensor([0.0, 0.0])), [0.0, 0.0]),
    "atan2": (lambda x: torch.atan2(x, torch.tensor([0.0, 1.0])), [0.0, 0.0]),
    "remainder": (lambda x: torch.remainder(torch.tensor([1.0, -0.3, 1.0]), x), [0.1, 0.1, 0.3]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(("norm", "relu6", "max of equals"), list(KINKS)))
def test_where_a_function_is_not_smooth_the_gradient_is_torchs(name):
    function, values = KINKS[name]
    x = torch.tensor(values)
    ours, theirs = gradients(Scaled(function, x.shape), x)
    np.testing.assert_allclose(ours["weight"], theirs["weight"], rtol=1e-5, atol=1e-6)


def test_binary_cross_entropy_of_what_is_surely_right():
    """A sigmoid is 1 from 17 on: log1p(-1) counts for nothing, and is not finite."""
    x, y = torch.tensor([20.0, 0.5, -1.0, 200.0]), torch.tensor([1.0, 1.0, 0.0, 1.0])
    model = Scaled(lambda x: functional.binary_cross_entropy(x.sigmoid(), y), x.shape)
    ours, theirs = gradients(model, x)
    np.testing.assert_allclose(ours["weight"], theirs["weight"], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_bce_with_logits_of_a_head_of_zeros():
    """At a logit of 0 the slope is 1/2 less the target."""
    head = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    torch.manual_seed(0)
    x, y = torch.randn(4, 3), torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    step = cc.compile(
        head,
        (x, y),
        threads=1,
        training=Training(losses.BCEWithLogits(), optimizers.SGD(0.0), keep_gradients=True),
    )
    found = step(x, y)
    loss = functional.binary_cross_entropy_with_logits(head(x), y)
    loss.backward()
    assert found == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(step.gradients["bias"], head.bias.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(step.gradients["weight"], head.weight.grad.numpy(), rtol=1e-5)


class Words(torch.nn.Module):
    def __init__(self, **how):
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Embedding(4, 2, **how)

    def forward(self, ids):
        return self.table(ids).square().sum()


def test_the_row_of_the_padding_is_not_trained():
    ids = torch.tensor([[0, 1], [2, 0]])
    model = Words(padding_idx=0)
    with torch.no_grad():
        model.table.weight[0] = 1.5
    ours, theirs = gradients(model, ids)
    np.testing.assert_allclose(ours["table.weight"], theirs["table.weight"], rtol=1e-6)
    assert not ours["table.weight"][0].any()


def test_gradients_by_frequency_are_refused():
    with pytest.raises(UserError, match="gradients scaled by index frequency"):
        gradients(Words(scale_grad_by_freq=True), torch.tensor([0, 1]))


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.b = torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))

    def forward(self, x):
        return (self.a * x).sum() + (self.b * x.double()).sum().float()


def test_gradients_of_several_dtypes_are_clipped_together():
    model, x = Two(), torch.tensor([3.0, 4.0])
    step = cc.compile(
        model,
        (x,),
        threads=1,
        training=Training(None, optimizers.SGD(0.0), clip_norm=1.0, keep_gradients=True),
    )
    step(x)
    model(x).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for name, parameter in model.named_parameters():
        assert step.gradients[name].dtype == parameter.detach().numpy().dtype
        np.testing.assert_allclose(step.gradients[name], parameter.grad.numpy(), rtol=1e-5)
