"""The view class of every declared op: ``Conv.of(op).strides`` instead of ``op["strides"]``.

See :class:`~core_compiler.ir.views.OpView`. Classes are created on first use; `typed.pyi` declares
their types for mypy and is generated from the declarations (``python -m core_compiler.ops.typed``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core_compiler.ir.views import OpView
from core_compiler.ops.base import REGISTRY, Attr, OpDef
from core_compiler.ops.views import class_name

#: Unions of views whose ops share the names of their attributes.
FAMILIES = {
    "Convolution": ("Conv", "ConvTranspose"),
    "Pool": ("MaxPool", "AvgPool"),
    "Random": ("RandomBits", "RandomNormal", "RandomUniform"),
    "Reduction": (
        "ReduceSum",
        "ReduceProd",
        "ReduceMax",
        "ReduceMin",
        "ReduceAnd",
        "ReduceOr",
    ),
    "Scan": ("Cumsum", "Cumprod", "Cummax", "Cummin"),
    "Scatter": ("ScatterAlong", "ScatterNd"),
}


def __getattr__(name: str) -> type[OpView]:
    """Return the view class ``name``; AttributeError if no declared op has this name."""
    for kind, declared in REGISTRY.items():
        if class_name(kind) == name:
            globals()[name] = declared.view
            return declared.view
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _members(declared: OpDef) -> Iterator[tuple[str, str]]:
    """Yield the name and the type of each property of a view."""
    for operand in declared.operands:
        kind = "tuple[Value, ...]" if operand[0] == "*" else "Value"
        yield operand.strip("*?"), kind + (" | None" if operand[-1] == "?" else "")
    for name, spec in declared.attributes.items():
        yield name, _type_text(spec)


def _type_text(spec: Attr) -> str:
    kinds = spec.type if isinstance(spec.type, tuple) else (spec.type,)
    items = spec.of if isinstance(spec.of, tuple) else (spec.of,)
    item = " | ".join(kind.__name__ for kind in items)
    named = [f"tuple[{item}, ...]" if kind is tuple else kind.__name__ for kind in kinds]
    return " | ".join([*named, *(["None"] if spec.default is None else [])])


def stub() -> str:
    """Return the text of `typed.pyi`."""
    lines = [
        "# Written by `python -m core_compiler.ops.typed` from the declarations of the ops.",
        "from core_compiler.ir import Dense, DType, Resource, Value",
        "from core_compiler.ir.views import OpView",
        "",
        "def stub() -> str: ...",
    ]
    for kind, declared in REGISTRY.items():
        lines += ["", f"class {class_name(kind)}(OpView):"]
        members = list(_members(declared))
        lines += [] if members else ["    ..."]
        for name, type_ in members:
            lines += ["    @property", f"    def {name}(self) -> {type_}: ..."]
    lines += ["", *(f"{name} = {' | '.join(members)}" for name, members in FAMILIES.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from core_compiler.ops import typed

    Path(__file__).with_suffix(".pyi").write_text(typed.stub(), encoding="utf-8")
