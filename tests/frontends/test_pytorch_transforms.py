"""``torch.func`` and other machinery in a forward pass: computed, or refused in the words of
torch's documentation and at the model's line."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import core_compiler as cc
from core_compiler.support.errors import UserError
from tests.frontends.programs import Program
from tests.slow import slow_but

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))


class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def _grad_of_a_part(x):
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        return torch.autograd.grad((y**3).sum(), y)[0]


def _flex(x):
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(*[x[None, None]] * 3)


COMPUTED = {
    "vmap": lambda x: torch.vmap(lambda row: row.sum() * row)(x),
    "vmap of vmap": lambda x: torch.vmap(lambda a: torch.vmap(lambda b: a @ b)(x))(x),
    "vmap with a choice": lambda x: torch.vmap(lambda a: torch.where(a.sum() > 0, a, -a))(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1],
    "autograd.Function": Clamped.apply,
    "autograd.grad": _grad_of_a_part,
    "checkpoint": lambda x: checkpoint(torch.sin, x, use_reentrant=False),
    "flex_attention": _flex,
    "torch.compile": lambda x: torch.compile(lambda a: a.sin() + 1)(x),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", slow_but(COMPUTED.keys() - {"torch.compile"}, COMPUTED))
def test_it_computes_what_torch_computes(name):
    function = COMPUTED[name]
    made = cc.compile(Program(function).eval(), (X.clone(),))
    want = function(X.clone()).detach().numpy()
    assert np.abs(made(X)[0] - want).max() <= 1e-6 * np.abs(want).max()


REFUSED = {
    "torch.func.grad": lambda x: torch.func.grad(lambda a: (a**2).sum())(x),
    "torch.func.vjp": lambda x: torch.func.vjp(torch.sin, x)[1](x)[0],
    "torch.func.jacrev": lambda x: torch.func.jacrev(torch.sin)(x[0]),
    "torch.func.hessian": lambda x: torch.func.hessian(lambda a: a.sin().sum())(x[0]),
    "torch.func.linearize": lambda x: torch.func.linearize(torch.sin, x)[1](x),
}
#: Names that mean nothing to who wrote a model.
_INTERNAL = re.compile(
    r"_vmap|_batch_dim|lazy_load|_jvp|_dual|unwrap_for_grad|Fake|Proxy|lifted_tensor|higher_order|"
    r"torch\._|layout|'Tensor' object"
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_an_export_does_not_follow_is_refused_in_plain_words(name):
    with pytest.raises(UserError) as caught:
        cc.compile(Program(REFUSED[name]).eval(), (X.clone(),))
    told = str(caught.value)
    assert _INTERNAL.search(told) is None and re.search(r"\.py:\d+", told)
    assert torch._C._functorch.maybe_current_level() is None  # torch goes on outside of transforms
