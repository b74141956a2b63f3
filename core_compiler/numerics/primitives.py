"""The contract's scalar primitives for the CPU.

Two layers. **Leaves** are single exact operations (one IEEE rounding, or integer arithmetic that
wraps), each one LLVM instruction or a guarded group of them; a target provides all of them.
**Composed** primitives and the elementary functions (``functions.py``) are plain Python source over
leaves, comparisons and each other, instantiated once per target: their source is the contract.

Names are ``<operation>_<dtype>``: ``fma_f32``, ``shl_i32``, ``bits_f64``; conversions are
``convert_<from>_<to>``. Arguments must have exactly the named dtype: a Python float literal is
float64 in Numba, so literals are written ``f32(0.5)``; an f64 argument to an f32 primitive is a
compile-time error and never a silent conversion. Integer literals are accepted where an integer is
expected.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from core_compiler.numerics.jit import inline_jit, instantiate

f32, f64 = numba.float32, numba.float64
i8, i16, i32, i64 = numba.int8, numba.int16, numba.int32, numba.int64
u8, u16, u32, u64 = numba.uint8, numba.uint16, numba.uint32, numba.uint64
boolean = numba.boolean

FLOATS = {"f32": f32, "f64": f64}
SIGNED = {"i8": i8, "i16": i16, "i32": i32, "i64": i64}
UNSIGNED = {"u8": u8, "u16": u16, "u32": u32, "u64": u64}
INTEGERS = {**SIGNED, **UNSIGNED}
NUMBERS = {**FLOATS, **INTEGERS}

_BITS = {name: int(name[1:]) for name in NUMBERS}
_FLOAT_IR = {"f32": ir.FloatType(), "f64": ir.DoubleType()}


def _ir_type(name: str) -> ir.Type:
    return _FLOAT_IR.get(name) or ir.IntType(_BITS[name])


# --- leaves: LLVM emitters -------------------------------------------------------------------
# Every emitter works on scalars and, lane by lane, on LLVM vectors (code generators use both).


def _like(t: ir.Type, element: ir.Type) -> ir.Type:
    """Return ``element``, or a vector of it with as many lanes as ``t`` has."""
    return ir.VectorType(element, t.count) if isinstance(t, ir.VectorType) else element


def _constant(t: ir.Type, number: float) -> ir.Constant:
    """Return ``number`` in every lane of ``t``."""
    return ir.Constant(t, [number] * t.count if isinstance(t, ir.VectorType) else number)


def _suffix(t: ir.Type, dtype: str) -> str:
    """Return a type's name in LLVM intrinsics: ``f32``, ``i32``, ``v16f32``."""
    dtype = dtype if dtype in FLOATS else f"i{_BITS[dtype]}"
    return f"v{t.count}{dtype}" if isinstance(t, ir.VectorType) else dtype


def _call(builder, name, result, *args):
    function_type = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), args)


def _unary_llvm(llvm_name):
    def emit(builder, dtype, a):
        return _call(builder, f"llvm.{llvm_name}.{_suffix(a.type, dtype)}", a.type, a)

    return emit


def _fma(builder, dtype, a, b, c):
    return _call(builder, f"llvm.fma.{_suffix(a.type, dtype)}", a.type, a, b, c)


def _copysign(builder, dtype, a, b):
    return _call(builder, f"llvm.copysign.{_suffix(a.type, dtype)}", a.type, a, b)


def _builder_op(method):
    return lambda builder, dtype, *args: getattr(builder, method)(*args)


def _shift(method):
    """Return a shift; by the width or more the result is 0, and so it is for negative counts.

    Arithmetic shifts then fill with the sign: 0 or -1.
    """

    def emit(builder, dtype, a, count):
        width = _constant(a.type, _BITS[dtype])
        inside = builder.icmp_unsigned("<", count, width)
        if method == "ashr":
            last = _constant(a.type, _BITS[dtype] - 1)
            return builder.ashr(a, builder.select(inside, count, last))
        zero = _constant(a.type, 0)
        shifted = getattr(builder, method)(a, builder.select(inside, count, zero))
        return builder.select(inside, shifted, zero)

    return emit


