"""Flops and compulsory bytes of an op."""

from __future__ import annotations

from core_compiler.ir import Op
from core_compiler.ops.base import Cost, definition
from core_compiler.ops.builder import decomposed
from core_compiler.support.errors import InternalError


def cost(op: Op) -> Cost:
    """Return flops and compulsory bytes of one op (static shapes).

    Bytes: each distinct operand read once, each result written once.
    """
    moved = sum(v.type.bytes for v in (*dict.fromkeys(op.operands), *op.results))
    return Cost(_flops(op), moved)


def _flops(op: Op) -> int:
    declared = definition(op)
    if declared.flops is not None:
        return int(declared.flops(declared.view(op)))
    if "elementwise" in declared.traits and declared.decompose is None:
        return sum(v.type.elements for v in op.results)
    if declared.decompose is not None:
        return sum(map(_flops, decomposed(op).ops))
    raise InternalError(f"{op.kind} does not declare a cost")
