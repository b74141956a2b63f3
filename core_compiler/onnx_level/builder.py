"""Building nodes of level ``onnx``."""

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
    """Collects nodes in program order; the rewriter gives them their origins."""

    def __init__(self, weights: WeightStore):
        self.weights = weights
        self.ops: list[Op] = []

    def constant(self, array: Any, name: str | None = None) -> Value:
        """An initializer that holds ``array``."""
        array = np.asarray(array)
        value = Value(tensor(array.shape, array.dtype), name)
        self.ops.append(Op(INITIALIZER, (), (value,), {"value": self.weights.add(array)}))
        return value

    def ints(self, numbers: Sequence[int]) -> Value:
        """An int64 vector."""
        return self.constant(np.array(numbers, np.int64))

    def absent(self) -> Value:
        """What stands for an input that is left out."""
        value = Value(NOTHING)
        self.ops.append(Op(ABSENT, (), (value,)))
        return value

    def node(
        self, op_type: str, *inputs: Value | None, version: int, results: Sequence[Type] | int = 1,
        domain: str = "", **attributes: Any,
    ) -> tuple[Value, ...]:  # fmt: skip
        """The results of a node as ``version`` of its domain defines it; None among the inputs is
        one that is left out, among the attributes one that is not given."""
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
        """The only result of a node; see :meth:`node`."""
        like = more.pop("like", None)
        (made,) = self.node(op_type, *inputs, version=version,
                            results=1 if like is None else (like,), **more)  # fmt: skip
        return made
