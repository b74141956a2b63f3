"""Simplify loops: unused loop-carried values are dropped, and trip counts are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Module, Op, Rewriter, Value, WeightStore
from core_compiler.ops import typed
from core_compiler.ops.evaluation import evaluate, evaluate_block
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass, PassContext

LOOP = "core.while"
#: Maximum number of iterations that are counted: one takes some 20 us.
MOST_TRIPS = 1 << 16
#: Maximum number of elements of a value that counting evaluates: a counter is a scalar.
MOST_ELEMENTS = 64


@dataclass(frozen=True)
class SimplifyLoops(Pass):
    """Drop unused loop-carried values, and compute the trip counts of loops.

    A value that is never read is not carried; one that does not change is read from outside; an op
    that depends on nothing in the loop is hoisted.  If the condition follows from constants alone,
    the loop's counter is run now, by the reference, and the loop gets its ``trips``.
    """

    requires = frozenset({"tensor_ops"})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        known = Known(module.main.body, module.weights)

        def edit(rw: Rewriter) -> None:
            for op in rw.ops:
                if op.kind == LOOP and not context.claims(op) and (loop := rw.now(op)) is not None:
                    _set_trip_count(
                        _hoist(_drop_unchanged_values(_drop_unread_values(loop, rw), rw), rw),
                        rw,
                        known,
                    )

        return context.rewrite(module, edit)


# -- what is carried -------------------------------------------------------------------------------


def _drop_unread_values(op: Op, rw: Rewriter) -> Op:
    """Carry only the values that the condition or a used result depends on."""
    wanted = [i for i, v in enumerate(op.results) if rw.users(v) or rw.is_output(v)]
    kept = needed_positions(op, wanted)
    if len(kept) == len(op.operands) or not kept:
        return op
    rest = len(op.operands) - len(kept)
    new = _carrying(op, kept, {}, {})
    (placed,) = rw.replace(
        op,
        new,
        rule="a loop does not carry what nobody reads",
        note=f"{rest} of {len(op.operands)} values",
    )
    return placed


def _drop_unchanged_values(op: Op, rw: Rewriter) -> Op:
    """Read values from outside that the body passes on unchanged."""
    body = op.regions[1]
    rows = list(zip(body.arguments, body.outputs, strict=True))
    kept = [i for i, (given, made) in enumerate(rows) if given is not made]
    if len(kept) == len(rows) or not kept:
        return op
    same = [i for i in range(len(rows)) if i not in kept]
    around = [{r.arguments[i]: op.operands[i] for i in same} for r in op.regions]
    new = _carrying(op, kept, *around)
    values = {op.results[i]: op.operands[i] for i in same}
    (placed,) = rw.replace(
        op,
        new,
        values,
        rule="what a loop leaves as it is is read from outside",
        note=f"{len(same)} of {len(rows)} values",
    )
    return placed


def needed_positions(op: Op, wanted: Iterable[int]) -> list[int]:
    """Return the positions of carried values that the condition and the results ``wanted`` need."""
    condition, body = op.regions
    read = set(_reachable(condition, condition.outputs)[1])
    kept = {*wanted, *(i for i, v in enumerate(condition.arguments) if v in read)}
    while True:
        read = set(_reachable(body, [body.outputs[i] for i in kept])[1])
        more = {i for i, v in enumerate(body.arguments) if v in read} - kept
        if not more:
            return sorted(kept)
        kept |= more


def _reachable(block: Block, outputs: Iterable[Value]) -> tuple[tuple[Op, ...], dict[Value, None]]:
    """Return the ops that define ``outputs``, and the values that these read or are."""
    read = dict.fromkeys(outputs)
    ops = []
    for op in reversed(block.ops):
        if any(v in read for v in op.results):
            ops.append(op)
            read.update(dict.fromkeys(op.uses()))
    return tuple(reversed(ops)), read


def _subregion(block: Block, arguments: Sequence[int], outputs: Sequence[int]) -> Block:
    """Return the part of a region between some of its arguments and some of its outputs."""
    made = tuple(block.outputs[i] for i in outputs)
    ops, _ = _reachable(block, made)
    return Block(tuple(block.arguments[i] for i in arguments), ops, made)


def _carrying(
    op: Op, kept: Sequence[int], tested: Mapping[Value, Value], repeated: Mapping[Value, Value]
) -> Op:
    """Return a loop that carries only the values at the positions ``kept``.

    The maps replace values that its condition and its body read.
    """
    condition, body = op.regions
    regions = (
        _subregion(condition.substitute(tested), kept, [0]),
        _subregion(body.substitute(repeated), kept, kept),
    )
    return op.with_(
        operands=tuple(op.operands[i] for i in kept),
        results=tuple(op.results[i] for i in kept),
        regions=regions,
        origin=None,
    )


def _hoist(op: Op, rw: Rewriter) -> Op:
    """Hoist ops that compute the same in each iteration."""
    condition, body = op.regions
    producers = body.producers()
    changing = set(body.arguments)
    moved: dict[Op, None] = {}
    for inner in body.ops:
        if inner.regions or has_trait(inner, "random") or (not changing.isdisjoint(inner.uses())):
            changing.update(inner.results)
        elif not _must_stay(inner):
            moved.update(dict.fromkeys((*_dependencies(inner, producers), inner)))
    if not moved:
        return op
    stay = {o for o in moved if _must_stay(o)}
    fresh = {v: Value(v.type, v.name) for o in stay for v in o.results}  # these are in both places
    ops = []
    for inner in moved:
        inner = inner.substitute(fresh)
        ops.append(inner.with_(results=tuple(fresh.get(v, v) for v in inner.results)))
    left = tuple(o for o in body.ops if o not in moved or o in stay)
    new = op.with_(regions=(condition, body.with_(ops=left)), origin=None)
    *_, placed = rw.replace(
        op,
        (*ops, new),
        rule="the same in each iteration: done before a loop",
        note=f"{len(moved) - len(stay)} ops",
    )
    return placed


def _dependencies(op: Op, producers: Mapping[Value, Op]) -> list[Op]:
    """Return the ops of the body that ``op`` depends on, in program order."""
    found: list[Op] = []
    for value in op.operands:
        producer = producers.get(value)
        if producer is not None and producer not in found:
            found += [o for o in (*_dependencies(producer, producers), producer) if o not in found]
    return found


# -- how often -------------------------------------------------------------------------------------


def _set_trip_count(op: Op, rw: Rewriter, known: Known) -> None:
    """Set the trip count of a loop."""
    trips = trips_of(op, known) if typed.While.of(op).trips is None else None
    if trips is not None:
        new = op.with_(attributes={**op.attributes, "trips": trips}, origin=None)
        rw.replace(op, new, rule="the iterations of a loop are counted", note=f"{trips}")


@dataclass
class Known:
    """The small values of a module that follow from constants alone, evaluated on demand."""

    body: Block
    weights: WeightStore
    producers: dict[Value, Op] = field(init=False)
    arrays: dict[Value, np.ndarray | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producers = {v: op for op in self.body.walk() for v in op.results}

    def array(self, value: Value) -> np.ndarray | None:
        """Return its elements, or None if unknown or too many."""
        if value not in self.arrays:
            self.arrays[value] = self._array(value)
        return self.arrays[value]

    def _array(self, value: Value) -> np.ndarray | None:
        op = self.producers.get(value)
        if op is None or not _is_small(op):
            return None
        given = [self.array(v) for v in op.operands]
        if any(a is None for a in given):
            return None
        made = evaluate(op, [a for a in given if a is not None], self.weights)
        return made[op.results.index(value)]


def _must_stay(op: Op) -> bool:
    """Return whether an op stays in a loop although it depends on nothing in it.

    Kernels take copies of it, or it is only an indexing.
    """
    return not op.operands or has_trait(op, "view")


def _is_small(op: Op) -> bool:
    """Return whether counting may evaluate an op repeatedly."""
    return (
        not op.regions
        and not has_trait(op, "random")
        and all(v.type.is_static and v.type.elements <= MOST_ELEMENTS for v in op.results)
    )


def trips_of(op: Op, known: Known) -> int | None:
    """Return a loop's trip count by running its counter until the condition is false, or None.

    None if it depends on data or on more than a small part of the body, or exceeds ``MOST_TRIPS``.
    """
    positions = needed_positions(op, [])
    condition, body = op.regions
    test, step = _subregion(condition, positions, [0]), _subregion(body, positions, positions)
    if not all(map(_is_small, (*test.ops, *step.ops))):
        return None
    carried = [known.array(op.operands[i]) for i in positions]
    outer = {v: known.array(v) for block in (test, step) for v in block.free_values()}
    if any(a is None for a in (*carried, *outer.values())):
        return None
    state = [a for a in carried if a is not None]
    around = {v: a for v, a in outer.items() if a is not None}
    for trips in range(MOST_TRIPS + 1):
        if not evaluate_block(test, state, known.weights, around)[0]:
            return trips
        state = list(evaluate_block(step, state, known.weights, around))
    return None
