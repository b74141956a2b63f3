"""Elementwise ops: those that are one core op, and the few that need several."""

from __future__ import annotations

import re

import numpy as np

from core_compiler.frontends.stablehlo.table import TABLE, Context, NotSupported, op
from core_compiler.ir import Value

_UNARY = {
    "abs": "abs", "cbrt": "cbrt", "ceil": "ceil", "cosine": "cos", "exponential": "exp",
    "exponential_minus_one": "expm1", "floor": "floor", "is_finite": "is_finite", "log": "log",
    "log_plus_one": "log1p", "logistic": "sigmoid", "round_nearest_even": "round",
    "rsqrt": "rsqrt", "sine": "sin", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
    "chlo.acos": "acos", "chlo.acosh": "acosh", "chlo.asin": "asin", "chlo.asinh": "asinh",
    "chlo.atan": "atan", "chlo.atanh": "atanh", "chlo.cosh": "cosh", "chlo.erf": "erf",
    "chlo.erfc": "erfc", "chlo.is_inf": "is_inf", "chlo.sinh": "sinh", "chlo.tan": "tan",
}  # fmt: skip
_BINARY = {
    "add": "add",
    "and": "and",
    "atan2": "atan2",
    "divide": "div",
    "minimum": "min",
    "multiply": "mul",
    "or": "or",
    "power": "pow",
    "remainder": "rem",
    "shift_left": "shl",
    "subtract": "sub",
    "xor": "xor",
}
#: The boolean forms of sums and products.
_OF_BOOLEANS = {"add": "or", "max": "or", "mul": "and", "min": "and"}
COMPARISONS = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}
UNSIGNED = {8: "ui8", 16: "ui16", 32: "ui32", 64: "ui64"}
SIGNED = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}


def binary(b: Context, kind: str, x: Value, y: Value) -> Value:
    """Emit ``core.kind`` of two values, in its boolean form for booleans."""
    if x.type.dtype.kind == "bool":
        kind = _OF_BOOLEANS.get(kind, kind)
    return b.op(f"core.{kind}", (x, y))


def _enter_unary(name: str, core: str) -> None:
    op(name)(lambda b, x: b.op(f"core.{core}", (x,)))


def _enter_binary(name: str, core: str) -> None:
    op(name)(lambda b, x, y: binary(b, core, x, y))


for _name, _core in _UNARY.items():
    _enter_unary(_name, _core)
for _name, _core in _BINARY.items():
    _enter_binary(_name, _core)


@op("maximum")
def maximum(b, x, y):
    """Emit a maximum, or a relu in JAX's function of that name.

    The gradient of relu at 0 is 0; a maximum shares it between its operands.
    """
    if x.type.dtype.is_float and re.fullmatch(r"relu(_\d+)?", b.function):
        floor = b.constant_of(y)
        if floor is not None and not floor.any() and not np.signbit(floor).any():
            return b.relu(x)
    return binary(b, "max", x, y)


@op("negate")
def negate(b, x):
    if x.type.dtype.kind == "uint":
        return b.sub(b.zero(x), x)
    return b.neg(x)


@op("sign")
def sign(b, x):
    if x.type.dtype.kind == "uint":
        return b.to(b.ne(x, b.zero(x)), x.type.dtype)
    return b.sign(x)


@op("not")
def not_(b, x):
    return b.not_(x) if x.type.dtype.kind == "bool" else b.bitnot(x)


@op("round_nearest_afz")
def round_away(b, x):
    """Round halves away from zero.

    It is the integer part, plus 1 if the rest is at least a half (the rest of a float is exact).
    """
    whole = b.trunc(x)
    more = b.ge(b.abs(b.sub(x, whole)), b.scalar_like(0.5, x))
    finite = b.is_finite(x)
    return b.select(b.and_(more, finite), b.add(whole, b.sign(x)), whole)


@op("shift_right_logical")
def shift_right_logical(b, x, y):
    bits = x.type.dtype.bits
    if x.type.dtype.kind == "uint":
        return b.shr(x, y)
    wide = UNSIGNED[bits]
    shifted = b.shr(b.bitcast(x, dtype=wide), b.bitcast(y, dtype=wide))
    return b.bitcast(shifted, dtype=x.type.dtype)


