"""Quantised ops of ONNX: integer products are exact, scales are floats.

Values are rounded to nearest even; results saturate to the range of the integer dtype.
"""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.onnx.ops.network import conv, matmul
from core_compiler.frontends.onnx.reading import dtype_of
from core_compiler.frontends.onnx.table import NotSupported, axis_of, onnx_op
from core_compiler.ir import Value, dtype
from core_compiler.ops.quantised import integer_range

F32, I32, U8 = dtype("f32"), dtype("i32"), dtype("ui8")


def _along_axis(b, v, x, default_axis: int = 1):
    """Broadcast a scale or zero point over ``x``: a scalar, one value per position, or blocks."""
    shape, rank = x.type.shape, x.type.rank
    if v.type.elements == 1 and v.type.rank <= 1:
        return b.expand(b.reshape(v, shape=()), shape)
    axis = axis_of(int(b.attr("axis", default_axis)), rank)
    if v.type.rank == 1:
        return b.broadcast(v, shape=shape, dims=(axis,))
    block = int(b.attr("block_size", 0))
    if not block:
        raise NotSupported(f"a scale of shape {v.type.shape} without block_size")
    parts = v.type.shape[axis]
    wide = (*v.type.shape[: axis + 1], block, *v.type.shape[axis + 1 :])
    dims = tuple(i if i <= axis else i + 1 for i in range(rank))
    full = b.reshape(
        b.broadcast(v, shape=wide, dims=dims),
        shape=(*shape[:axis], parts * block, *shape[axis + 1 :]),
    )
    return full if parts * block == shape[axis] else b.cut(full, axis, 0, shape[axis])


def to_integer(b, x, zero, kind, default_axis: int = 1):
    """Compute round(x) + zero point, clamped to ``kind``."""
    made = b.round(x)
    if zero is not None:
        made = b.add(made, _along_axis(b, b.cast(zero, dtype=made.type.dtype), made, default_axis))
    low, high = integer_range(kind)
    made = b.cast(b.clamp(made, low=float(low), high=float(high)), dtype=I32)
    return b.cast(made, dtype=kind)


@onnx_op("QuantizeLinear", "com.microsoft::QuantizeLinear")
def quantise(b, x, scale, zero=None):
    wanted = b.attr("output_dtype")
    kind = zero.type.dtype if zero is not None else dtype_of(wanted) if wanted else U8
    wide = dtype_of(b.attr("precision")) if b.attr("precision") else x.type.dtype
    wide = F32 if not wide.is_float else wide
    x, scale = b.to(x, wide), b.to(scale, wide)
    if not kind.is_float and not _has_blocks(scale):
        axis, parameters = _parameters(b, x, scale, zero)
        return b.quantize(x, *parameters, dtype=kind, axis=axis)
    scaled = b.div(x, _along_axis(b, scale, x))
    if kind.is_float:
        return b.cast(scaled, dtype=kind, saturate=bool(b.attr("saturate", 1)))
    return to_integer(b, b.to(scaled, F32), zero, kind)


@onnx_op("DequantizeLinear", "com.microsoft::DequantizeLinear")
def dequantise(b, x, scale, zero=None):
    wanted = dtype_of(b.attr("output_dtype")) if b.attr("output_dtype") else scale.type.dtype
    if x.type.dtype.is_float:
        number = b.cast(x, dtype=F32)
    elif not _has_blocks(scale):
        axis, parameters = _parameters(b, x, scale, zero)
        return b.to(b.dequantize(x, *parameters, axis=axis), wanted)
    else:
        whole = b.cast(x, dtype=I32)
        if zero is not None:
            whole = b.sub(whole, _along_axis(b, b.cast(zero, dtype=I32), whole))
        number = b.cast(whole, dtype=F32)
    return b.to(b.mul(number, _along_axis(b, b.to(scale, F32), number)), wanted)


def _has_blocks(scale: Value) -> bool:
    return scale.type.rank > 1