def _divide(quotient: bool):
    """Return a truncating division; by zero it is 0 (quotient and remainder); lowest / -1 wraps."""

    def emit(builder, dtype, a, b):
        zero, one = _constant(a.type, 0), _constant(a.type, 1)
        by_zero = builder.icmp_unsigned("==", b, zero)
        if dtype[0] == "u":
            divisor = builder.select(by_zero, one, b)
            value = builder.udiv(a, divisor) if quotient else builder.urem(a, divisor)
            return builder.select(by_zero, zero, value)
        by_minus_one = builder.icmp_unsigned("==", b, _constant(a.type, -1))
        divisor = builder.select(builder.or_(by_zero, by_minus_one), one, b)
        value = builder.sdiv(a, divisor) if quotient else builder.srem(a, divisor)
        if quotient:
            value = builder.select(by_minus_one, builder.neg(a), value)
        else:
            value = builder.select(by_minus_one, zero, value)
        return builder.select(by_zero, zero, value)

    return emit


def _compare(operator):
    def emit(builder, dtype, a, b):
        if dtype in FLOATS:
            return builder.fcmp_ordered(operator, a, b)
        compare = builder.icmp_unsigned if dtype[0] == "u" else builder.icmp_signed
        return compare(operator, a, b)

    return emit


def _high_product(builder, dtype, a, b):
    wide = _like(a.type, ir.IntType(2 * _BITS[dtype]))
    product = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
    return builder.trunc(builder.lshr(product, _constant(wide, _BITS[dtype])), a.type)


def _dot4(builder, dtype, a, b, acc):
    """Add the products of four unsigned bytes of ``a`` and signed bytes of ``b``; all wraps."""
    high = _constant(a.type, 24)
    for number in range(4):
        left = _constant(a.type, 24 - 8 * number)
        x = builder.lshr(builder.shl(a, left), high)
        y = builder.ashr(builder.shl(b, left), high)
        acc = builder.add(acc, builder.mul(x, y))
    return acc


def _conversion(source: str, target: str):
    """Return a rounded or exact conversion; float to integer truncates, saturates, NaN to 0."""

    def emit(builder, dtype, a):
        target_ir = _like(a.type, _ir_type(target))
        if source in FLOATS and target in FLOATS:
            return builder.fpext(a, target_ir) if target == "f64" else builder.fptrunc(a, target_ir)
        if source in FLOATS and isinstance(a.type, ir.VectorType):
            return _saturated(builder, a, target, target_ir)
        if source in FLOATS:
            kind = "fptoui" if target[0] == "u" else "fptosi"
            name = f"llvm.{kind}.sat.{_suffix(a.type, target)}.{_suffix(a.type, source)}"
            return _call(builder, name, target_ir, a)
        if target in FLOATS:
            convert = builder.uitofp if source[0] == "u" else builder.sitofp
            return convert(a, target_ir)
        if _BITS[source] == _BITS[target]:
            return a
        if _BITS[source] > _BITS[target]:
            return builder.trunc(a, target_ir)
        return (builder.zext if source[0] == "u" else builder.sext)(a, target_ir)

    return emit


def _saturated(builder, a, target: str, target_ir):
    """Return lanes of floats as integers; LLVM converts with saturation one lane at a time."""
    signed = target[0] != "u"
    low, high = (-1 << _BITS[target] - 1 if signed else 0), 1 << _BITS[target] - signed
    lowest, above = _constant(a.type, float(low)), _constant(a.type, float(high))
    too_low = builder.fcmp_ordered("<", a, lowest)
    too_high = builder.fcmp_ordered(">=", a, above)
    inside = builder.and_(builder.fcmp_ordered(">=", a, lowest), builder.not_(too_high))
    convert = builder.fptosi if signed else builder.fptoui
    made = convert(builder.select(inside, a, _constant(a.type, 0.0)), target_ir)
    made = builder.select(too_high, _constant(target_ir, high - 1), made)
    return builder.select(too_low, _constant(target_ir, low), made)


