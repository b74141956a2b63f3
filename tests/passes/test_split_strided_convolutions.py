"""Transposed convolutions by phases: the same bits without strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Block, Value, WeightStore, tensor
from core_compiler.ops import Builder, evaluate_block
from core_compiler.passes.split_strided_convolutions import phases, refused, split
from tests.examples import examples


def _made(x_shape, w_shape, **options):
    """The op, and the block of its phases, over the same arguments."""
    x, w = (Value(tensor(s, "f32"), n) for s, n in ((x_shape, "x"), (w_shape, "w")))
    b = Builder()
    made = b.conv_transpose(x, w, **options)
    (op,) = b.ops
    c = Builder(WeightStore())
    apart = split(c, op)
    assert apart.type.shape == made.type.shape
    assert all(o.kind != "core.conv_transpose" or set(o["strides"]) == {1} for o in c.ops)
    return op, Block((x, w), tuple(b.ops), (made,)), Block((x, w), tuple(c.ops), (apart,))


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 2))
    groups = draw(st.sampled_from((1, 2)))
    inner, outer = (draw(st.integers(1, 3)) * groups for _ in range(2))
    many = draw(st.sampled_from((1, 20)))  # more than a chunk's channels
    axes = [
        (
            draw(st.integers(1, 5)),
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 3)),
        )
        for _ in range(rank)
    ]
    size, window, stride, dilation = zip(*axes, strict=True)
    low = [draw(st.integers(0, d * (k - 1))) for d, k in zip(dilation, window, strict=True)]
    extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    reach = [
        s * (n - 1) + d * (k - 1) + e
        for s, n, d, k, e in zip(stride, size, dilation, window, extra, strict=True)
    ]
    high = [draw(st.integers(0, max(0, r - p))) for r, p in zip(reach, low, strict=True)]
    low = [min(p, r - h) for p, r, h in zip(low, reach, high, strict=True)]
    return (
        (2, inner * many, *size),
        (inner * many, outer // groups, *window),
        {
            "strides": stride,
            "low": low,
            "high": high,
            "dilations": dilation,
            "groups": groups,
            "output_padding": extra,
        },
    )


@settings(max_examples=examples(80), deadline=None)
@given(cases())
def test_the_phases_have_the_bits_of_the_whole(case):
    x_shape, w_shape, options = case
    _, whole, apart = _made(x_shape, w_shape, **options)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in (x_shape, w_shape)]
    (wanted,), (found,) = (evaluate_block(b, arrays) for b in (whole, apart))
    assert found.tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_what_meets_padding_meets_it_in_the_phases_too():
    """An infinite weight on padding is NaN: executed terms."""
    options = {
        "strides": (2,),
        "low": (1,),
        "high": (1,),
        "dilations": (1,),
        "output_padding": (1,),
    }
    _, whole, apart = _made((1, 2, 3), (2, 1, 3), **options)
    x = np.ones((1, 2, 3), np.float32)
    w = np.full((2, 1, 3), np.inf, np.float32)
    (wanted,), (found,) = (evaluate_block(b, [x, w]) for b in (whole, apart))
    assert np.isnan(wanted).any()
    np.testing.assert_array_equal(found, wanted)


def test_a_stride_of_two_has_two_phases():
    even, odd = phases(size=7, window=3, stride=2, low=1, dilation=1)
    assert (even.count, even.tap, even.taps, even.low) == (4, 1, 1, 0)
    assert (odd.count, odd.tap, odd.taps, odd.low) == (3, 0, 2, 1)


@pytest.mark.parametrize(("strides", "reason"), [((1,), "has no strides"), ((2,), "")])
def test_why_an_op_stays_whole(strides, reason):
    op, *_ = _made(
        (1, 2, 3),
        (2, 1, 3),
        strides=strides,
        low=(0,),
        high=(0,),
        dilations=(1,),
        output_padding=(0,),
    )
    found = refused(op)
    assert (found is None) if not reason else reason in found.reason
