"""Simplification of control flow: branches with known conditions, loops with few iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Op, Rewriter, Value, as_array
from core_compiler.ir.core import clone_block
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.onnx_level.builder import Nodes
from core_compiler.onnx_level.dialect import (
    ABSENT,
    LEVEL,
    NOTHING,
    OVERRIDABLE,
    PREFIX,
    REGIONS,
    SINCE,
    constant,
    schema,
    version_of,
)
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class SimplifyControlFlow(Pass):
    """Inline branches that are always taken, and unroll short loops.

    ``unroll``: the maximum trip count of an unrolled loop.
    """

    unroll: int = 8

    half = "source"
    refusal_arity = 1
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        outer = {v: op for op in module.walk() for v in op.results}

        def edit(rewriter):
            work = [op for op in rewriter.ops if op.regions]
            while work:
                op = work.pop()
                current = rewriter.producer(op.results[0]) if op.results else None
                if current is None or self._refusal(current, rewriter, outer) is not None:
                    continue
                if current.kind == f"{PREFIX}If":
                    placed = self._branch(current, rewriter, outer, module)
                else:
                    placed = self._iterations(current, rewriter, outer, module)
                work += [o for o in placed if o.regions]

        return context.rewrite(module, edit, LEVEL)

    def _branch(self, op: Op, rewriter: Rewriter, outer, module) -> list[Op]:
        taken = bool(_array(op.operands[0], rewriter, outer, module).all())
        name = "then_branch" if taken else "else_branch"
        body = clone_block(op.regions[op[REGIONS].index(name)])
        return _replace_op(
            op, list(body.ops), body.outputs, rewriter, f"If {str(taken).lower()}", module
        )

    def _iterations(self, op: Op, rewriter: Rewriter, outer, module) -> list[Op]:
        count = int(_array(op.operands[0], rewriter, outer, module).reshape(-1)[0])
        first = op.operands[1] if len(op.operands) > 1 else None
        if first is not None and not _is_absent(first, rewriter, outer):
            count *= bool(_array(first, rewriter, outer, module).all())
        body, carried = op.regions[0], list(op.operands[2:])
        scanned: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
        nodes = Nodes(module.weights)
        for step in range(count):
            number = nodes.constant(np.array(step, np.int64))
            true_value = nodes.constant(np.array(True))
            inputs = dict(zip(body.arguments, (number, true_value, *carried), strict=True))
            iteration = clone_block(Block((), body.ops, body.outputs), inputs)
            nodes.ops += [o.with_(origin=None) for o in iteration.ops]
            carried = list(iteration.outputs[1 : 1 + len(carried)])
            for kept, value in zip(scanned, iteration.outputs[1 + len(carried) :], strict=True):
                kept.append(value)
        rows = [_stacked(nodes, kept, version_of(module)) for kept in scanned]
        return _replace_op(op, nodes.ops, (*carried, *rows), rewriter, f"Loop of {count}", module)

    def _refusal(self, op: Op, rewriter: Rewriter, outer) -> Refusal | None:
        if op.kind == f"{PREFIX}If":
            if _known_constant(op.operands[0], rewriter, outer) is None:
                return refuse("known way", "the condition of {0} is not a constant", op)
            return None
        if op.kind != f"{PREFIX}Loop":
            return refuse("known way", "{0:kind} is neither a branch nor a loop", op)
        trips = _known_constant(op.operands[0], rewriter, outer)
        if trips is None:
            return refuse("known way", "the trip count of {0} is not a constant", op)
        body = op.regions[0]
        condition_op = body.producers().get(body.outputs[0])
        if condition_op is not None and condition_op.kind == f"{PREFIX}Identity":
            condition = condition_op.operands[0]
        else:
            condition = body.outputs[0]
        held = _known_constant(condition, rewriter, {**outer, **body.producers()})
        is_always_true = held is not None and bool(held.array().all())
        if condition is not body.arguments[1] and not is_always_true:
            return refuse("known way", "the condition of {0} is computed in its body", op)
        count = int(trips.array().reshape(-1)[0])
        for initial in op.operands[1:2]:
            if _is_absent(initial, rewriter, outer):
                continue
            start = _known_constant(initial, rewriter, outer)
            if start is None:
                return refuse("known way", "the initial condition of {0} is not a constant", op)
            count *= bool(start.array().all())
        if count > self.unroll:
            return refuse("few iterations", "{0} runs {1} times", op, count)
        if count <= 0 and len(body.outputs) - 1 > len(op.operands) - 2:
            return refuse("few iterations", "{0} runs 0 times and returns empty tensors", op)
        return None

    @override
    def refusal(self, ops, context):
        return self._refusal(ops[0], context.rewriter, {})


def _stacked(nodes: Nodes, rows: list[Value], version: int) -> Value:
    """Concatenate the values of one result over the iterations on a new first axis."""
    axes = nodes.ints([0]) if version >= 13 else None
    lifted = [
        nodes.one("Unsqueeze", row, axes, version=version, axes=None if axes else (0,))
        for row in rows
    ]
    return nodes.one("Concat", *lifted, version=version, axis=0)


def _replace_op(op: Op, ops: list[Op], values, rewriter: Rewriter, rule: str, module) -> list[Op]:
    """Replace ``op`` by ``ops``; its results keep their names, except those that are omitted."""
    since = schema("", "Identity", version_of(module)).since_version
    made = dict(zip(op.results, values, strict=True))
    kept = [
        Op(f"{PREFIX}Identity", (new,), (old,), {SINCE: since})
        for old, new in made.items()
        if old.type is not NOTHING
    ]
    results = {old: new if old.type is NOTHING else old for old, new in made.items()}
    return rewriter.replace(op, [*(o.with_(origin=None) for o in ops), *kept], results, rule=rule)


def _producer(value: Value, rewriter: Rewriter, outer) -> Op | None:
    return rewriter.producer(value) or outer.get(value)


def _known_constant(value: Value, rewriter: Rewriter, outer):
    producer = _producer(value, rewriter, outer)
    return None if producer is not None and producer.get(OVERRIDABLE) else constant(producer)


def _array(value: Value, rewriter: Rewriter, outer, module) -> np.ndarray:
    return as_array(_known_constant(value, rewriter, outer), module.weights)


def _is_absent(value: Value, rewriter: Rewriter, outer) -> bool:
    producer = _producer(value, rewriter, outer)
    return producer is not None and producer.kind == ABSENT
