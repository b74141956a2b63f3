"""The table of translations and the context in which a StableHLO op is translated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core_compiler.frontends.stablehlo.reading import NotSupported, python_of, type_of
from core_compiler.ir import Block, DType, FrontendNode, TensorType, Value, dtype
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array, evaluate

__all__ = ["CALLS", "TABLE", "Context", "NotSupported", "call", "op"]

#: ``dialect.op`` -> handler(context, *operands) -> value(s).
TABLE: dict[str, Callable] = {}
#: Target of a ``stablehlo.custom_call`` -> handler(context, *operands) -> value(s).
CALLS: dict[str, Callable] = {}


def op(*names: str):
    """Register a handler for these ops; the default dialect is ``stablehlo``."""

    def enter(handler):
        for name in names:
            TABLE[name if "." in name else f"stablehlo.{name}"] = handler
        return handler

    return enter


def call(*targets: str):
    """Register a handler for these targets of custom calls."""

    def enter(handler):
        for target in targets:
            CALLS[target] = handler
        return handler

    return enter


class Context(Builder):
    """A builder that knows the op being translated."""

    def __init__(self, origin, operation, importer):
        super().__init__(importer.weights, origin)
        self.operation, self.importer = operation, importer

    @property
    def node(self) -> FrontendNode:
        """Return the node of the op being translated, which the ops of its expansion have too."""
        assert self.origin is not None
        return self.origin.nodes()[0]

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value."""
        attributes = self.operation.attributes
        return python_of(attributes[name]) if name in attributes else default

    def integers(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """Return an attribute of ``count`` integers; ``default`` for each if it is absent."""
        found = self.attr(name)
        return (default,) * count if found is None else tuple(map(int, found))

    @property
    def function(self) -> str:
        """Return the name of the function whose body the op is in; "" for the program's own."""
        return self.importer.calls[-1] if self.importer.calls else ""

    @property
    def results(self) -> list[TensorType]:
        """Return the types of the op's results."""
        return [type_of(value.type) for value in self.operation.results]

    def constant_of(self, value: Value) -> np.ndarray | None:
        """Return the array of a value that is computed from constants only, else None."""
        maker = self._producer(value)
        if maker is None or maker.regions or maker.kind.startswith("core.random"):
            return None
        if maker.kind == "core.constant":
            return constant_array(maker, self.weights)
        if value.type.elements > 4096 or maker.kind not in _SMALL:
            return None
        given = []
        for each in maker.operands:
            found = self.constant_of(each)
            if found is None:
                return None
            given.append(found)
        return evaluate(maker, given, self.weights)[maker.results.index(value)]

    def _producer(self, value: Value):
        own = next((made for made in reversed(self.ops) if value in made.results), None)
        return own if own is not None else self.importer.made.get(value)

    def region(self, index: int, arguments: Sequence[Value]) -> Block:
        """Return a region of the op as a block over ``arguments``."""
        self.importer.take(self)
        return self.importer.region(self.operation.regions[index], arguments)

    def lifted(self, index: int, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Inline a region of scalars for every element of ``arguments`` (of equal shapes)."""
        self.importer.take(self)
        return self.importer.lifted(self.operation.regions[index], arguments)

    def to(self, x: Value, wanted: DType) -> Value:
        """Convert ``x`` to another dtype if necessary."""
        return x if x.type.dtype is wanted else self.cast(x, dtype=wanted)

    @property
    def long(self) -> DType:
        """Return the dtype of positions."""
        return dtype("i64")

    def zero(self, x: Value) -> Value:
        """Return 0 with the shape and dtype of ``x``."""
        return self.scalar_like(0, x)


#: Ops that commonly compute a start value or a bound.
_SMALL = frozenset({"core.broadcast", "core.reshape", "core.cast", "core.neg"})
