"""Attention of queries that see no key: torch gives 0 whatever hides the keys, and gradients of 0.

After pytorch/pytorch#103749, #110213, #131805 and others.  Plain softmax of such a row is NaN.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import core_compiler as cc
from core_compiler.training.optimisers.optimizers import SGD
from tests.frontends.programs import Program, agrees
from tests.trials.everywhere import everywhere

HIDDEN = -math.inf


def _operands(*shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator) for _ in range(3)]


def _mask(rows=(1,), size: int = 4) -> torch.Tensor:
    mask = torch.randn(size, size, generator=torch.Generator().manual_seed(1))
    mask[list(rows)] = HIDDEN
    return mask


class Constant(torch.nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, q, k, v):
        return attention(q, k, v, attn_mask=self.mask)


@pytest.mark.parametrize("rows", [(1,), (0, 3), (0, 1, 2, 3)])
def test_a_float_mask(rows):
    agrees(lambda q, k, v, m: attention(q, k, v, attn_mask=m), *_operands(2, 2, 4, 8), _mask(rows))


@pytest.mark.parametrize("shape", [(4, 8), (3, 4, 8), (2, 3, 4, 8)])
def test_a_mask_for_every_head_and_any_rank(shape):
    mask = _mask().expand(*shape[:-2], 4, 4).clone()
    agrees(lambda q, k, v, m: attention(q, k, v, attn_mask=m), *_operands(*shape), mask)


def test_a_mask_made_in_the_model():
    def made(q, k, v, lengths):
        hidden = torch.arange(4)[None] >= lengths[:, None]
        mask = torch.zeros(hidden.shape).masked_fill(hidden, HIDDEN)
        return attention(q, k, v, attn_mask=mask[:, None, None].expand(-1, 1, 4, -1))

    agrees(made, *_operands(3, 2, 4, 8), torch.tensor([0, 2, 4]))


def test_a_mask_that_leaves_nothing_of_what_causal_shows():
    mask = torch.zeros(4, 4)
    mask[0, 0] = mask[2, :3] = HIDDEN
    agrees(
        lambda q, k, v, m: attention(q, k, v, attn_mask=m, is_causal=True),
        *_operands(1, 2, 4, 8),
        mask,
    )


def test_masks_of_booleans_and_both_kinds_of_grouped_heads():
    seen = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    q, _, _ = _operands(1, 4, 4, 8)
    _, k, v = _operands(1, 2, 4, 8)
    for mask in (seen, _mask()):
        agrees(lambda q, k, v, m: attention(q, k, v, attn_mask=m, enable_gqa=True), q, k, v, mask)


def test_scores_that_are_hidden_without_a_mask():
    q, k, v = _operands(1, 2, 4, 8)
    q[0, 0, 2] = HIDDEN
    agrees(lambda q, k, v: attention(q, k, v), q, k.abs(), v)
    agrees(lambda q, k, v: attention(q, k, v, is_causal=True), q, k.abs(), v)


def test_nan_is_not_hidden():
    q, k, v = _operands(1, 1, 4, 8)
    q[0, 0, 1, 0] = math.nan
    agrees(lambda q, k, v, m: attention(q, k, v, attn_mask=m), q, k, v, _mask((2,)))


def test_plain_softmax_stays_nan():
    agrees(lambda m: (m.softmax(-1), m.log_softmax(-1)), _mask())


@pytest.mark.slow
@pytest.mark.parametrize("constant", [False, True])
def test_compiled_and_exported(tmp_path, constant):
    operands, mask = _operands(2, 2, 4, 8), _mask()
    model = (
        Constant(mask) if constant else Program(lambda q, k, v, m: attention(q, k, v, attn_mask=m))
    )
    inputs = operands if constant else [*operands, mask]
    wanted = model(*inputs)
    assert not wanted[:, :, 1].any() and wanted.isfinite().all()
    everywhere(model, inputs, [wanted], tmp_path, rtol=1e-4, atol=1e-6)


def test_the_softmax_alone_is_exported_as_onnx_softmax(tmp_path):
    """The parts of attention keep ONNX's own Softmax, zeros chosen behind it."""
    import onnx

    rows = torch.tensor([[0.5, HIDDEN, 1.0], [HIDDEN] * 3, [math.nan, HIDDEN, HIDDEN]])
    model = Program(lambda x: torch.ops.aten._safe_softmax(x, -1))
    compiled = everywhere(model, [rows], [model(rows)], tmp_path, rtol=1e-6, guards=(True,))
    compiled.stages[0].export(tmp_path / "softmax.onnx")
    assert "Softmax" in {n.op_type for n in onnx.load(tmp_path / "softmax.onnx").graph.node}


class Trained(torch.nn.Module):
    """A loss of attention whose mask is learned, but for what is hidden."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(0)
        self.project = torch.nn.Linear(8, 24)
        self.bias = torch.nn.Parameter(torch.randn(4, 4))
        self.dropout = dropout

    def forward(self, x, mask):
        q, k, v = self.project(x).chunk(3, -1)
        made = attention(q, k, v, attn_mask=self.bias + mask, dropout_p=self.dropout)
        return made.square().mean() + made.sum()


@pytest.mark.slow
def test_gradients_are_those_of_torch():
    model, mask = Trained(), torch.zeros(4, 4)
    mask[1] = mask[0, 2:] = HIDDEN
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(2))
    wanted = model(x, mask)
    wanted.backward()
    training = cc.Training(loss="own", optimizer=SGD(0.1), keep_gradients=True)
    step = cc.compile(model, (x, mask), check=True, training=training)
    assert step(x, mask) == pytest.approx(wanted.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        made = step.gradients[name]
        np.testing.assert_allclose(made, parameter.grad, rtol=1e-4, atol=1e-6, err_msg=name)
    assert not np.asarray(step.gradients["bias"])[1].any()


@pytest.mark.slow
def test_training_with_dropout_stays_finite():
    mask = torch.zeros(4, 4)
    mask[1] = HIDDEN
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(2))
    training = cc.Training(loss="own", optimizer=SGD(0.1), keep_gradients=True)
    step = cc.compile(Trained(0.5), (x, mask), training=training)
    assert all(math.isfinite(step(x, mask)) for _ in range(3))
    assert all(np.isfinite(g).all() for g in step.gradients.values())
