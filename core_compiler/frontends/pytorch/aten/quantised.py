"""Quantisation: the ops of PyTorch's PT2E graphs and of torchao, and fake quantisation.

They multiply by 1 / scale, computed in f64 where the scale is a Python number; those that were
exported from divisions by the scale, which a note in the file says, become divisions again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.frontends.pytorch.aten.table import NotSupported, aten
from core_compiler.frontends.pytorch.tensors import dtype_of
from core_compiler.ir import DType, Value, dtype
from core_compiler.ops.quantised import integer_range
from core_compiler.support.torch_operators import DIVIDES

F32, F64, I32, I64 = map(dtype, ("f32", "f64", "i32", "i64"))
PREFIX = "quantized_decomposed."


def _number(v) -> float | None:
    return None if isinstance(v, Value) else float(v)


def _scalar(b, v, kind: DType) -> Value:
    """Return a number, or a tensor of one element, as a scalar."""
    if kind.is_integer and not isinstance(v, Value):
        low, high = integer_range(kind)
        if not low <= v <= high:
            raise NotSupported(f"zero point {v} is out of the range {low} to {high} of {kind}")
    found = b.value(v, kind)
    return b.reshape(found, shape=()) if found.type.rank else found


def _along(b, v: Value, like: Value, axis: int | None) -> Value:
    return b.broadcast(v, shape=like.type.shape, dims=() if axis is None else (axis,))


def _quantised(b, x: Value, scale, zero, axis: int | None, low, high, kind: DType) -> Value:
    """Return ``round(x * (1 / scale)) + zero``, limited to low..high, in ``kind``."""
    x = b.to(x, F32)
    number = _number(scale)
    low, high = int(low), int(high)
    if axis is not None:
        return _composite(b, x, b.to(scale, F32), zero, axis, low, high, kind)
    if number is not None and np.float32(1) / np.float32(number) == np.float32(1 / number):
        return _composite(b, x, b.constant(np.float32(number)), zero, None, low, high, kind)
    if number is None:
        wide = _scalar(b, scale, F64)
        inverse = b.cast(b.div(b.scalar_like(1, wide), wide), dtype=F32)
    else:
        inverse = b.constant(np.float32(1 / number))
    made = b.round(b.mul(x, _along(b, inverse, x, None)))
    made = b.add(made, _along(b, _scalar(b, zero, F32), made, None))
    made = b.clamp(made, low=float(low), high=float(high))
    return b.to(b.cast(made, dtype=I32), kind)


def _composite(b, x, scale, zero, axis, low, high, kind) -> Value:
    whole = _scalar(b, zero, kind) if axis is None else b.to(zero, kind)
    how = {"reciprocal": not DIVIDES.items() <= (b.node.meta.get("custom") or {}).items()}
    return b.quantize(x, scale, whole, dtype=kind, axis=axis, low=low, high=high, **how)


@aten(f"{PREFIX}quantize_per_tensor")
def quantize(b, x, scale, zero, low, high, kind):
    for limit in (low, high):
        if isinstance(limit, Value):
            raise NotSupported("limits that are tensors")
    return _quantised(b, x, scale, zero, None, low, high, dtype_of(kind))


@aten(f"{PREFIX}quantize_per_channel")
def quantize_channels(b, x, scales, zeros, axis, low, high, kind):
    return _quantised(b, x, scales, zeros, axis % x.type.rank, low, high, dtype_of(kind))


@aten(f"{PREFIX}dequantize_per_tensor")
def dequantize(b, q, scale, zero, low, high, kind, out_dtype=None):
    wanted = F32 if out_dtype is None else dtype_of(out_dtype)
    factor = _scalar(b, scale, F32)
    if q.type.dtype.bits <= 16:
        return b.to(b.dequantize(q, factor, _scalar(b, zero, q.type.dtype)), wanted)
    number = b.to(q, F32)
    number = b.sub(number, _along(b, _scalar(b, zero, F32), number, None))
    return b.to(b.mul(number, _along(b, factor, number, None)), wanted)


@aten(f"{PREFIX}dequantize_per_channel")
def dequantize_channels(b, q, scales, zeros, axis, low, high, kind, out_dtype=None):
    wanted = F32 if out_dtype is None else dtype_of(out_dtype)
    points = () if zeros is None else (b.to(zeros, q.type.dtype),)
    made = b.dequantize(q, b.to(scales, F32), *points, axis=axis % q.type.rank)
    return b.to(made, wanted)


@aten(f"{PREFIX}choose_qparams")
def choose(b, x, low, high, eps, kind):
    """Return the scale and zero point that cover the tensor and 0."""
    axes = tuple(range(x.type.rank))
    nothing = b.constant(np.float32(0))
    least = b.min(b.reduce_min(b.to(x, F32), axes=axes), nothing)
    most = b.max(b.reduce_max(b.to(x, F32), axes=axes), nothing)
    scale = b.div(b.sub(most, least), b.constant(np.float32(high - low)))
    scale = b.max(scale, b.constant(np.float32(eps)))
    zero = b.cast(b.round(b.div(least, scale)), dtype=I64)
    zero = b.clamp(b.sub(b.constant(int(low), I64), zero), low=int(low), high=int(high))
    shape = tuple(b.meta[0].shape)
    return tuple(b.reshape(v, shape=shape) for v in (b.cast(scale, dtype=F64), zero))


# -- torchao ---------------------------------------------------------------------------------------


def _axis_of_blocks(x: Value, block: Sequence[int]) -> int | None:
    """Return the axis along which each position has its own scale; None if there is one scale.

    Scales in blocks are computed by torchao's own decomposition.
    """
    divided = [i for i, (n, size) in enumerate(zip(x.type.shape, block, strict=True)) if n != size]
    if len(divided) > 1 or any(block[i] != 1 for i in divided):
        raise NotSupported(f"scales of blocks {tuple(block)}")
    return divided[0] if divided else None


def _flat(b, v: Value, axis: int | None) -> Value:
    return b.reshape(v, shape=() if axis is None else (v.type.elements,))


@aten("torchao.quantize_affine")
def quantize_affine(b, x, block, scale, zero, kind, low=None, high=None):
    axis = _axis_of_blocks(x, block)
    wanted = dtype_of(kind)
    if zero is None or not (x.type.dtype is scale.type.dtype is F32):
        raise NotSupported("numbers other than f32, or no zero point")
    if zero.type.dtype.is_float:
        raise NotSupported("a zero point that is a float")
    limits = integer_range(wanted)
    low, high = (int(m if v is None else v) for v, m in zip((low, high), limits, strict=True))
    return _composite(b, x, _flat(b, scale, axis), _flat(b, zero, axis), axis, low, high, wanted)


@aten("torchao.dequantize_affine")
def dequantize_affine(b, q, block, scale, zero, kind, low=None, high=None, output_dtype=None):
    axis = _axis_of_blocks(q, block)
    wanted = F32 if output_dtype is None else dtype_of(output_dtype)
    if q.type.dtype.bits > 16:
        raise NotSupported("integers of more than 16 bits")
    if zero is not None and zero.type.dtype is not q.type.dtype:
        raise NotSupported("a zero point of another dtype")
    points = () if zero is None else (_flat(b, zero, axis),)
    factor = _flat(b, scale if scale.type.dtype is wanted else b.to(scale, F32), axis)
    return b.to(b.dequantize(q, factor, *points, axis=axis), wanted)


# -- fake quantisation -----------------------------------------------------------------------------


@aten("fake_quantize_per_tensor_affine")
def fake(b, x, scale, zero, low, high):
    return b.fake_quantize(
        x,
        _scalar(b, scale, F32),
        _scalar(b, zero, I32),
        low=int(low),
        high=int(high),
        reciprocal=True,
    )


@aten("fake_quantize_per_channel_affine")
def fake_channels(b, x, scales, zeros, axis, low, high):
    return b.fake_quantize(
        x,
        b.to(scales, F32),
        b.to(zeros, I32),
        low=int(low),
        high=int(high),
        axis=axis % x.type.rank,
        reciprocal=True,
    )
