"""Quantised ops of onnxruntime (domain com.microsoft), as its quantiser and Olive write them.

Where an op stands for a float op between integers, it is that: its operands are dequantised, the
float op of the same name computes, and the result is quantised. Products stay integer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.frontends.onnx.ops.network import matmul
from core_compiler.frontends.onnx.ops.quantised import (
    F32,
    I32,
    U8,
    centred,
    dynamic_quantise,
    to_integer,
)
from core_compiler.frontends.onnx.table import TABLE, NotSupported, axis_of, onnx_op
from core_compiler.ir import Value

PREFIX = "com.microsoft::"


def _scalar(b, v: Value | None, what: str) -> Value | None:
    """Return a parameter of a whole tensor as a scalar."""
    if v is None:
        return None
    if v.type.elements != 1:
        raise NotSupported(f"{what} of shape {v.type.shape}, expected one number")
    return b.reshape(v, shape=())


def _number(b, q: Value, scale: Value, zero: Value | None) -> Value:
    """Return the numbers that a quantised tensor stands for."""
    parameters = _scalar(b, scale, "a scale"), _scalar(b, zero, "a zero point")
    return b.dequantize(q, *(v for v in parameters if v is not None))


def _stored(b, x: Value, scale: Value, zero: Value | None) -> Value:
    """Return numbers quantised to the dtype of ``zero`` (bytes without)."""
    parameters = _scalar(b, scale, "a scale"), _scalar(b, zero, "a zero point")
    kind = U8 if zero is None else zero.type.dtype
    return b.quantize(x, *(v for v in parameters if v is not None), dtype=kind)


def _through(kind: str) -> Callable:
    """Return the handler of an op of one operand, with the attributes of ``kind``."""

    def handler(b, x, x_scale, x_zero, y_scale, y_zero=None):
        if b.attr("channels_last", 0):
            raise NotSupported("channels_last")
        return _stored(b, TABLE[kind](b, _number(b, x, x_scale, x_zero)), y_scale, y_zero)

    return handler


for _kind in (
    "LeakyRelu",
    "Sigmoid",
    "AveragePool",
    "GlobalAveragePool",
    "ReduceMean",
):
    TABLE[f"{PREFIX}QLinear{_kind}"] = _through(_kind)


@onnx_op(f"{PREFIX}QLinearSoftmax")
def softmax(b, x, x_scale, x_zero, y_scale, y_zero=None):
    rank = x.type.rank
    axis = axis_of(b.attr("axis", -1), rank)
    if int(b.attr("opset", 13)) < 13 and axis != rank - 1:
        raise NotSupported(f"axis {axis} of a softmax of opset {b.attr('opset')}")
    return _stored(b, b.softmax(_number(b, x, x_scale, x_zero), axis=axis), y_scale, y_zero)


@onnx_op(f"{PREFIX}QLinearAdd", f"{PREFIX}QLinearMul")
def pair(b, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero=None):
    kind = b.node.op_type.removeprefix("QLinear")
    numbers = _number(b, x, x_scale, x_zero), _number(b, y, y_scale, y_zero)
    return _stored(b, TABLE[kind](b, *numbers), scale, zero)


@onnx_op(f"{PREFIX}QLinearConcat")
def concat(b, scale, zero, *rows):
    numbers = [_number(b, *rows[i : i + 3]) for i in range(0, len(rows), 3)]
    return _stored(b, TABLE["Concat"](b, *numbers), scale, zero)


@onnx_op(f"{PREFIX}QLinearWhere")
def where(b, condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero=None):
    numbers = _number(b, x, x_scale, x_zero), _number(b, y, y_scale, y_zero)
    return _stored(b, TABLE["Where"](b, condition, *numbers), scale, zero)


# -- products --------------------------------------------------------------------------------------


def _factor(b, x_scale: Value, y_scale: Value, like: Value) -> Value:
    """Return the product of the scales over ``like``; those of y are one, or one a column."""
    both = [b.reshape(v, shape=()) if v.type.elements == 1 else v for v in (x_scale, y_scale)]
    return b.mul(*(b.expand(v, like.type.shape) for v in both))


def _with_bias(b, made: Value, bias: Value | None) -> Value:
    return made if bias is None else b.add(made, b.expand(bias, made.type.shape))


@onnx_op(f"{PREFIX}MatMulIntegerToFloat")
def matmul_to_float(b, x, y, x_scale, y_scale, x_zero=None, y_zero=None, bias=None):
    product = matmul(b, centred(b, x, x_zero, -2), centred(b, y, y_zero, -1))
    number = b.cast(product, dtype=F32)
    return _with_bias(b, b.mul(number, _factor(b, x_scale, y_scale, number)), bias)


@onnx_op(f"{PREFIX}DynamicQuantizeMatMul")
def dynamic_matmul(b, x, y, y_scale, y_zero=None, bias=None):
    quantised, x_scale, x_zero = dynamic_quantise(b, x)
    return matmul_to_float(b, quantised, y, x_scale, y_scale, x_zero, y_zero, bias)


@onnx_op(f"{PREFIX}QGemm")
def gemm(b, x, x_scale, x_zero, y, y_scale, y_zero, bias=None, scale=None, zero=None):
    """Multiply matrices of bytes; ``bias`` is i32, in steps of the product of both scales."""
    x, y = (
        b.transpose(v, permutation=(1, 0)) if b.attr(name, 0) else v
        for v, name in ((x, "transA"), (y, "transB"))
    )
    x, y = centred(b, x, x_zero, None), centred(b, y, y_zero, 1)
    product = _with_bias(b, b.matmul(x, y), bias)
    factor = _factor(b, x_scale, y_scale, product)
    alpha = float(b.attr("alpha", 1.0))
    if alpha != 1:
        factor = b.mul(factor, b.scalar_like(alpha, factor))
    number = b.cast(product, dtype=F32)
    if scale is None:
        return b.mul(number, factor)
    scale = _scalar(b, scale, "a scale")
    scaled = b.mul(number, b.div(factor, b.expand(scale, factor.type.shape)))
    return to_integer(b, scaled, zero, U8 if zero is None else zero.type.dtype)


# -- weights in blocks -----------------------------------------------------------------------------


def _unpacked(b, packed: Value, bits: int, count: int) -> Value:
    """Return the last axis of bytes as ``count`` numbers of ``bits`` bits, the lowest first."""
    per_byte = 8 // bits
    if per_byte == 1:
        return b.cast(packed, dtype=I32)
    shape = (*packed.type.shape, per_byte)
    shifts = b.constant(np.arange(0, 8, bits, dtype=np.uint8))
    spread = b.broadcast(packed, shape=shape, dims=tuple(range(packed.type.rank)))
    parts = b.shr(spread, b.expand(shifts, shape))
    parts = b.and_(parts, b.scalar_like((1 << bits) - 1, parts))
    *lead, size = packed.type.shape
    flat = b.reshape(parts, shape=(*lead, size * per_byte))
    if count != size * per_byte:
        flat = b.cut(flat, len(lead), 0, count)
    return b.cast(flat, dtype=I32)


def _block_bits(b) -> int:
    bits = int(b.attr("bits", 4))
    if bits not in (2, 4, 8):
        raise NotSupported(f"weights of {bits} bits; 2, 4 and 8 are supported")
    return bits


@onnx_op(f"{PREFIX}MatMulNBits")
def matmul_bits(b, x, w, scales, zeros=None, groups=None, bias=None):
    """Multiply by weights that are packed in blocks of a column, each with a scale."""
    bits = _block_bits(b)
    rows, columns, block = (int(b.attr(name)) for name in ("K", "N", "block_size"))
    if groups is not None:
        order = b.known(groups)
        if order is None or not np.array_equal(order[:rows], np.arange(rows) // block):
            raise NotSupported("g_idx, which permutes the rows")
    blocks = -(-rows // block)
    scales = b.reshape(b.to(scales, F32), shape=(columns, blocks))
    whole = _unpacked(b, b.reshape(w, shape=(columns, blocks, block * bits // 8)), bits, block)
    if zeros is None:
        middle = b.scalar_like(1 << (bits - 1), whole)
        number = b.cast(b.sub(whole, middle), dtype=F32)
    elif zeros.type.dtype.is_float:
        points = b.reshape(b.to(zeros, F32), shape=(columns, blocks))
        number = b.cast(whole, dtype=F32)
        number = b.sub(number, b.broadcast(points, shape=number.type.shape, dims=(0, 1)))
    else:
        packed = b.reshape(zeros, shape=(columns, -(-blocks * bits // 8)))
        points = _unpacked(b, packed, bits, blocks)
        points = b.broadcast(points, shape=whole.type.shape, dims=(0, 1))
        number = b.cast(b.sub(whole, points), dtype=F32)
    scaled = b.mul(number, b.broadcast(scales, shape=number.type.shape, dims=(0, 1)))
    weight = b.reshape(scaled, shape=(columns, blocks * block))
    if blocks * block != rows:
        weight = b.cut(weight, 1, 0, rows)
    weight = b.to(b.transpose(weight, permutation=(1, 0)), x.type.dtype)
    return _with_bias(b, matmul(b, x, weight), bias)


@onnx_op(f"{PREFIX}GatherBlockQuantized")
def gather_blocks(b, data, indices, scales, zeros=None):
    """Take rows of a table that is quantised in blocks of its last axis."""
    rank = data.type.rank
    gathered = axis_of(b.attr("gather_axis", 0), rank)
    axis = axis_of(b.attr("quantize_axis", 1), rank)
    if gathered != 0 or axis != rank - 1:
        raise NotSupported(f"rows of axis {gathered} with blocks of axis {axis}")
    bits, block = int(b.attr("bits", 4)), int(b.attr("block_size", 128))
    packed = data.type.dtype is U8 and bits < 8
    unsigned = data.type.dtype.kind == "uint"

    def rows(v: Value) -> Value:
        return b.take(v, indices, axis=0)

    width = scales.type.shape[-1] * block
    count = min(width, data.type.shape[-1] * (8 // bits if packed else 1))
    whole = _unpacked(b, rows(data), bits, count) if packed else b.cast(rows(data), dtype=I32)
    chosen = b.to(rows(scales), F32)

    def spread(v: Value) -> Value:
        wide = (*v.type.shape, block)
        made = b.broadcast(v, shape=wide, dims=tuple(range(v.type.rank)))
        made = b.reshape(made, shape=(*v.type.shape[:-1], v.type.shape[-1] * block))
        return b.cut(made, made.type.rank - 1, 0, count) if width != count else made

    if zeros is not None:
        points = rows(zeros)
        blocks = scales.type.shape[-1]
        points = _unpacked(b, points, bits, blocks) if packed else b.cast(points, dtype=I32)
        whole = b.sub(whole, spread(points))
    elif unsigned:
        whole = b.sub(whole, b.scalar_like(1 << (bits - 1), whole))
    made = b.mul(b.cast(whole, dtype=F32), spread(chosen))
    return b.to(made, scales.type.dtype)
