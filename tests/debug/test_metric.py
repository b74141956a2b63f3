"""How far two tensors are apart."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from core_compiler.debug.metric import distance


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_an_ulp_of_denormal_values_is_the_smallest_number(name):
    kind = np.dtype(getattr(ml_dtypes, name, name))
    least = float(ml_dtypes.finfo(kind).smallest_subnormal)
    want, got = (np.array([n * least for n in numbers], kind) for numbers in ((5, 0), (8, 0)))
    off = distance(want, got)
    assert (off.ulps, off.index, off.relative) == (3, (0,), 0.6)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_next_numbers_are_an_ulp_apart(name):
    kind = np.dtype(getattr(ml_dtypes, name, name))
    want = np.array([1.0, -1.5, 0.75], kind)
    epsilon = float(ml_dtypes.finfo(kind).eps)
    assert distance(want, np.array([1.0 + epsilon, -1.5, 0.75], kind)).ulps == 1
    assert distance(want, want).ulps == 0
