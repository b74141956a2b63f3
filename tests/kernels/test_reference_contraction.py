"""Products and convolutions: bits against the scalar definition, values against NumPy and torch."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.numerics.reference.contraction import contract, matmul
from core_compiler.numerics.reference.convolution import (
    conv,
    conv_input_gradient,
    conv_transpose,
    conv_weight_gradient,
)
from tests.examples import examples
from tests.kernels.definitions import chunked, same_bits


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def matmul_definition(a, b):
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    for i, j in np.ndindex(out.shape):
        out[i, j] = chunked(list(zip(a[i], b[:, j], strict=True)), 256)
    return out


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (3, 255, 2), (2, 256, 35), (5, 257, 3), (2, 600, 33)]
)
def test_matmul_has_the_bits_of_its_definition(m, k, n):
    rng = np.random.default_rng(m + k + n)
    a, b = normal(rng, m, k), normal(rng, k, n)
    assert same_bits(matmul(a, b), matmul_definition(a, b))


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_matmul_of_any_small_shape(m, k, n, seed):
    rng = np.random.default_rng(seed)
    a, b = normal(rng, m, k), normal(rng, k, n)
    a *= np.exp2(rng.integers(-140, 100, a.shape)).astype(np.float32)  # subnormals, overflow
    assert same_bits(matmul(a, b), matmul_definition(a, b))


def test_an_underflowing_first_chunk_keeps_its_negative_zero():
    tiny = np.float32(1e-30)
    a, b = np.full((1, 1), -tiny), np.full((1, 1), tiny)
    assert np.signbit(matmul(a, b)[0, 0])


def test_no_terms_give_positive_zero():
    out = matmul(np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32))
    assert same_bits(out, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("largest", [np.finfo(np.float32).max, np.inf, np.nan])
def test_products_of_zeros_of_both_signs_are_positive_zeros_or_nan(largest):
    rng = np.random.default_rng(0)
    zeros = np.where(rng.random((3, 300)) < 0.5, np.float32(0), np.float32(-0.0))
    others = normal(rng, 300, 5)
    others[7, 2] = -largest
    assert same_bits(matmul(zeros, others), matmul_definition(zeros, others))
    assert same_bits(matmul(others.T, zeros.T), matmul_definition(others.T, zeros.T))


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((4, 6, 300), (4, 300, 7)), ((3, 1, 5, 9), (2, 9, 4)), ((5, 9), (2, 9, 40))],
)
def test_batches_broadcast_and_each_row_equals_its_own_product(shape_a, shape_b):
    rng = np.random.default_rng(0)
    a, b = normal(rng, *shape_a), normal(rng, *shape_b)
    out = matmul(a, b)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=0, atol=1e-4)
    batch = out.shape[:-2]
    wide_a, wide_b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    for t in np.ndindex(batch):
        for row in range(a.shape[-2]):
            assert same_bits(matmul(wide_a[t][row : row + 1], wide_b[t])[0], out[t][row])


def test_read_only_and_strided_operands():
    rng = np.random.default_rng(1)
    a, b = normal(rng, 8, 50), normal(rng, 50, 6)
    expected = matmul(a, b)
    a.flags.writeable = False
    assert same_bits(matmul(a, np.asfortranarray(b)), expected)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_accumulate_in_f32_and_round_once(dtype):
    rng = np.random.default_rng(2)
    a, b = normal(rng, 5, 300, dtype=dtype), normal(rng, 300, 40, dtype=dtype)
    wide = matmul(a.astype(np.float32), b.astype(np.float32))
    out = matmul(a, b)
    assert out.dtype == dtype
    with np.errstate(all="ignore"):
        assert same_bits(out, wide.astype(dtype))
    assert same_bits(matmul(a, b, dtype=np.float32), wide)


def test_integers_are_exact_and_wrap():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((9, 700), (700, 33)))
    out = matmul(a, b)
    assert out.dtype == np.int32
    assert np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64))
    big = np.full((1, 3), 2**30, np.int32)
    assert matmul(big, big.T)[0, 0] == np.int64(3 * 2**60).astype(np.int32)


def test_f64_accumulates_in_f64():
    rng = np.random.default_rng(4)
    a, b = normal(rng, 20, 600, dtype=np.float64), normal(rng, 600, 18, dtype=np.float64)
    np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-12, atol=1e-12)


def test_contract_orders_k_by_the_listed_axes():
    rng = np.random.default_rng(5)
    a, b = normal(rng, 3, 20, 2, 30), normal(rng, 30, 2, 20, 4)
    out = contract(a, b, ((2,), (1,)), ((3, 1), (0, 2)))
    assert out.shape == (2, 3, 4)
    for t, i, j in np.ndindex(out.shape):
        terms = [(a[i, y, t, x], b[x, t, y, j]) for x in range(30) for y in range(20)]
        assert same_bits(out[t, i, j], chunked(terms, 256))


def test_mismatched_shapes_are_named():
    with pytest.raises(ValueError, match="K must agree"):
        matmul(np.zeros((2, 3), np.float32), np.zeros((4, 2), np.float32))
    with pytest.raises(TypeError, match="cast one of them"):
        matmul(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.int8))


# --- convolution -----------------------------------------------------------------------------


def conv_definition(x, w, strides, pads, dilations, groups):
    n, channels, kernel = x.shape[0], w.shape[1], w.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    out = [
        (s - d * (k - 1) - 1) // t + 1
        for s, d, k, t in zip(padded.shape[2:], dilations, kernel, strides, strict=True)
    ]
    y = np.empty((n, w.shape[0], *out), np.float32)
    taps = list(itertools.product(*(range(k) for k in kernel)))
    chunk_blocks = max(1, 8 // len(taps))
    for b, o in np.ndindex(y.shape[:2]):
        group = o // (w.shape[0] // groups)
        for p in np.ndindex(*out):
            total = None
            for c0 in range(0, channels, 32 * chunk_blocks):
                terms = []
                for cb in range(c0, min(c0 + 32 * chunk_blocks, channels), 32):
                    for tap in taps:
                        at = tuple(
                            q * s + t * d
                            for q, s, t, d in zip(p, strides, tap, dilations, strict=True)
                        )
                        terms += [
                            (padded[(b, group * channels + c, *at)], w[(o, c, *tap)])
                            for c in range(cb, min(cb + 32, channels))
                        ]
                part = chunked(terms, len(terms))
                total = part if total is None else total + part
            y[(b, o, *p)] = total
    return y


CONVOLUTIONS = [
    # x shape, w shape, strides, pads, dilations, groups
    ((1, 3, 6, 5), (2, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 80, 4, 4), (2, 40, 2, 2), (2, 1), ((0, 1), (1, 0)), (1, 2), 2),
    ((1, 70, 3, 3), (2, 70, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 4, 9), (4, 1, 3), (2,), ((2, 1),), (2,), 4),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), (1, 2, 1), ((0, 0), (1, 1), (1, 0)), (1, 1, 1), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv_has_the_bits_of_its_definition(case):
    rng = np.random.default_rng(6)
    x, w = normal(rng, *case[0]), normal(rng, *case[1])
    assert same_bits(conv(x, w, *case[2:]), conv_definition(x, w, *case[2:]))


def test_padding_is_executed():
    x, w = np.full((1, 1, 1), 1, np.float32), np.full((1, 1, 3), np.inf, np.float32)
    assert np.isnan(conv(x, w, pads=((1, 1),))).all()  # fma(+0, inf, acc)


def test_pointwise_conv_has_matmuls_bits():
    rng = np.random.default_rng(7)
    x, w = normal(rng, 1, 300, 5, 7), normal(rng, 20, 300, 1, 1)
    product = matmul(w[:, :, 0, 0], x[0].reshape(300, -1))
    assert same_bits(conv(x, w).reshape(20, -1), product)


def test_conv_slabs_do_not_show(monkeypatch):
    from core_compiler.numerics.reference import convolution

    rng = np.random.default_rng(8)
    x, w = normal(rng, 2, 33, 12, 11), normal(rng, 8, 33, 3, 3)
    whole = conv(x, w, pads=((1, 1), (1, 1)))
    monkeypatch.setattr(convolution, "_COLUMN_BUDGET", 1)
    assert same_bits(conv(x, w, pads=((1, 1), (1, 1))), whole)
    assert same_bits(conv(x[1:], w, pads=((1, 1), (1, 1)))[0], whole[1])


TORCH_CASES = [
    ((2, 64, 11, 12), (48, 32, 3, 3), (2, 2), (1, 1), (1, 1), 2),
    ((2, 6, 17, 9), (9, 2, 3, 2), (3, 2), (2, 1), (2, 1), 3),
    ((2, 8, 20), (4, 8, 5), (4,), (1,), (1,), 1),
    ((1, 3, 6, 7, 5), (4, 3, 3, 2, 1), (2, 1, 3), (1, 1, 0), (1, 2, 1), 1),
    ((2, 4, 8, 8), (4, 4, 1, 1), (3, 3), (0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", TORCH_CASES)
def test_conv_and_its_gradients_agree_with_torch(case):
    torch = pytest.importorskip("torch")
    x_shape, w_shape, strides, pads, dilations, groups = case
    rng = np.random.default_rng(9)
    x, w = normal(rng, *x_shape), normal(rng, *w_shape)
    tx, tw = (torch.tensor(v.astype(np.float64), requires_grad=True) for v in (x, w))
    function = getattr(torch.nn.functional, f"conv{len(strides)}d")
    ty = function(tx, tw, None, strides, pads, dilations, groups)
    both = [(p, p) for p in pads]
    y = conv(x, w, strides, both, dilations, groups)
    np.testing.assert_allclose(y, ty.detach().numpy(), rtol=0, atol=2e-4)
    dy = normal(rng, *y.shape)
    ty.backward(torch.tensor(dy.astype(np.float64)))
    dx = conv_input_gradient(dy, w, x_shape[2:], strides, both, dilations, groups)
    np.testing.assert_allclose(dx, tx.grad.numpy(), rtol=0, atol=2e-4)
    dw = conv_weight_gradient(x, dy, w_shape[2:], strides, both, dilations, groups)
    np.testing.assert_allclose(dw, tw.grad.numpy(), rtol=0, atol=2e-4)


def test_conv_transpose_agrees_with_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(10)
    x, w = normal(rng, 2, 6, 5, 7), normal(rng, 6, 4, 3, 3)
    expected = torch.nn.functional.conv_transpose2d(
        *(torch.tensor(v.astype(np.float64)) for v in (x, w)),
        None,
        (2, 3),
        (1, 0),
        (1, 0),
        2,
        (1, 2),
    )
    out = conv_transpose(x, w, (2, 3), ((1, 1), (0, 0)), (1, 2), 2, (1, 0))
    np.testing.assert_allclose(out, expected.numpy(), rtol=0, atol=1e-4)


def test_gradients_have_the_bits_of_their_definition():
    rng = np.random.default_rng(11)
    x, w = normal(rng, 3, 2, 10, 9), normal(rng, 40, 2, 3, 3)
    strides, pads = (2, 2), ((1, 1), (1, 1))
    dy = normal(rng, 3, 40, 5, 5)
    dw = conv_weight_gradient(x, dy, (3, 3), strides, pads)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    for o, c, i, j in [(0, 0, 0, 0), (39, 1, 2, 1), (7, 1, 1, 1)]:
        terms = [
            (dy[n, o, p, q], padded[n, c, 2 * p + i, 2 * q + j])
            for n in range(3)
            for p in range(5)
            for q in range(5)
        ]
        assert same_bits(dw[o, c, i, j], chunked(terms, 256))
    dx = conv_input_gradient(dy, w, (10, 9), strides, pads)
    room = np.pad(dy, ((0, 0), (0, 0), (2, 2), (2, 2)))
    for n, c, y, z in [(0, 0, 0, 0), (1, 1, 9, 8), (2, 0, 4, 3), (0, 1, 5, 5)]:
        total = None
        for o0 in (0, 32):
            terms = []
            for i, j in np.ndindex(3, 3):
                if (y + 1 - i) % 2 or (z + 1 - j) % 2:
                    continue
                p, q = (y + 1 - i) // 2 + 2, (z + 1 - j) // 2 + 2
                terms += [(room[n, o, p, q], w[o, c, i, j]) for o in range(o0, min(o0 + 32, 40))]
            part = chunked(terms, 9 * 32)
            total = part if total is None else total + part
        assert same_bits(dx[n, c, y, z], total)
