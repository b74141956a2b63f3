"""Typed views of ops: ``Conv.of(op).strides`` instead of ``op["strides"]``.

A view is generated from the op's declaration: a property for each operand (``None`` for an absent
optional one, a tuple for ``*xs``) and for each attribute, with its default if absent. The op itself
is unchanged. Classes are created on first use; `typed.pyi` declares their types for mypy and is
generated from the declarations (``python -m core_compiler.ops.typed``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from core_compiler.ir import Op, Value
from core_compiler.ops.base import REGISTRY, Attr, OpDef
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
    def result(self) -> Value:
        return self.op.result


def class_name(declared: OpDef) -> str:
    """Return ``ReduceSum`` for ``core.reduce_sum``."""
    return "".join(part.capitalize() for part in declared.name.split("_"))


def _operand(declared: str, index: int) -> Callable[[OpView], Any]:
    if declared.startswith("*"):
        return lambda view: view.op.operands[index:]
    if declared.endswith("?"):
        return lambda view: view.op.operands[index] if index < len(view.op.operands) else None
    return lambda view: view.op.operands[index]


def _attribute(name: str, spec: Attr) -> Callable[[OpView], Any]:
    if spec.is_required:
        return lambda view: view.op.attributes[name]
    default = spec.default
    return lambda view: view.op.attributes.get(name, default)


def _members(declared: OpDef) -> Iterator[tuple[str, Callable[[OpView], Any], str]]:
    """Yield the name, the getter and the type (as in the stub) of each property of a view."""
    for index, operand in enumerate(declared.operands):
        kind = "tuple[Value, ...]" if operand[0] == "*" else "Value"
        kind += " | None" if operand[-1] == "?" else ""
        yield operand.strip("*?"), _operand(operand, index), kind
    for name, spec in declared.attributes.items():
        yield name, _attribute(name, spec), _spelled(spec)


def _spelled(spec: Attr) -> str:
    kinds = spec.type if isinstance(spec.type, tuple) else (spec.type,)
    items = spec.of if isinstance(spec.of, tuple) else (spec.of,)
    item = " | ".join(kind.__name__ for kind in items)
    named = [f"tuple[{item}, ...]" if kind is tuple else kind.__name__ for kind in kinds]
    return " | ".join([*named, *(["None"] if spec.default is None else [])])


def __getattr__(name: str) -> type[OpView]:
    """Create the view class ``name``; AttributeError if no declared op has this name."""
    if not name.startswith("_"):
        for declared in REGISTRY.values():
            if class_name(declared) == name:
                members: dict[str, Any] = {n: property(get) for n, get, _ in _members(declared)}
                made = type(name, (OpView,), {"__slots__": (), "kind": declared.kind, **members})
                globals()[name] = made
                return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def stub() -> str:
    """Return the text of `typed.pyi`."""
    lines = [
        "# Written by `python -m core_compiler.ops.typed` from the declarations of the ops.",
        "from typing import ClassVar, Self",
        "",
        "from core_compiler.ir import Dense, DType, Op, Resource, Value",
        "from core_compiler.ops.base import OpDef",
        "",
        "class OpView:",
        "    op: Op",
        "    kind: ClassVar[str]",
        "    def __init__(self, op: Op) -> None: ...",
        "    @classmethod",
        "    def of(cls, op: Op) -> Self: ...",
        "    @classmethod",
        "    def match(cls, op: Op | None) -> Self | None: ...",
        "    @property",
        "    def result(self) -> Value: ...",
        "",
        "def class_name(declared: OpDef) -> str: ...",
        "def stub() -> str: ...",
    ]
    for declared in REGISTRY.values():
        lines += ["", f"class {class_name(declared)}(OpView):"]
        members = list(_members(declared))
        lines += [] if members else ["    ..."]
        for name, _, kind in members:
            lines += ["    @property", f"    def {name}(self) -> {kind}: ..."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from core_compiler.ops import typed

    Path(__file__).with_suffix(".pyi").write_text(typed.stub(), encoding="utf-8")
