"""Elementwise ops, for floats and integers.

Functions of 16-bit floats are computed in f32 and rounded once.  A division is a product with a
reciprocal, since TOSA has no float division: quotients may differ in the last bits, and are lost if
the reciprocal itself is subnormal or too large.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.exporters.mlir.literals import signless
from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import F32, FP8, I1, I32, I64, Tosa, op
from core_compiler.exporters.mlir.tosa.contraction import with_bias
from core_compiler.exporters.mlir.tosa.numbers import (
    UI64,
    convert,
    resized,
    to_arithmetic_dtype,
    to_float,
    truncated,
)
from core_compiler.exporters.mlir.tosa.quantised import widened
from core_compiler.ir import DType, tensor
from core_compiler.ir.views import OpView
from core_compiler.ops import typed

#: The type of an elementwise function: ``(context, *refs) -> ref``.
Each = Callable[..., Ref]

#: Float functions: those with an op that works in any dtype, and those that are computed in f32.
_EXACT = {
    "abs": "abs",
    "floor": "floor",
    "ceil": "ceil",
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "max": "maximum",
    "min": "minimum",
}
_FUNCTIONS = {
    name: name
    for name in (
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "erf",
        "sigmoid",
        "rsqrt",
        "pow",
    )
}
#: Integer functions, in the dtype of ``numbers.home``; shifts and bitwise ops use their own.
_ARITHMETIC = {"sub": "sub", "mul": "mul"}
_BITS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
_LOGIC = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}


def _in_f32(each: Each) -> Each:
    def run(b: Tosa, *x: Ref) -> Ref:
        made = each(b, *(to_float(b, v, F32) for v in x))
        return to_float(b, made, x[0].type.dtype)

    return run


def _named(name: str) -> Each:
    return lambda b, *x: b.each(name, *x)


def _in_arithmetic_dtype(each: Each) -> Each:
    def run(b: Tosa, *x: Ref) -> Ref:
        return resized(b, each(b, *(to_arithmetic_dtype(b, v) for v in x)), x[0].type.dtype)

    return run


# -- floats ----------------------------------------------------------------------------------------


def negated(b: Tosa, x: Ref) -> Ref:
    zero = b.zero_point(x.type.dtype)
    return b.op("negate", [x, zero, zero], x.type)


def _divide(b: Tosa, x: Ref, y: Ref) -> Ref:
    return b.each("mul", x, b.each("reciprocal", y))


def _sqrt(b: Tosa, x: Ref) -> Ref:
    """Compute 1 / (1 / sqrt(x)), which is correct for 0, -0 and infinity too."""
    return b.each("reciprocal", b.each("rsqrt", x))


def _round(b: Tosa, x: Ref) -> Ref:
    """Round by a cast to i32, which rounds to nearest even.

    Floats of 2**23 and more are whole already, and a zero keeps the sign of x.
    """
    small = b.each("greater", b.splat(2.0**23, x), b.each("abs", x), kind=I1)
    held = b.each("select", small, x, b.splat(0, x))
    whole = b.each("cast", b.each("cast", held, kind=I32), kind=F32)
    nothing = b.splat(0, held)
    own = b.each("select", b.each("equal", held, nothing, kind=I1), held, nothing)
    minus = b.each("greater", nothing, held, kind=I1)
    own = b.each("select", minus, b.splat(-0.0, held), own)
    whole = b.each("select", b.each("equal", whole, nothing, kind=I1), own, whole)
    return b.each("select", small, whole, x)


def _is_nan(b: Tosa, x: Ref) -> Ref:
    return b.each("logical_not", b.each("equal", x, x, kind=I1))


def _is_inf(b: Tosa, x: Ref) -> Ref:
    return b.each("equal", b.each("abs", x), b.splat(np.inf, x), kind=I1)


def _is_finite(b: Tosa, x: Ref) -> Ref:
    return b.each("greater", b.splat(np.inf, x), b.each("abs", x), kind=I1)


FLOATS: dict[str, Each] = {
    **{kind: _named(name) for kind, name in _EXACT.items()},
    **{kind: _in_f32(_named(name)) for kind, name in _FUNCTIONS.items()},
    "neg": negated,
    "div": _in_f32(_divide),
    "sqrt": _in_f32(_sqrt),
    "round": _in_f32(_round),
    "trunc": truncated,
    "is_nan": _is_nan,
    "is_inf": _is_inf,
    "is_finite": _is_finite,
}


# -- integers --------------------------------------------------------------------------------------


def ordered(b: Tosa, x: Ref) -> Ref:
    """Return integers whose signed order is that of ``x``.

    They are in their home dtype; the top bit of ui64 is flipped.
    """
    if x.type.dtype is not UI64:
        return to_arithmetic_dtype(b, x)
    bits = x.read_as(x.type.with_(dtype=I64))
    return b.each("bitwise_xor", bits, b.splat(np.iinfo(np.int64).min, bits))


def from_order(b: Tosa, x: Ref, kind: DType) -> Ref:
    """Undo :func:`ordered`."""
    if kind is UI64:
        x = b.each("bitwise_xor", x, b.splat(np.iinfo(np.int64).min, x))
    return resized(b, x, kind)


def _extreme(name: str) -> Each:
    return lambda b, x, y: from_order(b, b.each(name, ordered(b, x), ordered(b, y)), x.type.dtype)


def _quotient(b: Tosa, x: Ref, y: Ref) -> tuple[Ref, Ref, Ref]:
    """Return (truncated quotient, divisor, whether y is 0), with 1 for the divisors 0 and -1."""
    zero = b.each("equal", y, b.splat(0, y), kind=I1)
    minus_one = b.each("equal", y, b.splat(-1, y), kind=I1)
    safe = b.each("select", b.each("logical_or", zero, minus_one), b.splat(1, y), y)
    return b.each("intdiv", x, safe), safe, zero


def _integer_div(b: Tosa, x: Ref, y: Ref) -> Ref:
    made, _, zero = _quotient(b, x, y)
    minus_one = b.each("equal", y, b.splat(-1, y), kind=I1)
    made = b.each("select", minus_one, b.each("sub", b.splat(0, x), x), made)
    return b.each("select", zero, b.splat(0, made), made)


def _integer_rem(b: Tosa, x: Ref, y: Ref) -> Ref:
    """Compute the remainder; the remainder by 0 and by -1 is 0, as by 1."""
    made, safe, _ = _quotient(b, x, y)
    return b.each("sub", x, b.each("mul", made, safe))


def _integer_mod(b: Tosa, x: Ref, y: Ref) -> Ref:
    made = _integer_rem(b, x, y)
    zero = b.splat(0, made)
    unlike = b.each(
        "logical_xor", b.each("greater", zero, made, kind=I1), b.each("greater", zero, y, kind=I1)
    )
    whole = b.each("equal", made, zero, kind=I1)
    differ = b.each("logical_and", unlike, b.each("logical_not", whole))
    return b.each("select", differ, b.each("add", made, y), made)


def _unsigned_division(b: Tosa, x: Ref, y: Ref) -> tuple[Ref, Ref]:
    """Return (quotient, remainder) of ui64, from a 63-bit signed division.

    The quotient is twice that of half of x, plus 1 if the rest still contains y (Warren, Hacker's
    Delight, 9-3).  Both are 0 if y is 0.
    """
    x, y = (v.read_as(v.type.with_(dtype=I64)) for v in (x, y))
    one, zero = b.splat(1, y), b.splat(0, y)
    by_zero = b.each("equal", y, zero, kind=I1)
    large = b.each("greater", zero, y, kind=I1)
    safe = b.each("select", b.each("logical_or", by_zero, large), one, y)
    half = b.each("intdiv", b.each("logical_right_shift", x, one), safe)
    quotient = b.each("select", large, zero, b.each("logical_left_shift", half, one))
    rest = b.each("sub", x, b.each("mul", quotient, y))
    flip = b.splat(np.iinfo(np.int64).min, y)
    more = b.each(
        "greater_equal", b.each("bitwise_xor", rest, flip), b.each("bitwise_xor", y, flip), kind=I1
    )
    quotient = b.each("add", quotient, b.each("cast", more, kind=I64))
    rest = b.each("select", more, b.each("sub", rest, y), rest)
    return (b.each("select", by_zero, zero, quotient), b.each("select", by_zero, zero, rest))


def _divided(each: Each, part: int) -> Each:
    """Wrap a division so that ui64 uses result ``part`` of :func:`_unsigned_division`."""

    def run(b: Tosa, x: Ref, y: Ref) -> Ref:
        if x.type.dtype is not UI64:
            return _in_arithmetic_dtype(each)(b, x, y)
        made = _unsigned_division(b, x, y)[part]
        return made.read_as(made.type.with_(dtype=UI64))

    return run


def _shift(left: bool) -> Each:
    """Return a shift that is defined for every count.

    A count outside 0..width-1 yields 0, or the sign fill of an arithmetic shift; TOSA only defines
    shifts by the other counts.
    """

    def run(b: Tosa, x: Ref, count: Ref) -> Ref:
        kind = x.type.dtype
        bits = x.read_as(x.type.with_(dtype=signless(kind)))
        number = ordered(b, count)
        start = np.iinfo(np.int64).min if kind is UI64 else 0
        inside = b.each("greater", b.splat(start + kind.bits, number), number, kind=I1)
        if kind.kind == "int":
            positive = b.each("greater_equal", number, b.splat(0, number), kind=I1)
            inside = b.each("logical_and", inside, positive)
        plain = count.read_as(bits.type)
        fills = not left and kind.kind == "int"
        safe = b.each("select", inside, plain, b.splat(kind.bits - 1 if fills else 0, plain))
        if fills:
            made = b.op("arithmetic_right_shift", [bits, safe], bits.type, {"round": "false"})
            return made.read_as(x.type)
        made = b.each(f"logical_{'left' if left else 'right'}_shift", bits, safe)
        made = b.each("select", inside, made, b.splat(0, made))
        return made.read_as(x.type)

    return run


def _own(name: str) -> Each:
    """Return a bitwise op in the width of its operands."""

    def run(b: Tosa, *x: Ref) -> Ref:
        if x[0].type.dtype is I1:
            return b.each(_LOGIC[{v: k for k, v in _BITS.items()}[name]], *x)
        return b.each(name, *x)

    return run


def _negative(b: Tosa, x: Ref) -> Ref:
    return b.each("sub", b.splat(0, x), x)


def _integer_abs(b: Tosa, x: Ref) -> Ref:
    """Return max(x, -x): ``tosa.abs`` is undefined for the lowest value, which maps to itself."""
    return b.each("maximum", x, _negative(b, x))


def _integer_pow(b: Tosa, x: Ref, y: Ref) -> Ref:
    """Compute a power by squaring, with one step for each bit of the exponent.

    A negative exponent yields 1 or -1 for the bases 1 and -1, else 0.
    """
    kind, base = y.type.dtype, to_arithmetic_dtype(b, x)
    bits = to_arithmetic_dtype(b, y)
    one, zero = b.splat(1, base), b.splat(0, base)
    made = one
    for step in range(kind.bits - (kind.kind == "int")):
        shifted = b.each("logical_right_shift", bits, b.splat(step, bits)) if step else bits
        odd = b.each("cast", b.each("bitwise_and", shifted, one), kind=I1)
        made = b.each("select", odd, b.each("mul", made, base), made)
        base = b.each("mul", base, base)
    if kind.kind == "int":
        wide_x = to_arithmetic_dtype(b, x)
        minus_one = b.each("equal", wide_x, b.splat(-1, wide_x), kind=I1)
        odd = b.each("cast", b.each("bitwise_and", bits, one), kind=I1)
        unit = b.each("select", b.each("logical_and", minus_one, odd), b.splat(-1, base), one)
        is_unit = b.each("logical_or", minus_one, b.each("equal", wide_x, one, kind=I1))
        tail = b.each("select", is_unit, unit, zero)
        made = b.each("select", b.each("greater", zero, bits, kind=I1), tail, made)
    return resized(b, made, x.type.dtype)


def _integer_add(b: Tosa, x: Ref, y: Ref) -> Ref:
    """Add integers; a constant that is added to a product becomes its bias."""
    biased = with_bias(b, x, y)
    return _in_arithmetic_dtype(_named("add"))(b, x, y) if biased is None else biased


INTEGERS: dict[str, Each] = {
    **{kind: _in_arithmetic_dtype(_named(name)) for kind, name in _ARITHMETIC.items()},
    "add": _integer_add,
    **{kind: _own(name) for kind, name in _BITS.items()},
    "max": _extreme("maximum"),
    "min": _extreme("minimum"),
    "neg": _in_arithmetic_dtype(_negative),
    "abs": _in_arithmetic_dtype(_integer_abs),
    "bitnot": _named("bitwise_not"),
    "not": _named("logical_not"),
    "div": _divided(_integer_div, 0),
    "rem": _divided(_integer_rem, 1),
    "mod": _divided(_integer_mod, 1),
    "shl": _shift(True),
    "shr": _shift(False),
    "pow": _integer_pow,
}


def _elementwise(b: Tosa, op: OpView, *x: Ref) -> Ref:
    table = FLOATS if x[0].type.dtype.is_float else INTEGERS
    found = b.bytes_of(op.result) if op.kind == "core.sub" else None
    if found is not None:
        return widened(b, b.env[found[0]], found[1])
    return table[op.kind.removeprefix("core.")](b, *x)


def _lacks(b: Tosa, op: OpView) -> str:
    kind = op.operands[0].type.dtype
    known = op.kind.removeprefix("core.") in (FLOATS if kind.is_float else INTEGERS)
    return "" if known else f"{op.kind.removeprefix('core.')} of {kind}"


op(*FLOATS, *INTEGERS, lacks=_lacks)(_elementwise)


# -- comparisons, selects, conversions -------------------------------------------------------------

#: comparison -> (TOSA's op, operands swapped, result inverted); a comparison with NaN is false.
_COMPARISONS = {
    "eq": ("equal", False, False),
    "ne": ("equal", False, True),
    "gt": ("greater", False, False),
    "ge": ("greater_equal", False, False),
    "lt": ("greater", True, False),
    "le": ("greater_equal", True, False),
}


def _compare(b: Tosa, op: OpView, x: Ref, y: Ref) -> Ref:
    name, exchanged, inverted = _COMPARISONS[op.kind.removeprefix("core.")]
    if not x.type.dtype.is_float:
        x, y = (b.each("cast", v, kind=I32) if v.type.dtype is I1 else v for v in (x, y))
        x, y = ordered(b, x), ordered(b, y)
    made = b.each(name, *((y, x) if exchanged else (x, y)), kind=I1)
    return b.each("logical_not", made) if inverted else made


op(*_COMPARISONS)(_compare)


@op("select")
def select(b: Tosa, op: typed.Select, p: Ref, x: Ref, y: Ref) -> Ref:
    kind = x.type.dtype
    if kind in FP8:  # not in the op's table; f32 represents them exactly
        return to_float(b, b.each("select", p, *(to_float(b, v, F32) for v in (x, y))), kind)
    return b.each("select", p, x, y)


@op("cast")
def cast(b: Tosa, op: typed.Cast, x: Ref) -> Ref:
    return convert(b, x, op.dtype, op.saturate)


def _lacks_bits(b: Tosa, op: typed.Bitcast) -> str:
    floats = op.x.type.dtype.is_float or op.dtype.is_float
    return "the bits of floats" if floats else ""


@op("bitcast", lacks=_lacks_bits)
def bitcast(b: Tosa, op: typed.Bitcast, x: Ref) -> Ref:
    return x.read_as(tensor(x.type.shape, op.dtype))
