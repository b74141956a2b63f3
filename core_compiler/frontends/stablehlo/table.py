"""The table of translations and the context that a StableHLO op is translated in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core_compiler.frontends.stablehlo.reading import NotSupported, python_of, type_of
from core_compiler.ir import Block, DType, FrontendNode, TensorType, Value, as_array, dtype
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import evaluate

__all__ = ["CALLS", "TABLE", "Context", "NotSupported", "call", "op"]

#: ``dialect.op`` -> handler(context, *operands) -> value(s).
TABLE: dict[str, Callable] = {}
#: Target of a ``stablehlo.custom_call`` -> handler(context, *operands) -> value(s).
CALLS: dict[str, Callable] = {}


def op(*names: str):
    """Enter a handler under these ops; without a dialect, of ``stablehlo``."""

    def enter(handler):
        for name in names:
            TABLE[name if "." in name else f"stablehlo.{name}"] = handler
        return handler

    return enter


def call(*targets: str):
    """Enter a handler under these targets of custom calls."""

    def enter(handler):
        for target in targets:
            CALLS[target] = handler
        return handler

    return enter


class Context(Builder):
    """A builder that knows the op it translates."""

    def __init__(self, origin, operation, importer):
        super().__init__(importer.weights, origin)
        self.operation, self.importer = operation, importer

    @property
    def node(self) -> FrontendNode:
        """The node of the op that is translated, which what it stands for is given too."""
        assert self.origin is not None
        return self.origin.nodes()[0]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value."""
        attributes = self.operation.attributes
        return python_of(attributes[name]) if name in attributes else default

    def integers(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """An attribute of ``count`` integers; ``default`` each where it is absent."""
        found = self.attr(name)
        return (default,) * count if found is None else tuple(map(int, found))

    @property
    def function(self) -> str:
        """The name of the function whose body the op is in; "" for the program's own."""
        return self.importer.calls[-1] if self.importer.calls else ""

    @property
    def results(self) -> list[TensorType]:
        """The types of the op's results."""
        return [type_of(value.type) for value in self.operation.results]

    def constant_of(self, value: Value) -> np.ndarray | None:
        """The array of a value that constants alone make up, or None."""
        maker = self._maker(value)
        if maker is None or maker.regions or maker.kind.startswith("core.random"):
            return None
        if maker.kind == "core.constant":
            return as_array(maker["value"], self.weights)
        if value.type.elements > 4096 or maker.kind not in _SMALL:
            return None
        given = []
        for each in maker.operands:
            found = self.constant_of(each)
            if found is None:
                return None
            given.append(found)
        return evaluate(maker, given, self.weights)[maker.results.index(value)]

    def _maker(self, value: Value):
        own = next((made for made in reversed(self.ops) if value in made.results), None)
        return own if own is not None else self.importer.made.get(value)

    def region(self, index: int, arguments: Sequence[Value]) -> Block:
        """A region of the op as a block over ``arguments``."""
        self.importer.take(self)
        return self.importer.region(self.operation.regions[index], arguments)

    def lifted(self, index: int, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """A region of scalars, computed for every element of ``arguments`` (of equal shapes)."""
        self.importer.take(self)
        return self.importer.lifted(self.operation.regions[index], arguments)

    def to(self, x: Value, wanted: DType) -> Value:
        """``x`` in another dtype, if it is not."""
        return x if x.type.dtype is wanted else self.cast(x, dtype=wanted)

    @property
    def long(self) -> DType:
        """The dtype of positions."""
        return dtype("i64")

    def zero(self, x: Value) -> Value:
        """0 in ``x``'s shape and dtype."""
        return self.scalar_like(0, x)


#: Ops that a start value or a bound is commonly made of.
_SMALL = frozenset({"core.broadcast", "core.reshape", "core.cast", "core.neg"})
