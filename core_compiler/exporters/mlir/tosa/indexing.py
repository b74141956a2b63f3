"""Gathers and scatters in TOSA: [N, K, C] at [N, W] positions of K.

Positions are clamped before a gather.  A scatter requires unique positions: of the updates with the
same position the last one keeps it (with the combined value of all), the others go to separate rows
after the table, which are cut off; so do those that are out of range.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from core_compiler.exporters.compositions import scatters
from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import I1, I8, I64, Tosa, op
from core_compiler.exporters.mlir.tosa.numbers import position
from core_compiler.exporters.mlir.tosa.shape import joined
from core_compiler.ir import tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import replaced


def gathered(b: Tosa, table: Ref, places: Ref) -> Ref:
    """Emit ``tosa.gather`` of [N, K, C] at [N, W] positions (i32); the result is [N, W, C]."""
    (n, _, c), w = table.type.shape, places.type.shape[1]
    kind = table.type.dtype
    if kind is I1:  # the specification has no tables of these
        return b.each("cast", gathered(b, b.each("cast", table, kind=I8), places), kind=I1)
    if kind.bits == 64:  # the op's table only has these with 64-bit positions
        places = b.each("cast", places, kind=I64)
    return b.op("gather", [table, places], tensor((n, w, c), kind))


@op("take")
def take(b: Tosa, op: typed.Take, x: Ref, indices: Ref) -> Ref:
    axis, shape = op.axis, x.type.shape
    n, k, c = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    places = b.reshaped(position(b, indices, k - 1), (1, indices.type.elements))
    places = b.tiled(places, (n, indices.type.elements))
    return b.reshaped(gathered(b, b.reshaped(x, (n, k, c)), places), op.result.type.shape)


@op("take_along")
def take_along(b: Tosa, op: typed.TakeAlong, x: Ref, indices: Ref) -> Ref:
    """Return the rows that the indices select, with the axis last."""
    axis, rank = op.axis, x.type.rank
    last = (*(a for a in range(rank) if a != axis), axis)
    box = replaced(indices.type.shape, axis, x.type.shape[axis])
    x = b.transposed(b.cut(x, [0] * rank, box), last)
    places = b.transposed(position(b, indices, x.type.shape[-1] - 1), last)
    k, w = x.type.shape[-1], places.type.shape[-1]
    n = places.type.elements // w
    made = gathered(b, b.reshaped(x, (n, k, 1)), b.reshaped(places, (n, w)))
    return b.transposed(b.reshaped(made, places.type.shape), tuple(map(last.index, range(rank))))


@op("gather_nd")
def gather_nd(b: Tosa, op: typed.GatherNd, x: Ref, indices: Ref) -> Ref:
    batch, depth = op.batch_dims, indices.type.shape[-1]
    sizes = x.type.shape[batch : batch + depth]
    n, k = prod(x.type.shape[:batch]), prod(sizes)
    rows = linear(b, indices, sizes)
    w = rows.type.elements // n
    table = b.reshaped(x, (n, k, x.type.elements // (n * k)))
    return b.reshaped(gathered(b, table, b.reshaped(rows, (n, w))), op.result.type.shape)


def linear(b: Tosa, indices: Ref, sizes: Sequence[int]) -> Ref:
    """Combine positions on the last axis into one clamped row number (i32) of ``sizes``."""
    lead = indices.type.shape[:-1]
    rows = b.tiled(b.constant(np.zeros((1,) * len(lead), np.int32)), lead)
    for number, size in enumerate(sizes):
        column = b.cut(indices, [0] * len(lead) + [number], (*lead, 1))
        place = position(b, b.reshaped(column, lead), size - 1)
        rows = b.each("add", b.each("mul", rows, b.splat(size, rows)), place)
    return rows


# -- scatters --------------------------------------------------------------------------------------


@op("scatter_along")
def scatter_along(b: Tosa, op: typed.ScatterAlong, x: Ref, indices: Ref, updates: Ref) -> Ref:
    """Scatter with the axis last; each row is a table, and rows without updates are unchanged."""
    axis, rank = op.axis, x.type.rank
    last = (*(a for a in range(rank) if a != axis), axis)
    box = replaced(indices.type.shape, axis, x.type.shape[axis])
    table = b.transposed(b.cut(x, [0] * rank, box), last)
    indices, updates = b.transposed(indices, last), b.transposed(updates, last)
    k, w = table.type.shape[-1], indices.type.shape[-1]
    n = indices.type.elements // w
    rows = b.reshaped(_or_outside(b, indices, k), (n, w))
    made = _scattered(
        b, op.mode, b.reshaped(table, (n, k, 1)), rows, b.reshaped(updates, (n, w, 1))
    )
    made = b.transposed(b.reshaped(made, table.type.shape), tuple(map(last.index, range(rank))))
    for other in range(rank):  # elements outside the box of the indices
        size, whole = made.type.shape[other], x.type.shape[other]
        if size < whole:
            start = [size if a == other else 0 for a in range(rank)]
            rest = b.cut(x, start, replaced(made.type.shape, other, whole - size))
            made = joined(b, [made, rest], other)
    return made


@op("scatter_nd")
def scatter_nd(b: Tosa, op: typed.ScatterNd, x: Ref, indices: Ref, updates: Ref) -> Ref:
    depth = indices.type.shape[-1]
    sizes = x.type.shape[:depth]
    k, w = prod(sizes), prod(indices.type.shape[:-1])
    width = x.type.elements // k
    rows, lead = linear(b, indices, sizes), indices.type.shape[:-1]
    for number, size in enumerate(sizes):
        column = b.reshaped(b.cut(indices, [0] * len(lead) + [number], (*lead, 1)), lead)
        outside = b.each("equal", _or_outside(b, column, size), b.splat(size, rows), kind=I1)
        rows = b.each("select", outside, b.splat(k, rows), rows)
    made = _scattered(
        b,
        op.mode,
        b.reshaped(x, (1, k, width)),
        b.reshaped(rows, (1, w)),
        b.reshaped(updates, (1, w, width)),
    )
    return b.reshaped(made, x.type.shape)


def _or_outside(b: Tosa, indices: Ref, size: int) -> Ref:
    """Return positions as i32, with ``size`` for those that are not in ``0..size-1``."""
    kind = indices.type.dtype
    made = position(b, indices, size)
    if kind.kind == "uint":
        return made
    negative = b.core(lambda c, v: c.lt(v, c.scalar_like(0, v)), indices)
    return b.each("select", negative, b.splat(size, made), made)


def _scattered(b: Tosa, mode: str, table: Ref, rows: Ref, updates: Ref) -> Ref:
    """Store [N, W, C] in, or combine it with, rows [N, W] of [N, K, C]; row K is dropped."""
    kind = table.type.dtype
    (n, k, c), w = table.type.shape, rows.type.shape[1]
    rows, updates = b.core(
        lambda *values: scatters.make_rows_distinct(*values, mode=mode), table, rows, updates
    )
    zeros = b.tiled(b.constant(np.zeros((1, 1, 1), kind.numpy), kind), (n, w, c))
    wide = tensor((n, k + w, c), kind)
    if kind.bits == 64:  # the same limitation as for gathers
        rows = b.each("cast", rows, kind=I64)
    made = b.op("scatter", [joined(b, [table, zeros], 1), rows, updates], wide)
    return b.cut(made, (0, 0, 0), (n, k, c))
