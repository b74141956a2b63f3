"""Dtypes in TOSA: the dtypes of integer arithmetic, and casts with the contract's semantics.

TOSA adds, multiplies and compares integers of 32 and 64 bits.  Narrower ones are computed in 32
bits and truncated, unsigned ones in the next wider signed dtype, which matches the contract's
wrapping results exactly.  If the computation itself overflows 32 or 64 bits, TOSA does not define a
result; tools wrap, as the contract does.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import (
    BF16,
    F16,
    F32,
    FP8,
    I1,
    I32,
    I64,
    Tosa,
)
from core_compiler.ir import DType, dtype

UI64 = dtype("ui64")


def arithmetic_dtype(kind: DType) -> DType:
    """Return the dtype that arithmetic on an integer dtype uses.

    It represents all values of the dtype; for ui64, it only preserves the bits.
    """
    unsigned = kind.kind == "uint"
    return I64 if kind.bits == 64 or (unsigned and kind.bits == 32) else I32


def to_arithmetic_dtype(b: Tosa, x: Ref) -> Ref:
    """Convert integers to the dtype of :func:`arithmetic_dtype`."""
    return resized(b, x, arithmetic_dtype(x.type.dtype))


def resized(b: Tosa, x: Ref, kind: DType) -> Ref:
    """Convert integers to another width: truncated, or with their values preserved."""
    source = x.type.dtype
    if kind is source:
        return x
    if kind.bits == source.bits:
        return x.read_as(x.type.with_(dtype=kind))
    if I64.bits not in (kind.bits, source.bits):
        x = _through(b, x, I32)
    elif source.bits < 32:
        x = _through(b, _through(b, x, I32), I64)
    else:
        x = _through(b, x, I64 if kind.bits == 64 else I32)
    if x.type.dtype.bits > kind.bits:
        x = b.each("cast", x, kind=dtype(f"i{kind.bits}"))
    return x.read_as(x.type.with_(dtype=kind))


def _through(b: Tosa, x: Ref, kind: DType) -> Ref:
    """Convert integers to i32 or i64 from any other width; unsigned ones are zero-extended."""
    source = x.type.dtype
    if source.bits == kind.bits:
        return x.read_as(x.type.with_(dtype=kind))
    plain = x.read_as(x.type.with_(dtype=dtype(f"i{source.bits}")))
    made = b.each("cast", plain, kind=kind)
    if source.kind == "int" or source.bits > kind.bits:
        return made
    return b.each("bitwise_and", made, b.splat(2**source.bits - 1, made))


# -- casts -----------------------------------------------------------------------------------------


def convert(b: Tosa, x: Ref, kind: DType, saturate: bool = True) -> Ref:
    """Emit a ``core.cast``."""
    source = x.type.dtype
    if source is kind:
        return x
    if source is I1:
        return _from_bool(b, x, kind)
    if kind is I1:
        return to_bool(b, x)
    if source.is_float:
        return to_float(b, x, kind, saturate) if kind.is_float else _to_integer(b, x, kind)
    if not kind.is_float:
        return resized(b, x, kind)
    if kind in FP8:
        return to_float(b, _from_integer(b, x, F32), kind, saturate)
    return _from_integer(b, x, kind)


def _from_bool(b: Tosa, x: Ref, kind: DType) -> Ref:
    if kind.is_float and kind not in FP8:
        return b.each("select", x, b.splat(1, x, kind), b.splat(0, x, kind))
    if kind in FP8:
        return to_float(b, _from_bool(b, x, F32), kind)
    return b.each("cast", x, kind=kind)


def to_bool(b: Tosa, x: Ref) -> Ref:
    """Return whether elements differ from 0 (NaN does)."""
    if not x.type.dtype.is_float:
        return b.each("cast", x, kind=I1)
    x = to_float(b, x, F32)
    return b.each("logical_not", b.each("equal", x, b.splat(0, x), kind=I1))


def to_float(b: Tosa, x: Ref, kind: DType, saturate: bool = True) -> Ref:
    """Convert floats to another dtype, rounded once; 8-bit floats saturate on request."""
    source = x.type.dtype
    if source is kind:
        return x
    if kind in FP8 and saturate:
        most = float(ml_dtypes.finfo(kind.numpy).max)
        x = to_float(b, x, F32)
        x = b.each("minimum", b.each("maximum", x, b.splat(-most, x)), b.splat(most, x))
    if {x.type.dtype, kind} in ({F16, BF16}, set(FP8)):
        x = b.each("cast", x, kind=F32)
    return b.each("cast", x, kind=kind)


def truncated(b: Tosa, x: Ref) -> Ref:
    """Truncate floats to whole numbers; a zero keeps its sign."""
    negative = b.each("greater", b.splat(0, x), x, kind=I1)
    return b.each("select", negative, b.each("ceil", x), b.each("floor", x))


def _to_integer(b: Tosa, x: Ref, kind: DType) -> Ref:
    """Truncate and saturate, with 0 for NaN; TOSA's own cast rounds to nearest."""
    x = truncated(b, to_float(b, x, F32))
    x = b.each("select", b.each("equal", x, x, kind=I1), x, b.splat(0, x))
    if kind.bits == 64 or (kind.kind == "uint" and kind.bits == 32):
        return _to_wide(b, x, kind)
    if kind.kind == "int":
        return b.each("cast", x, kind=kind)
    top = b.each("minimum", b.each("maximum", x, b.splat(0, x)), b.splat(2**kind.bits - 1, x))
    return resized(b, b.each("cast", top, kind=I32), kind)


