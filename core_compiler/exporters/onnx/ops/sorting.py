"""Sorts as ONNX's TopK of all elements, which is stable, as sorts in the IR are.

ONNX does not specify the order of NaN; in the IR it is the greatest.
"""

from __future__ import annotations

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import BOOL, I32, I64, Emitter, core
from core_compiler.ir import dtype
from core_compiler.ops import typed

UI64 = dtype("ui64")


def _top(g: Emitter, x: Tensor, axis: int, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    values, places = g.emit("TopK", x, g.ints(k), outputs=2, axis=axis, largest=int(largest))
    return values, places


def _keys(g: Emitter, x: Tensor) -> Tensor:
    """Return keys with the order of ``x``, in a dtype that onnxruntime sorts."""
    if x.dtype is BOOL:
        return g.cast(x, I32)
    if x.dtype is UI64:  # the order of i64, starting from its lowest value
        return g.emit("Add", g.cast(x, I64), g.constant(np.array(-(1 << 63))))
    return x


def _order(
    g: Emitter, op: typed.Argsort | typed.Sort | typed.Topk, x: Tensor, k: int, largest: bool
) -> tuple[Tensor | None, Tensor]:
    """Return (the first k values if available, their positions)."""
    axis = op.axis
    keys = _keys(g, x)
    if not g.guards or not x.dtype.is_float:
        values, places = _top(g, keys, axis, k, largest)
        return (values if keys is x else None), places
    # The first sort puts NaN among the infinities; a second stable sort separates them.
    size = op.x.type.shape[axis]
    nan = g.is_nan(x)
    _, first = _top(g, g.where(nan, g.scalar(np.inf, x.dtype), x), axis, size, largest)
    flags = g.emit("GatherElements", g.cast(nan, I32), first, axis=axis)
    _, second = _top(g, flags, axis, k, largest)
    return None, g.emit("GatherElements", first, second, axis=axis)


def _sorted(
    g: Emitter, op: typed.Sort | typed.Topk, x: Tensor, k: int, largest: bool
) -> tuple[Tensor, Tensor]:
    values, places = _order(g, op, x, k, largest)
    if values is None:
        values = g.emit("GatherElements", x, places, axis=op.axis)
    return values, places


@core("sort")
def sort(g, op: typed.Sort, x):
    size = op.result.type.shape[op.axis]
    return _sorted(g, op, x, size, op.descending)[0]


@core("argsort")
def argsort(g, op: typed.Argsort, x):
    size = op.result.type.shape[op.axis]
    return g.cast(_order(g, op, x, size, op.descending)[1], op.dtype)


@core("topk")
def topk(g, op: typed.Topk, x):
    return _sorted(g, op, x, op.k, op.largest)
