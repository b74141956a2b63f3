"""Pooling: ONNX's op if its kernels are equivalent, else the elements of a window one by one.

Runtimes do not accept padding as wide as the window, do not define a window of padding alone, and
ignore NaN. (onnxruntime returns the lowest finite number for a window of -infinities alone.)
"""

from __future__ import annotations

import numpy as np

from core_compiler.exporters.onnx.table import BOOL, Emitter, core
from core_compiler.exporters.shapes import positions_inside
from core_compiler.ops import typed

#: The opset that added dilations to AveragePool.
DILATED_AVERAGE = 19


def _is_plain(g: Emitter, op: typed.Pool) -> bool:
    """Return whether every window has an element and no padding is as wide as the window."""
    inside = positions_inside(
        op.x.type.shape[2:], op.window, op.strides, op.dilations, op.low, op.result.type.shape[2:]
    )
    pads = zip(op.low, op.high, op.window, strict=True)
    return bool((inside > 0).all()) and all(max(low, high) < size for low, high, size in pads)


def _options(op: typed.Pool) -> dict:
    dilated = any(d != 1 for d in op.dilations)
    return {
        "kernel_shape": list(op.window),
        "strides": list(op.strides),
        "pads": [*op.low, *op.high],
        "dilations": list(op.dilations) if dilated else None,
    }


def _has_max(g: Emitter, op: typed.MaxPool) -> bool:
    return _is_plain(g, op) and g.takes("MaxPool", op.x.type.dtype)


@core("max_pool", when=_has_max)
def max_pool(g, op: typed.MaxPool, x):
    made = g.emit("MaxPool", x, **_options(op))
    if not g.guards or not x.dtype.is_float:
        return made
    flags = g.emit("MaxPool", g.cast(g.is_nan(x), x.dtype), **_options(op))
    return g.where(g.cast(flags, BOOL), g.scalar(np.nan, x.dtype), made)


def _has_mean(g: Emitter, op: typed.AvgPool) -> bool:
    return _is_plain(g, op) and (set(op.dilations) == {1} or g.opset >= DILATED_AVERAGE)


@core("avg_pool", when=_has_mean)
def avg_pool(g, op: typed.AvgPool, x):
    counted = 1 if op.count_padding else None
    return g.emit("AveragePool", x, count_include_pad=counted, **_options(op))
