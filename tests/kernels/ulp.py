"""Errors in ulps of f32 results against f64 oracles, and correct rounding. Test helper."""

from __future__ import annotations

import mpmath
import numba
import numpy as np
import scipy.special

#: Oracles nobody here wrote: NumPy's and SciPy's f64 functions (at most a few f64 ulps off).
ORACLES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": scipy.special.expit,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_even": np.rint,
    "abs": np.abs,
    "neg": np.negative,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "remainder": np.remainder,
}

#: The same with mpmath, where it has them by another name or not at all.
MPMATH = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "pow": mpmath.power,
    "remainder": lambda x, y: x - y * mpmath.floor(x / y),
}
#: Bits that tell every result from a tie: atan2(3 * 2**-149, 2) is 2**-300 of it below one.
PRECISION = 700


def exactly(name: str, *args: float) -> mpmath.mpf:
    """A function of finite numbers to ``PRECISION`` bits, 64 of them for what the library errs."""
    with mpmath.workprec(PRECISION + 64):
        return (MPMATH.get(name) or getattr(mpmath, name))(*(mpmath.mpf(float(a)) for a in args))


def nearest_f32(exact: mpmath.mpf) -> np.float32:
    """``exact`` rounded to f32 once, ties to even; what is within 2**-600 of a tie is one."""
    with mpmath.workprec(PRECISION + 64):
        exponent = max(mpmath.frexp(abs(exact))[1] - 1, -126)
        quantum = mpmath.mpf(2) ** (exponent - 23)
        halves = 2 * exact / quantum
        if abs(halves - mpmath.nint(halves)) < mpmath.mpf(2) ** -600:
            halves = mpmath.nint(halves)
        rounded = float(mpmath.nint(halves / 2) * quantum)
    with np.errstate(over="ignore"):
        return np.float32(np.copysign(rounded, float(mpmath.sign(exact))))


def worst(got: np.ndarray, reference: np.ndarray) -> tuple[float, int]:
    """(largest error in f32 ulps, where).  A NaN, an infinity or a zero's sign missed: inf."""
    return _worst(got, reference, reference.view(np.int64), np.empty(1, np.int64))


@numba.njit(nogil=True)
def _worst(got, reference, bits, scale_bits):
    largest, place = 0.0, 0
    scale = scale_bits.view(np.float64)
    top = 2.0**128  # overflow: one ulp beyond the largest finite number
    for i in range(got.size):
        g, r = np.float64(got[i]), reference[i]
        if r != r or g != g:
            error = 0.0 if (r != r and g != g) else np.inf
        elif r == 0.0:
            same = g == 0.0 and np.copysign(1.0, g) == np.copysign(1.0, r)
            error = 0.0 if same else np.inf
        elif abs(r) == np.inf:
            error = 0.0 if g == r else np.inf
        else:
            exponent = min(max(((bits[i] >> 52) & 0x7FF) - 1023, -126), 127)
            scale_bits[0] = (1023 + 23 - exponent) << 52
            error = abs(min(max(g, -top), top) - min(max(r, -top), top)) * scale[0]
        if error > largest:
            largest, place = error, i
    return largest, place


def bit_patterns(start: int, count: int, stride: int = 1) -> np.ndarray:
    """f32 values of the bit patterns start, start + stride, ..., modulo 2**32."""
    steps = np.arange(count, dtype=np.uint32) * np.uint32(stride)
    return (steps + np.uint32(start)).view(np.float32)


def specials(dtype: type) -> np.ndarray:
    """Zeros, subnormals, extremes, infinities, NaN, and neighbours of round numbers."""
    info = np.finfo(dtype)
    base = np.array(
        [
            0,
            info.smallest_subnormal,
            info.tiny,
            info.eps,
            0.25,
            0.5,
            1,
            2,
            3,
            np.pi / 2,
            np.pi,
            10,
            88.72284,
            103.97,
            128,
            149,
            709.78,
            745.13,
            1e10,
            2.0**23,
            2.0**52,
            info.max,
            np.inf,
        ],
        dtype,
    )
    with np.errstate(over="ignore"):
        beside = [np.nextafter(base, dtype(side)) for side in (0, np.inf)]
    near = np.concatenate([base, *beside])
    return np.concatenate([near, -near, np.array([np.nan], dtype)])
