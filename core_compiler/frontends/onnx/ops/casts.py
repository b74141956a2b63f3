"""Conversions of ONNX between dtypes."""

from __future__ import annotations

from core_compiler.frontends.onnx.reading import dtype_of
from core_compiler.frontends.onnx.table import NotSupported, onnx_op
from core_compiler.ir import DType, Value, dtype

I1, U8, U32, F32, SCALE = map(dtype, ("i1", "ui8", "ui32", "f32", "f8E8M0FNU"))


@onnx_op("Cast")
def cast(b, x):
    return _converted(b, x, dtype_of(b.attr("to"), b.node.name))


@onnx_op("CastLike")
def cast_like(b, x, like):
    return _converted(b, x, like.type.dtype)


@onnx_op("BitCast")
def bitcast(b, x):
    kind = dtype_of(b.attr("to"), b.node.name)
    if {x.type.dtype, kind} == {I1, U8}:  # a bool is a byte in ONNX
        return b.cast(x, dtype=kind)
    return b.bitcast(x, dtype=kind)


def _converted(b, x: Value, kind: DType) -> Value:
    """Convert as ONNX does: floats out of range of a 2- or 4-bit integer wrap, others saturate."""
    saturate = bool(b.attr("saturate", 1))
    if x.type.dtype is kind:
        return x
    if kind is SCALE:
        return _to_scale(b, b.to(x, F32), saturate)
    if x.type.dtype is SCALE:
        return b.to(_from_scale(b, x), kind)
    if x.type.dtype.is_float and kind.is_integer and kind.bits < 8:
        x = b.cast(x, dtype="i32")
    return x if x.type.dtype is kind else b.cast(x, dtype=kind, saturate=saturate)


def _to_scale(b, x: Value, saturate: bool) -> Value:
    """Round f32 values to powers of two, stored as exponents (OCP MX 1.0).

    The sign is dropped, infinity becomes NaN.
    """
    mode = b.attr("round_mode", "up")
    bits = b.bitcast(x, dtype=U32)

    def masked(mask: int) -> Value:
        return b.and_(bits, b.scalar_like(mask, bits))

    zero, nan = b.scalar_like(0, bits), b.scalar_like(0xFF, bits)
    exponent = b.and_(b.shr(bits, b.scalar_like(23, bits)), nan)
    if mode == "up":
        more = b.gt(masked(0x7FFFFF), zero)
    elif mode == "nearest":  # a tie rounds up, except from below the smallest normal number
        tie = b.and_(b.eq(masked(0x7FFFFF), b.scalar_like(0x400000, bits)), b.gt(exponent, zero))
        more = b.or_(b.gt(masked(0x7FFFFF), b.scalar_like(0x400000, bits)), tie)
    elif mode == "down":
        more = b.gt(zero, zero)
    else:
        raise NotSupported(f"round_mode {mode!r}")
    last = b.scalar_like(0xFE, bits)
    limit = last if saturate else nan
    raised = b.min(b.add(exponent, b.cast(more, dtype=U32)), limit)
    special = b.eq(exponent, nan)
    return b.bitcast(b.cast(b.select(special, nan, raised), dtype=U8), dtype=SCALE)


def _from_scale(b, x: Value) -> Value:
    exponent = b.cast(b.bitcast(x, dtype=U8), dtype=U32)
    shifted = b.shl(exponent, b.scalar_like(23, exponent))
    smallest = b.scalar_like(0x400000, exponent)  # 2**-127 is below the normal numbers of f32
    nan = b.scalar_like(0x7FC00000, exponent)
    bits = b.select(b.eq(exponent, b.scalar_like(0, exponent)), smallest, shifted)
    bits = b.select(b.eq(exponent, b.scalar_like(0xFF, exponent)), nan, bits)
    return b.bitcast(bits, dtype=F32)
