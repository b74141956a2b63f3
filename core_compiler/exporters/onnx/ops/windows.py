"""Pooling: ONNX's op if its kernels are equivalent, else shifted slices combined one by one.

Runtimes do not accept padding as wide as the window, do not define a window of padding alone, and
ignore NaN. (onnxruntime returns the lowest finite number for a window of -infinities alone.)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.ops.shape import padded
from core_compiler.exporters.onnx.table import BOOL, Emitter, core
from core_compiler.ir import DType
from core_compiler.ops import typed

#: The opset that added dilations to AveragePool.
DILATED_AVERAGE = 19


def _is_plain(op: typed.Pool) -> bool:
    """Return whether every window has an element and no padding is as wide as the window."""
    return bool((_counts(op) > 0).all()) and all(
        max(low, high) < window
        for low, high, window in zip(op.low, op.high, op.window, strict=True)
    )


def _axis_counts(op: typed.Pool, axis: int) -> np.ndarray:
    """Count, for each output on a spatial axis, the positions of its window inside the image."""
    size, outputs = (v.type.shape[axis + 2] for v in (op.x, op.result))
    starts = np.arange(outputs)[:, None] * op.strides[axis] - op.low[axis]
    places = starts + np.arange(op.window[axis]) * op.dilations[axis]
    return ((places >= 0) & (places < size)).sum(1)


def _counts(op: typed.Pool) -> np.ndarray:
    """Count, for each output, the positions of its window inside the image (spatial shape)."""
    made = np.ones((), np.int64)
    for axis in range(len(op.window)):
        made = np.multiply.outer(made, _axis_counts(op, axis))
    return made


def _options(op: typed.Pool) -> dict:
    dilated = any(d != 1 for d in op.dilations)
    return {
        "kernel_shape": list(op.window),
        "strides": list(op.strides),
        "pads": [*op.low, *op.high],
        "dilations": list(op.dilations) if dilated else None,
    }


def _shifted(g: Emitter, op: typed.Pool, x: Tensor, fill: float) -> Iterator[Tensor]:
    """Yield, for each position of the window in row-major order, the elements that it selects."""
    around = g.constant(np.asarray(fill).astype(x.dtype.numpy))
    wide = (0, 0, *op.low), (0, 0, *op.high)
    x = padded(g, x, op.x.type.shape, around, *wide)
    axes = range(2, op.result.type.rank)
    strides, sizes = op.strides, op.result.type.shape[2:]
    for place in product(*map(range, op.window)):
        starts = [p * d for p, d in zip(place, op.dilations, strict=True)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, sizes, strides, strict=True)]
        yield g.emit("Slice", x, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*strides))


def _lowest(kind: DType) -> float:
    return -np.inf if kind.is_float else int(np.iinfo(kind.numpy).min)


@core("max_pool")
def max_pool(g, op, x):
    if not _is_plain(op) or not g.takes("MaxPool", x.dtype):
        parts = [*_shifted(g, op, x, _lowest(x.dtype))]
        return parts[0] if len(parts) == 1 else g.emit("Max", *parts)
    made = g.emit("MaxPool", x, **_options(op))
    if not g.guards or not x.dtype.is_float:
        return made
    flags = g.emit("MaxPool", g.cast(g.is_nan(x), x.dtype), **_options(op))
    return g.where(g.cast(flags, BOOL), g.scalar(np.nan, x.dtype), made)


@core("avg_pool")
def avg_pool(g, op: typed.AvgPool, x):
    dilated = any(d != 1 for d in op.dilations)
    if _is_plain(op) and (not dilated or g.opset >= DILATED_AVERAGE):
        counted = 1 if op.count_padding else None
        return g.emit("AveragePool", x, count_include_pad=counted, **_options(op))
    parts = [*_shifted(g, op, x, 0)]
    total = parts[0] if len(parts) == 1 else g.emit("Sum", *parts)
    whole = np.asarray(int(np.prod(op.window))) if op.count_padding else _counts(op)
    return g.emit("Div", total, g.constant(whole.astype(x.dtype.numpy)))
