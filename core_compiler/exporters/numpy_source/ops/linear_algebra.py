"""Factorisations and linear systems in NumPy: calls of the helpers."""

from __future__ import annotations

from core_compiler.exporters.numpy_source.table import core
from core_compiler.ops import typed


@core("cholesky", "lu", "householder", "eigh", "orthogonal_columns")
def factor(w, op, a):
    return w.call(op.kind.removeprefix("core."), a)


@core("row_order")
def row_order(w, op: typed.RowOrder, swaps):
    return w.call("row_order", swaps, op.rows)


@core("triangular_solve")
def triangular_solve(w, op: typed.TriangularSolve, a, b):
    flags = {"lower": op.lower, "transposed": op.transposed, "unit_diagonal": op.unit_diagonal}
    return w.call("triangular_solve", a, b, **flags)


@core("reflect")
def reflect(w, op: typed.Reflect, packed, tau, c):
    flags = {"transposed": True} if op.transposed else {}
    return w.call("reflect", packed, tau, c, **flags)
