"""The scalar bodies of elementwise ops in arith and math, including corner cases.

arith leaves undefined what the contract defines: division by zero, shifts by the width or more,
conversions of floats that no integer holds.  Each is avoided, and its result is selected
separately.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from core_compiler.exporters.mlir.linalg.context import F32, F64, I1, I32, Linalg
from core_compiler.exporters.mlir.literals import signless
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir import DType
from core_compiler.ir.types import INDEX

#: The type of a scalar op: ``(context, *scalars) -> scalar``.
Scalar = Callable[..., Ref]

#: Float functions that are one op of arith or math and round once in any dtype, so 16-bit floats
#: need no f32.
_EXACT = {
    "neg": "arith.negf",
    "abs": "math.absf",
    "add": "arith.addf",
    "sub": "arith.subf",
    "mul": "arith.mulf",
    "div": "arith.divf",
    "max": "arith.maximumf",
    "min": "arith.minimumf",
    "sqrt": "math.sqrt",
    "floor": "math.floor",
    "ceil": "math.ceil",
    "round": "math.roundeven",
    "trunc": "math.trunc",
    "rem": "arith.remf",
}
#: Float functions of math whose 16-bit forms are computed in f32 and rounded once.
_FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "atan2",
)  # fmt: skip
#: Integer functions: the op of arith for any sign, or for signed and unsigned ones.
_INTEGERS = {
    "add": ("arith.addi",),
    "sub": ("arith.subi",),
    "mul": ("arith.muli",),
    "max": ("arith.maxsi", "arith.maxui"),
    "min": ("arith.minsi", "arith.minui"),
    "and": ("arith.andi",),
    "or": ("arith.ori",),
    "xor": ("arith.xori",),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _named(name: str) -> Scalar:
    return lambda b, *x: b.same(name, *x)


def _in_f32(scalar: Scalar) -> Scalar:
    """Wrap a scalar op to widen 16-bit floats and round the result once."""

    def run(b: Linalg, *x: Ref) -> Ref:
        kind = x[0].type
        if kind.bits >= 32:
            return scalar(b, *x)
        made = scalar(b, *(b.converted("arith.extf", v, F32) for v in x))
        return b.converted("arith.truncf", made, kind)

    return run


def _signed(names: tuple[str, ...]) -> Scalar:
    return lambda b, *x: b.same(names[-1 if x[0].type.kind == "uint" else 0], *x)


# -- floats ----------------------------------------------------------------------------------------


def _sign(b: Linalg, x: Ref) -> Ref:
    """Return 1 with the sign of x; zeros and NaN are returned unchanged."""
    ordered = b.writer.line(f"arith.cmpf one, {x}, {b.scalar(0, x.type)} : {x.type}", I1)
    return b.chosen(ordered, b.same("math.copysign", b.scalar(1, x.type), x), x)


def _rsqrt(b: Linalg, x: Ref) -> Ref:
    return b.same("arith.divf", b.scalar(1, x.type), b.same("math.sqrt", x))


def _sigmoid(b: Linalg, x: Ref) -> Ref:
    """Compute 1 / (1 + exp(-x)) from exp(-|x|), as the contract does, so that nothing overflows."""
    one = b.scalar(1, x.type)
    e = b.same("math.exp", b.same("arith.negf", b.same("math.absf", x)))
    top = b.chosen(b.compared("lt", x, b.scalar(0, x.type)), e, one)
    return b.same("arith.divf", top, b.same("arith.addf", one, e))


def _float_mod(b: Linalg, x: Ref, y: Ref) -> Ref:
    """Compute the remainder plus y if their signs differ; a zero has the sign of y."""
    zero = b.scalar(0, x.type)
    r = b.same("arith.remf", x, y)
    unlike = b.same("arith.xori", b.compared("lt", r, zero), b.compared("lt", y, zero))
    differ = b.same("arith.andi", b.compared("ne", r, zero), unlike)
    r = b.chosen(differ, b.same("arith.addf", r, y), r)
    return b.chosen(b.compared("eq", r, zero), b.same("math.copysign", r, y), r)


def _is_nan(b: Linalg, x: Ref) -> Ref:
    return b.compared("ne", x, x)


def _is_inf(b: Linalg, x: Ref) -> Ref:
    return b.compared("eq", b.same("math.absf", x), b.scalar(np.inf, x.type))


def _is_finite(b: Linalg, x: Ref) -> Ref:
    return b.compared("lt", b.same("math.absf", x), b.scalar(np.inf, x.type))


# -- integers --------------------------------------------------------------------------------------


def _negative(b: Linalg, x: Ref) -> Ref:
    return b.same("arith.subi", b.scalar(0, x.type), x)


def _integer_abs(b: Linalg, x: Ref) -> Ref:
    return b.same("arith.maxsi", x, _negative(b, x))


def _integer_sign(b: Linalg, x: Ref) -> Ref:
    one, minus_one = b.scalar(1, x.type), b.scalar(-1, x.type)
    return b.same("arith.minsi", b.same("arith.maxsi", x, minus_one), one)


def _inverted(b: Linalg, x: Ref) -> Ref:
    ones = True if x.type is I1 else -1 if x.type.kind == "int" else 2**x.type.bits - 1
    return b.same("arith.xori", x, b.scalar(ones, x.type))


def _divisor(b: Linalg, y: Ref) -> tuple[Ref, Ref, Ref | None]:
    """Return a divisor that arith defines, and whether y is 0 and whether it is -1."""
    zero = b.compared("eq", y, b.scalar(0, y.type))
    if y.type.kind == "uint":
        return b.chosen(zero, b.scalar(1, y.type), y), zero, None
    minus_one = b.compared("eq", y, b.scalar(-1, y.type))
    either = b.same("arith.ori", zero, minus_one)
    return b.chosen(either, b.scalar(1, y.type), y), zero, minus_one


def _integer_div(b: Linalg, x: Ref, y: Ref) -> Ref:
    """Divide and truncate; x / 0 is 0, the lowest value / -1 wraps."""
    divisor, zero, minus_one = _divisor(b, y)
    made = b.same("arith.divui" if minus_one is None else "arith.divsi", x, divisor)
    if minus_one is not None:
        made = b.chosen(minus_one, _negative(b, x), made)
    return b.chosen(zero, b.scalar(0, x.type), made)


def _integer_rem(b: Linalg, x: Ref, y: Ref) -> Ref:
    """Compute the remainder with the sign of x; the remainder by 0 and by -1 is 0, as by 1."""
    divisor, _, minus_one = _divisor(b, y)
    return b.same("arith.remui" if minus_one is None else "arith.remsi", x, divisor)


def _integer_mod(b: Linalg, x: Ref, y: Ref) -> Ref:
    r = _integer_rem(b, x, y)
    if x.type.kind == "uint":
        return r
    zero = b.scalar(0, x.type)
    unlike = b.same("arith.xori", b.compared("lt", r, zero), b.compared("lt", y, zero))
    differ = b.same("arith.andi", b.compared("ne", r, zero), unlike)
    return b.chosen(differ, b.same("arith.addi", r, y), r)


def _shift(names: tuple[str, ...]) -> Scalar:
    """Wrap a shift: a count outside 0..width-1 yields 0, or the arithmetic shift's sign fill."""

    def run(b: Linalg, x: Ref, count: Ref) -> Ref:
        zero = b.scalar(0, x.type)
        width = b.scalar(x.type.bits, x.type)
        inside = b.writer.line(f"arith.cmpi ult, {count}, {width} : {signless(x.type)}", I1)
        if len(names) == 2 and x.type.kind == "int":
            last = b.scalar(x.type.bits - 1, x.type)
            return _signed(names)(b, x, b.chosen(inside, count, last))
        shifted = _signed(names)(b, x, b.chosen(inside, count, zero))
        return b.chosen(inside, shifted, zero)

    return run


