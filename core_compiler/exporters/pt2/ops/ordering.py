"""Sorts, orders and the greatest elements: stable, with NaN greatest, as in the IR."""

from __future__ import annotations

from core_compiler.exporters.pt2.table import BOOL, I32, Emitter, Node, core
from core_compiler.ops import typed


def _sorted(g: Emitter, x: Node, axis: int, descending: bool) -> list[Node]:
    """Return values and positions."""
    x = g.cast(x, I32) if g.dtype(x) is BOOL else x
    return g.calls("sort.stable", 2, x, stable=True, dim=axis, descending=descending)


@core("sort")
def sort(g, op: typed.Sort, x):
    return _sorted(g, x, op.axis, op.descending)[0]


@core("argsort")
def argsort(g, op: typed.Argsort, x):
    return _sorted(g, x, op.axis, op.descending)[1]


@core("topk")
def topk(g, op: typed.Topk, x):
    """Sort: the order of equal elements in torch's topk is open."""
    return [g.cut(v, op.axis, 0, op.k) for v in _sorted(g, x, op.axis, op.largest)]
