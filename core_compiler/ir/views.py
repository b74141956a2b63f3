"""Views of ops: an op of one kind with names and types for its operands and attributes.

A reader writes ``For.of(op).name`` instead of ``op["name"]``, and mypy knows the type. The op
itself is unchanged, and a view is not kept.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from core_compiler.ir.core import Block, Op, Value
from core_compiler.support.errors import InternalError

T = TypeVar("T")


class OpView:
    """An op of one kind; the classes of the kinds declare their parts."""

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


class Operand:
    """The operand at ``index``."""

    def __init__(self, index: int):
        self.index = index

    @overload
    def __get__(self, view: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, view: OpView, owner: Any) -> Value: ...
    def __get__(self, view: OpView | None, owner: Any) -> Self | Value:
        return self if view is None else view.op.operands[self.index]


class OptionalOperand:
    """The operand at ``index``, or None where the op has fewer."""

    def __init__(self, index: int):
        self.index = index

    @overload
    def __get__(self, view: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, view: OpView, owner: Any) -> Value | None: ...
    def __get__(self, view: OpView | None, owner: Any) -> Self | Value | None:
        if view is None:
            return self
        return view.op.operands[self.index] if self.index < len(view.op.operands) else None


class Operands:
    """The operands from ``start`` to ``stop``, or to the last."""

    def __init__(self, start: int, stop: int | None = None):
        self.range = slice(start, stop)

    @overload
    def __get__(self, view: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, view: OpView, owner: Any) -> tuple[Value, ...]: ...
    def __get__(self, view: OpView | None, owner: Any) -> Self | tuple[Value, ...]:
        return self if view is None else view.op.operands[self.range]


_REQUIRED: Any = object()


class Attribute(Generic[T]):
    """The attribute of this name; ``default`` where the op has none, InternalError without one."""

    def __init__(self, default: T = _REQUIRED):
        self.default = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, view: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, view: OpView, owner: Any) -> T: ...
    def __get__(self, view: OpView | None, owner: Any) -> Self | T:
        if view is None:
            return self
        found = view.op.attributes.get(self.name, self.default)
        if found is _REQUIRED:
            raise InternalError(f"{view.op.kind} has no attribute {self.name!r}")
        return found
