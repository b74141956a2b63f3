"""Scalar primitives and narrow floats against NumPy, ml_dtypes and exact rationals."""

from __future__ import annotations

import ml_dtypes
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.errors import TypingError

from core_compiler.numerics import jit
from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.primitives import INTEGERS
from core_compiler.numerics.reference.dtypes import NARROW_DTYPES, cast, widen
from tests.kernels.definitions import fma, same_bits
from tests.kernels.exact_scalars import Scalar
from tests.kernels.ulp import specials


def call(name: str, *args):
    """One primitive on NumPy scalars, compiled."""
    function = NAMESPACE[name]
    if len(args) == 1:
        return numba.njit(lambda a: function(a))(*args)
    if len(args) == 2:
        return numba.njit(lambda a, b: function(a, b))(*args)
    return numba.njit(lambda a, b, c: function(a, b, c))(*args)


def vectorised(name: str, arity: int):
    function = NAMESPACE[name]
    if arity == 1:

        @numba.njit
        def loop(a, out):
            for i in range(out.size):
                out[i] = function(a[i])
    elif arity == 2:

        @numba.njit
        def loop(a, b, out):
            for i in range(out.size):
                out[i] = function(a[i], b[i])
    else:

        @numba.njit
        def loop(a, b, c, out):
            for i in range(out.size):
                out[i] = function(a[i], b[i], c[i])

    return loop


def pairs(dtype):
    values = specials(dtype)
    return [np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values)]


@given(*[st.integers(-(2**31), 2**31 - 1)] * 3)
def test_dot4_adds_four_products_of_bytes(a, b, c):
    """Unsigned bytes of the first word, signed ones of the second."""
    got = call("dot4_i32", *map(np.int32, (a, b, c)))
    assert got == Scalar.dot4(a, b, c)


def test_fma_rounds_once():
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(2000).astype(np.float32) for _ in range(3))
    c = (-a * b * (1 + c * np.float32(1e-6))).astype(np.float32)  # cancellation shows it
    out = np.empty_like(a)
    vectorised("fma_f32", 3)(a, b, c, out)
    expected = np.array([fma(*t) for t in zip(a, b, c, strict=True)], np.float32)
    assert same_bits(out, expected)
    assert not same_bits(out, a * b + c)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "oracle"), [("maximum", np.maximum), ("minimum", np.minimum)])
def test_extremes_order_zeros_and_return_the_canonical_nan(dtype, name, oracle):
    scalar = {"f32": np.float32, "f64": np.float64}[dtype]
    a, b = pairs(scalar)
    out = np.empty_like(a)
    vectorised(f"{name}_{dtype}", 2)(a, b, out)
    expected = oracle(a, b)
    zeros = (a == 0) & (b == 0)
    negative = np.signbit(a) & np.signbit(b) if name == "maximum" else np.signbit(a) | np.signbit(b)
    expected[zeros] = np.where(negative[zeros], -0.0, 0.0)
    bits = f"u{out.itemsize}"
    canonical = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}[dtype]
    assert (out.view(bits)[np.isnan(expected)] == canonical).all()
    assert same_bits(out, expected)


