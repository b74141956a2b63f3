"""Scatters with duplicate rows rewritten so that each row of the table is written at most once."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.rules import I32

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


def apart(b: Builder, table: Value, rows: Value, updates: Value, *, mode: str) -> tuple:
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
    nowhere = b.or_(later, b.eq(rows, b.scalar_like(k, rows)))
    spare = b.add(b.iota(shape=(n, w), dtype=I32, axis=1), b.scalar_like(k, rows))
    placed = b.select(nowhere, spare, rows)
    if mode == "set":
        return placed, updates
    name = _REDUCTIONS[mode]
    kind = updates.type.dtype
    terms = widened(b, updates)
    each = (n, w, w, c)
    wide = b.broadcast(terms, shape=each, dims=(0, 2, 3))
    met = b.broadcast(same, shape=each, dims=(0, 1, 2))
    # An update always matches itself, so its own value can stand in for the others without changing
    # the result: no identity element is needed.
    alone = b.broadcast(terms, shape=each, dims=(0, 1, 3))
    neutral = {"add": 0, "mul": 1}.get(mode)
    rest = alone if neutral is None else b.scalar_like(neutral, wide)
    total = b.op(f"core.reduce_{name}", (b.select(met, wide, rest),), axes=(2,))
    safe = b.min(rows, b.scalar_like(k - 1, rows))
    old = widened(b, _rows(b, table, safe))
    joined = b.op(f"core.{ {'add': 'add', 'mul': 'mul'}.get(mode, mode) }", (old, total))
    return placed, as_dtype(b, joined, kind)


def _rows(b: Builder, table: Value, rows: Value) -> Value:
    """Gather rows [N, W] from [N, K, C]; the result is [N, W, C]."""
    (n, w), c = rows.type.shape, table.type.shape[2]
    places = b.reshape(rows, shape=(n, w, 1))
    return b.gather_nd(table, places, batch_dims=1) if c else table