def _integer_pow(b: Linalg, x: Ref, y: Ref) -> Ref:
    """Compute a wrapping power by squaring.

    A negative exponent yields 1 or -1 for the bases 1 and -1, else 0.
    """
    kind, text = x.type, signless(x.type)
    one, zero = b.scalar(1, kind), b.scalar(0, kind)
    with b.writer.region((INDEX, kind, kind, kind), header=False) as region:
        counter, made, base, left = region.arguments
        odd = b.compared("ne", b.same("arith.andi", left, one), zero)
        made = b.chosen(odd, b.same("arith.muli", made, base), made)
        base, left = b.same("arith.muli", base, base), b.same("arith.shrui", left, one)
        b.writer.end(f"scf.yield {made}, {base}, {left} : {text}, {text}, {text}")
    counter, *carried = region.arguments
    starts = zip(carried, (one, x, y), strict=True)
    loop = (
        f"scf.for {counter} = {b.place(0)} to {b.place(kind.bits)} step {b.place(1)} "
        f"iter_args({', '.join(f'{v} = {start}' for v, start in starts)}) -> "
        f"({text}, {text}, {text}) {region}"
    )
    power = b.writer.lines(loop, (kind,) * 3, regions=(region,))[0]
    if kind.kind == "uint":
        return power
    minus_one = b.scalar(-1, kind)
    is_minus_one = b.compared("eq", x, minus_one)
    odd = b.compared("ne", b.same("arith.andi", y, one), zero)
    unit = b.chosen(b.same("arith.andi", is_minus_one, odd), minus_one, one)
    is_unit = b.same("arith.ori", is_minus_one, b.compared("eq", x, one))
    return b.chosen(b.compared("lt", y, zero), b.chosen(is_unit, unit, zero), power)


# -- conversions -----------------------------------------------------------------------------------


