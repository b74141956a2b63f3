"""Scatters with duplicate rows rewritten so that each row of the table is written at most once."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.rules import I32

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


def make_rows_distinct(
    b: Builder, table: Value, rows: Value, updates: Value, *, mode: str
) -> tuple:
    """Return (rows, updates) of a table [N, K, C] extended by W rows, with all rows distinct.

    ``rows`` [N, W] (i32) are rows of the table, or K for none.  If several updates name one row,
    the last one keeps it, with its own update or that of all of them (and the old value) combined
    by ``mode``; every other update w goes to row K + w.
    """
    (n, k, c), w = table.type.shape, rows.type.shape[1]
    pairs = (n, w, w)
    same = b.eq(
        b.broadcast(rows, shape=pairs, dims=(0, 1)), b.broadcast(rows, shape=pairs, dims=(0, 2))
    )
    own, other = (b.iota(shape=pairs, dtype=I32, axis=axis) for axis in (1, 2))
    later = b.reduce_or(b.and_(same, b.gt(other, own)), axes=(2,))
    is_dropped = b.or_(later, b.eq(rows, b.scalar_like(k, rows)))
    spare_rows = b.add(b.iota(shape=(n, w), dtype=I32, axis=1), b.scalar_like(k, rows))
    new_rows = b.select(is_dropped, spare_rows, rows)
    if mode == "set":
        return new_rows, updates
    name = _REDUCTIONS[mode]
    kind = updates.type.dtype
    terms = widened(b, updates)
    each = (n, w, w, c)
    wide = b.broadcast(terms, shape=each, dims=(0, 2, 3))
    same_row = b.broadcast(same, shape=each, dims=(0, 1, 2))
    # An update always matches itself, so its own value can stand in for the others without changing
    # the result: no identity element is needed.
    own_terms = b.broadcast(terms, shape=each, dims=(0, 1, 3))
    neutral = {"add": 0, "mul": 1}.get(mode)
    rest = own_terms if neutral is None else b.scalar_like(neutral, wide)
    total = b.op(f"core.reduce_{name}", (b.select(same_row, wide, rest),), axes=(2,))
    clamped_rows = b.min(rows, b.scalar_like(k - 1, rows))
    old = widened(b, _rows(b, table, clamped_rows))
    joined = b.op(f"core.{ {'add': 'add', 'mul': 'mul'}.get(mode, mode) }", (old, total))
    return new_rows, as_dtype(b, joined, kind)


def _rows(b: Builder, table: Value, rows: Value) -> Value:
    """Gather rows [N, W] from [N, K, C]; the result is [N, W, C]."""
    (n, w), c = rows.type.shape, table.type.shape[2]
    places = b.reshape(rows, shape=(n, w, 1))
    return b.gather_nd(table, places, batch_dims=1) if c else table
