"""Gathers and scatters.

The IR clamps positions that a gather reads out of range, and drops those that a scatter writes out
of range.  ONNX counts negative ones from the end, and does not define the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.ops.reduction import reduced
from core_compiler.exporters.onnx.ops.shape import UI64, clamped
from core_compiler.exporters.onnx.table import BOOL, F32, I32, I64, Emitter, NotInOnnx, core
from core_compiler.ir import Value
from core_compiler.ops import typed

#: mode -> the reduction attribute of ScatterElements and ScatterND.
REDUCTIONS = {"set": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _on_axis(g: Emitter, value: Value, size: int) -> bool:
    """Return whether all positions are known to be in range on an axis."""
    held = g.bounds(value)
    return not g.guards or (held is not None and held[0] >= 0 and held[1] < size)


def _positions(g: Emitter, value: Value, x: Tensor, size: int) -> Tensor:
    """Return positions on an axis of ``size`` in ONNX's form, clamped if necessary."""
    known, last = _on_axis(g, value, size), max(size - 1, 0)
    if known and x.dtype in (I32, I64):
        return x
    if x.array is not None:
        return g.constant(np.clip(x.array, 0, last).astype(np.int64), x.wanted)
    return g.cast(x, I64) if known else clamped(g, x, last)


@core("take")
def take(g, op: typed.Take, x, indices):
    axis = op.axis
    where = _positions(g, op.indices, indices, op.x.type.shape[axis])
    return g.emit("Gather", x, where, axis=axis or None)


@core("take_along")
def take_along(g, op: typed.TakeAlong, x, indices):
    axis, (held, chosen) = op.axis, (v.type.shape for v in op.operands)
    for other, (size, part) in enumerate(zip(held, chosen, strict=True)):
        if other != axis and part != size:
            x = g.cut(x, other, 0, part)
    where = _positions(g, op.indices, indices, held[axis])
    return g.emit("GatherElements", x, where, axis=axis)


@core("gather_nd")
def gather_nd(g, op: typed.GatherNd, x, indices):
    batch, (value, places) = op.batch_dims, op.operands
    depth, shape = places.type.shape[-1], value.type.shape
    if not depth:  # no position: the whole of x for each
        lead = places.type.shape[batch:-1]
        x = g.reshape(x, (*shape[:batch], *(1 for _ in lead), *shape[batch:]))
        return g.expand(x, op.result.type.shape)
    sizes = shape[batch : batch + depth]
    if all(_on_axis(g, places, size) for size in sizes):
        where = indices
    else:
        where = clamped(g, indices, *(max(size - 1, 0) for size in sizes))
    return g.emit("GatherND", x, g.cast(where, I64), batch_dims=batch or None)


def _wide(g: Emitter, x: Tensor) -> Tensor:
    """Return positions as i64; ui64 values beyond its range become the greatest i64."""
    if x.dtype is UI64:
        x = g.emit("Min", x, g.scalar((1 << 63) - 1, UI64))
    return g.cast(x, I64)


# -- scatters --------------------------------------------------------------------------------------


def _scattered(
    g: Emitter,
    op: typed.Scatter,
    kind: str,
    x: Tensor,
    where: Tensor,
    updates: Tensor,
    **how,
):
    """Emit a scatter; a maximum of floats is NaN if any operand is, which ONNX leaves open."""
    mode = op.mode
    if mode in ("max", "min") and g.opset < 18:
        raise NotInOnnx(f"{kind} of opset {g.opset} has no reduction {mode}")
    if mode in ("add", "mul") and x.dtype.is_float and x.dtype.bits < 32:
        wide = _scattered(g, op, kind, g.cast(x, F32), where, g.cast(updates, F32), **how)
        return g.cast(wide, x.dtype)
    made = g.emit(kind, x, where, updates, reduction=REDUCTIONS[mode], **how)
    if mode not in ("max", "min") or not x.dtype.is_float or not g.guards:
        return made
    flags = (g.cast(g.is_nan(t), I32) for t in (x, updates))
    found = g.emit(kind, next(flags), where, next(flags), reduction="max", **how)
    return g.where(g.cast(found, BOOL), g.scalar(np.nan, x.dtype), made)


def _with_drop_slot(g: Emitter, x: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """Return ``x`` with one extra position on an axis, which receives the dropped updates."""
    high = [int(a == axis) for a in range(len(shape))]
    zero = g.constant(np.zeros((), x.dtype.numpy))
    return g.emit("Pad", x, g.ints(*(0 for _ in shape), *high), zero)


def _drops_nothing(g: Emitter, value: Value, size: int) -> bool:
    """Return whether a scatter drops nothing.

    Positions that are known to be out of range are intentional (elements that a mask drops), with
    or without ``guards``.
    """
    held = g.bounds(value)
    return not g.guards if held is None else held[0] >= 0 and held[1] < size


def _inside(g: Emitter, where: Tensor, limit: Tensor) -> Tensor:
    low = g.emit("GreaterOrEqual", where, g.scalar(0, I64))
    return g.emit("And", low, g.emit("Less", where, limit))


@core("scatter_along")
def scatter_along(g, op: typed.ScatterAlong, x, indices, updates):
    axis, shape = op.axis, op.result.type.shape
    if 0 in op.indices.type.shape:
        return x
    size = shape[axis]
    if _drops_nothing(g, op.indices, size):
        return _scattered(g, op, "ScatterElements", x, g.cast(indices, I64), updates, axis=axis)
    where = _wide(g, indices)
    end = g.scalar(size, I64)
    where = g.where(_inside(g, where, end), where, end)
    made = _scattered(
        g,
        op,
        "ScatterElements",
        _with_drop_slot(g, x, shape, axis),
        where,
        updates,
        axis=axis,
    )
    return g.cut(made, axis, 0, size)


@core("scatter_nd")
def scatter_nd(g, op: typed.ScatterNd, x, indices, updates):
    places, shape = op.indices, op.result.type.shape
    depth = places.type.shape[-1]
    if 0 in op.updates.type.shape:
        return x
    if not depth:
        return _scatter_whole_tensors(g, op, x, updates)
    sizes = shape[:depth]
    if all(_drops_nothing(g, places, size) for size in sizes):
        return _scattered(g, op, "ScatterND", x, g.cast(indices, I64), updates)
    where = _wide(g, indices)
    inside = _inside(g, where, g.ints(*sizes))
    inside = reduced(g, "ReduceMin", inside, (places.type.rank - 1,), keep=True)
    where = g.where(inside, where, g.ints(sizes[0], *(0,) * (depth - 1)))
    made = _scattered(g, op, "ScatterND", _with_drop_slot(g, x, shape, 0), where, updates)
    return g.cut(made, 0, 0, sizes[0])


def _scatter_whole_tensors(g: Emitter, op: typed.ScatterNd, x: Tensor, updates: Tensor) -> Tensor:
    """Scatter with empty index tuples: every update covers all of x, now a one-row table."""
    held, shape = op.updates.type.shape, op.result.type.shape
    count = int(np.prod(held[: len(held) - len(shape)]))
    table, rows = g.reshape(x, (1, *shape)), g.reshape(updates, (count, *shape))
    where = g.constant(np.zeros((count, 1), np.int64))
    made = _scattered(g, op, "ScatterND", table, where, rows)
    return g.reshape(made, shape)