_FLOAT_OPS = {
    "add": (2, _builder_op("fadd")),
    "sub": (2, _builder_op("fsub")),
    "mul": (2, _builder_op("fmul")),
    "div": (2, _builder_op("fdiv")),
    "fma": (3, _fma),
    "neg": (1, _builder_op("fneg")),
    "abs": (1, _unary_llvm("fabs")),
    "sqrt": (1, _unary_llvm("sqrt")),
    "floor": (1, _unary_llvm("floor")),
    "ceil": (1, _unary_llvm("ceil")),
    "trunc": (1, _unary_llvm("trunc")),
    "round_even": (1, _unary_llvm("rint")),
    "copysign": (2, _copysign),
}
_INTEGER_OPS = {
    "add": (2, _builder_op("add")),
    "sub": (2, _builder_op("sub")),
    "mul": (2, _builder_op("mul")),
    "neg": (1, _builder_op("neg")),
    "and": (2, _builder_op("and_")),
    "or": (2, _builder_op("or_")),
    "xor": (2, _builder_op("xor")),
    "not": (1, _builder_op("not_")),
    "shl": (2, _shift("shl")),
    "div": (2, _divide(True)),
    "rem": (2, _divide(False)),
}
_COMPARISONS = {"eq": "==", "lt": "<", "le": "<="}


def _leaf_table() -> dict[str, tuple[tuple, object, str, Callable]]:
    """Return name -> (argument types, result type, dtype's name, emitter)."""
    table = {}
    for ops, dtypes in ((_FLOAT_OPS, FLOATS), (_INTEGER_OPS, INTEGERS)):
        for op, (arity, emit) in ops.items():
            for dtype, t in dtypes.items():
                table[f"{op}_{dtype}"] = ((t,) * arity, t, dtype, emit)
    for dtype, t in INTEGERS.items():
        right = "lshr" if dtype in UNSIGNED else "ashr"
        table[f"shr_{dtype}"] = ((t, t), t, dtype, _shift(right))
    for dtype in ("u32", "u64"):
        t = UNSIGNED[dtype]
        table[f"mulhi_{dtype}"] = ((t, t), t, dtype, _high_product)
    table["dot4_i32"] = ((i32, i32, i32), i32, "i32", _dot4)
    for dtype, t in NUMBERS.items():
        for op, operator in _COMPARISONS.items():
            table[f"{op}_{dtype}"] = ((t, t), boolean, dtype, _compare(operator))
        table[f"select_{dtype}"] = ((boolean, t, t), t, dtype, _select)
    for dtype, integer in (("f32", i32), ("f64", i64)):
        t = FLOATS[dtype]
        table[f"bits_{dtype}"] = ((t,), integer, dtype, _bitcast(ir.IntType(_BITS[dtype])))
        table[f"from_bits_{dtype}"] = ((integer,), t, dtype, _bitcast(_FLOAT_IR[dtype]))
    for source in NUMBERS:
        for target in NUMBERS:
            if source != target:
                types = ((NUMBERS[source],), NUMBERS[target])
                table[f"convert_{source}_{target}"] = (*types, source, _conversion(source, target))
    return table


def _select(builder, dtype, condition, a, b):
    if not isinstance(condition.type, ir.VectorType) and condition.type != ir.IntType(1):
        condition = builder.trunc(condition, ir.IntType(1))
    return builder.select(condition, a, b)


def _bitcast(target_ir):
    return lambda builder, dtype, a: builder.bitcast(a, _like(a.type, target_ir))


def _accepts(expected, given) -> bool:
    if isinstance(given, numba.types.IntegerLiteral):
        return isinstance(expected, numba.types.Integer)
    return numba.types.unliteral(given) == expected


def _leaf(name: str, arguments: tuple, result, dtype: str, emit: Callable) -> Callable:
    def typed(given: tuple):
        if not all(map(_accepts, arguments, given)):
            wanted = ", ".join(map(str, arguments))
            raise TypingError(f"{name} takes ({wanted}), got ({', '.join(map(str, given))})")

        def codegen(context, builder, signature, values):
            return emit(builder, dtype, *values)

        return result(*arguments), codegen

    # Numba reads the arity from the Python signature of the decorated function.
    by_arity = {
        1: lambda context, a: typed((a,)),
        2: lambda context, a, b: typed((a, b)),
        3: lambda context, a, b, c: typed((a, b, c)),
    }
    function = by_arity[len(arguments)]
    function.__name__ = function.__qualname__ = name
    return intrinsic(function)


