"""Candidates for test case reduction: modules with fewer ops, simpler values, smaller sizes.

Each function takes a case and returns another one, valid as far as type rules can tell, or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.debug.evaluate import Evaluator, Values
from core_compiler.debug.parts import bare_facts, differentiated, part_interface, step_results
from core_compiler.debug.recipes import RECIPES
from core_compiler.ir import Block, DType, Module, Op, TensorType, Value, tensor
from core_compiler.ops.base import REGISTRY, infer
from core_compiler.ops.evaluation import constant_array

CONSTANT = "core.constant"
#: Attributes that hold tensor sizes and change with them.
SIZES = frozenset({"shape", "sizes", "limits", "classes", "window"})


@dataclass(frozen=True, eq=False)
class Case:
    """A module and, if values matter, an array for each of main's arguments."""

    module: Module
    inputs: tuple[np.ndarray, ...] | None

    @property
    def ops(self) -> int:
        """Return the number of ops of main, not counting constants."""
        return sum(op.kind != CONSTANT for op in self.module.main.body.ops)


# -- fewer ops -------------------------------------------------------------------------------------


class Cutter:
    """A case from which sets of ops are cut; their operands keep their values in it."""

    def __init__(self, case: Case):
        self.case = case
        body = case.module.main.body
        self.constants = {v: op for op in body.ops if op.kind == CONSTANT for v in op.results}
        self.users = body.users()
        self.values: Values | None = None
        if case.inputs is not None:
            known = dict(zip(body.arguments, case.inputs, strict=True))
            self.values = Values(Evaluator(case.module.weights), known)
            self.values.learn(body.ops)

    def cut(self, kept: Sequence[Op], constants: bool = True) -> Case | None:
        """Return the case of ``kept`` alone; with ``constants``, those that they read too."""
        body = self.case.module.main.body
        chosen = set(kept)
        if constants:
            read = (v for op in kept for v in op.uses() if v in self.constants)
            chosen |= {self.constants[v] for v in read}
        ops = tuple(op for op in body.ops if op in chosen)
        live = _live_out(body, ops, self.users)
        main, found = self.case.module.main, None
        if ops and live:
            found = step_results(main, ops, live, self.case.module.weights)
        if found is None:
            return None
        ops, results = found
        made = {v for op in ops for v in op.results}
        outside = (*(v for op in ops for v in op.uses()), *(v for v, _ in results))
        inputs_of_part = dict.fromkeys(v for v in outside if v not in made)
        order = {v: i for i, v in enumerate((*body.arguments, *self._in_order()))}
        arguments, facts = part_interface(
            main, results, sorted(inputs_of_part, key=order.__getitem__)
        )
        arrays = None
        if self.values is not None:
            try:
                arrays = tuple(np.ascontiguousarray(self.values[v]) for v in arguments)
            except Exception:  # an op that the reference does not support
                return None
            arrays = tuple(a.reshape(v.type.shape) for a, v in zip(arrays, arguments, strict=True))
        block = Block(arguments, ops, tuple(v for v, _ in results))
        return Case(_with_body(self.case.module, block, facts), arrays)

    def _in_order(self) -> Iterator[Value]:
        for op in self.case.module.main.body.ops:
            yield from op.results


def _live_out(body: Block, ops: Sequence[Op], users: Mapping[Value, list[Op]]) -> tuple:
    """Return the results of ``ops`` that other ops read, or else those that are never read."""
    kept, wanted = set(ops), set(body.outputs)
    made = [v for op in ops if op.kind != CONSTANT for v in op.results]
    made = made or [v for op in ops for v in op.results]
    live = tuple(v for v in made if v in wanted or any(u not in kept for u in users.get(v, ())))
    return live or tuple(v for v in made if not users.get(v))


def around(body: Block, seeds: Sequence[Op], reach: int) -> list[Op]:
    """Return the seeds and all ops within ``reach`` ops of them, in program order."""
    producers, users = body.producers(), body.users()
    found = dict.fromkeys(seeds)
    frontier = list(seeds)
    for _ in range(reach):
        neighbours = [producers[v] for op in frontier for v in op.uses() if v in producers]
        neighbours += [u for op in frontier for v in op.results for u in users.get(v, ())]
        frontier = [
            op for op in dict.fromkeys(neighbours) if op not in found and op.kind != CONSTANT
        ]
        found.update(dict.fromkeys(frontier))
    return [op for op in body.ops if op in found]


