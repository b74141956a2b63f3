"""Views of ops: an op with names for its operands and attributes, generated from its declaration.

A rule that gets a view reads ``op.strides`` and ``op.w`` instead of ``op["strides"]`` and
``op.operands[1]``; mypy knows their types (`typed.pyi`). The op itself is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self

from core_compiler.ir import Block, Op, Value
from core_compiler.support.errors import InternalError


class OpView:
    """An op of one kind, with names and types for its operands and attributes."""

    __slots__ = ("op",)
    kind: ClassVar[str] = ""

    def __init__(self, op: Op):
        self.op = op

    @classmethod
    def of(cls, op: Op) -> Self:
        """Return the view of ``op``; InternalError if it is of another kind."""
        if op.kind != cls.kind:
            raise InternalError(f"expected {cls.kind}, got {op.kind}")
        return cls(op)

    @classmethod
    def match(cls, op: Op | None) -> Self | None:
        """Return the view of ``op``, or None if it is None or of another kind."""
        return cls(op) if op is not None and op.kind == cls.kind else None

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.op.operands

    @property
    def results(self) -> tuple[Value, ...]:
        return self.op.results

    @property
    def result(self) -> Value:
        return self.op.result

    @property
    def regions(self) -> tuple[Block, ...]:
        return self.op.regions

    def pick(self, *names: str) -> dict[str, Any]:
        """Return the attributes of these names, as for an op that has the same ones."""
        return {name: getattr(self, name) for name in names}

    def with_(self, **parts: Any) -> Self:
        """Return a view of the op with some of its parts replaced, as :meth:`Op.with_`."""
        return type(self)(self.op.with_(**parts))

    def changed(self, **attributes: Any) -> Self:
        """Return a view of the op with some of its attributes replaced."""
        return self.with_(attributes={**self.op.attributes, **attributes})


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
        members[operand.strip("*?")] = property(_operand(operand, index))
    members |= {name: property(_required(name)) for name in required}
    members |= {name: property(_optional(name, default)) for name, default in defaults}
    return type(class_name(kind), (OpView,), members)


def class_name(kind: str) -> str:
    """Return ``ReduceSum`` for ``core.reduce_sum``."""
    return "".join(part.capitalize() for part in kind.split(".", 1)[1].split("_"))


def _operand(declared: str, index: int) -> Callable[[OpView], Any]:
    if declared.startswith("*"):
        return lambda view: view.op.operands[index:]
    if declared.endswith("?"):
        return lambda view: view.op.operands[index] if index < len(view.op.operands) else None
    return lambda view: view.op.operands[index]


def _required(name: str) -> Callable[[OpView], Any]:
    return lambda view: view.op.attributes[name]


def _optional(name: str, default: Any) -> Callable[[OpView], Any]:
    return lambda view: view.op.attributes.get(name, default)
