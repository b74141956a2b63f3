"""Running sums, products and extremes along an axis.

Those without an op (extremes; products before opset 26) become ONNX's Scan: one step for each
position of the axis, which carries the running value.
"""

from __future__ import annotations

import numpy as np

from core_compiler.exporters.onnx.graph import Graph, Tensor
from core_compiler.exporters.onnx.table import F32, Emitter, core
from core_compiler.ir import DType
from core_compiler.ops import typed


@core("cumsum")
def cumsum(g, op, x):
    """Emit CumSum, which has no kernel for 16-bit floats in onnxruntime.

    For these the running value is f32 and rounded on output, as in the IR.
    """
    return _cumulative(g, op, x, "CumSum")


@core("cumprod")
def cumprod(g, op, x):
    if g.has("CumProd"):
        return _cumulative(g, op, x, "CumProd")
    return _scanned(g, op, x, "Mul", 1)


def _cumulative(g: Emitter, op: typed.Cumprod | typed.Cumsum, x: Tensor, kind: str) -> Tensor:
    wide = g.cast(x, F32) if x.dtype.is_float and x.dtype.bits < 32 else x
    made = g.emit(
        kind,
        wide,
        g.constant(np.int64(op.axis)),
        reverse=int(op.reverse),
        exclusive=int(op.exclusive),
    )
    return g.cast(made, x.dtype)


@core("cummax")
def cummax(g, op, x):
    return _scanned(g, op, x, "Max", _limit(x.dtype, lowest=True))


@core("cummin")
def cummin(g, op, x):
    return _scanned(g, op, x, "Min", _limit(x.dtype, lowest=False))


def _limit(kind: DType, lowest: bool) -> float:
    if kind.is_float:
        return -np.inf if lowest else np.inf
    limits = np.iinfo(kind.numpy)
    return int(limits.min if lowest else limits.max)


def _scanned(
    g: Emitter, op: typed.Cummax | typed.Cummin | typed.Cumprod, x: Tensor, kind: str, start: float
) -> Tensor:
    """Combine the running value and the next element by ``kind``; f32 carries 16-bit floats."""
    axis, shape = op.axis, op.result.type.shape
    wide = g.cast(x, F32) if x.dtype.is_float and x.dtype.bits < 32 else x
    kept = tuple(size for a, size in enumerate(shape) if a != axis)
    first = g.expand(g.scalar(start, wide.dtype), kept)
    running, element = Tensor(wide.dtype, kept), Tensor(wide.dtype, kept)
    body = Graph([running, element])
    with g.inside(body):
        joined = g.emit(kind, running, element)
        shown = running if op.exclusive else joined
        body.outputs = [joined, g.emit("Identity", shown)]
    last, made = Tensor(wide.dtype), Tensor(wide.dtype)
    back = [int(op.reverse)]
    g.node(
        "Scan",
        (first, wide),
        (last, made),
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=back,
        scan_output_directions=back,
    )
    return g.cast(made, x.dtype)
