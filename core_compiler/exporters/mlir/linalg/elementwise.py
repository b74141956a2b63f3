"""Elementwise ops as generic ops with bodies from ``scalars``."""

from __future__ import annotations

from core_compiler.exporters.mlir.linalg import scalars
from core_compiler.exporters.mlir.linalg.context import Linalg, op
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir.views import OpView
from core_compiler.ops import typed


def _elementwise(b: Linalg, op: OpView, *x: Ref) -> Ref:
    scalar = scalars.scalar(op.kind.removeprefix("core."), x[0].type.dtype)
    return b.each(lambda *given: scalar(b, *given), *x, dtype=op.result.type.dtype)


op(*scalars.FLOATS, *scalars.INTEGERS, *scalars.COMPARISONS)(_elementwise)


@op("select")
def select(b: Linalg, op: typed.Select, p: Ref, x: Ref, y: Ref) -> Ref:
    return b.each(b.chosen, p, x, y, dtype=x.type.dtype)


@op("cast")
def cast(b: Linalg, op: typed.Cast, x: Ref) -> Ref:
    made = op.result.type.dtype
    return b.each(lambda v: scalars.convert(b, v, made, op.saturate), x, dtype=made)


@op("bitcast")
def bitcast(b: Linalg, op: typed.Bitcast, x: Ref) -> Ref:
    made = op.result.type
    if not (x.type.dtype.is_float or made.dtype.is_float):
        return x.read_as(x.type.with_(dtype=made.dtype))
    return b.each(lambda v: b.converted("arith.bitcast", v, made.dtype), x, dtype=made.dtype)
