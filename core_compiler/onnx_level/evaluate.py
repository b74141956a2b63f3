"""Evaluation of ops of level ``onnx``: their import, run by the reference implementation.

So the values at this level are those of the levels below, and checks of its passes compare like
with like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from core_compiler.frontends.onnx import import_proto
from core_compiler.frontends.onnx.table import FOLDED_WORK, work_of
from core_compiler.ir import (
    Block,
    Dense,
    Function,
    Module,
    Op,
    Resource,
    Value,
    WeightStore,
    as_array,
    tensor,
)
from core_compiler.onnx_level.dialect import (
    ABSENT,
    INITIALIZER,
    LEVEL,
    NOTHING,
    SINCE,
    constant,
    domain_and_type,
    is_node,
    last_version,
)
from core_compiler.onnx_level.write import write
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.support.errors import InternalError, UserError


class Held(tuple):
    """The tensors of a sequence value."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


@dataclass
class Budget:
    """The limits of evaluations: ``most`` bytes per tensor, and ``work`` operations in total."""

    most: int = 0
    work: int = FOLDED_WORK

    def spend(self, op: Op, body: Block) -> None:
        """Charge for ``body``, the import of ``op``; raise InternalError if over budget."""
        # NumPy limits the product of the other axes even if a tensor has no elements.
        sizes = (
            prod(filter(None, v.type.shape)) * v.type.dtype.bytes
            for inner in body.walk()
            for v in inner.results
        )
        if any(size > self.most for size in sizes):
            raise InternalError(f"{op.kind} creates tensors of more than {self.most} bytes")
        needed = sum(work_of(inner) for inner in body.ops)
        if needed > self.work:
            raise InternalError(f"{op.kind} needs {needed} operations, {self.work} are left")
        self.work -= needed


#: Inputs that select a branch or trip count; the other branch may be invalid for these shapes.
_DECIDING_INPUTS = {"onnx.If": (0,), "onnx.Loop": (0, 1)}
#: A placeholder for an input that a node omits.
ABSENT_ARRAY = np.empty(0, np.bool_)