LEAF_TABLE = _leaf_table()
#: Name -> Numba intrinsic. Another target must provide the same names.
LEAVES: dict[str, Callable] = {name: _leaf(name, *row) for name, row in LEAF_TABLE.items()}
#: Dtype constructors by which sources write literals.
LITERALS = {**NUMBERS, "boolean": boolean}


# --- composed primitives: source shared by all targets -----------------------------------------
# The names below are bound per target by ``instantiate``; see ``_COMPOSED_SOURCES``.


def _maximum_float(a, b):
    """Return the maximum with -0 < +0; any NaN yields the canonical NaN.

    For equal bits or two zeros, and-ing keeps +0.
    """
    equal = from_bits(and_(bits(a), bits(b)))  # noqa: F821
    larger = select(a > b, a, select(b > a, b, equal))  # noqa: F821
    return select((a != a) | (b != b), from_bits(integer(CANONICAL_NAN)), larger)  # noqa: F821


def _minimum_float(a, b):
    """Return the minimum with -0 < +0; any NaN yields the canonical NaN.

    For equal bits or two zeros, or-ing keeps -0.
    """
    equal = from_bits(or_(bits(a), bits(b)))  # noqa: F821
    smaller = select(a < b, a, select(b < a, b, equal))  # noqa: F821
    return select((a != a) | (b != b), from_bits(integer(CANONICAL_NAN)), smaller)  # noqa: F821


def _maximum_integer(a, b):
    return select(lt(a, b), b, a)  # noqa: F821


def _minimum_integer(a, b):
    return select(lt(b, a), b, a)  # noqa: F821


def _floor_div(a, b):
    """Return the quotient rounded towards minus infinity; by zero it is 0."""
    quotient = div(a, b)  # noqa: F821
    remainder = rem(a, b)  # noqa: F821
    zero = integer(0)  # noqa: F821
    adjust = (remainder != zero) & (lt(remainder, zero) != lt(b, zero))  # noqa: F821
    return select(adjust, sub(quotient, integer(1)), quotient)  # noqa: F821


def _floor_mod(a, b):
    """Return the remainder with the divisor's sign; by zero it is 0."""
    remainder = rem(a, b)  # noqa: F821
    zero = integer(0)  # noqa: F821
    adjust = (remainder != zero) & (lt(remainder, zero) != lt(b, zero))  # noqa: F821
    return select(adjust, add(remainder, b), remainder)  # noqa: F821


#: Quiet, positive, empty payload.
CANONICAL_NAN = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}
_LOCAL_OPS = ("add", "sub", "div", "rem", "select", "lt", "bits", "from_bits")


def composed_primitives(compile_: Callable, names: dict) -> dict[str, Callable]:
    """Return maximum, minimum, floor_div, floor_mod of every dtype, from a target's leaves."""
    done: dict[str, Callable] = {}
    for dtype in NUMBERS:
        bound = {op: names[f"{op}_{dtype}"] for op in _LOCAL_OPS if f"{op}_{dtype}" in names}
        if dtype in FLOATS:
            integer = {"f32": "i32", "f64": "i64"}[dtype]
            bound |= {"and_": names[f"and_{integer}"], "or_": names[f"or_{integer}"]}
            bound |= {"integer": names[integer], "CANONICAL_NAN": CANONICAL_NAN[dtype]}
            sources = {"maximum": _maximum_float, "minimum": _minimum_float}
        else:
            bound["integer"] = names[dtype]
            sources = {
                "maximum": _maximum_integer,
                "minimum": _minimum_integer,
                "floor_div": _floor_div,
                "floor_mod": _floor_mod,
            }
        sources = {f"{op}_{dtype}": source for op, source in sources.items()}
        done |= instantiate(sources, compile_, bound)
    return done


#: Every primitive by name, for the CPU: leaves, literals, composed ones.
PRIMITIVES: dict[str, Callable] = {**LEAVES, **LITERALS}
PRIMITIVES |= composed_primitives(inline_jit, PRIMITIVES)
