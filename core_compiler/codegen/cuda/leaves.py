"""The contract's primitives for NVVM, with explicit rounding and saturation.

NVVM contracts ``fmul`` and ``fadd`` into one fma if it can, so every rounding is a separate
intrinsic (``add.rn.f32``). Its LLVM 7 has no ``fneg`` and no saturating conversions; ``cvt.rzi`` of
PTX saturates, as the contract does, and converts NaN to 0 unless one side has 64 bits. Of LLVM's
own mathematical intrinsics it accepts only ``fma``.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from core_compiler.codegen.contract import Contract
from core_compiler.numerics.primitives import FLOATS, INTEGERS, LEAF_TABLE

_LETTER = {"f32": "f", "f64": "d"}
_I32 = ir.IntType(32)


def call(builder, name: str, result, *arguments):
    """Emit a call of a function that NVVM declares."""
    module = builder.module
    kind = ir.FunctionType(result, [a.type for a in arguments])
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, arguments)


def lane_by_lane(emit: Callable) -> Callable:
    """Return a scalar emitter that also works on vectors: NVVM has no vector units."""

    def spread(builder, dtype, *values):
        vectors = [v for v in values if isinstance(v.type, ir.VectorType)]
        if not vectors:
            return emit(builder, dtype, *values)
        made = None
        for lane in range(vectors[0].type.count):
            place = ir.Constant(_I32, lane)
            parts = [
                builder.extract_element(v, place) if isinstance(v.type, ir.VectorType) else v
                for v in values
            ]
            one = emit(builder, dtype, *parts)
            if made is None:
                kind = ir.VectorType(one.type, vectors[0].type.count)
                made = ir.Constant(kind, ir.Undefined)
            made = builder.insert_element(made, one, place)
        return made

    return spread


def _rounded(name: str) -> Callable:
    def emit(builder, dtype, *values):
        return call(builder, f"llvm.nvvm.{name}.{_LETTER[dtype]}", values[0].type, *values)

    return emit


def _difference(builder, dtype, a, b):
    return _rounded("add.rn")(builder, dtype, a, _negated(builder, dtype, b))


def _negated(builder, dtype, a):
    return builder.fsub(ir.Constant(a.type, -0.0), a)


def _copysign(builder, dtype, a, b):
    kind = ir.IntType(int(dtype[1:]))
    sign = ir.Constant(kind, 1 << (kind.width - 1))
    x, y = (builder.bitcast(v, kind) for v in (a, b))
    size = builder.and_(x, ir.Constant(kind, (1 << (kind.width - 1)) - 1))
    return builder.bitcast(builder.or_(size, builder.and_(y, sign)), a.type)


def _high_product(builder, dtype, a, b):
    if dtype == "u64":
        return call(builder, "llvm.nvvm.mulhi.ull", a.type, a, b)
    return call(builder, "llvm.nvvm.mulhi.ui", a.type, a, b)


def _to_integer(target: str) -> Callable:
    """Return a truncating, saturating conversion, with NaN to 0.

    Below 32 bits the 32-bit result is clamped.
    """
    signed, bits = target[0] == "i", int(target[1:])
    wide = max(bits, 32)
    kind = ir.IntType(wide)
    suffix = {(True, 32): "i", (False, 32): "ui", (True, 64): "ll", (False, 64): "ull"}

    def emit(builder, dtype, a):
        name = f"llvm.nvvm.{_LETTER[dtype]}2{suffix[signed, wide]}.rz"
        value = call(builder, name, kind, a)
        if dtype == "f64" or wide == 64:  # NaN yields only the top bit (PTX ISA 9.0, "cvt")
            number = builder.fcmp_ordered("==", a, a)
            value = builder.select(number, value, ir.Constant(kind, 0))
        if bits == wide:
            return value
        top = ir.Constant(kind, (1 << (bits - signed)) - 1)
        below = builder.icmp_signed if signed else builder.icmp_unsigned
        value = builder.select(below("<", value, top), value, top)
        if signed:
            low = ir.Constant(kind, -(1 << (bits - 1)))
            value = builder.select(below(">", value, low), value, low)
        return builder.trunc(value, ir.IntType(bits))

    return emit


def _table() -> dict[str, tuple]:
    """Return ``LEAF_TABLE`` with the emitters that differ here."""
    other: dict[str, Callable] = {}
    for dtype in FLOATS:
        other |= {
            f"add_{dtype}": _rounded("add.rn"),
            f"mul_{dtype}": _rounded("mul.rn"),
            f"div_{dtype}": _rounded("div.rn"),
            f"sqrt_{dtype}": _rounded("sqrt.rn"),
            f"sub_{dtype}": _difference,
            f"neg_{dtype}": _negated,
            f"abs_{dtype}": _rounded("fabs"),
            f"copysign_{dtype}": _copysign,
            f"floor_{dtype}": _rounded("floor"),
            f"ceil_{dtype}": _rounded("ceil"),
            f"trunc_{dtype}": _rounded("trunc"),
            f"round_even_{dtype}": _rounded("round"),
        }
        other |= {f"convert_{dtype}_{target}": _to_integer(target) for target in INTEGERS}
    other |= {f"mulhi_{dtype}": _high_product for dtype in ("u32", "u64")}
    table = {}
    for name, (arguments, result, dtype, emit) in LEAF_TABLE.items():
        table[name] = (arguments, result, dtype, lane_by_lane(other.get(name, emit)))
    return table


#: The contract's functions on NVIDIA GPUs.
CONTRACT = Contract(_table())