@op("shift_right_arithmetic")
def shift_right_arithmetic(b, x, y):
    """Shift as ``core.shr`` does for signed integers: the sign fills by the width and more."""
    kind = x.type.dtype
    if kind.kind == "uint":
        signed = SIGNED[kind.bits]
        return b.bitcast(
            shift_right_arithmetic(b, b.bitcast(x, dtype=signed), b.bitcast(y, dtype=signed)),
            dtype=kind,
        )
    return b.shr(x, y)


@op("compare")
def compare(b, x, y):
    kind = COMPARISONS[b.attr("comparison_direction")]
    if b.attr("compare_type") == "TOTALORDER":
        x, y = ordered_bits(b, x), ordered_bits(b, y)
    return b.op(f"core.{kind}", b.broadcast_together(x, y))


def ordered_bits(b: Context, x: Value) -> Value:
    """Return integers in the total order of ``x``: -NaN < -inf < ... < -0 < +0 < ... < NaN."""
    bits = x.type.dtype.bits
    signed = b.bitcast(x, dtype=SIGNED[bits])
    flipped = b.xor(signed, b.scalar_like((1 << (bits - 1)) - 1, signed))
    return b.select(b.lt(signed, b.zero(signed)), flipped, signed)


@op("select")
def select(b, p, x, y):
    return b.select(b.expand(p, x.type.shape) if p.type.rank == 0 else p, x, y)


@op("clamp")
def clamp(b, low, x, high):
    low, high = b.expand(low, x.type.shape), b.expand(high, x.type.shape)
    return binary(b, "min", binary(b, "max", x, low), high)


@op("convert", "chlo.convert")
def convert(b, x):
    """Convert; overflow in a float of 8 bits or fewer is infinite, or NaN if it has no infinity."""
    (wanted,) = b.results
    kind = wanted.dtype
    if kind.is_float and kind.bits <= 8 and kind is not x.type.dtype:
        return b.cast(x, dtype=kind, saturate=False)
    return b.to(x, kind)


@op("bitcast_convert")
def bitcast_convert(b, x):
    (wanted,) = b.results
    if wanted.dtype is x.type.dtype:
        return x
    if wanted.dtype.bits == x.type.dtype.bits:
        return b.bitcast(x, dtype=wanted.dtype)
    return _joined(b, x, wanted) if wanted.dtype.bits > x.type.dtype.bits else _split(b, x, wanted)