def without_facts(case: Case) -> Case | None:
    """Return the case without main's attributes on arguments and results, or None if it has none.

    These are memory aliases and the roles in a training step.
    """
    main = case.module.main
    facts = bare_facts(main)
    if len(facts) == len(main.attributes):
        return None
    return replace(case, module=case.module.with_function(main.with_(attributes=facts)))


def only_outputs(case: Case, indices: Sequence[int]) -> Case:
    """Return the case with fewer results; a training step keeps the loss."""
    body = case.module.main.body
    indices = sorted({*indices, *differentiated(case.module.main)})
    return _swept(case, body.with_(outputs=tuple(body.outputs[i] for i in indices)), indices)


def _swept(case: Case, body: Block, indices: Sequence[int]) -> Case:
    """Return the case with main ``body``, without unused ops and arguments.

    Its results are those at these ``indices`` of main.
    """
    live = set(body.outputs)
    ops: list[Op] = []
    for op in reversed(body.ops):
        if live.intersection(op.results):
            live.update(op.uses())
            ops.append(op)
    main = case.module.main
    read = [v for v in body.arguments if v in live]
    arguments, facts = part_interface(main, list(zip(body.outputs, indices, strict=True)), read)
    arrays = None
    if case.inputs is not None:
        array_of = dict(zip(body.arguments, case.inputs, strict=True))
        arrays = tuple(array_of[v] for v in arguments)
    block = Block(arguments, tuple(reversed(ops)), body.outputs)
    return Case(_with_body(case.module, block, facts), arrays)


def bypassed(case: Case) -> Iterator[Case]:
    """Yield, for each op, the case with its result replaced by an operand of the same type."""
    body = case.module.main.body
    for op in body.ops:
        if len(op.results) != 1:
            continue
        for operand in dict.fromkeys(op.operands):
            if operand.type == op.results[0].type:
                ops = tuple(o for o in body.ops if o is not op)
                block = body.with_(ops=ops).substitute({op.results[0]: operand})
                yield _swept(case, block, range(len(body.outputs)))


def _with_body(module: Module, body: Block, facts: Mapping | None = None) -> Module:
    """Return ``module`` with another main, and with other ``facts`` of it."""
    main = module.main
    facts = main.attributes if facts is None else facts
    return module.with_function(main.with_(body=body, attributes=facts))


# -- numbers ---------------------------------------------------------------------------------------


def value_slots(case: Case) -> list[int | Op]:
    """Return everything that holds values: the inputs by position, and the constants."""
    inputs: list[int | Op] = [] if case.inputs is None else list(range(len(case.inputs)))
    return inputs + [op for op in case.module.main.body.ops if op.kind == CONSTANT]


def arrays_of(case: Case) -> list[tuple[np.ndarray, DType]]:
    """Return the values of the inputs and constants."""
    types = [v.type.dtype for v in case.module.main.arguments]
    found = list(zip(case.inputs, types, strict=True)) if case.inputs is not None else []
    for op in case.module.main.body.ops:
        if op.kind == CONSTANT:
            found.append((constant_array(op, case.module.weights), op.result.type.dtype))
    return found


def needs_simplifying(array_and_type: tuple[np.ndarray, DType]) -> bool:
    array, kind = array_and_type
    return not any(same_bits(make(array.shape, kind), array) for make in RECIPES.values())


def with_values(case: Case, numbers: Sequence[int], recipe) -> Case | None:
    """Return the case with these inputs or constants set by ``recipe``, or None if unchanged."""
    body, store = case.module.main.body, case.module.weights
    arrays = None if case.inputs is None else list(case.inputs)
    slots, arrays_and_types = value_slots(case), arrays_of(case)
    ops = dict(zip(body.ops, body.ops, strict=True))
    changed = False
    for number in numbers:
        slot, (old, kind) = slots[number], arrays_and_types[number]
        new = recipe(old.shape, kind)
        changed |= not same_bits(old, new)
        if not isinstance(slot, int):
            ops[slot] = slot.with_(attributes={"value": store.add(new)})
        elif arrays is not None:
            arrays[slot] = new
    if not changed:
        return None
    module = case.module.with_main(body.with_(ops=tuple(ops.values())))
    return Case(module, None if arrays is None else tuple(arrays))


# -- sizes -----------------------------------------------------------------------------------------


def sizes_of(case: Case) -> list[int]:
    """Return the sizes above 1 that occur in main, largest first."""
    body = case.module.main.body
    types = [v.type for v in (*body.arguments, *(v for op in body.ops for v in op.results))]
    found = {d for kind in types if isinstance(kind, TensorType) for d in kind.shape}
    return sorted((d for d in found if isinstance(d, int) and d > 1), reverse=True)


