"""Conversions of vectors of floats to integers: the contract's, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.ir import dtype
from core_compiler.ops import evaluate_block
from tests.passes.programs import program

#: What is truncated, what saturates (at each integer's limits and next to them), what becomes 0.
VALUES = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, -np.nan]
for power in (7, 8, 15, 16, 31, 32, 63, 64):
    VALUES += [s * (2.0**power + d) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]


@pytest.mark.parametrize("target", ["i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_floats_become_integers_as_the_contract_says(source, target):
    kind, info = dtype(source).numpy, np.iinfo(dtype(target).numpy)
    x = np.resize(np.array(VALUES, kind), 517)
    module = program(lambda b, v: b.cast(v, dtype=dtype(target)), f"517x{source}")
    (got,) = compilation.start(module).finish()(x)
    expected = [
        0 if v != v else int(min(max(v, info.min - 1.0), info.max + 1.0)) for v in x.tolist()
    ]
    assert got.tolist() == [min(max(v, info.min), info.max) for v in expected]


def quantised(low, high, target):
    """``round(x)`` clamped to two numbers and converted to i32, then to ``target``."""

    def build(b, x):
        clamped = b.clamp(b.round(x), low=low, high=high)
        return b.cast(b.cast(clamped, dtype="i32"), dtype=target)

    return build


CLAMPS = [
    (0.0, 255.0, "ui8", True),
    (-128.0, 127.0, "i8", True),
    (-32768.0, 32767.0, "i16", True),
    (-2.0, -1.0, "i32", True),
    (3.0, 3.0, "i32", True),
    (5.0, 2.0, "i32", True),  # the upper bound wins
    (-0.0, 0.0, "i32", True),
    (-(2.0**31), 2.0**30, "i32", True),
    (-1.0, 2.0**31, "i32", False),  # no i32: saturates
    (float("-inf"), 1.0, "i32", False),
]


@pytest.mark.parametrize(("low", "high", "target", "at_once"), CLAMPS)
def test_clamped_floats_become_integers_at_once(low, high, target, at_once):
    """NaN gives 0, also where 0 is not between the bounds; infinities give the bounds."""
    x = np.resize(np.array([*VALUES, *np.linspace(-300, 300, 41)], np.float32), 517)
    module = program(quantised(low, high, target), "517xf32")
    made = compilation.start(module).finish()
    (expected,) = evaluate_block(module.main.body, [x])
    assert made(x)[0].tolist() == expected.tolist()
    (source,) = [k.source for k in made.kernels.values()]
    assert ("clamp_to_i32" in source) == at_once
    assert ("minimum_f32" in source) != at_once


def test_a_clamped_value_that_something_else_reads_is_kept():
    def build(b, x):
        clamped = b.clamp(x, low=0.0, high=9.0)
        return b.cast(clamped, dtype="i32"), clamped

    module = program(build, "517xf32")
    x = np.resize(np.array(VALUES, np.float32), 517)
    made = compilation.start(module).finish()
    for got, expected in zip(made(x), evaluate_block(module.main.body, [x]), strict=True):
        np.testing.assert_array_equal(got, expected)
    (source,) = [k.source for k in made.kernels.values()]
    assert "clamp_to_i32" not in source
