"""A training step by the ops' references, op by op, all shards together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from core_compiler.ir import Module, Op, Value, WeightStore, dtype
from core_compiler.numerics.reference.collective import tree_sum
from core_compiler.numerics.reference.dtypes import widen
from core_compiler.ops.evaluation import evaluate, evaluate_block
from core_compiler.training.graph.program import LOOP

#: For each shard the arrays of an op's operands (``Op.uses``), then of its results.
ShardValues = list[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]


def walk(module: Module, given: Sequence[Sequence[np.ndarray]]) -> Iterator[tuple[Op, ShardValues]]:
    """Yield the ops of main in program order with their operands and results.

    ``given`` has main's arguments for each shard. A value is released after its last use.
    """
    body = module.main.body
    last = {v: op for op in body.ops for v in op.uses()}
    shard_values = [dict(zip(body.arguments, arrays, strict=True)) for arrays in given]
    for op in body.ops:
        read = [[values[v] for v in op.uses()] for values in shard_values]
        made: list[tuple[np.ndarray, ...]] = []
        if op.kind == "core.all_reduce":
            made += [(tree_sum([one[0] for one in read]),)] * len(shard_values)
        else:
            for values in shard_values:
                operands = [values[v] for v in op.operands]
                made.append(evaluate(op, operands, module.weights, values if op.regions else None))
        for values, results in zip(shard_values, made, strict=True):
            values.update(zip(op.results, results, strict=True))
        yield op, list(zip(read, made, strict=True))
        for values in shard_values:
            for value in op.uses():
                if last[value] is op:
                    values.pop(value, None)


def first_not_finite(
    module: Module, given: Sequence[Sequence[np.ndarray]]
) -> tuple[Op, str] | None:
    """Return the first op of main that produces NaN or infinity from finite operands on any shard.

    It comes with its user-visible location (for a loop, the op of its body). Return None if there
    is none.
    """
    for op, seen in walk(module, given):
        for read, made in seen:
            if read and _produces_non_finite(read, made):
                outer = dict(zip(op.uses(), read, strict=True))
                return op, _locate_in_loop(op, outer, module.weights) or _describe(op)
    return None


def _locate_in_loop(op: Op, outer: Mapping[Value, np.ndarray], weights: WeightStore) -> str | None:
    """Return the first such op of a loop's body and its iteration, or None if ``op`` is not a loop.

    ``outer`` has the outer values that the loop reads.
    """
    if op.kind != LOOP:
        return None
    condition, body = op.regions
    carried: Sequence[np.ndarray] = [outer[v] for v in op.operands]
    iteration = 0
    while evaluate_block(condition, carried, weights, outer)[0]:
        values = {**outer, **dict(zip(body.arguments, carried, strict=True))}
        for inner in body.ops:
            made = evaluate(inner, [values[v] for v in inner.operands], weights, values)
            read = [values[v] for v in inner.uses()]
            if read and _produces_non_finite(read, made):
                found = _locate_in_loop(inner, values, weights) or _describe(inner)
                return f"{found} in iteration {iteration} of {_describe(op)}"
            values.update(zip(inner.results, made, strict=True))
        carried, iteration = [values[v] for v in body.outputs], iteration + 1
    return None


def _describe(op: Op) -> str:
    nodes = op.origin.nodes() if op.origin is not None else ()
    place = next((f" ({n.file}:{n.line})" for n in nodes if n.file), "")
    return f"{op.kind}{place}"


def _produces_non_finite(given: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> bool:
    def has(arrays: Sequence[np.ndarray], test: Callable) -> bool:
        return any(dtype(a.dtype).is_float and bool(test(widen(a)).any()) for a in arrays)

    if has(made, np.isnan):
        return not has(given, np.isnan)
    return has(made, np.isinf) and not (has(given, np.isinf) or has(given, np.isnan))