#: The bits of one part of a 64-bit integer: f32 and i32 represent each of three parts exactly.
_PART = 22


def _to_wide(b: Tosa, x: Ref, kind: DType) -> Ref:
    """Convert whole f32 values to 64-bit integers or ui32.

    The magnitude is converted in three parts, then the sign is applied.
    """
    signed = kind.kind == "int"
    bits = kind.bits - signed
    negative = b.each("greater", b.splat(0, x), x, kind=I1)
    size = b.each("abs", x) if signed else b.each("maximum", x, b.splat(0, x))
    large = b.each("greater_equal", size, b.splat(2.0**bits, size), kind=I1)
    size = b.each("select", large, b.splat(0, size), size)
    whole = None
    for shift in (2 * _PART, _PART, 0):
        part = size
        if shift:
            part = b.each("floor", b.each("mul", size, b.splat(2.0**-shift, size)))
            size = b.each("sub", size, b.each("mul", part, b.splat(2.0**shift, part)))
        wide = resized(b, b.each("cast", part, kind=I32), I64)
        if shift:
            wide = b.each("logical_left_shift", wide, b.splat(shift, wide))
        whole = wide if whole is None else b.each("add", whole, wide)
    assert whole is not None
    limits = np.iinfo(kind.numpy)
    if signed:
        minus = b.each("sub", b.splat(0, whole), whole)
        high = b.each("select", negative, b.splat(limits.min, whole), b.splat(limits.max, whole))
        whole = b.each("select", negative, minus, whole)
    else:
        top = np.array(limits.max, kind.numpy).astype(np.uint64).view(np.int64)
        high = b.splat(top, whole)
    return resized(b, b.each("select", large, high, whole), kind)


def _from_integer(b: Tosa, x: Ref, kind: DType) -> Ref:
    """Convert integers to f32, f16 or bf16.

    64-bit integers and ui32 are converted through f32 in three parts; values of 2**44 and more may
    be rounded twice.
    """
    source = x.type.dtype
    if arithmetic_dtype(source) is I32:
        return b.each("cast", to_arithmetic_dtype(b, x), kind=kind)
    x = to_arithmetic_dtype(b, x)
    negative = None
    if source.kind == "int":
        negative = b.each("greater", b.splat(0, x), x, kind=I1)
        x = b.each("select", negative, b.each("sub", b.splat(0, x), x), x)
    parts = []
    for shift in (0, _PART, 2 * _PART):
        part = b.each("logical_right_shift", x, b.splat(shift, x)) if shift else x
        if shift < 2 * _PART:
            part = b.each("bitwise_and", part, b.splat(2**_PART - 1, part))
        part = b.each("cast", b.each("cast", part, kind=I32), kind=F32)
        parts.append(b.each("mul", part, b.splat(2.0**shift, part)) if shift else part)
    low, middle, high = parts
    made = b.each("add", b.each("add", middle, low), high)
    if negative is not None:
        made = b.each("select", negative, b.each("sub", b.splat(0, made), made), made)
    return to_float(b, made, kind)


def position(b: Tosa, x: Ref, last: int) -> Ref:
    """Return positions of any integer dtype as i32 in ``0..last``."""
    kind = x.type.dtype
    wide = to_arithmetic_dtype(b, x)
    if kind is UI64:  # values beyond the range of i64 become negative
        negative = b.each("greater", b.splat(0, wide), wide, kind=I1)
        wide = b.each("select", negative, b.splat(last, wide), wide)
    wide = b.each("minimum", b.each("maximum", wide, b.splat(0, wide)), b.splat(last, wide))
    return resized(b, wide, I32)
