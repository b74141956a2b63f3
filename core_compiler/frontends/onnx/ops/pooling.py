"""Pooling of ONNX, including the positions of the largest elements."""

from __future__ import annotations

import math
from math import prod

from core_compiler.frontends import windows
from core_compiler.frontends.onnx.ops.network import spatial_pads
from core_compiler.frontends.onnx.table import onnx_op
from core_compiler.ir import dtype

I64 = dtype("i64")


def _pool(b, x) -> tuple[dict, tuple[int, ...]]:
    """Return the attributes of pooling, and the padding after each axis without its overhang."""
    window = tuple(b.attr("kernel_shape"))
    ones = [1] * len(window)
    strides, dilations = tuple(b.attr("strides") or ones), tuple(b.attr("dilations") or ones)
    low, padding = spatial_pads(b, x, window, strides, dilations)
    high = padding
    if b.attr("ceil_mode", 0):
        high = tuple(
            h + _overhang(x.type.shape[2 + i], window[i], strides[i], low[i], h, dilations[i])
            for i, h in enumerate(high)
        )
    return {
        "window": window,
        "strides": strides,
        "low": low,
        "high": high,
        "dilations": dilations,
    }, padding


def _overhang(size, window, stride, low, high, dilation) -> int:
    span = size + low + high - (dilation * (window - 1) + 1)
    steps = math.ceil(span / stride)
    if steps * stride >= size + low:
        steps -= 1
    return max(0, steps * stride - span)


@onnx_op("MaxPool")
def max_pool(b, x):
    attributes, _ = _pool(b, x)
    if len(b.node.output) > 1 and b.node.output[1]:
        return _max_pool_with_positions(b, x, attributes)
    return b.max_pool(x, **attributes)


def _max_pool_with_positions(b, x, pool: dict):
    """Return the largest element of each window and its row-major position in the whole of x.

    With ``storage_order`` 1 the elements of a plane are counted column-major.
    """
    batch, channels, *sizes = x.type.shape
    found = windows.positions_of_largest(b, x, pool)
    values = windows.elements_at(b, x, found, pool)
    if b.attr("storage_order", 0):
        found = windows.positions_of_largest(b, x, pool, column_major=True)
    first = b.reshape(b.iota(shape=(batch * channels,), axis=0, dtype=I64), shape=(batch, channels))
    first = b.mul(first, b.scalar_like(prod(sizes), first))
    plane = b.broadcast(first, shape=found.type.shape, dims=(0, 1))
    return values, b.add(found, plane)


@onnx_op("MaxUnpool")
def max_unpool(b, x, places, shape=None):
    """Scatter elements to the positions that max pooling found, with zeros elsewhere."""
    window = b.attr("kernel_shape")
    count = len(window)
    strides, pads = b.attr("strides") or [1] * count, b.attr("pads") or [0] * (2 * count)
    own = [
        (size - 1) * stride - low - high + k
        for size, stride, low, high, k in zip(
            x.type.shape[2:], strides, pads[:count], pads[count:], window, strict=True
        )
    ]
    whole = (*x.type.shape[:2], *own)
    zero = b.expand(b.constant(0, x.type.dtype), (prod(whole),))
    at = b.reshape(places, shape=(x.type.elements, 1))
    made = b.scatter_nd(zero, at, b.reshape(x, shape=(x.type.elements,)), mode="set")
    made = b.reshape(made, shape=whole)
    wanted = whole if shape is None else tuple(b.ints(shape, "the output's shape"))
    high = tuple(w - n for w, n in zip(wanted, whole, strict=True))
    return b.pad(
        made,
        b.constant(0, x.type.dtype),
        low=(0,) * len(whole),
        high=high,
        interior=(0,) * len(whole),
    )


@onnx_op("AveragePool")
def average_pool(b, x):
    attributes, padding = _pool(b, x)
    return windows.average(b, x, attributes, padding, bool(b.attr("count_include_pad", 0)))


@onnx_op("LpPool")
def lp_pool(b, x):
    """Compute (sum of |x|^p over the window)^(1/p).

    The sum is an average without padding, times the window's size.
    """
    p = float(b.attr("p", 2))
    attributes, _ = _pool(b, x)
    powers = _power(b, b.abs(x), p)
    mean = b.avg_pool(powers, **attributes, count_padding=True)
    total = b.mul(mean, b.scalar_like(prod(attributes["window"]), mean))
    return _power(b, total, 1 / p)


@onnx_op("GlobalLpPool")
def global_lp_pool(b, x):
    p = float(b.attr("p", 2))
    total = b.reduce_sum(_power(b, b.abs(x), p), axes=tuple(range(2, x.type.rank)))
    made = _power(b, total, 1 / p)
    return b.reshape(made, shape=(*x.type.shape[:2], *(1,) * (x.type.rank - 2)))


def _power(b, x, p: float):
    if p == 1:
        return x
    if p == 2:
        return b.mul(x, x)
    return b.sqrt(x) if p == 0.5 else b.pow(x, b.scalar_like(p, x))


@onnx_op("GlobalAveragePool")
def global_average_pool(b, x):
    made = b.mean(x, axes=tuple(range(2, x.type.rank)))
    return b.reshape(made, shape=(*x.type.shape[:2], *(1,) * (x.type.rank - 2)))


@onnx_op("GlobalMaxPool")
def global_max_pool(b, x):
    made = b.reduce_max(x, axes=tuple(range(2, x.type.rank)))
    return b.reshape(made, shape=(*x.type.shape[:2], *(1,) * (x.type.rank - 2)))
