"""Sums in f64: digits that cancel come back, and sums that lose none are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ops.rules import F32, F64
from core_compiler.passes.widen_sums import WidenSums
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError
from tests.passes import specs
from tests.passes.programs import program

RULE = "x + y => f32(f64(x) + f64(y))"


def variance(b, x):
    """The mean of the squares less the square of the mean: what textbooks warn of."""
    mean = b.mean(x, axes=(1,))
    return b.sub(b.mean(b.mul(x, x), axes=(1,)), b.mul(mean, mean))


def test_the_arithmetic_before_a_difference_is_done_in_f64():
    before = program(lambda b, x, y: b.sub(b.mul(x, x), y), "3x4xf32", "3x4xf32")
    after, rewrites = specs.apply(WidenSums(), before)
    assert specs.rules_fired(rewrites) == [RULE]

    def wide(b, x, y):
        x = b.cast(x, dtype=F64)
        return b.cast(b.sub(b.mul(x, x), b.cast(y, dtype=F64)), dtype=F32)

    specs.assert_same_program(after, program(wide, "3x4xf32", "3x4xf32"))


def test_what_loses_no_digit_before_the_sum_is_left_alone():
    for build, types in (
        (lambda b, x, y: b.sub(x, y), ("3x4xf32",) * 2),
        (lambda b, x, y: b.sub(b.mul(x, x), y), ("3x4xf64",) * 2),
        (lambda b, x, y: b.add(b.matmul(x, y), x), ("4x4xf32",) * 2),
        (lambda b, x, y: b.sub(b.mul(x, x), y), ("3x4xi32",) * 2),
    ):
        before = program(build, *types)
        assert specs.apply(WidenSums(), before)[0] is before


def test_lines_choose_the_sums_and_depth_says_how_far_back():
    before = program(variance, "4x64xf32")
    assert specs.apply(WidenSums(lines="model.py:4"), before)[0] is before
    after, rewrites = specs.apply(WidenSums(lines="model.py:5, other.py:1"), before)
    assert len(rewrites) == 1
    shallow, _ = specs.apply(WidenSums(depth=1), before)
    casts = [op.kind for op in specs.live(shallow).main.body.ops].count("core.cast")
    assert casts == 3, "the mean of squares and both factors of the product are f32"
    assert [op.kind for op in specs.live(after).main.body.ops].count("core.cast") == 2
    with pytest.raises(UserError, match="expected depth to be 1 or more, got 0"):
        specs.apply(WidenSums(depth=0), before)


@pytest.mark.slow
def test_a_variance_far_from_zero_gets_its_digits_back():
    """Compiled, beside NumPy in f64."""
    module = program(variance, "8x512xf32")
    x = (np.random.default_rng(0).standard_normal((8, 512)) + 1000).astype(np.float32)
    wanted = x.astype(np.float64).var(axis=1)
    (narrow,) = compilation.start(module).finish()(x)
    edit = PipelineEdit(insert=(("before:lower_control_flow", WidenSums()),))
    made = compilation.start(module, "cpu", Options(check=True, edit=edit), (x,)).finish()
    (wide,) = made(x)
    assert made.finding is None, made.finding.note
    assert summary(made.checks)["failed"] == 0
    assert np.abs(narrow - wanted).max() > 1e-2
    np.testing.assert_allclose(wide, wanted, rtol=1e-6)
