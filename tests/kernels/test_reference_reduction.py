"""Reductions, scans and windows: bits against the scalar definition, values against torch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.numerics.reference.reduction import (
    groups_of_axes,
    mean,
    reduce,
    standard_deviation,
    variance,
)
from core_compiler.numerics.reference.scan import cumsum, cumulative
from core_compiler.numerics.reference.window import (
    average_pool,
    average_pool_gradient,
    max_pool,
    max_pool_gradient,
    max_pool_indices,
    window_sum,
)
from tests.examples import examples
from tests.kernels.definitions import add, chunked, lanes, same_bits


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 100, 4096, 4097, 9000])
def test_lanes(size):
    x = normal(np.random.default_rng(size), 2, size)
    assert same_bits(reduce(x, (1,)), np.array([lanes(row) for row in x], np.float32))


@pytest.mark.parametrize("size", [2, 255, 256, 257, 700])
def test_sequence(size):
    x = normal(np.random.default_rng(size), size, 3)
    expected = np.array([chunked(list(x[:, j]), 256) for j in range(3)], np.float32)
    assert same_bits(reduce(x, (0,)), expected)
    assert same_bits(reduce(x, (0,), orders=["sequence"]), expected)
    lanes_order = np.array([lanes(x[:, j]) for j in range(3)], np.float32)
    assert same_bits(reduce(x, (0,), orders=["lanes"]), lanes_order)


@pytest.mark.parametrize(
    ("shape", "axes", "groups"),
    [
        ((2, 3, 4), (1, 2), [([1, 2], "lanes")]),
        ((2, 3, 4), (0, 2), [([0], "sequence"), ([2], "lanes")]),
        ((2, 3, 4), (0, 1), [([0, 1], "sequence")]),
        ((2, 3, 1), (1,), [([1], "lanes")]),
        ((2, 1, 4), (0, 2), [([0, 2], "lanes")]),
        ((2, 5, 1, 4), (0, 2, 3), [([0], "sequence"), ([3], "lanes")]),
        ((1, 1), (0, 1), []),
    ],
)
def test_groups(shape, axes, groups):
    assert groups_of_axes(shape, axes) == groups


def test_the_last_group_is_reduced_first():
    x = normal(np.random.default_rng(0), 30, 4, 5, 7)
    inner = np.array([[lanes(x[i, j].reshape(-1)) for j in range(4)] for i in range(30)])
    expected = np.array([chunked(list(inner[:, j]), 256) for j in range(4)], np.float32)
    assert same_bits(reduce(x, (0, 2, 3)), expected)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_any_shape_agrees_with_numpy(shape, data):
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    x = normal(np.random.default_rng(1), *shape)
    for keepdims in (False, True):
        expected = x.astype(np.float64).sum(tuple(axes), keepdims=keepdims)
        out = reduce(x, axes, keepdims=keepdims)
        assert out.shape == expected.shape
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4)
        largest = reduce(x, axes, "max", keepdims=keepdims)
        assert same_bits(largest, x.max(tuple(axes), keepdims=keepdims, initial=-np.inf))


def test_a_row_of_a_batch_equals_the_batch_of_one():
    x = normal(np.random.default_rng(2), 5, 40, 33)
    for axes in ((1,), (2,), (1, 2)):
        assert same_bits(reduce(x[3:4], axes)[0], reduce(x, axes)[3])


def test_narrow_floats_and_integers():
    x = normal(np.random.default_rng(3), 9, 300, dtype=ml_dtypes.bfloat16)
    wide = reduce(x.astype(np.float32), (0, 1))
    assert same_bits(reduce(x, (0, 1)), wide.astype(ml_dtypes.bfloat16))
    integers = np.full((3, 100), 100, np.int8)
    assert np.array_equal(reduce(integers, (1,)), np.full(3, np.int64(10000).astype(np.int8)))
    unsigned = np.full(5, 2**31, np.uint32)
    assert reduce(unsigned).item() == (5 * 2**31) % 2**32
    with pytest.raises(TypeError, match="bool"):
        reduce(np.ones(3, bool))


def test_products_run_in_sequence_order():
    x = normal(np.random.default_rng(4), 2, 300)
    expected = []
    for row in x:
        parts = []
        for i in range(0, 300, 256):
            part = np.float32(1)
            for v in row[i : i + 256]:
                part = np.float32(part * v)
            parts.append(part)
        expected.append(np.float32(parts[0] * parts[1]))
    assert same_bits(reduce(x, (1,), "prod"), np.array(expected, np.float32))


def test_extremes_and_arg_forms():
    x = np.array([[1, np.nan, 5], [-0.0, 0.0, -0.0], [2, 7, 7]], np.float32)
    assert same_bits(reduce(x, (1,), "max"), np.array([np.nan, 0.0, 7], np.float32))
    assert same_bits(reduce(x, (1,), "min"), np.array([np.nan, -0.0, 2], np.float32))
    assert reduce(x, (1,), "max").view(np.uint32)[0] == 0x7FC00000
    assert reduce(x, (1,), "argmax").tolist() == [1, 0, 1]
    assert reduce(x, (1,), "argmin").tolist() == [1, 0, 0]
    assert reduce(x[2:], None, "argmax").item() == 1
    flags = np.array([[True, False], [True, True]])
    assert reduce(flags, (1,), "and").tolist() == [False, True]
    assert reduce(flags, (1,), "xor").tolist() == [True, False]
    assert reduce(flags, (1,), "max").tolist() == [True, True]
    assert reduce(np.array([3, -9], np.int16), None, "min").item() == -9


def test_mean_and_deviations():
    x = normal(np.random.default_rng(5), 6, 50)
    row_mean = np.array([lanes(r) / np.float32(50) for r in x], np.float32)
    assert same_bits(mean(x, (1,)), row_mean)
    one, half = np.float32(1), np.float32(0.5)
    least, most = x.min(1) * half, x.max(1) * half
    middle, scale = least + most, one / (most - least)
    near = (x - middle[:, None]) * scale[:, None]
    offset = np.array([lanes(r) for r in near], np.float32) / np.float32(50) / scale
    high = middle + offset
    low = offset - (high - middle)
    scaled = ((x - high[:, None]) - low[:, None]) * scale[:, None]
    squares = np.array([lanes(r) for r in scaled * scaled], np.float32)
    over = squares / np.float32(49)
    assert same_bits(variance(x, (1,), correction=1), over / scale / scale)
    assert same_bits(standard_deviation(x, (1,), correction=1), np.sqrt(over) / scale)
    np.testing.assert_allclose(variance(x, (0,)), x.astype(np.float64).var(0), rtol=1e-5)


# --- scans -------------------------------------------------------------------------------------


def scan_definition(row, join=add):
    out, offset, local = [], None, None
    for i, v in enumerate(row):
        if i % 256 == 0:
            if i:
                offset = local if offset is None else join(offset, local)
            local = v
        else:
            local = join(local, v)
        out.append(local if offset is None else join(offset, local))
    return np.array(out, np.float32)


@pytest.mark.parametrize("size", [1, 256, 257, 800])
def test_cumsum(size):
    x = normal(np.random.default_rng(size), size, 2)
    expected = np.stack([scan_definition(x[:, j]) for j in range(2)], 1)
    assert same_bits(cumsum(x, 0), expected)
    reverse = np.stack([scan_definition(x[::-1, j])[::-1] for j in range(2)], 1)
    assert same_bits(cumsum(x, 0, reverse=True), reverse)
    assert same_bits(cumsum(x, 0, exclusive=True)[1:], expected[:-1])
    assert not cumsum(x, 0, exclusive=True)[0].any()


def test_other_scans():
    x = normal(np.random.default_rng(6), 3, 300)
    product = np.stack([scan_definition(r, lambda a, b: np.float32(a * b)) for r in x])
    assert same_bits(cumulative(x, 1, "prod"), product)
    assert same_bits(cumulative(x, 1, "max"), np.maximum.accumulate(x, 1))
    assert same_bits(
        cumulative(x, 1, "min", reverse=True), np.minimum.accumulate(x[:, ::-1], 1)[:, ::-1]
    )
    assert cumsum(np.array([100, 100], np.int8), 0).tolist() == [100, -56]


# --- windows -------------------------------------------------------------------------------------

POOLS = [
    ((2, 3, 9, 8), (3, 2), (2, 2), ((1, 0), (1, 1)), (1, 1)),
    ((1, 2, 12), (3,), (1,), ((0, 0),), (2,)),
    ((1, 1, 5, 6, 4), (2, 2, 2), (1, 2, 2), ((0, 1), (0, 0), (1, 0)), (1, 1, 1)),
]


@pytest.mark.parametrize(("shape", "kernel", "strides", "pads", "dilations"), POOLS)
def test_windows_have_the_bits_of_their_definition(shape, kernel, strides, pads, dilations):
    x = normal(np.random.default_rng(7), *shape)
    sums = window_sum(x, kernel, strides, pads, dilations)
    means = average_pool(x, kernel, strides, pads, dilations)
    largest, where = max_pool_indices(x, kernel, strides, pads, dilations)
    for n, c in np.ndindex(shape[:2]):
        for p in np.ndindex(sums.shape[2:]):
            terms, best, place = [], None, -1
            for tap in np.ndindex(kernel):
                at = tuple(
                    q * s + t * d - low
                    for q, s, t, d, (low, _) in zip(p, strides, tap, dilations, pads, strict=True)
                )
                if all(0 <= i < size for i, size in zip(at, shape[2:], strict=True)):
                    value = x[(n, c, *at)]
                    terms.append(value)
                    if best is None or value > best:
                        best, place = value, np.ravel_multi_index(at, shape[2:])
            index = (n, c, *p)
            total = chunked(terms, len(terms))
            assert same_bits(sums[index], total)
            assert same_bits(means[index], np.float32(total / np.float32(len(terms))))
            assert same_bits(largest[index], best) and where[index] == place


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("ceil", [False, True])
def test_pools_and_gradients_agree_with_torch(include, ceil):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x = normal(np.random.default_rng(8), 2, 3, 10, 9)
    tx = torch.tensor(x, requires_grad=True)
    ty = functional.avg_pool2d(tx, 3, 2, 1, ceil, include)
    sizes = zip(ty.shape[2:], (10, 9), strict=True)
    extra = tuple(max(0, (n - 1) * 2 + 3 - (size + 2)) for n, size in sizes)
    pads = ((1, 1), (1, 1))
    y = average_pool(x, (3, 3), (2, 2), pads, count_include_pad=include, extra=extra)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-5, atol=1e-6)
    dy = normal(np.random.default_rng(9), *y.shape)
    ty.backward(torch.tensor(dy))
    dx = average_pool_gradient(
        dy, x.shape, (3, 3), (2, 2), pads, count_include_pad=include, extra=extra
    )
    np.testing.assert_allclose(dx, tx.grad.numpy(), rtol=1e-5, atol=1e-6)

    tx.grad = None
    ty, where = functional.max_pool2d(tx, 3, 2, 1, 1, ceil, return_indices=True)
    reach = tuple((1, 1 + e) for e in extra)
    largest, places = max_pool_indices(x, (3, 3), (2, 2), reach)
    assert same_bits(largest, ty.detach().numpy()) and np.array_equal(places, where.numpy())
    ty.backward(torch.tensor(dy))
    dx = max_pool_gradient(x, dy, (3, 3), (2, 2), reach)
    np.testing.assert_allclose(dx, tx.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_max_pool_of_nan_zeros_and_padding():
    x = np.array([[[-0.0, 0.0, np.nan, 1]]], np.float32)
    assert same_bits(max_pool(x, (2,), (2,)), np.array([[[0.0, np.nan]]], np.float32))
    assert max_pool(x, (1,), (1,), ((1, 0),))[0, 0, 0] == -np.inf
    integers = np.array([[[5, -7]]], np.int8)
    assert max_pool(integers, (2,), (1,), ((1, 1),)).tolist() == [[[5, 5, -7]]]
