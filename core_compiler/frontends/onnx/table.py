"""The table of translations and the context in which an ONNX op is translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.frontends.run_time_sizes import SizedBuilder
from core_compiler.ir import Value
from core_compiler.ops.costs import cost
from core_compiler.ops.evaluation import constant_array, evaluate

#: ``OpType`` (default domain) or ``domain::OpType`` -> handler(context, *inputs) -> value(s).
TABLE: dict[str, Callable] = {}


@dataclass(frozen=True)
class TensorSequence:
    """A value of ONNX's sequence type during import: it never reaches a core op."""

    tensors: tuple[Value, ...]


class EmptyOptional:
    """A value of ONNX's optional type that is empty; a non-empty one is its content."""


EMPTY = EmptyOptional()
#: The value of a name in an ONNX model (None: an omitted input).
GraphValue = Value | TensorSequence | EmptyOptional | None


class NotSupported(Exception):
    """This use of an op has no translation; the message states the reason."""


def onnx_op(*names: str):
    """Register a handler for these op types."""

    def enter(handler):
        for name in names:
            TABLE[name] = handler
        return handler

    return enter


#: The maximum number of elements of a value that is computed at import: shapes are small.
FOLDED_ELEMENTS = 1 << 24
#: The maximum number of operations (arithmetic, and elements created) that an import computes.
FOLDED_WORK = 1 << 32
#: The maximum number of elements of an input whose values are bound.
BOUND_ELEMENTS = 1 << 12


class Context(SizedBuilder):
    """A builder that knows the node being translated and can evaluate constants.

    Shapes computed in the graph (Shape, Gather, Concat...) are evaluated here, by the reference,
    when an op needs them.
    """

    def __init__(self, origin, node, importer):
        super().__init__(importer.weights, origin)
        self.node, self.importer, self.sizes = node, importer, importer.dynamic_sizes
        self.attributes: Mapping[str, Any] = attributes_of(node)

    @property
    def opset(self) -> int:
        return self.importer.opset

    def attr(self, name: str, default=None):
        return self.attributes.get(name, default)

    def _producer(self, value: Value):
        own = next((op for op in reversed(self.ops) if value in op.results), None)
        return own if own is not None else self.importer.made.get(value)

    def const(self, value: Value | None, what: str = "an input") -> np.ndarray:
        """Return the array of a value that shapes depend on.

        If it depends on the model's inputs, use the values of the example inputs, which are then
        recorded as bound; raise NotSupported if there are none.
        """
        found = self.known(value)
        if found is not None:
            return found
        if value is None:
            raise NotSupported(f"{what} is missing")
        found = self._evaluated(value, self.importer.bindings, bind=True)
        if found is None:
            raise NotSupported(f"{what} depends on the values of the model's inputs")
        node = " ".join(n for n in (self.node.op_type, self.node.name) if n)
        self.importer.bound_inputs.append((value, found, node))
        return found

    def known(self, value: Value | None) -> np.ndarray | None:
        """Return the array of a value that does not depend on the model's inputs, else None."""
        return (
            None if value is None else self._evaluated(value, self.importer.constants, bind=False)
        )

    def _evaluated(self, value: Value, cache: dict[Value, Any], bind: bool) -> np.ndarray | None:
        """Evaluate a value from its defining ops; None if it depends on an input or random op.

        None is cached too, so that each op is visited once.
        """
        stack = [value]
        while stack:
            current = stack[-1]
            if current in cache:
                stack.pop()
                continue
            op = self._producer(current)
            if op is None:
                cache[current] = self._bound(current) if bind else None
                continue
            if current in self.sizes.scalars or self.sizes.of(current):
                cache[current] = None
                continue
            if op.kind == "core.constant":
                cache[current] = constant_array(op, self.weights)
                continue
            needed = op.operands
            if self._is_unfoldable(op) or any(cache.get(v, cache) is None for v in needed):
                cache.update(dict.fromkeys(op.results))
                continue
            missing = [v for v in needed if v not in cache]
            if missing:
                stack.append(missing[0])
                continue
            self.importer.folding_work += work_of(op)
            results = evaluate(op, [cache[v] for v in needed], self.weights)
            cache.update(zip(op.results, results, strict=True))
        return cache[value]

    def _is_unfoldable(self, op) -> bool:
        """Return whether evaluation is left to the compiler.

        It is for random ops, ops with regions, and results or work that exceed the limits.
        """
        if (
            op.kind.startswith("core.random")
            or op.regions
            or any(v.type.elements > FOLDED_ELEMENTS for v in op.results)
        ):
            return True
        return self.importer.folding_work + work_of(op) > FOLDED_WORK

    def _bound(self, argument: Value) -> np.ndarray | None:
        found = self.importer.given.get(argument)
        if found is None or found.size > BOUND_ELEMENTS:
            return None
        if argument.name:
            self.importer.bound_values[argument.name] = found.tolist()
        return found

    def ints(self, value: Value | None, what: str = "an input") -> list[int]:
        """Return a constant 1-D integer input as a list."""
        return [int(v) for v in np.atleast_1d(self.const(value, what))]

    def axes(self, value, rank: int, name: str = "axes") -> tuple[int, ...] | None:
        """Return axes from an input (newer opsets) or an attribute; None if absent."""
        given = self.ints(value, name) if value is not None else self.attr(name)
        if given is None:
            return None
        given = [given] if isinstance(given, int) else given
        return tuple(sorted(axis_of(int(a), rank) for a in given))

    def to(self, x: Value, wanted) -> Value:
        return x if x.type.dtype is wanted else self.cast(x, dtype=wanted)

    def bias(self, x: Value, bias: Value | None, axis: int) -> Value:
        if bias is None:
            return x
        return self.add(x, self.broadcast(bias, shape=x.type.shape, dims=(axis,)))


def work_of(op) -> int:
    """Estimate the number of operations that evaluating an op takes."""
    return cost(op).flops + sum(v.type.elements for v in op.results)


def axis_of(axis: int, rank: int) -> int:
    """Return a non-negative axis; raise NotSupported if it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise NotSupported(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def attributes_of(node) -> dict[str, Any]:
    """Return a node's attributes as Python values; graphs and tensors remain protos."""
    import onnx

    found = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, Sequence) and value and isinstance(value[0], bytes):
            value = [v.decode("utf-8", "replace") for v in value]
        elif not isinstance(value, int | float | str) and isinstance(value, Sequence):
            value = list(value)
        found[attribute.name] = value
    return found
