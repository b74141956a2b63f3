"""Gathers and scatters.

The IR clamps positions that a gather reads out of range, and drops those that a scatter writes out
of range.  Torch raises an error for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.ops.movement import padded
from core_compiler.exporters.pt2.table import (
    I64,
    Emitter,
    Node,
    NotInTorch,
    core,
    in_f32,
    shape_of,
)
from core_compiler.ir import Value
from core_compiler.ops import typed

#: mode -> the reduction of ATen's scatter_reduce.
_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _positions(g: Emitter, value: Value, x: Node, *sizes: int) -> Node:
    """Return positions in i64; with ``guards`` clamped to the sizes of the columns."""
    held, last = g.stored(value), np.maximum(np.array(sizes) - 1, 0)
    if held is not None and held.dtype != np.uint64:
        known = np.clip(held.astype(np.int64), 0, last if len(sizes) > 1 else last[0])
        return g.cast(x, I64) if (known == held).all() else g.tensor(known)
    if value.type.dtype is dtypes.UI64:  # larger ones are negative in i64
        x = g.where(g.call("lt.Scalar", x, 0), g.scalar((1 << 63) - 1, I64), x)
    x = g.cast(x, I64)
    if not g.guards:
        return x
    if len(sizes) == 1:
        return g.call("clamp", x, 0, int(last[0]))
    return g.call("minimum", g.call("clamp", x, 0), g.tensor(last.astype(np.int64)))


@core("take")
def take(g, op: typed.Take, x, indices):
    axis, where = op.axis, _positions(g, op.indices, indices, op.x.type.shape[op.axis])
    if axis == 0 and op.x.type.rank == 2 and g.dtype(x).is_float:
        return g.call("embedding", x, where)
    flat = g.reshape(where, (op.indices.type.elements,))
    return g.reshape(g.call("index_select", x, axis, flat), op.result.type.shape)


@core("take_along")
def take_along(g, op: typed.TakeAlong, x, indices):
    where = _positions(g, op.indices, indices, op.x.type.shape[op.axis])
    return g.call("gather", x, op.axis, where)


@core("gather_nd")
def gather_nd(g, op: typed.GatherNd, x, indices):
    """Select rows of the tensor whose leading axes are one, by the position on it."""
    shape, places, batch = op.x.type.shape, op.indices.type.shape, op.batch_dims
    depth = batch + places[-1]
    flat = g.full(places[:-1], 0, I64)
    for axis in range(batch):
        column = [shape[axis] if a == axis else 1 for a in range(len(places) - 1)]
        own = g.reshape(g.count(shape[axis]), column)
        flat = g.call("add.Tensor", flat, g.call("mul.Tensor", own, prod(shape[axis + 1 : depth])))
    if places[-1]:
        where = _positions(g, op.indices, indices, *shape[batch:depth])
        flat = g.call("add.Tensor", flat, _linear(g, where, shape[batch:depth]))
    rows = g.reshape(x, (prod(shape[:depth]), *shape[depth:]))
    found = g.call("index_select", rows, 0, g.reshape(flat, (prod(places[:-1]),)))
    return g.reshape(found, op.result.type.shape)


def _linear(g: Emitter, where: Node, sizes: Sequence[int]) -> Node:
    """Return positions in row-major order; the last axis has those on each axis of ``sizes``."""
    made, axis = None, len(shape_of(where)) - 1
    for place in range(len(sizes)):
        part = g.reshape(g.cut(where, axis, place, place + 1), shape_of(where)[:-1])
        part = g.call("mul.Tensor", part, prod(sizes[place + 1 :]))
        made = part if made is None else g.call("add.Tensor", made, part)
    assert made is not None
    return made


# -- scatters --------------------------------------------------------------------------------------


def _inside(g: Emitter, value: Value, where: Node, size: int) -> Node:
    """Return positions in i64, with ``size`` in place of those out of range."""
    where = g.cast(where, I64)
    held = g.stored(value)
    if held is not None and held.size and held.min() >= 0 and held.max() < size:
        return where
    low, high = g.call("ge.Scalar", where, 0), g.call("lt.Scalar", where, size)
    return g.where(g.call("logical_and", low, high), where, g.scalar(size, I64))


def _need_kernel(op: typed.Scatter) -> None:
    """Refuse to order ui64, whose bits are read as i64."""
    if op.mode in ("max", "min") and op.result.type.dtype is dtypes.UI64:
        raise NotInTorch("torch has no kernel for ui64")


def _scattered(g: Emitter, mode: str, x: Node, axis: int, where: Node, updates: Node) -> Node:
    """Scatter into a tensor with one more position on the axis, which takes what is dropped."""
    shape, size = shape_of(x), shape_of(x)[axis]
    high = [int(a == axis) for a in range(len(shape))]
    x = padded(g, x, [0] * len(shape), high, 0)
    if mode == "set":
        x = g.call("scatter.src", x, axis, where, updates)
    else:
        x = g.call("scatter_reduce.two", x, axis, where, updates, _REDUCTIONS[mode])
    return g.cut(x, axis, 0, size)


@core("scatter_along")
@in_f32
def scatter_along(g, op: typed.ScatterAlong, x, indices, updates):
    _need_kernel(op)
    if 0 in op.indices.type.shape:
        return x
    where = _inside(g, op.indices, indices, op.result.type.shape[op.axis])
    return _scattered(g, op.mode, x, op.axis, where, updates)


@core("scatter_nd")
@in_f32
def scatter_nd(g, op: typed.ScatterNd, x, indices, updates):
    """Scatter rows into the tensor whose leading axes are one."""
    _need_kernel(op)
    shape, places = op.result.type.shape, op.indices.type.shape
    if 0 in op.updates.type.shape:
        return x
    depth, count = places[-1], prod(places[:-1])
    rest = prod(shape[depth:])
    rows, columns = prod(shape[:depth]), (count, rest)
    table, updates = g.reshape(x, (rows, rest)), g.reshape(updates, columns)
    if depth:
        where = _rows_inside(g, g.cast(indices, I64), shape[:depth])
    else:
        where = g.full((count,), 0, I64)
    where = g.expand(g.reshape(where, (count, 1)), columns)
    return g.reshape(_scattered(g, op.mode, table, 0, where, updates), shape)


def _rows_inside(g: Emitter, where: Node, sizes: Sequence[int]) -> Node:
    """Return row-major positions, with their number in place of those out of range."""
    limits = g.tensor(np.array(sizes, np.int64))
    inside = g.call(
        "logical_and", g.call("ge.Scalar", where, 0), g.call("lt.Tensor", where, limits)
    )
    inside = g.call("all.dim", inside, len(shape_of(where)) - 1)
    return g.where(inside, _linear(g, where, sizes), g.scalar(prod(sizes), I64))