def convert(b: Linalg, x: Ref, target: DType, saturate: bool = True) -> Ref:
    """Convert a scalar as ``core.cast`` does."""
    source = x.type
    if source is target:
        return x
    if target is I1:
        return b.compared("ne", x, b.scalar(0, source))
    if source.is_float:
        return _from_float(b, x, target, saturate)
    signed = source.kind == "int"
    if not target.is_float:
        if signless(source) is signless(target):
            return x.read_as(target)
        wider = source.bits < target.bits
        name = "arith.trunci" if not wider else "arith.extsi" if signed else "arith.extui"
        return b.converted(name, x, target)
    name = "arith.sitofp" if signed else "arith.uitofp"
    if target.bits >= 32:
        return b.converted(name, x, target)
    if source.bits <= 16 or target.bits <= 8:  # exact in f32, or out of range of the target
        return _narrowed(b, b.converted(name, x, F32), target, saturate)
    if source.bits == 64:
        x = _sticky(b, x)
    return _narrowed(b, b.converted(name, x, F64), target, saturate)


def _sticky(b: Linalg, x: Ref) -> Ref:
    """Return a 64-bit integer that f64 holds and that rounds to 16 bits or fewer as ``x`` does.

    Bits beyond the first 53 are combined into one sticky bit.
    """
    kind = x.type
    low = b.scalar(0xFFF, kind)
    mask = b.scalar(-0x1000 if kind.kind == "int" else 2**64 - 0x1000, kind)
    rest = b.compared("ne", b.same("arith.andi", x, low), b.scalar(0, kind))
    half = b.chosen(rest, b.scalar(0x800, kind), b.scalar(0, kind))
    rounded = b.same("arith.ori", b.same("arith.andi", x, mask), half)
    size = _integer_abs(b, x) if kind.kind == "int" else x
    large = b.writer.line(f"arith.cmpi ugt, {size}, {b.scalar(2**53, kind)} : i64", I1)
    return b.chosen(large, rounded, x)


def _from_float(b: Linalg, x: Ref, target: DType, saturate: bool) -> Ref:
    source = x.type
    if source.bits < 32 and target is not source:
        x = b.converted("arith.extf", x, F32)
    if not target.is_float:
        return _to_integer(b, x, target)
    if target is x.type:
        return x
    if target.bits > x.type.bits:
        return b.converted("arith.extf", x, target)
    return _narrowed(b, x, target, saturate)


def _narrowed(b: Linalg, x: Ref, target: DType, saturate: bool) -> Ref:
    """Round f64 or f32 to a narrower float.

    8 bits and fewer saturate on request (infinities too); 4 bits always do, and NaN becomes 0.
    """
    if target.bits <= 8 and (saturate or target.bits == 4):
        most = float(ml_dtypes.finfo(target.numpy).max)
        high, low = b.scalar(most, x.type), b.scalar(-most, x.type)
        x = b.chosen(b.compared("gt", x, high), high, x)
        x = b.chosen(b.compared("lt", x, low), low, x)
    if target.bits == 4:
        x = b.chosen(_is_nan(b, x), b.scalar(0, x.type), x)
    return b.converted("arith.truncf", x, target)


def _to_integer(b: Linalg, x: Ref, target: DType) -> Ref:
    """Truncate and saturate; NaN becomes 0.

    All bounds are powers of two, which floats represent exactly.
    """
    signed = target.kind == "int"
    bits = target.bits - signed
    low, high = (-(2**bits) if signed else 0), 2**bits
    below = b.compared("le", x, b.scalar(low, x.type))
    above = b.compared("ge", x, b.scalar(high, x.type))
    out = b.same("arith.ori", b.same("arith.ori", below, above), _is_nan(b, x))
    inside = b.chosen(out, b.scalar(0, x.type), x)
    wide = target if target.bits >= 8 else I32
    made = b.converted("arith.fptosi" if signed else "arith.fptoui", inside, wide)
    if wide is not target:
        made = b.converted("arith.trunci", made, target)
    made = b.chosen(above, b.scalar(high - 1, target), made)
    return b.chosen(below, b.scalar(low, target), made)


# -- tables ----------------------------------------------------------------------------------------

#: op -> its scalar function for floats, and for integers and i1.
FLOATS: dict[str, Scalar] = {
    **{kind: _named(name) for kind, name in _EXACT.items()},
    **{name: _in_f32(_named(f"math.{name}")) for name in _FUNCTIONS},
    "pow": _in_f32(_named("math.powf")),
    "rsqrt": _in_f32(_rsqrt),
    "sigmoid": _in_f32(_sigmoid),
    "sign": _sign,
    "mod": _float_mod,
    "is_nan": _is_nan,
    "is_inf": _is_inf,
    "is_finite": _is_finite,
}
INTEGERS: dict[str, Scalar] = {
    **{kind: _signed(names) for kind, names in _INTEGERS.items()},
    "neg": _negative,
    "abs": _integer_abs,
    "sign": _integer_sign,
    "bitnot": _inverted,
    "not": _inverted,
    "div": _integer_div,
    "rem": _integer_rem,
    "mod": _integer_mod,
    "shl": _shift(("arith.shli",)),
    "shr": _shift(("arith.shrsi", "arith.shrui")),
    "pow": _integer_pow,
}


def scalar(kind: str, operand: DType) -> Scalar:
    """Return the scalar form of an elementwise op (without ``core.``) on operands of a dtype."""
    if kind in COMPARISONS:
        return lambda b, x, y: b.compared(kind, x, y)
    return (FLOATS if operand.is_float else INTEGERS)[kind]
