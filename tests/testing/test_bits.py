"""assert_same_bits: what it takes for the same, and what it says where it is not."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.testing import assert_same_bits

ONE = np.float32([1.0, 2.0, 3.0])
NAN = np.uint32([0x7FC00000, 0xFFC00001]).view(np.float32)


def said(actual, expected, **how) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_same_bits(actual, expected, **how)
    return str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        ONE[:, None].T,
        np.float32(3),
        3,
        3.5,
        True,
        1 + 2j,
        NAN,
        None,
        "name",
        np.zeros((0, 4)),
        np.zeros(5, ml_dtypes.bfloat16),
        np.ones(3, ml_dtypes.int4),
        np.array(["a", None], object),
        [ONE, {"a": (ONE, -0.0)}],
        {},
        (),
    ],
    ids=repr,
)
def test_a_value_is_the_same_as_its_copy(value):
    assert_same_bits(value, value.copy() if isinstance(value, np.ndarray) else value)


def test_where_the_numbers_are_kept_does_not_matter():
    torch = pytest.importorskip("torch", reason="tensors are torch's")
    assert_same_bits(torch.tensor([1.0, 2.0, 3.0], requires_grad=True), ONE)
    assert_same_bits((ONE[::-1],), [ONE[::-1].copy()])
    halves = torch.tensor([1.0, -0.0], dtype=torch.bfloat16)
    assert_same_bits(halves, np.array([1.0, -0.0], ml_dtypes.bfloat16))
    text = said(-halves, np.array([-1, -0.0], ml_dtypes.bfloat16))
    assert "1 of 2 elements differ (bfloat16" in text and "0x8000" in text
    both = torch.tensor([1 + 2j]).conj()
    assert_same_bits(both, np.array([1 - 2j], np.complex64))


@pytest.mark.parametrize(
    ("actual", "expected", "lines"),
    [
        (
            ONE,
            np.float32([1, 2.0000002, 3]),
            [
                "the value: 1 of 3 elements differ (float32 (3,))",
                "  at [1]",
                "  actual    2.0  0x40000000",
                "  expected  2.000000238418579  0x40000001",
                "  1 ulp apart",
            ],
        ),
        (
            0.0,
            -0.0,
            [
                "the value: 1 of 1 elements differ (float64 ())",
                "  actual    0.0  0x0000000000000000",
                "  expected  -0.0  0x8000000000000000",
                "  zeros of different signs",
            ],
        ),
        (
            [{"a": np.int8([[1, 2], [3, -4]])}],
            [{"a": np.int8([[1, 2], [5, -4]])}],
            [
                "[0]['a']: 1 of 4 elements differ (int8 (2, 2))",
                "  at [1, 0]",
                "  actual    3  0x03",
                "  expected  5  0x05",
                "  2 apart",
            ],
        ),
        (
            NAN[:1],
            NAN[1:],
            [
                "the value: 1 of 1 elements differ (float32 (1,))",
                "  at [0]",
                "  actual    nan  0x7fc00000",
                "  expected  nan  0xffc00001",
                (
                    "  both are NaN, of another sign or payload; "
                    "nan_payloads=False takes NaN as one value"
                ),
            ],
        ),
        (
            np.complex64([1 + 2j]),
            np.complex64([1 + 3j]),
            [
                "the value: 1 of 2 elements differ (complex64, the last axis its parts (1, 2))",
                "  at [0, 1]",
                "  actual    2.0  0x40000000",
                "  expected  3.0  0x40400000",
                "  4194304 ulps apart",
            ],
        ),
        (ONE, ONE.astype(np.float64), ["the value: float32 (3,), expected float64 (3,)"]),
        (ONE, ONE[:, None], ["the value: float32 (3,), expected float32 (3, 1)"]),
        ((ONE,), (ONE, ONE), ["the value: 1 values, expected 2"]),
        ({"a": 1}, {"b": 1}, ["['b']: is missing", "['a']: is not expected"]),
        ([ONE], ["x"], ["[0]: float32 (3,), expected str 'x'"]),
        ("x", "y", ["the value: 'x', expected 'y'"]),
        (ONE[0], [ONE], ["the value: float32 (), expected list of 1"]),
    ],
)
def test_it_says_where_and_how_far(actual, expected, lines):
    assert said(actual, expected).splitlines() == ["not the same bits", *lines]


def test_it_shows_three_places_and_counts_the_rest():
    text = said(list(range(5)), list(range(1, 6)))
    assert [f"[{n}]: 1 of 1" in text for n in range(5)] == [True] * 3 + [False] * 2
    assert text.endswith("and 2 more places")


def test_nan_is_one_value_where_that_is_asked_for():
    assert_same_bits(NAN[:1], NAN[1:], nan_payloads=False)
    assert "one of them is NaN" in said(NAN[:1], ONE[:1], nan_payloads=False)
    one, other = np.append(NAN, ONE[:1]), np.append(NAN[::-1], ONE[1:2])
    assert "1 of 3 elements differ" in said(one, other, nan_payloads=False)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8), st.data())
def test_on_all_bit_patterns_it_says_what_numpy_says(words, data):
    a = np.uint32(words).view(np.float32)
    place = data.draw(st.integers(0, len(words) - 1))
    other = np.uint32(words)
    other[place] = data.draw(st.integers(0, 2**32 - 1))
    b = other.view(np.float32)
    if a.tobytes() == b.tobytes():
        assert_same_bits(a, b)
        return
    text = said(a, b)
    assert f"at [{place}]" in text and f"0x{other[place]:08x}" in text
    if np.isfinite([a[place], b[place]]).all() and a[place] != b[place]:
        apart = np.testing.assert_array_max_ulp(a[place], b[place], maxulp=2**33)
        (count,) = re.findall(r"  (\d+) ulps? apart", text)
        assert np.float32(count) == apart  # as NumPy says it, rounded
