"""Running sums and maxima, sorts and top-k, from elementwise ops and reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core_compiler.ir import DType, Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, in_f32
from core_compiler.ops.rules import I32, replaced

# -- scans -----------------------------------------------------------------------------------------


def bound(kind: DType, least: bool) -> float | int:
    """Return the least or the greatest value of a dtype."""
    if kind.is_float:
        return -np.inf if least else np.inf
    info = np.iinfo(kind.numpy)
    return info.min if least else info.max


#: The table of scans: (combining op, its identity, start value of an exclusive scan).
_SCANS: dict[str, tuple[str, Callable, Callable]] = {
    "cumsum": ("add", lambda kind: -0.0 if kind.is_float else 0, lambda kind: 0),
    "cumprod": ("mul", lambda kind: 1, lambda kind: 1),
    "cummax": ("max", lambda kind: bound(kind, True), lambda kind: bound(kind, True)),
    "cummin": ("min", lambda kind: bound(kind, False), lambda kind: bound(kind, False)),
}


@in_f32
def scan(b: Builder, op: typed.Scan, x: Value) -> Value:
    """Combine x with itself shifted by 1, 2, 4, ... positions (Hillis and Steele, 1986).

    Exact for integers, maxima and minima; sums and products of floats are computed in another order
    than the contract's.
    """
    join, neutral, start = _SCANS[op.kind.removeprefix("core.")]
    kind, size, step = x.type.dtype, x.type.shape[op.axis], 1
    while step < size:
        x = b.op(f"core.{join}", (_moved(b, op, x, step, neutral(kind)), x))
        step *= 2
    return _moved(b, op, x, min(1, size), start(kind)) if op.exclusive else x


def _moved(b: Builder, op: typed.Scan, x: Value, places: int, number) -> Value:
    """Return ``x`` shifted along the scanned axis, with ``number`` in the vacated positions."""
    axis, size = op.axis, x.type.shape[op.axis]
    free = b.expand(b.constant(number, x.type.dtype), replaced(x.type.shape, axis, places))
    if op.reverse:
        return b.concat(b.cut(x, axis, places, size), free, axis=axis)
    return b.concat(free, b.cut(x, axis, 0, size - places), axis=axis)


# -- sorts -----------------------------------------------------------------------------------------


def sort(b: Builder, op: typed.Sort) -> Value:
    (x,) = op.operands
    places = _order(b, x, op.axis, op.descending, x.type.shape[op.axis])
    return b.take_along(x, places, axis=op.axis)


def argsort(b: Builder, op: typed.Argsort) -> Value:
    (x,) = op.operands
    places = _order(b, x, op.axis, op.descending, x.type.shape[op.axis])
    return as_dtype(b, places, op.dtype)


def topk(b: Builder, op: typed.Topk) -> tuple[Value, Value]:
    (x,) = op.operands
    places = _order(b, x, op.axis, op.largest, op.k)
    return b.take_along(x, places, axis=op.axis), b.cast(places, dtype=op.results[1].type.dtype)


def _order(b: Builder, x: Value, axis: int, descending: bool, count: int) -> Value:
    """Return the first ``count`` positions (i32) of the stable order along ``axis``.

    The rank of an element is the number of elements that precede it; each rank then looks up its
    element.  Both compare all pairs of a row: n * n and n * count steps.
    """
    if x.type.dtype.kind == "bool":
        x = b.cast(x, dtype=I32)
    rank, size = x.type.rank, x.type.shape[axis]
    last = (*(a for a in range(rank) if a != axis), axis)
    rows = b.transpose(x, permutation=last)
    lead = rows.type.shape[:-1]
    pairs = (*lead, size, size)
    kept, inner, outer = tuple(range(rank - 1)), rank, rank - 1
    own = b.broadcast(rows, shape=pairs, dims=(*kept, outer))
    other = b.broadcast(rows, shape=pairs, dims=(*kept, inner))
    first, second = (own, other) if descending else (other, own)
    before, after = _less(b, first, second), _less(b, second, first)
    earlier = b.lt(*(b.iota(shape=pairs, dtype=I32, axis=a) for a in (inner, outer)))
    tie = b.and_(b.not_(b.or_(before, after)), earlier)
    ranks = b.reduce_sum(b.cast(b.or_(before, tie), dtype=I32), axes=(inner,))
    table = (*lead, count, size)
    wanted = b.iota(shape=table, dtype=I32, axis=outer)
    found = b.eq(b.broadcast(ranks, shape=table, dims=(*kept, inner)), wanted)
    number = b.iota(shape=table, dtype=I32, axis=inner)
    places = b.reduce_sum(b.select(found, number, b.scalar_like(0, number)), axes=(inner,))
    return b.transpose(places, permutation=tuple(map(last.index, range(rank))))


def _less(b: Builder, x: Value, y: Value) -> Value:
    """Return x < y, with NaN greater than all numbers."""
    less = b.lt(x, y)
    if not x.type.dtype.is_float:
        return less
    return b.or_(less, b.and_(b.is_nan(y), b.not_(b.is_nan(x))))