def resized(case: Case, size: int, smaller: int) -> Iterator[Case]:
    """Yield the case with ``size`` replaced by ``smaller``, then with its multiples scaled too."""
    one = {size: smaller}
    every = {s: s // size * smaller for s in sizes_of(case) if s % size == 0}
    for mapping in (one, every) if every != one else (one,):
        made = _mapped(case, mapping)
        if made is not None:
            yield made


def _mapped(case: Case, sizes: Mapping[int, int]) -> Case | None:
    """Return the case with other sizes of arguments, constants and size attributes, or None.

    Result types follow from the type rules; None if a rule rejects them.  Arrays keep their first
    elements.
    """
    body, store = case.module.main.body, case.module.weights
    if any(op.regions or op.kind not in REGISTRY for op in body.ops):
        return None

    def shrunk(shape: Sequence) -> tuple:
        return tuple(sizes.get(d, d) for d in shape)

    def corner(array: np.ndarray) -> np.ndarray:
        part = tuple(slice(n) for n in shrunk(array.shape))
        return np.ascontiguousarray(array[part]).reshape(shrunk(array.shape))

    values: dict[Value, Value] = {}
    for argument in body.arguments:
        if not isinstance(argument.type, TensorType):
            return None
        values[argument] = Value(
            argument.type.with_(shape=shrunk(argument.type.shape)), argument.name
        )
    ops: list[Op] = []
    for op in body.ops:
        attributes = {
            name: (shrunk(a) if isinstance(a, tuple) else sizes.get(a, a)) if name in SIZES else a
            for name, a in op.attributes.items()
        }
        if op.kind == CONSTANT:
            attributes = {"value": store.add(corner(constant_array(op, store)))}
        made = _remade(op, tuple(values[v] for v in op.operands), attributes)
        if made is None:
            return None
        values.update(zip(op.results, made.results, strict=True))
        ops.append(made)
    block = Block(
        tuple(values[v] for v in body.arguments), tuple(ops), tuple(values[v] for v in body.outputs)
    )
    arrays = None if case.inputs is None else tuple(map(corner, case.inputs))
    return Case(_with_body(case.module, block), arrays)


def _remade(op: Op, operands: tuple[Value, ...], attributes: Mapping) -> Op | None:
    """Return ``op`` on other operands, with result types by its type rule, or None if rejected."""
    try:
        types = infer(op.kind, [v.type for v in operands], attributes)
    except Exception:  # a type rule may fail on operands that it never gets otherwise
        return None
    results = []
    for kind, old in zip(types, op.results, strict=True):
        if any(d == 0 for d in kind.shape) or kind.rank != old.type.rank:
            return None
        results.append(Value(tensor(kind.shape, kind.dtype, old.type.order), old.name))
    return op.with_(operands=operands, attributes=attributes, results=tuple(results))


def simpler_values(op: Op, name: str) -> list:
    """Return the values to try for an attribute, simplest first."""
    declared = REGISTRY[op.kind].attributes.get(name) if op.kind in REGISTRY else None
    current = op.attributes.get(name)
    if declared is None or name in SIZES or op.kind == CONSTANT:
        return []
    tries = [] if declared.is_required or declared.default is None else [declared.default]
    if isinstance(current, tuple) and current and all(type(i) is int for i in current):
        tries += [(0,) * len(current), (1,) * len(current)]
    if type(current) is float:
        tries += [1.0]
    for stop, candidate in enumerate(tries):
        if candidate == current:
            return tries[:stop]
    return tries


def with_attribute(case: Case, position: int, name: str, value) -> Case | None:
    """Return the case with one attribute changed and the types after it inferred again, or None."""
    body = case.module.main.body
    if any(op.regions for op in body.ops):
        return None
    values: dict[Value, Value] = {}
    ops: list[Op] = []
    for number, op in enumerate(body.ops):
        attributes = dict(op.attributes)
        if number == position:
            attributes[name] = value
        operands = tuple(values.get(v, v) for v in op.operands)
        made = op
        if number == position or operands != op.operands:
            again = _remade(op, operands, attributes)
            if again is None:
                return None
            made = again
        values.update((a, b) for a, b in zip(op.results, made.results, strict=True) if a is not b)
        ops.append(made)
    outputs = tuple(values.get(v, v) for v in body.outputs)
    return Case(_with_body(case.module, Block(body.arguments, tuple(ops), outputs)), case.inputs)
