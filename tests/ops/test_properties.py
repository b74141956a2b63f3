"""Property tests of data movement: NumPy is the oracle."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core_compiler.ir import Block, Value, tensor
from core_compiler.ops import Builder, broadcast_shape, evaluate_block

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
FULL = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def run(body, *arrays):
    """The results of ``body(builder, *values)`` on arrays."""
    values = tuple(Value(tensor(a.shape, a.dtype)) for a in arrays)
    builder = Builder()
    made = body(builder, *values)
    (result,) = evaluate_block(Block(values, tuple(builder.ops), (made,)), arrays)
    assert result.shape == made.type.shape
    return result


def counted(shape) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


@st.composite
def slices(draw):
    shape = draw(SHAPES)
    starts = [draw(st.integers(0, n)) for n in shape]
    limits = [draw(st.integers(s, n)) for s, n in zip(starts, shape, strict=True)]
    strides = [draw(st.integers(1, 3)) for _ in shape]
    return shape, starts, limits, strides


@given(slices())
def test_slice_is_numpy_slicing(case):
    shape, starts, limits, strides = case
    x = counted(shape)
    found = run(lambda b, x: b.slice(x, starts=starts, limits=limits, strides=strides), x)
    wanted = x[tuple(map(slice, starts, limits, strides))]
    np.testing.assert_array_equal(found, wanted)


@given(FULL, st.data())
def test_together_broadcasts_as_numpy(shape, data):
    other = tuple(data.draw(st.sampled_from([1, n])) for n in shape)
    other = other[data.draw(st.integers(0, len(other))) :]
    x, y = counted(shape), counted(other)
    found = run(lambda b, x, y: b.add(*b.broadcast_together(x, y)), x, y)
    np.testing.assert_array_equal(found, x + y)
    assert broadcast_shape(shape, other) == np.broadcast_shapes(shape, other)


@given(SHAPES, st.randoms(use_true_random=False))
def test_transposes_compose(shape, random):
    x = counted(shape)
    first, second = (random.sample(range(len(shape)), len(shape)) for _ in range(2))
    found = run(lambda b, x: b.transpose(b.transpose(x, permutation=first), permutation=second), x)
    np.testing.assert_array_equal(found, x.transpose(first).transpose(second))


@given(SHAPES)
def test_reshape_keeps_row_major_order(shape):
    x = counted(shape).T
    found = run(lambda b, x: b.reshape(x, shape=(math.prod(shape),)), x)
    np.testing.assert_array_equal(found, x.ravel())


@st.composite
def pads(draw):
    shape = draw(SHAPES)
    interior = [draw(st.integers(0, 2)) for _ in shape]
    low = [draw(st.integers(-4, 4)) for _ in shape]
    spread = [n + max(n - 1, 0) * i for n, i in zip(shape, interior, strict=True)]
    high = [
        draw(st.integers(max(-4, -n - a), 4)) if -n - a <= 4 else -n - a
        for n, a in zip(spread, low, strict=True)
    ]
    return shape, low, high, interior


@given(pads())
def test_pad_places_every_element_once(case):
    shape, low, high, interior = case
    x = counted(shape) + 1
    found = run(
        lambda b, x, v: b.pad(x, v, low=low, high=high, interior=interior),
        x,
        np.int32(-1).reshape(()),
    )
    wanted = np.full(found.shape, -1, np.int32)
    for index in np.ndindex(shape):
        at = tuple(a + k * (i + 1) for a, k, i in zip(low, index, interior, strict=True))
        if all(0 <= p < n for p, n in zip(at, wanted.shape, strict=True)):
            wanted[at] = x[index]
    np.testing.assert_array_equal(found, wanted)


@given(FULL.filter(len), st.data())
def test_concat_undoes_slices(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    cut = data.draw(st.integers(0, shape[axis]))
    x = counted(shape)

    def body(b, x):
        parts = []
        for start, limit in ((0, cut), (cut, shape[axis])):
            starts, limits = [0] * len(shape), list(shape)
            starts[axis], limits[axis] = start, limit
            parts.append(b.slice(x, starts=starts, limits=limits, strides=[1] * len(shape)))
        return b.concat(*parts, axis=axis)

    np.testing.assert_array_equal(run(body, x), x)


@given(FULL.filter(len), st.data())
def test_dynamic_slices_clamp(shape, data):
    sizes = [data.draw(st.integers(0, n)) for n in shape]
    starts = [data.draw(st.integers(-9, 9)) for _ in shape]
    x = counted(shape)
    found = run(
        lambda b, x, *s: b.dynamic_slice(x, *s, sizes=sizes),
        x,
        *(np.int64(s).reshape(()) for s in starts),
    )
    first = [min(max(s, 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    wanted = x[tuple(slice(f, f + k) for f, k in zip(first, sizes, strict=True))]
    np.testing.assert_array_equal(found, wanted)