def _parameters(b, x, scale, zero) -> tuple[int | None, list[Value]]:
    """Return the axis of scales and zero points, None for scalars, and both."""
    given = [v for v in (scale, zero) if v is not None]
    if all(v.type.elements == 1 for v in given):
        return None, [b.reshape(v, shape=()) for v in given]
    axis = axis_of(int(b.attr("axis", 1)), x.type.rank)
    return axis, [b.expand(v, scale.type.shape) for v in given]


def centred(b, x, zero, axis: int | None):
    """Compute ``x - zero point`` in i32; a zero point per row or column lies along ``axis``."""
    x = b.cast(x, dtype=I32)
    if zero is None:
        return x
    zero = b.cast(zero, dtype=I32)
    if zero.type.elements == 1:
        return b.sub(x, b.expand(b.reshape(zero, shape=()), x.type.shape))
    if zero.type.rank == 1 and axis is not None:
        axis = axis_of(axis, x.type.rank)
        return b.sub(x, b.broadcast(zero, shape=x.type.shape, dims=(axis,)))
    return b.sub(x, b.expand(zero, x.type.shape))


@onnx_op("MatMulInteger")
def matmul_integer(b, x, y, x_zero=None, y_zero=None):
    return matmul(b, centred(b, x, x_zero, -2), centred(b, y, y_zero, -1))


@onnx_op("ConvInteger")
def conv_integer(b, x, w, x_zero=None, w_zero=None):
    return conv(b, centred(b, x, x_zero, None), centred(b, w, w_zero, 0))


def _requantised(b, product, factor, zero):
    """Scale an i32 product by a float factor and convert it to the dtype of ``zero``."""
    scaled = b.mul(b.cast(product, dtype=F32), factor)
    return to_integer(b, scaled, zero, zero.type.dtype)


@onnx_op("QLinearMatMul")
def qlinear_matmul(b, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero):
    product = matmul(b, centred(b, x, x_zero, -2), centred(b, y, y_zero, -1))

    def along(v, axis):
        if v.type.rank == 1 and v.type.elements > 1:
            return b.broadcast(
                v, shape=product.type.shape, dims=(axis_of(axis, product.type.rank),)
            )
        return b.expand(b.reshape(v, shape=()) if v.type.elements == 1 else v, product.type.shape)

    x_scale, y_scale, scale = (b.to(v, F32) for v in (x_scale, y_scale, scale))
    factor = b.div(b.mul(along(x_scale, -2), along(y_scale, -1)), along(scale, -2))
    return _requantised(b, product, factor, zero)


@onnx_op("QLinearConv")
def qlinear_conv(b, x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias=None):
    product = conv(b, centred(b, x, x_zero, None), centred(b, w, w_zero, 0))
    product = b.bias(product, bias, 1)

    def along(v):
        if v.type.elements > 1:
            return b.broadcast(v, shape=product.type.shape, dims=(1,))
        return b.expand(b.reshape(v, shape=()), product.type.shape)

    factor = b.div(b.mul(along(x_scale), along(w_scale)), along(scale))
    return _requantised(b, product, factor, zero)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantise(b, x):
    axes = tuple(range(x.type.rank))
    nothing = b.constant(np.float32(0))
    high, low = (
        b.max(b.reduce_max(x, axes=axes), nothing),
        b.min(b.reduce_min(x, axes=axes), nothing),
    )
    span = b.sub(high, low)
    scale = b.div(span, b.constant(np.float32(255)))
    scale = b.select(b.eq(span, nothing), b.constant(np.float32(1)), scale)
    zero = b.round(b.clamp(b.div(b.neg(low), scale), low=0.0, high=255.0))
    made = b.add(b.round(b.div(x, b.expand(scale, x.type.shape))), b.expand(zero, x.type.shape))
    made = b.cast(b.clamp(made, low=0.0, high=255.0), dtype=U8)
    return made, scale, b.cast(zero, dtype=U8)
