"""Constant folding: nodes whose inputs are all known are computed at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.frontends.onnx.reading import MAX_AXES
from core_compiler.ir import Function, Op, Rewriter, TensorType, Value, as_array
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.onnx_level.builder import Nodes
from core_compiler.onnx_level.dialect import (
    ABSENT,
    INITIALIZER,
    LEVEL,
    NOTHING,
    OVERRIDABLE,
    PREFIX,
    constant,
    function_name,
    is_node,
)
from core_compiler.onnx_level.evaluate import ABSENT_ARRAY, Budget, Held, evaluate
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import reuse_results
from core_compiler.support.errors import InternalError

_RANDOM = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)
#: Random ops, and ops that another pass handles.
_NOT_FOLDED = _RANDOM | {f"{PREFIX}{name}" for name in ("If", "Loop", "Scan")}
#: The size in bytes that an intermediate tensor may always have.
MIN_INTERMEDIATE_BYTES = 1 << 26
#: Inputs of which only the type is used.
_TYPES_READ = {
    f"{PREFIX}{name}": place
    for name, place in (
        ("Shape", 0),
        ("Size", 0),
        ("CastLike", 1),
    )
}


@dataclass(frozen=True)
class FoldNodes(Pass):
    """Compute nodes whose inputs are constants, and shapes that are known.

    ``most`` is the maximum size in bytes of a result that is larger than its inputs.
    """

    most: int = 1 << 20

    half = "source"
    refusal_arity = 1
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        outer = {v: op for op in module.walk() for v in op.results}
        budget = Budget()

        def edit(rewriter):
            for op in rewriter.ops:
                current = rewriter.producer(op.results[0]) if op.results else None
                if current is not None and is_node(current):
                    self._fold(current, rewriter, module, outer, budget)

        return context.rewrite(module, edit, LEVEL)

    def _fold(self, op: Op, rewriter: Rewriter, module, outer, budget: Budget) -> None:
        if self._refusal(op, rewriter, outer, module.functions) is not None:
            return
        producers = [rewriter.producer(v) or outer.get(v) for v in op.operands]
        arrays: list[Any] = []
        read = 0
        for value, producer in zip(op.operands, producers, strict=True):
            if producer is not None and producer.kind == ABSENT:
                arrays.append(ABSENT_ARRAY)
            elif _known(value, rewriter, outer):
                arrays.append(as_array(constant(producer), module.weights))
                read += arrays[-1].nbytes
            else:  # only its type is used: its bytes are never accessed
                arrays.append(
                    np.broadcast_to(np.zeros((), value.type.dtype.numpy), value.type.shape)
                )
        budget.most = max(MIN_INTERMEDIATE_BYTES, self.most, 4 * read)
        try:
            results = evaluate(op, arrays, module.weights, {}, module.functions, budget)
        except InternalError:
            return
        made = sum(a.nbytes for a in results)
        if any(isinstance(a, Held) for a in results) or made > max(self.most, read):
            return
        nodes = Nodes(module.weights)
        values = [
            nodes.constant(a, v.name) if v.type is not NOTHING else v
            for a, v in zip(results, op.results, strict=True)
        ]
        ops, mapping = reuse_results(op, values, nodes.ops)
        rewriter.replace(op, ops, mapping, rule=f"fold {op.kind.removeprefix(PREFIX)}")

    def _refusal(self, op: Op, rewriter: Rewriter, outer, functions) -> Refusal | None:
        if op.kind in _NOT_FOLDED or op.regions:
            return refuse("foldable", "{0:kind} is not evaluated at compile time", op)
        if _calls_random(op, functions, set()):
            return refuse("foldable", "{0:kind} is a function that draws random numbers", op)
        if constant(op) is not None:
            return refuse("foldable", "{0} is a constant", op)
        if not op.operands and op.kind != f"{PREFIX}Constant":
            return refuse("foldable", "{0} has no inputs", op)
        type_only = _TYPES_READ.get(op.kind)
        unknown_operand = next(
            (
                v
                for i, v in enumerate(op.operands)
                if not _known(v, rewriter, outer) and not (i == type_only and _is_static(v))
            ),
            None,
        )
        if unknown_operand is not None:
            return refuse(
                "foldable", "{1}, which {0} reads, is not a constant", op, unknown_operand
            )
        return None

    @override
    def refusal(self, ops, context):
        return self._refusal(ops[0], context.rewriter, {}, context.module.functions)


def _calls_random(op: Op, functions: Mapping[str, Function], seen: set[str]) -> bool:
    """Return whether ``op`` calls a function of the model whose body has a random op."""
    name = function_name(op)
    if name not in functions or name in seen:
        return False
    seen.add(name)
    return any(
        inner.kind in _RANDOM or _calls_random(inner, functions, seen)
        for inner in functions[name].body.walk()
    )


def _is_static(value: Value) -> bool:
    """Return whether a broadcast scalar array of a value's type can exist.

    NumPy counts bytes in 64 bits.
    """
    held = value.type
    if not isinstance(held, TensorType) or not held.is_static or held.rank > MAX_AXES:
        return False
    return prod(max(int(size), 1) for size in held.shape) * held.dtype.bytes < 1 << 63


def _known(value: Value, rewriter: Rewriter, outer) -> bool:
    """Return whether a value is a constant that cannot be overridden, or is omitted."""
    producer = rewriter.producer(value) or outer.get(value)
    if producer is None:
        return False
    if producer.kind == INITIALIZER and producer.get(OVERRIDABLE):
        return False
    return producer.kind == ABSENT or constant(producer) is not None
