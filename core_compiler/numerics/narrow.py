"""Narrow floats (bf16, f16, fp8, fp4) to and from f32 by integer operations, round to even.

Scalar sources over the primitives, like the elementary functions; the tests compare them with NumPy
and ml_dtypes. A narrow value is represented by its code in the low bits of an i32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core_compiler.numerics.jit import inline_jit, instantiate
from core_compiler.numerics.primitives import PRIMITIVES


@dataclass(frozen=True)
class NarrowFloat:
    """A binary float format of at most 16 bits.

    ``maximum`` is the largest finite code, ``overflow`` the code of larger values without
    saturation, ``nan`` the canonical NaN's code. ``nonfinite`` is the smallest code that is not
    finite (inf if it equals ``overflow`` and differs from ``nan``). ``fnuz`` formats have no -0;
    its code is their only NaN.
    """

    name: str
    bits: int
    mantissa: int
    bias: int
    maximum: int
    overflow: int
    nan: int
    fnuz: bool = False


#: Sources: IEEE 754-2019; OCP 8-bit Floating Point 1.0; Graphcore/AMD fnuz (arXiv:2206.02915); OCP
#: Microscaling 1.0 for fp4, which has no NaN: NaN becomes 0, too large values saturate.
NARROW_FLOATS: dict[str, NarrowFloat] = {
    f.name: f
    for f in (
        NarrowFloat("bf16", 16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
        NarrowFloat("f16", 16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
        NarrowFloat("f8e5m2", 8, 2, 15, 0x7B, 0x7C, 0x7E),
        NarrowFloat("f8e4m3", 8, 3, 7, 0x77, 0x78, 0x7C),
        NarrowFloat("f8e3m4", 8, 4, 3, 0x6F, 0x70, 0x78),
        NarrowFloat("f8e4m3fn", 8, 3, 7, 0x7E, 0x7F, 0x7F),
        NarrowFloat("f8e5m2fnuz", 8, 2, 16, 0x7F, 0x80, 0x80, fnuz=True),
        NarrowFloat("f8e4m3fnuz", 8, 3, 8, 0x7F, 0x80, 0x80, fnuz=True),
        NarrowFloat("f8e4m3b11fnuz", 8, 3, 11, 0x7F, 0x80, 0x80, fnuz=True),
        NarrowFloat("f4e2m1fn", 4, 1, 1, 0x7, 0x7, 0x0),
    )
}

# ruff: noqa: F821  (names are bound per target and per format by ``narrow_functions``)


def encode(x, saturate):
    """Convert f32 to a code of the format (i32), rounded to nearest even once.

    With ``saturate``, values beyond the largest finite one, including infinities, become the
    largest finite one; otherwise the format's overflow code.
    """
    b = bits_f32(x)
    if BIAS == 127:
        # The exponents of f32: a carry out of rounding goes to the exponent, at most to infinity.
        odd = and_i32(shr_i32(b, i32(23 - MANTISSA)), i32(1))
        rounded = add_i32(b, add_i32(odd, i32((1 << (22 - MANTISSA)) - 1)))
        code = and_i32(shr_i32(rounded, i32(23 - MANTISSA)), i32((1 << WIDTH) - 1))
        infinite = eq_i32(and_i32(code, i32((1 << (WIDTH - 1)) - 1)), i32(OVERFLOW))
        largest = or_i32(and_i32(code, i32(1 << (WIDTH - 1))), i32(MAXIMUM))
        code = select_i32(infinite & saturate, largest, code)
        return select_i32(x != x, i32(NAN), code)
    magnitude = and_i32(b, i32(0x7FFFFFFF))
    sign = and_i32(shr_i32(b, i32(31)), i32(1))
    field = shr_i32(magnitude, i32(23))
    exponent = maximum_i32(field, i32(1))
    implicit = select_i32(eq_i32(field, i32(0)), i32(0), i32(0x800000))
    significand = or_i32(and_i32(magnitude, i32(0x7FFFFF)), implicit)
    # Position of the significand's last kept bit: lower below the format's smallest exponent.
    above = sub_i32(exponent, i32(SMALLEST_EXPONENT))
    depth = minimum_i32(sub_i32(i32(0), minimum_i32(above, i32(0))), i32(25))
    drop = minimum_i32(add_i32(i32(23 - MANTISSA), depth), i32(25))
    half_less_one = sub_i32(shl_i32(i32(1), sub_i32(drop, i32(1))), i32(1))
    odd = and_i32(shr_i32(significand, drop), i32(1))
    kept = shr_i32(add_i32(add_i32(significand, half_less_one), odd), drop)
    # The implicit bit, and a carry out of rounding, are added to the exponent field.
    code = add_i32(kept, shl_i32(maximum_i32(above, i32(0)), i32(MANTISSA)))
    too_large = lt_i32(i32(MAXIMUM), code) | eq_i32(field, i32(255))
    code = select_i32(too_large, select_i32(saturate, i32(MAXIMUM), i32(OVERFLOW)), code)
    is_nan = lt_i32(i32(0x7F800000), magnitude)
    code = select_i32(is_nan, i32(NAN), code)
    unsigned = is_nan | (boolean(FNUZ) & (eq_i32(code, i32(0)) | eq_i32(code, i32(NAN))))
    return or_i32(code, select_i32(unsigned, i32(0), shl_i32(sign, i32(WIDTH - 1))))


def decode(code):
    """Convert a code (i32, higher bits ignored) to f32, exactly; NaNs become the canonical NaN."""
    if BIAS == 127:  # the exponents of f32: the code is its upper half
        value = from_bits_f32(shl_i32(code, i32(23 - MANTISSA)))
        return select_f32(value != value, from_bits_f32(i32(0x7FC00000)), value)
    code = and_i32(code, i32((1 << WIDTH) - 1))
    magnitude = and_i32(code, i32((1 << (WIDTH - 1)) - 1))
    sign = shl_i32(shr_i32(code, i32(WIDTH - 1)), i32(31))
    # With the fields in place the exponent is too low by the difference of the biases: the product
    # by a power of two is exact, and normalises the format's subnormals.
    scale = from_bits_f32(i32((254 - BIAS) << 23))
    value = bits_f32(mul_f32(from_bits_f32(shl_i32(magnitude, i32(23 - MANTISSA))), scale))
    value = select_i32(boolean(HAS_INF) & eq_i32(magnitude, i32(OVERFLOW)), i32(0x7F800000), value)
    value = from_bits_f32(or_i32(value, sign))
    if FNUZ:
        is_nan = eq_i32(code, i32(NAN))
    else:
        is_nan = boolean(HAS_NAN) & lt_i32(i32(NAN_ABOVE), magnitude)
    return select_f32(is_nan, from_bits_f32(i32(0x7FC00000)), value)


def round_trip(x):
    """Round f32 to the format (not saturating) and widen it again: a fused narrow value."""
    return decode(encode(x, boolean(0)))


def convert_f64_f32_odd(x):
    """Convert f64 to f32, rounded to odd.

    Rounding the result to 16 bits or fewer is then equal to a single rounding.
    """
    nearest = convert_f64_f32(x)
    back = convert_f32_f64(nearest)
    exact = (back == x) | (x != x)
    even = eq_i32(and_i32(bits_f32(nearest), i32(1)), i32(0))
    # The odd neighbour is on the other side of x: one step towards or away from zero.
    outward = abs_f64(back) < abs_f64(x)
    step = select_i32(outward, i32(1), i32(-1))
    odd = from_bits_f32(add_i32(bits_f32(nearest), step))
    return select_f32(exact | (even != boolean(1)), nearest, odd)


def _bindings(f: NarrowFloat) -> dict[str, object]:
    has_inf = f.overflow != f.nan and f.overflow != f.maximum
    return {
        "MANTISSA": f.mantissa,
        "BIAS": f.bias,
        "WIDTH": f.bits,
        "MAXIMUM": f.maximum,
        "OVERFLOW": f.overflow,
        "NAN": f.nan,
        "FNUZ": f.fnuz,
        "HAS_INF": has_inf,
        "HAS_NAN": not f.fnuz and f.nan > f.maximum,
        "NAN_ABOVE": f.overflow if has_inf else f.maximum,
        "SMALLEST_EXPONENT": 128 - f.bias,
    }


def narrow_functions(compile_: Callable, names: dict) -> dict[str, Callable]:
    """Return the narrow conversions for one target's primitives.

    They are ``convert_f32_<fmt>(x, saturate)``, ``convert_<fmt>_f32(code)``, ``round_<fmt>_f32(x)``
    of every format, and ``convert_f64_f32_odd``.
    """
    done = instantiate({"convert_f64_f32_odd": convert_f64_f32_odd}, compile_, names)
    for f in NARROW_FLOATS.values():
        bound = {**names, **_bindings(f)}
        made = instantiate({"encode": encode, "decode": decode}, compile_, bound)
        done[f"convert_f32_{f.name}"], done[f"convert_{f.name}_f32"] = made.values()
        rounded = instantiate({f"round_{f.name}_f32": round_trip}, compile_, {**bound, **made})
        done |= rounded
    return done


#: The CPU's narrow conversions by name.
NARROW: dict[str, Callable] = narrow_functions(inline_jit, PRIMITIVES)