@pytest.mark.parametrize("target", sorted(INTEGERS))
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_float_to_integer_truncates_saturates_and_sends_nan_to_zero(source, target):
    scalar = {"f32": np.float32, "f64": np.float64}[source]
    integer = np.dtype({"i": "int", "u": "uint"}[target[0]] + target[1:])
    info = np.iinfo(integer)
    x = np.concatenate([specials(scalar), np.array([1.9, -1.9, 127.5, -128.9, 255.9, 256], scalar)])
    got = cast(x, integer)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        if value != value:
            expected = 0
        elif abs(value) == np.inf:
            expected = info.max if value > 0 else info.min
        else:
            expected = min(max(int(value), info.min), info.max)
        assert result == expected, value


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integer_division(a, b):
    x, y = np.int32(a), np.int32(b)
    division, remainder = (vectorised_i32(n) for n in ("div", "rem"))
    floor, modulo = (vectorised_i32(n) for n in ("floor_div", "floor_mod"))
    if b == 0:
        expected = (0, 0, 0, 0)
    else:
        truncated = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        expected = (truncated, a - truncated * b, a // b, a % b)
    wrapped = [(v + 2**31) % 2**32 - 2**31 for v in expected]
    assert [int(f(x, y)) for f in (division, remainder, floor, modulo)] == wrapped


_I32 = {}


def vectorised_i32(name):
    if name not in _I32:
        function = NAMESPACE[f"{name}_i32"]
        _I32[name] = numba.njit("i4(i4, i4)")(lambda a, b: function(a, b))
    return _I32[name]


def test_shifts_by_the_width_or_more_give_zero_or_the_sign():
    for count in (32, -1):
        assert call("shl_i32", np.int32(-5), np.int32(count)) == 0
        assert call("shr_i32", np.int32(-5), np.int32(count)) == -1
        assert call("shr_i32", np.int32(5), np.int32(count)) == 0
    assert call("shr_u32", np.uint32(2**32 - 5), np.uint32(32)) == 0
    assert call("shr_i32", np.int32(-5), np.int32(1)) == -3
    assert call("shl_u8", np.uint8(0x81), np.uint8(1)) == 2
    assert call("shr_u64", np.uint64(2**63), np.uint64(63)) == 1
    assert call("mulhi_u64", np.uint64(2**63 + 5), np.uint64(6)) == (2**63 + 5) * 6 >> 64


def test_a_wrong_dtype_is_an_error_and_not_a_conversion():
    with pytest.raises(TypingError, match="add_f32 takes"):
        call("add_f32", np.float32(1), 2.0)


def test_bit_casts():
    assert call("bits_f32", np.float32(-0.0)) == -(2**31)
    assert call("from_bits_f64", np.int64(0x3FF0000000000000)) == 1.0


# --- narrow floats ---------------------------------------------------------------------------


def interesting_f32() -> np.ndarray:
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 2**32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    moderate = rng.standard_normal(1 << 14) * np.exp2(rng.integers(-20, 18, 1 << 14))
    ties = np.arange(0, 2**32, 2**13 + 2**11, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([patterns, moderate.astype(np.float32), ties, specials(np.float32)])


@pytest.mark.parametrize("name", sorted(NARROW_DTYPES))
def test_narrow_codes_widen_exactly(name):
    dtype = NARROW_DTYPES[name]
    codes = np.arange(2**16 if dtype.itemsize == 2 else 16 if name == "f4e2m1fn" else 256)
    x = codes.astype(f"u{dtype.itemsize}").view(dtype)
    assert same_bits(widen(x), x.astype(np.float32))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(set(NARROW_DTYPES) - {"f4e2m1fn"}))
def test_rounding_to_narrow_floats_agrees_with_ml_dtypes(name):
    dtype = NARROW_DTYPES[name]
    x = interesting_f32()
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
    got = cast(x, dtype)
    assert same_bits(got, expected)
    inside = np.isfinite(got.astype(np.float32))
    saturated = cast(x, dtype, saturate=True).astype(np.float32)
    assert same_bits(saturated[inside], got.astype(np.float32)[inside])
    largest = float(ml_dtypes.finfo(dtype).max)
    beyond = ~inside & ~np.isnan(x)
    assert (np.abs(saturated[beyond]) == largest).all()
    assert (np.signbit(saturated[beyond]) == np.signbit(x[beyond])).all()
    assert np.isnan(saturated[np.isnan(x)]).all()


def test_fp4_saturates():
    x = np.array([0, 0.24, 0.25, 0.26, 0.75, 1.25, 2.5, 3.5, 5, 7, 1e9, -np.inf], np.float32)
    expected = [0, 0, 0, 0.5, 1, 1, 2, 4, 4, 6, 6, -6]
    assert cast(x, ml_dtypes.float4_e2m1fn).astype(np.float32).tolist() == expected


@pytest.mark.parametrize("name", ["bf16", "f16", "f8e4m3fn"])
def test_f64_and_i64_round_once_to_narrow_floats(name):
    dtype = NARROW_DTYPES[name]
    step = float(ml_dtypes.finfo(dtype).eps)
    halfway = 1 + step / 2
    x = np.array([halfway, halfway * (1 + 2.0**-50), halfway * (1 - 2.0**-50), 1e-300, -3.0])
    expected = [1, 1 + step, 1, 0, -3]
    assert cast(x, dtype).astype(np.float64).tolist() == expected
    if name == "bf16":
        odd = np.array([2**62 + 2**54, 2**62 + 2**54 + 1, -(2**62) - 2**54 - 1], np.int64)
        assert cast(odd, dtype).astype(np.float64).tolist() == [
            2.0**62,
            2.0**62 + 2.0**55,
            -(2.0**62) - 2.0**55,
        ]


# --- the FPU's state -------------------------------------------------------------------------


def test_flush_to_zero_is_refused():
    torch = pytest.importorskip("torch")
    jit.assert_no_flush_to_zero()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    try:
        with pytest.raises(Exception, match="subnormal") as caught:
            jit.assert_no_flush_to_zero()
    finally:
        torch.set_flush_denormal(False)
    assert caught.value.exit_code == 3
    jit.assert_no_flush_to_zero()
