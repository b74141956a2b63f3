"""The class of views of a declared op, made from its declaration.

A rule that gets a view reads ``op.strides`` and ``op.w``; mypy knows their types (`typed.pyi`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from core_compiler.ir.views import Attribute, Operand, Operands, OptionalOperand, OpView


@cache
def view_class(
    kind: str,
    operands: tuple[str, ...],
    required: tuple[str, ...],
    defaults: tuple[tuple[str, Any], ...],
) -> type[OpView]:
    """Return the view class of a declared kind, one for equal declarations.

    ``required`` and ``defaults`` are its attributes; one that is absent has its default.
    """
    members: dict[str, Any] = {"__slots__": (), "kind": kind}
    for index, operand in enumerate(operands):
        members[operand.strip("*?")] = _operand(operand, index)
    members |= {name: Attribute() for name in required}
    members |= {name: Attribute(default) for name, default in defaults}
    return type(class_name(kind), (OpView,), members)


def class_name(kind: str) -> str:
    """Return ``ReduceSum`` for ``core.reduce_sum``."""
    return "".join(part.capitalize() for part in kind.split(".", 1)[1].split("_"))


def _operand(declared: str, index: int) -> Operand | Operands | OptionalOperand:
    if declared.startswith("*"):
        return Operands(index)
    return OptionalOperand(index) if declared.endswith("?") else Operand(index)
