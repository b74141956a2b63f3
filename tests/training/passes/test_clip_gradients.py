"""Clip gradients: all of them are scaled by one factor if their norm is too large."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core_compiler.training.passes.clip_gradients import ClipGradients
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import step

TWO = ("batch x: f32", "parameter w: 2x3xf32", "parameter v: 4xf32")
MIXED = ("batch x: f32", "parameter w: 2x3xf16", "parameter v: 4xf64")
RESULTS = ("loss", "gradient w", "gradient v")


def gradients(b, x, w, v):
    return x, b.neg(w), b.neg(v)


def norm_of(b, g):
    square = b.reduce_sum(b.mul(g, g), axes=tuple(range(g.type.rank)))
    return b.reshape(b.sqrt(square), shape=(1,))


def factor_of(b, norm: float, total):
    ratio = b.div(b.scalar_like(norm, total), b.add(total, b.scalar_like(1e-6, total)))
    return b.min(ratio, b.scalar_like(1, total))


def clipped(norm: float, arguments=TWO):
    before = step(gradients, arguments, RESULTS)
    return before, *specs.apply(ClipGradients(norm), before)


def test_every_gradient_is_multiplied_by_the_factor_and_the_norm_is_reported():
    _, after, rewrites = clipped(1.5)
    assert specs.rules_fired(rewrites) == [
        "the gradients' norm",
        "clip a gradient",
        "clip a gradient",
        "roles of results",
    ]

    def wanted(b, *values):
        loss, *made = gradients(b, *values)
        norms = b.concat(*(norm_of(b, g) for g in made), axis=0)
        total = b.sqrt(b.reduce_sum(b.mul(norms, norms), axes=(0,)))
        factor = factor_of(b, 1.5, total)
        scaled = [b.mul(g, b.expand(factor, g.type.shape)) for g in made]
        return loss, *scaled, total

    specs.assert_same_program(after, step(wanted, TWO, [*RESULTS, "metric"]))


def test_gradients_below_the_norm_keep_their_bits():
    before, after, _ = clipped(1e6)
    arrays = inputs(before)
    for old, new in zip(specs.outputs(before, arrays), specs.outputs(after, arrays), strict=False):
        assert new.tobytes() == old.tobytes()


@pytest.mark.parametrize("norm", [0.25, 2.0])
def test_larger_ones_are_torchs(norm):
    before, after, rewrites = clipped(norm)
    arrays = inputs(before)
    _, *given = specs.outputs(before, arrays)
    _, *made, total = specs.outputs(after, arrays)
    parameters = [torch.nn.Parameter(torch.zeros(g.shape)) for g in given]
    for parameter, g in zip(parameters, given, strict=True):
        parameter.grad = torch.from_numpy(g.copy())
    wanted = torch.nn.utils.clip_grad_norm_(parameters, norm)
    assert total == pytest.approx(wanted.item(), rel=1e-6) and wanted > norm
    for parameter, g in zip(parameters, made, strict=True):
        np.testing.assert_allclose(g, parameter.grad.numpy(), rtol=1e-6)
    verdicts = [r.verdict for r in specs.check(before, after, rewrites, exact=False)]
    assert verdicts == ["within", "within", "within", "bitwise"]


def test_a_gradient_of_just_the_norm_becomes_slightly_smaller():
    _, after, _ = clipped(5.0)
    w, v = np.zeros((2, 3), np.float32), np.zeros(4, np.float32)
    w[0, 0], v[1] = 3, 4
    _, of_w, of_v, total = specs.outputs(after, [np.float32(0), w, v])
    factor = np.float32(5) / (np.float32(5) + np.float32(1e-6))
    assert total == 5 and factor < 1
    assert (of_w[0, 0], of_v[1]) == (-3 * factor, -4 * factor)


def test_the_norm_of_gradients_of_several_dtypes_is_computed_in_the_widest():
    before, after, _ = clipped(1.0, MIXED)
    assert [v.type.dtype.name for v in after.main.outputs] == ["f32", "f16", "f64", "f64"]
    arrays = inputs(before)
    arrays[1][...] = 300  # whose squares f16 does not hold
    _, of_w, of_v, total = specs.outputs(after, arrays)
    wanted = np.sqrt(6 * 300.0**2 + (arrays[2] ** 2).sum())
    assert total == pytest.approx(wanted, rel=1e-7)
    np.testing.assert_array_equal(of_w, np.float16(-300 / wanted))
    np.testing.assert_allclose(of_v, -arrays[2] / wanted, rtol=2e-6)
