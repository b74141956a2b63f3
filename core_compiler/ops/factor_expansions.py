"""Factorisations in terms of other ops, for formats that lack them: unrolled, column by column."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.matrices import in_order, transposed
from core_compiler.ops.rules import I32, I64


def _rows(b: Builder, x: Value, start: int, end: int) -> Value:
    return b.cut(x, x.type.rank - 2, start, end)


def _columns(b: Builder, x: Value, start: int, end: int) -> Value:
    return b.cut(x, x.type.rank - 1, start, end)


def _divided(b: Builder, x: Value, by: Value) -> Value:
    """Return ``x`` divided by a matrix of one row or column."""
    return b.div(x, b.expand(by, x.type.shape))


def cholesky(b: Builder, op: typed.Cholesky) -> Value:
    a = op.a
    n, rank = a.type.shape[-1], a.type.rank
    made: list[Value] = []
    for j in range(n):
        column = _columns(b, _rows(b, a, j, n), j, j + 1)
        if made:
            known = _rows(b, b.concat(*made, axis=rank - 1), j, n)
            column = b.sub(column, b.matmul(known, transposed(b, _rows(b, known, 0, 1))))
        pivot = _rows(b, column, 0, 1)
        nothing = b.scalar_like(0, pivot)
        root = b.select(b.gt(pivot, nothing), b.sqrt(pivot), b.scalar_like(float("nan"), pivot))
        parts = [root] if j + 1 == n else [root, _divided(b, _rows(b, column, 1, n - j), root)]
        column = b.concat(*parts, axis=rank - 2)
        low = tuple(j if axis == rank - 2 else 0 for axis in range(rank))
        zero, none = b.constant(0, a.type.dtype), (0,) * rank
        made.append(b.pad(column, zero, low=low, high=none, interior=none))
    return b.concat(*made, axis=rank - 1) if made else a


def triangular_solve(b: Builder, op: typed.TriangularSolve) -> Value:
    a = transposed(b, op.a) if op.transposed else op.a
    n, rank = a.type.shape[-1], a.type.rank
    solved: dict[int, Value] = {}
    for i in range(n) if op.lower != op.transposed else reversed(range(n)):
        row = _rows(b, op.b, i, i + 1)
        if solved:
            known = sorted(solved)
            parts = _columns(b, _rows(b, a, i, i + 1), known[0], known[-1] + 1)
            row = b.sub(row, b.matmul(parts, b.concat(*(solved[j] for j in known), axis=rank - 2)))
        if not op.unit_diagonal:
            row = _divided(b, row, _columns(b, _rows(b, a, i, i + 1), i, i + 1))
        solved[i] = row
    return b.concat(*(solved[i] for i in range(n)), axis=rank - 2) if n else op.b


def _exchanged(b: Builder, order: Value, k: int, chosen: Value) -> tuple[Value, Value]:
    """Return ``order`` with its elements k and ``chosen`` exchanged, and their positions before."""
    axis = order.type.rank - 1
    places = b.iota(shape=order.type.shape, dtype=I64, axis=axis)
    wide = b.broadcast(chosen, shape=order.type.shape, dims=tuple(range(axis)))
    here = b.scalar_like(k, places)
    before = b.select(b.eq(places, here), wide, b.select(b.eq(places, wide), here, places))
    return b.take_along(order, before, axis=axis), before


def row_order(b: Builder, op: typed.RowOrder) -> Value:
    swaps, axis = op.swaps, op.swaps.type.rank - 1
    order = b.iota(shape=(*swaps.type.shape[:-1], op.rows), dtype=I32, axis=axis)
    for k in range(swaps.type.shape[-1]):
        chosen = b.reshape(b.cut(swaps, axis, k, k + 1), shape=swaps.type.shape[:-1])
        chosen = b.cast(chosen, dtype=I64)
        last, first = b.scalar_like(op.rows - 1, chosen), b.scalar_like(0, chosen)
        order, _ = _exchanged(b, order, k, b.max(b.min(chosen, last), first))
    return order


def lu(b: Builder, op: typed.Lu) -> tuple[Value, Value, Value]:
    a, rank = op.a, op.a.type.rank
    *batch, rows, columns = a.type.shape
    order = b.iota(shape=(*batch, rows), dtype=I32, axis=rank - 2)
    swaps: list[Value] = []
    for k in range(min(rows, columns)):
        chosen = _pivot(b, a, k)
        swaps.append(b.reshape(b.cast(chosen, dtype=I32), shape=(*batch, 1)))
        order, before = _exchanged(b, order, k, chosen)
        a = in_order(b, a, before)
        if k + 1 < rows:
            below = _eliminated(b, _rows(b, a, k, k + 1), _rows(b, a, k + 1, rows), k)
            a = b.concat(_rows(b, a, 0, k + 1), below, axis=rank - 2)
    if not swaps:
        return a, order, b.expand(b.constant(0, I32), (*batch, 0))
    return a, order, b.concat(*swaps, axis=rank - 2)


def _eliminated(b: Builder, top: Value, rest: Value, k: int) -> Value:
    """Return the rows below row k: their factors, and what is left of later columns."""
    rank, columns = rest.type.rank, rest.type.shape[-1]
    pivot, column = (_columns(b, x, k, k + 1) for x in (top, rest))
    pivot = b.expand(pivot, column.type.shape)
    factor = b.select(b.eq(pivot, b.scalar_like(0, pivot)), column, b.div(column, pivot))
    parts = [_columns(b, rest, 0, k), factor] if k else [factor]
    if k + 1 < columns:
        left, right = (_columns(b, x, k + 1, columns) for x in (top, rest))
        parts.append(b.sub(right, b.matmul(factor, left)))
    return b.concat(*parts, axis=rank - 1)


def _pivot(b: Builder, a: Value, k: int) -> Value:
    """Return the row of the first largest magnitude of column k, on or below the diagonal."""
    *batch, rows, _ = a.type.shape
    column = _columns(b, _rows(b, a, k, rows), k, k + 1)
    sizes = b.abs(b.reshape(column, shape=(*batch, rows - k)))
    unknown, lowest = b.is_nan(sizes), b.scalar_like(-1, sizes)
    axis = len(batch)
    chosen = b.argmax(b.select(unknown, lowest, sizes), axis=axis, dtype=I64)
    none = b.scalar_like(0, chosen)
    stays = b.reshape(b.cut(unknown, axis, 0, 1), shape=tuple(batch))
    return b.add(b.select(stays, none, chosen), b.scalar_like(k, chosen))
