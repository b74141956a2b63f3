"""Gradients of gradients: the pullback of a pullback against torch's double backward, in f64.

Both differentiate v * (dy * f'(x)) by x and by dy: a rule gives ops, which have rules in turn.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from core_compiler.frontends.pytorch import import_exported
from core_compiler.ir import Module
from core_compiler.ops import evaluate_block
from core_compiler.passes.base import PassContext
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.training.graph.autodiff import pullback
from tests.slow import slow_but

PLACES = torch.tensor([[2, 0, 2], [1, 1, 0]])
CLASSES = torch.tensor([1, 0, 3])

#: Name -> (function, shapes of what it is given).
CASES = {
    "sin": (torch.sin, (2, 3)),
    "exp": (torch.exp, (2, 3)),
    "log": (lambda x: torch.log(x * x + 1), (2, 3)),
    "sqrt": (lambda x: torch.sqrt(x * x + 1), (2, 3)),
    "tanh": (torch.tanh, (2, 3)),
    "sigmoid": (torch.sigmoid, (2, 3)),
    "erf": (torch.erf, (2, 3)),
    "pow": (lambda x, y: torch.pow(x * x + 1, y), (2, 3), (2, 3)),
    "atan2": (torch.atan2, (2, 3), (3,)),
    "div": (lambda x, y: x / (y * y + 1), (2, 3), (3,)),
    "maximum": (lambda x, y: torch.maximum(x * x, y), (2, 3), (3,)),
    "clamp": (lambda x: torch.clamp(x**3, -0.5, 0.5), (4, 5)),
    "where": (lambda x, y: torch.where(x > 0, x * y, y.sin()), (2, 3), (3,)),
    "gelu": (F.gelu, (2, 3)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (2, 3)),
    "silu": (F.silu, (2, 3)),
    "softplus": (F.softplus, (2, 3)),
    "elu": (F.elu, (2, 3)),
    "leaky_relu": (lambda x: F.leaky_relu(x**3), (2, 3)),
    "softmax": (lambda x: F.softmax(x, -1), (2, 5)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (2, 5)),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), (2, 5)),
    "matmul": (torch.matmul, (2, 3, 4), (2, 4, 2)),
    "conv2d": (lambda x, w, c: F.conv2d(x, w, c, 2, 1), (2, 3, 5, 6), (4, 3, 3, 3), (4,)),
    "conv2d in groups": (
        lambda x, w: F.conv2d(x, w, groups=2, dilation=2),
        (1, 4, 6, 7),
        (4, 2, 3, 3),
    ),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1),
        (2, 3, 4, 4),
        (3, 2, 3, 3),
    ),
    "attention": (F.scaled_dot_product_attention, (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)),
    "sum": (lambda x: (x**3).sum(0), (2, 3)),
    "mean": (lambda x: (x**3).mean(), (2, 3)),
    "var": (lambda x: x.var(1), (2, 5)),
    "prod": (lambda x: x.prod(1), (2, 4)),
    "amax": (lambda x: (x**3).amax(1), (2, 4)),
    "cumsum": (lambda x: (x**3).cumsum(1), (2, 4)),
    "cumprod": (lambda x: x.cumprod(1), (2, 4)),
    "sort": (lambda x: (x**3).sort(1).values, (2, 4)),
    "layer_norm": (lambda x, w, c: F.layer_norm(x, (5,), w, c), (2, 5), (5,), (5,)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w, 1e-5), (2, 5), (5,)),
    "group_norm": (lambda x, w, c: F.group_norm(x, 2, w, c), (2, 4, 3), (4,), (4,)),
    "batch_norm": (lambda x, w: F.batch_norm(x, None, None, w, None, True), (4, 3, 2), (3,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.1), (3, 4)),
    "mse_loss": (lambda x, y: F.mse_loss(x**2, y), (2, 3), (2, 3)),
    "max_pool2d": (lambda x: F.max_pool2d(x**3, 2, 1), (1, 2, 4, 5)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x**3, 3, 2, 1), (1, 2, 5, 5)),
    "interpolate": (lambda x: F.interpolate(x**3, scale_factor=2.0, mode="bilinear"), (1, 2, 3, 3)),
    "pad": (lambda x: F.pad(x**3, (1, 2), mode="reflect"), (1, 2, 4)),
    "gather": (lambda x: (x**3).gather(1, PLACES), (2, 3)),
    "embedding": (lambda w: F.embedding(PLACES, w) ** 3, (4, 2)),
    "scatter_add": (lambda x, y: (x * y).scatter_add(1, PLACES, y**3), (2, 3), (2, 3)),
    "scattered product": (lambda x, y: x.scatter_reduce(1, PLACES, y, "prod"), (2, 3), (2, 3)),
    "slice and cat": (lambda x, y: torch.cat([x[:, 1:] ** 3, y.flip(0)], 1) ** 2, (2, 3), (2, 2)),
}
#: With ``make test``; the others with ``make test-all``.
FAST = {"gelu", "softmax", "conv2d", "prod", "layer_norm", "max_pool2d"}


class _Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def _again(module: Module) -> Module:
    return EliminateDeadCode().run(pullback(module), PassContext())


@pytest.mark.parametrize("name", slow_but(FAST, CASES))
def test_the_gradient_of_a_gradient_is_that_of_torch(name):
    function, *shapes = CASES[name]
    random = torch.Generator().manual_seed(0)

    def numbers(like) -> torch.Tensor:
        return torch.randn(like, generator=random, dtype=torch.float64)

    xs = [numbers(shape).requires_grad_() for shape in shapes]
    with sdpa_kernel(SDPBackend.MATH):  # torch's fused attention has no second derivative
        y = function(*xs)
    dy = numbers(y.shape).requires_grad_()
    first = torch.autograd.grad(y, xs, dy, create_graph=True)
    vs = [numbers(g.shape) for g in first]
    wanted = torch.autograd.grad(first, [*xs, dy], vs, allow_unused=True)
    assert any(g is not None and g.abs().max() > 1e-3 for g in wanted[:-1])

    given = tuple(x.detach() for x in xs)
    module = import_exported(torch.export.export(_Model(function), given)).module
    second = pullback(_again(module))
    arrays = [v.detach().numpy() for v in (*xs, dy, *vs)]
    found = evaluate_block(second.main.body, arrays, second.weights)
    for ours, theirs in zip(found, wanted, strict=True):
        theirs = np.zeros_like(ours) if theirs is None else theirs.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