def _split(b: Context, x: Value, wanted) -> Value:
    """Split each element into several narrower ones, the low bits first."""
    wide, narrow = x.type.dtype.bits, wanted.dtype.bits
    if narrow < 8:
        raise NotSupported(f"bits of {x.type.dtype} read as {wanted.dtype}")
    words = b.bitcast(x, dtype=UNSIGNED[wide])
    parts = []
    for index in range(wide // narrow):
        part = b.shr(words, b.scalar_like(index * narrow, words))
        part = b.cast(part, dtype=UNSIGNED[narrow])
        parts.append(b.reshape(part, shape=(*x.type.shape, 1)))
    return b.bitcast(b.concat(*parts, axis=x.type.rank), dtype=wanted.dtype)


def _joined(b: Context, x: Value, wanted) -> Value:
    """Join several narrow elements along the last axis into one."""
    wide, narrow = wanted.dtype.bits, x.type.dtype.bits
    if narrow < 8:
        raise NotSupported(f"bits of {x.type.dtype} read as {wanted.dtype}")
    words = b.cast(b.bitcast(x, dtype=UNSIGNED[narrow]), dtype=UNSIGNED[wide])
    axis, whole = x.type.rank - 1, None
    for index in range(wide // narrow):
        part = b.reshape(b.cut(words, axis, index, index + 1), shape=x.type.shape[:-1])
        part = b.shl(part, b.scalar_like(index * narrow, part))
        whole = part if whole is None else b.or_(whole, part)
    return b.bitcast(whole, dtype=wanted.dtype)


#: The numbers of exponent and mantissa bits.
FORMS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


@op("reduce_precision")
def reduce_precision(b, x):
    """Round to fewer bits of mantissa and exponent, to nearest even, on the bits.

    Beyond the range of the exponent the result is infinite, below it zero, also for subnormals
    (XLA's ``reduce-precision``).
    """
    if x.type.dtype.name not in FORMS:
        raise NotSupported(f"{x.type.dtype} rounded to fewer bits")
    own_exponent, own_mantissa = FORMS[x.type.dtype.name]
    exponent, mantissa = int(b.attr("exponent_bits")), int(b.attr("mantissa_bits"))
    width = x.type.dtype.bits
    bits = b.bitcast(x, dtype=UNSIGNED[width])

    def word(number: int) -> Value:
        return b.scalar_like(number, bits)

    rounded = bits
    if mantissa < own_mantissa:
        drop = own_mantissa - mantissa
        last = b.and_(b.shr(bits, word(drop)), word(1))
        rounded = b.add(bits, b.add(last, word((1 << (drop - 1)) - 1)))
        rounded = b.and_(rounded, word((1 << width) - (1 << drop)))
    if exponent < own_exponent:
        middle, reach = (1 << (own_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        sign = b.and_(bits, word(1 << (width - 1)))
        infinite = word(((1 << own_exponent) - 1) << own_mantissa)
        size = b.and_(rounded, infinite)
        too_large = b.gt(size, word((middle + reach) << own_mantissa))
        too_small = b.le(size, word((middle - reach) << own_mantissa))
        rounded = b.select(too_large, b.or_(sign, infinite), rounded)
        rounded = b.select(too_small, sign, rounded)
    if rounded is bits:
        return x
    return b.select(b.is_nan(x), x, b.bitcast(rounded, dtype=x.type.dtype))


@op("batch_norm_inference")
def batch_norm_inference(b, x, scale, offset, mean, variance):
    axis, epsilon = int(b.attr("feature_index")), float(b.attr("epsilon"))
    return b.batch_norm(x, scale, offset, mean, variance, axis=axis, epsilon=epsilon)


@op("popcnt")
def popcnt(b, x):
    """Count the set bits in pairs, fours and bytes (Warren, Hacker's Delight, 5-1)."""
    kind = x.type.dtype
    wide = UNSIGNED[kind.bits] if kind.kind == "int" else kind
    count = x if wide is kind else b.bitcast(x, dtype=wide)

    def word(pattern: int) -> Value:
        return b.scalar_like(int(f"{pattern:02x}" * (kind.bits // 8), 16), count)

    def halves(value: Value, shift: int, pattern: int) -> Value:
        low = b.and_(value, word(pattern))
        high = b.and_(b.shr(value, b.scalar_like(shift, value)), word(pattern))
        return b.add(low, high)

    count = halves(halves(halves(count, 1, 0x55), 2, 0x33), 4, 0x0F)
    count = b.mul(count, word(0x01))
    count = b.shr(count, b.scalar_like(kind.bits - 8, count))
    return b.bitcast(count, dtype=kind) if kind.kind == "int" else count


@op("count_leading_zeros")
def count_leading_zeros(b, x):
    """Set all bits below the highest one, then count those that are not set."""
    kind = x.type.dtype
    filled = b.bitcast(x, dtype=UNSIGNED[kind.bits]) if kind.kind == "int" else x
    shift = 1
    while shift < kind.bits:
        filled = b.or_(filled, b.shr(filled, b.scalar_like(shift, filled)))
        shift *= 2
    rest = b.bitnot(filled)
    rest = b.bitcast(rest, dtype=kind) if kind.kind == "int" else rest
    return popcnt(b, rest)


@op("chlo.is_neg_inf")
def is_neg_inf(b, x):
    return b.eq(x, b.scalar_like(float("-inf"), x))


@op("chlo.is_pos_inf")
def is_pos_inf(b, x):
    return b.eq(x, b.scalar_like(float("inf"), x))


@op("chlo.square")
def square(b, x):
    return b.mul(x, x)


def _broadcasting(name: str) -> None:
    """Register CHLO's form of an op that broadcasts its operands by NumPy's rules."""
    plain = TABLE[f"stablehlo.{name}"]

    def handler(b, x, y):
        if b.attr("broadcast_dimensions") is not None:
            raise NotSupported("broadcast_dimensions")
        return plain(b, *b.broadcast_together(x, y))

    op(f"chlo.broadcast_{name}")(handler)


for _name in ("add", "and", "atan2", "divide", "maximum", "minimum", "multiply", "or", "power",
              "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical",
              "subtract", "xor", "compare"):  # fmt: skip
    _broadcasting(_name)
