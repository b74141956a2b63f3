"""Softmax and normalisation of integers beside floats: how far they may be off."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Value, tensor
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.integer_functions import (
    LONGEST_NORMALIZE,
    LONGEST_SOFTMAX,
    exponentials,
    inverse_roots,
    normalized_bits,
    variance_bits,
)
from core_compiler.ops.quantised import fixed_point
from tests.examples import examples


def _evaluated(kind: str, *arrays: np.ndarray, **attributes) -> np.ndarray:
    b = Builder()
    b.op(f"core.{kind}", [Value(tensor(a.shape, a.dtype)) for a in arrays], **attributes)
    return evaluate(b.ops[-1], list(arrays))[0]


def _row(seed: int, count: int, kind, spread: float) -> np.ndarray:
    info = np.iinfo(kind)
    numbers = np.random.default_rng(seed).normal(0, spread * info.max, (1, count))
    return np.rint(numbers).clip(info.min, info.max).astype(kind)


SPREADS = st.sampled_from([0.0, 0.01, 0.1, 0.4, 2.0])


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, LONGEST_SOFTMAX),
    st.sampled_from([np.int8, np.int16]),
    SPREADS,
    st.floats(1e-3, 30),
)
@settings(max_examples=examples(150), deadline=None)
def test_shares_are_within_a_tenth_of_a_step_of_the_largest(seed, count, kind, spread, reach):
    """A step: the largest share divided by 255, the scale that a result of bytes has at least."""
    q = _row(seed, count, kind, spread)
    scale = reach / np.iinfo(kind).max
    multiplier, shift = fixed_point(scale * 4096)
    factor = {"multiplier": multiplier, "shift": shift}
    found = _evaluated("integer_softmax", q, *exponentials(), axis=1, **factor)
    e = np.exp((q.astype(np.float64) - q.max()) * scale)
    exact = e / e.sum()
    assert np.abs(found / 2**29 - exact).max() <= 0.2 * exact.max() / 255


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, LONGEST_NORMALIZE),
    SPREADS,
    st.integers(-128, 127),
    st.booleans(),
)
@settings(max_examples=examples(150), deadline=None)
def test_normalised_numbers_are_within_a_hundredth(seed, count, spread, zero, centre):
    """Of a deviation: numbers have 7 bits below the point, the root 13, the result 8 or more."""
    q = _row(seed, count, np.int8, spread)
    power = count << variance_bits(count)
    epsilon = max(1, power // 100)
    found = _evaluated(
        "integer_normalize",
        q,
        inverse_roots(),
        axis=1,
        zero_point=zero,
        epsilon=epsilon,
        centre=centre,
    )
    x = q.astype(np.float64) - zero
    x -= x.mean() if centre else 0
    deviation = np.sqrt((x**2).mean() + epsilon / power)
    exact = x / deviation
    error = np.abs(found / 2 ** normalized_bits(count) - exact)
    # half a 128th of a step, the root's 13 bits, and half the last bit of the result
    allowed = 1 / 128 / deviation + np.abs(exact) * 2**-12 + 2.0 ** -normalized_bits(count)
    assert (error <= allowed).all()
