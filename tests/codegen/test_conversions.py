"""Conversions of vectors of floats to integers: the contract's, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.ir import dtype
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
