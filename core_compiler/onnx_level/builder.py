"""The builder of nodes of level ``onnx``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.ir import Op, Type, Value, WeightStore, tensor
from core_compiler.onnx_level.dialect import (
    ABSENT,
    INITIALIZER,
    NOTHING,
    SINCE,
    UNKNOWN,
    kind,
    schema,
)


class Nodes:
    """A list of nodes in program order; the rewriter sets their origins."""

    def __init__(self, weights: WeightStore):
        self.weights = weights
        self.ops: list[Op] = []

    def constant(self, array: Any, name: str | None = None) -> Value:
        """Emit an initializer that holds ``array``."""
        array = np.asarray(array)
        value = Value(tensor(array.shape, array.dtype), name)
        self.ops.append(Op(INITIALIZER, (), (value,), {"value": self.weights.add(array)}))
        return value

    def ints(self, numbers: Sequence[int]) -> Value:
        """Emit an int64 vector."""
        return self.constant(np.array(numbers, np.int64))

    def absent(self) -> Value:
        """Emit the placeholder for an omitted input."""
        value = Value(NOTHING)
        self.ops.append(Op(ABSENT, (), (value,)))
        return value

    def node(
        self,
        op_type: str,
        *inputs: Value | None,
        version: int,
        results: Sequence[Type] | int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Emit a node as ``version`` of its domain defines it; return its results.

        None among the inputs is an omitted input, among the attributes an omitted attribute.
        """
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        operands = [self.absent() if v is None else v for v in given]
        types = [UNKNOWN] * results if isinstance(results, int) else results
        made = tuple(Value(t) for t in types)
        own = {name: value for name, value in attributes.items() if value is not None}
        found = schema(domain, op_type, version)
        if found is not None:
            own[SINCE] = found.since_version
        self.ops.append(Op(kind(domain, op_type), operands, made, own))
        return made

    def one(self, op_type: str, *inputs: Value | None, version: int, **more: Any) -> Value:
        """Emit a node with one result and return it; see :meth:`node`."""
        like = more.pop("like", None)
        (made,) = self.node(
            op_type, *inputs, version=version, results=1 if like is None else (like,), **more
        )
        return made
