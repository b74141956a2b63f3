"""Gathers as generic ops that read elements at computed positions; scatters as gathers of updates.

linalg has no scatter, and ``tensor.scatter`` requires unique positions.  So each element of the
result visits all updates that may target it, which costs (elements) x (updates of its row).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.exporters.mlir.linalg import scalars
from core_compiler.exporters.mlir.linalg.context import (
    I1,
    I64,
    PARALLEL,
    REDUCTION,
    Linalg,
    Map,
    identity,
    op,
)
from core_compiler.exporters.mlir.linalg.reduction import JOINS, accumulated
from core_compiler.exporters.mlir.linalg.shape import from_places, padded, reshaped
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir import tensor
from core_compiler.ir.types import INDEX
from core_compiler.ops import typed

#: A tensor of updates or of their positions, and its map as a function of the update loop.
Updates = tuple[Ref, Callable[[str], Map]]


@op("take")
def take(b: Linalg, op: typed.Take, x: Ref, indices: Ref) -> Ref:
    made, axis, depth = op.result.type, op.axis, indices.type.rank
    if made.elements == 0:
        return b.empty(tensor(made.shape, made.dtype))

    def body(position: Ref, _: Ref) -> Ref:
        places = [b.loop_index(i) for i in range(made.rank) if not axis <= i < axis + depth]
        places.insert(axis, b.clamped(position, x.type.shape[axis] - 1))
        return b.element(x, *places)

    return _gathered(b, made, (indices, identity(made.rank)[axis : axis + depth]), body)


@op("take_along")
def take_along(b: Linalg, op: typed.TakeAlong, x: Ref, indices: Ref) -> Ref:
    made, axis = op.result.type, op.axis
    if made.elements == 0:
        return b.empty(tensor(made.shape, made.dtype))

    def body(position: Ref, _: Ref) -> Ref:
        places = [b.loop_index(i) for i in range(made.rank) if i != axis]
        places.insert(axis, b.clamped(position, x.type.shape[axis] - 1))
        return b.element(x, *places)

    return _gathered(b, made, (indices, identity(made.rank)), body)


def _gathered(b: Linalg, made, indices: tuple[Ref, Map], body) -> Ref:
    results = [(b.empty(tensor(made.shape, made.dtype)), identity(made.rank))]
    return b.generic([indices], results, [PARALLEL] * made.rank, body)[0]


@op("gather_nd")
def gather_nd(b: Linalg, op: typed.GatherNd, x: Ref, indices: Ref) -> Ref:
    made, batch = tensor(op.result.type.shape, x.type.dtype), op.batch_dims
    if made.elements == 0:
        return b.empty(made)
    lead, depth = indices.type.rank - 1, indices.type.shape[-1]

    def body(_: Ref) -> Ref:
        loops = [b.loop_index(i) for i in range(made.rank)]
        found = [
            b.clamped(b.element(indices, *loops[:lead], b.place(i)), x.type.shape[batch + i] - 1)
            for i in range(depth)
        ]
        return b.element(x, *loops[:batch], *found, *loops[lead:])

    return from_places(b, made, body)


# -- scatters --------------------------------------------------------------------------------------


@op("scatter_along")
def scatter_along(b: Linalg, op: typed.ScatterAlong, x: Ref, indices: Ref, updates: Ref) -> Ref:
    """Pad positions and updates to the other axes of ``x``; -1 marks a missing update."""
    axis, rank = op.axis, x.type.rank
    if 0 in indices.type.shape or x.type.elements == 0:
        return x
    rows = _signed(b, indices)
    high = [
        0 if i == axis else n - m
        for i, (n, m) in enumerate(zip(x.type.shape, indices.type.shape, strict=True))
    ]
    rows = padded(b, rows, b.scalar(-1, I64), [0] * rank, high)
    updates = padded(b, updates, b.scalar(0, x.type.dtype), [0] * rank, high)

    def places(update: str) -> list[str]:
        return [update if i == axis else f"d{i}" for i in range(rank)]

    return _scattered(b, op.mode, x, axis, rank, (rows, places), (updates, places))


@op("scatter_nd")
def scatter_nd(b: Linalg, op: typed.ScatterNd, x: Ref, indices: Ref, updates: Ref) -> Ref:
    """Convert index tuples to one row number each, -1 if any component is out of range."""
    depth = indices.type.shape[-1]
    count = tensor(indices.type.shape[:-1], I64)
    if updates.type.elements == 0 or x.type.elements == 0:
        return x
    sizes = x.type.shape[:depth]

    def row(_: Ref) -> Ref:
        loops = [b.loop_index(i) for i in range(count.rank)]
        number, inside = b.scalar(0, I64), b.scalar(True, I1)
        for i, size in enumerate(sizes):
            found = b.element(indices, *loops, b.place(i))
            place = scalars.convert(b, found, I64)
            number = b.same("arith.muli", number, b.scalar(size, I64))
            number = b.same("arith.addi", number, place)
            for fits in (
                b.compared("ge", place, b.scalar(0, I64)),
                b.compared("lt", place, b.scalar(size, I64)),
            ):
                inside = b.same("arith.andi", inside, fits)
        return b.chosen(inside, number, b.scalar(-1, I64))

    rows = reshaped(b, from_places(b, count, row), (count.elements,))
    height = int(np.prod(sizes, dtype=np.int64))
    width = x.type.elements // height
    table = reshaped(b, x, (height, width))
    updates = reshaped(b, updates, (count.elements, width))
    made = _scattered(
        b, op.mode, table, 0, 1, (rows, lambda u: [u]), (updates, lambda u: [u, "d1"])
    )
    return reshaped(b, made, x.type.shape)


def _signed(b: Linalg, indices: Ref) -> Ref:
    """Return positions as i64; ui64 values beyond its range become negative and are dropped too."""
    return b.each(lambda v: scalars.convert(b, v, I64), indices, dtype=I64)


def _scattered(
    b: Linalg, mode: str, x: Ref, axis: int, lead: int, rows: Updates, updates: Updates
) -> Ref:
    """Return ``x`` with the updates that target each element on ``axis`` stored or combined.

    Elements of ``x`` that agree in their first ``lead`` axes are visited by the same updates.
    """
    rank, kind = x.type.rank, x.type.dtype
    (positions, place_of), (held, element_of) = rows, updates
    same = identity(rank)

    def hits(row: Ref) -> Ref:
        own = b.converted("arith.index_cast", b.loop_index(axis), I64)
        return b.compared("eq", row, own)

    def last(row: Ref, best: Ref) -> Ref:
        number = b.converted("arith.index_cast", b.loop_index(lead), I64)
        return b.same("arith.maxsi", b.chosen(hits(row), number, b.scalar(-1, I64)), best)

    def is_hit(at: Ref) -> Ref:
        return b.compared("ge", at, b.scalar(0, I64))

    start = b.filled(b.scalar(-1, I64), tensor(x.type.shape[:lead], I64))
    winner = b.generic(
        [(positions, place_of(f"d{lead}"))],
        [(start, same[:lead])],
        [PARALLEL] * lead + [REDUCTION],
        last,
    )[0]
    if mode == "set":

        def chosen(old: Ref, at: Ref, _: Ref) -> Ref:
            number = b.converted(
                "arith.index_cast", b.same("arith.maxsi", at, b.scalar(0, I64)), INDEX
            )
            loops = {name: b.loop_index(i) for i, name in enumerate(same)}
            places = [loops.get(name, number) for name in element_of("update")]
            return b.chosen(is_hit(at), b.element(held, *places), old)

        return b.generic(
            [(x, same), (winner, same[:lead])], [(b.empty(x.type), same)], [PARALLEL] * rank, chosen
        )[0]
    name = {"add": "sum", "mul": "prod"}.get(mode, mode)
    held = accumulated(b, held, name)
    wide = held.type.dtype
    join, neutral_of = JOINS[name]
    neutral, joined = b.scalar(neutral_of(wide), wide), scalars.scalar(join, wide)
    update = f"d{rank}"
    total = b.generic(
        [(positions, place_of(update)), (held, element_of(update))],
        [(b.filled(neutral, tensor(x.type.shape, wide)), same)],
        [PARALLEL] * rank + [REDUCTION],
        lambda row, value, acc: joined(b, acc, b.chosen(hits(row), value, neutral)),
    )[0]

    def combined(old: Ref, at: Ref, sum_: Ref, _: Ref) -> Ref:
        new = joined(b, scalars.convert(b, old, wide), sum_)
        return b.chosen(is_hit(at), scalars.convert(b, new, kind), old)

    return b.generic(
        [(x, same), (winner, same[:lead]), (total, same)],
        [(b.empty(x.type), same)],
        [PARALLEL] * rank,
        combined,
    )[0]
