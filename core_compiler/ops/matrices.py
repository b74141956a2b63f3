"""Expressions of the matrices in a value's last two axes."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder


def transposed(b: Builder, x: Value) -> Value:
    """Return the transposes of the matrices."""
    rank = x.type.rank
    return b.transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def _row_and_column(b: Builder, shape: tuple) -> tuple[Value, Value]:
    rank = len(shape)
    row, column = (b.iota(shape=shape, dtype="i64", axis=rank - n) for n in (2, 1))
    return row, column


def triangle(b: Builder, x: Value, lower: bool, diagonal: int = 0) -> Value:
    """Return ``x``, with 0 above (``lower``) or below the ``diagonal``-th diagonal."""
    row, column = _row_and_column(b, x.type.shape)
    ahead, limit = b.sub(column, row), b.scalar_like(diagonal, row)
    kept = b.le(ahead, limit) if lower else b.ge(ahead, limit)
    return b.select(kept, x, b.scalar_like(0, x))


def identity(b: Builder, like: Value, rows: int, columns: int) -> Value:
    """Return matrices with 1 on the diagonal, in the batch and dtype of ``like``."""
    shape = (*like.type.shape[:-2], rows, columns)
    same = b.eq(*_row_and_column(b, shape))
    one, zero = (b.expand(b.constant(n, like.type.dtype), shape) for n in (1, 0))
    return b.select(same, one, zero)


def diagonal(b: Builder, x: Value) -> Value:
    """Return the diagonal of each matrix."""
    *batch, rows, columns = x.type.shape
    count, lead = min(rows, columns), len(batch)
    flat = b.reshape(x, shape=(*batch, rows * columns))
    return b.cut(flat, lead, 0, (count - 1) * (columns + 1) + 1 if count else 0, columns + 1)


def scaled(b: Builder, x: Value, factors: Value, rows: bool) -> Value:
    """Return ``x`` with each row (or column) times its factor."""
    rank = x.type.rank
    axis = rank - 2 if rows else rank - 1
    return b.mul(x, b.broadcast(factors, shape=x.type.shape, dims=(*range(rank - 2), axis)))


def in_order(b: Builder, x: Value, order: Value) -> Value:
    """Return the rows of each matrix in ``order``: row i of the result is row order[i]."""
    axis = x.type.rank - 2
    rows = b.broadcast(b.cast(order, dtype="i64"), shape=x.type.shape, dims=tuple(range(axis + 1)))
    return b.take_along(x, rows, axis=axis)


def in_first_order(b: Builder, x: Value, order: Value) -> Value:
    """Return the rows of each matrix as they were before :func:`in_order`."""
    return in_order(b, x, b.argsort(order, axis=order.type.rank - 1))