def evaluate(
    op: Op,
    arrays: Sequence[Any],
    weights: WeightStore,
    outer: Mapping[Value, Any],
    functions: Mapping[str, Function],
    budget: Budget | None = None,
) -> tuple[Any, ...]:
    """Return the results of ``op``: arrays, or a :class:`Held` for a sequence.

    ``outer`` holds the outer values that its subgraphs use, ``functions`` the model's own
    functions.  Raise InternalError if the op has no translation or exceeds the ``budget``.
    """

    def run(module: Module, flat: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        if budget is not None:
            budget.spend(op, module.main.body)
        return evaluate_block(module.main.body, flat, module.weights)

    return evaluate_with(run, op, arrays, weights, outer, functions)


def evaluate_with(
    run: Callable[[Module, Sequence[np.ndarray]], Sequence[np.ndarray]],
    op: Op,
    arrays: Sequence[Any],
    weights: WeightStore,
    outer: Mapping[Value, Any],
    functions: Mapping[str, Function],
) -> tuple[Any, ...]:
    """Return the results of ``op``, with ``run`` applied to its import and that import's arguments.

    The other parameters are those of :func:`evaluate`.
    """
    held = constant(op)
    if held is not None:
        return (as_array(held, weights),)
    if op.kind == ABSENT:
        return (ABSENT_ARRAY,)
    given = dict(zip(op.operands, arrays, strict=True))
    given |= {v: outer[v] for v in op.uses() if v not in given}
    module, examples = _single_node_model(op, given, weights, functions)
    try:
        made = import_proto(
            write(module, weights=False), folder=weights, name=op.kind, inputs=examples
        )
    except UserError as problem:
        raise InternalError(f"{op.kind} cannot be evaluated: {problem.what}") from None
    flat = [a for held in examples.values() for a in (held if isinstance(held, Held) else (held,))]
    return tuple(_gather_results(op, made, made.trimmed(run(made.module, flat))))


def _single_node_model(op: Op, given: Mapping[Value, Any], weights: WeightStore, functions):
    """Return a model of one node, and its inputs by name."""
    arguments: list[Value] = []
    first: list[Op] = []
    examples: dict[str, Any] = {}
    renamed: dict[Value, Value] = {}
    deciding = [v for i in _DECIDING_INPUTS.get(op.kind, ()) for v in op.operands[i : i + 1]]
    for value, array in given.items():
        if array is ABSENT_ARRAY:
            first.append(_absent(value, renamed))
        elif value in deciding:
            first.append(_stored(value, weights.add(array), renamed))
        else:
            known = isinstance(array, np.ndarray)
            exact = tensor(array.shape, array.dtype) if known else value.type
            renamed[value] = Value(exact, f"input{len(arguments)}")
            examples[f"input{len(arguments)}"] = array
            arguments.append(renamed[value])
    body = Block(tuple(arguments), (*first, op.substitute(renamed)), _present_results(op))
    return _model(body, weights, functions), examples


def imported(
    ops: Sequence[Op],
    results: Sequence[Value],
    arguments: Sequence[Value],
    stored: Mapping[Value, Dense | Resource],
    weights: WeightStore,
    functions: Mapping[str, Function],
) -> Module:
    """Import ``ops`` to a tensor-level module whose main computes ``results`` from ``arguments``.

    The ``arguments`` have static types.  ``stored`` holds the constants that the ops use but no
    argument provides.  Raise InternalError if the ops cannot be imported, or if the sizes of a
    result depend on data.
    """
    renamed = {v: Value(v.type, f"input{i}") for i, v in enumerate(arguments)}
    first = [_stored(v, held, renamed) for v, held in stored.items()]
    made = {v for op in ops for v in op.results}
    first += [
        _absent(v, renamed)
        for v in dict.fromkeys(v for op in ops for v in op.operands)
        if v.type is NOTHING and v not in made
    ]
    own = tuple(renamed[v] for v in arguments)
    outputs = tuple(renamed.get(v, v) for v in results)
    body = Block(own, (*first, *(op.substitute(renamed) for op in ops)), outputs)
    model = write(_model(body, weights, functions), weights=False)
    try:
        found = import_proto(model, folder=weights, name="graph")
    except UserError as problem:
        raise InternalError(f"the nodes cannot be imported: {problem.what}") from None
    main = found.module.main
    if len(main.arguments) != len(own) or len(main.outputs) != len(outputs):
        raise InternalError("the sizes of results depend on data")
    return found.module


def _absent(value: Value, renamed: dict[Value, Value]) -> Op:
    renamed[value] = Value(NOTHING)
    return Op(ABSENT, (), (renamed[value],))


def _stored(value: Value, held: Dense | Resource, renamed: dict[Value, Value]) -> Op:
    renamed[value] = Value(held.type, f"stored{len(renamed)}")
    return Op(INITIALIZER, (), (renamed[value],), {"value": held})


def _model(body: Block, weights: WeightStore, functions: Mapping[str, Function]) -> Module:
    """Return a module of level ``onnx`` whose main is ``body``."""
    local_functions = {n: f for n, f in functions.items() if n != "main"}
    facts = {
        "ir_version": 10,
        "opsets": versions(body.walk(), functions),
        "graph": "node",
        "outputs": tuple(f"output{i}" for i in range(len(body.outputs))),
    }
    return Module({"main": Function("main", body, LEVEL, facts), **local_functions}, weights)


def _present_results(op: Op) -> tuple[Value, ...]:
    """Return the results that a node does not omit."""
    return tuple(v for v in op.results if v.type is not NOTHING)


def versions(ops, functions: Mapping[str, Function]) -> tuple[tuple[str, int], ...]:
    """Return a version of each domain in which these ops keep their meaning: the newest possible.

    Such a version exists because the ops come from one model.
    """
    found: dict[str, int] = {}
    for op in ops:
        if is_node(op):
            domain, op_type = domain_and_type(op)
            since = op.get(SINCE)
            last = 1 if since is None else last_version(domain, op_type, since)
            found[domain] = min(found.get(domain, last), last)
    for name, function in functions.items():
        if name != "main":
            found.setdefault(name.partition("::")[0], 1)
            for domain, version in function.attributes["opsets"]:
                found.setdefault(domain, version)
    return tuple(sorted(found.items()))


def _gather_results(op: Op, made, results: Sequence[np.ndarray]):
    """Return the results of ``op`` from those of its import, with sequences reassembled."""
    by_name = dict(zip(made.outputs, results, strict=False))
    found: dict[Value, Any] = {}
    for place, value in enumerate(_present_results(op)):
        name = f"output{place}"
        count = made.facts["sequences"].get(name)
        if count is None:
            found[value] = np.asarray(by_name[name])
        else:
            found[value] = Held(np.asarray(by_name[f"{name}[{i}]"]) for i in range(count))
    return (found.get(value, ABSENT_ARRAY) for value in op.results)
