"""Simplify loops: what a loop carries for nothing, and how often its body runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Module, Op, Rewriter, Value, WeightStore
from core_compiler.ops.evaluation import evaluate, evaluate_block
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass, PassContext

LOOP = "core.while"
#: Iterations that are counted at most: one takes some 20 us.
MOST_TRIPS = 1 << 16
#: Elements of a value that counting follows at most: a counter is one number.
MOST_ELEMENTS = 64


@dataclass(frozen=True)
class SimplifyLoops(Pass):
    """Drops from loops what they carry for nothing, and says how often their bodies run.

    A value that nobody reads is not carried; one that stays the same is read from outside; an op
    that reads nothing of the loop is done once, before it.  Where the condition follows from
    constants alone the loop's counter is run now, by the reference: the loop says its ``trips``.
    """

    requires = frozenset({"tensor_ops"})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        known = Known(module.main.body, module.weights)

        def edit(rw: Rewriter) -> None:
            for op in rw.ops:
                if op.kind == LOOP and not context.claims(op) and (loop := rw.now(op)) is not None:
                    _count(_hoist(_unchanged(_unread(loop, rw), rw), rw), rw, known)

        return context.rewrite(module, edit)


# -- what is carried -------------------------------------------------------------------------------


def _unread(op: Op, rw: Rewriter) -> Op:
    """Carry only what the condition or a reader of a result depends on."""
    wanted = [i for i, v in enumerate(op.results) if rw.users(v) or rw.is_output(v)]
    kept = places_read(op, wanted)
    if len(kept) == len(op.operands) or not kept:
        return op
    rest = len(op.operands) - len(kept)
    new = _carrying(op, kept, {}, {})
    (placed,) = rw.replace(op, new, rule="a loop does not carry what nobody reads",
                           note=f"{rest} of {len(op.operands)} values")  # fmt: skip
    return placed


def _unchanged(op: Op, rw: Rewriter) -> Op:
    """Read from outside what the body hands on as it is."""
    body = op.regions[1]
    rows = list(zip(body.arguments, body.outputs, strict=True))
    kept = [i for i, (given, made) in enumerate(rows) if given is not made]
    if len(kept) == len(rows) or not kept:
        return op
    same = [i for i in range(len(rows)) if i not in kept]
    around = [{r.arguments[i]: op.operands[i] for i in same} for r in op.regions]
    new = _carrying(op, kept, *around)
    values = {op.results[i]: op.operands[i] for i in same}
    (placed,) = rw.replace(op, new, values, rule="what a loop leaves as it is is read from outside",
                           note=f"{len(same)} of {len(rows)} values")  # fmt: skip
    return placed


def places_read(op: Op, wanted: Iterable[int]) -> list[int]:
    """The places of what a loop carries that its condition and its results ``wanted`` depend on."""
    condition, body = op.regions
    read = set(_reached(condition, condition.outputs)[1])
    kept = {*wanted, *(i for i, v in enumerate(condition.arguments) if v in read)}
    while True:
        read = set(_reached(body, [body.outputs[i] for i in kept])[1])
        more = {i for i, v in enumerate(body.arguments) if v in read} - kept
        if not more:
            return sorted(kept)
        kept |= more


def _reached(block: Block, outputs: Iterable[Value]) -> tuple[tuple[Op, ...], dict[Value, None]]:
    """The ops that make ``outputs``, and the values that these read or are."""
    read = dict.fromkeys(outputs)
    ops = []
    for op in reversed(block.ops):
        if any(v in read for v in op.results):
            ops.append(op)
            read.update(dict.fromkeys(op.uses()))
    return tuple(reversed(ops)), read


def _part(block: Block, arguments: Sequence[int], outputs: Sequence[int]) -> Block:
    """The part of a region between some of its arguments and some of its outputs."""
    made = tuple(block.outputs[i] for i in outputs)
    ops, _ = _reached(block, made)
    return Block(tuple(block.arguments[i] for i in arguments), ops, made)


def _carrying(
    op: Op, kept: Sequence[int], tested: Mapping[Value, Value], repeated: Mapping[Value, Value]
) -> Op:
    """A loop that carries the values at the places ``kept`` only; the maps say what its condition
    and its body read in the place of others."""
    condition, body = op.regions
    regions = (_part(condition.substitute(tested), kept, [0]),
               _part(body.substitute(repeated), kept, kept))  # fmt: skip
    return op.with_(
        operands=tuple(op.operands[i] for i in kept), results=tuple(op.results[i] for i in kept),
        regions=regions, origin=None,
    )  # fmt: skip


def _hoist(op: Op, rw: Rewriter) -> Op:
    """Do before a loop what is the same in each of its iterations."""
    condition, body = op.regions
    makers = body.producers()
    changing = set(body.arguments)
    moved: dict[Op, None] = {}
    for inner in body.ops:
        if inner.regions or has_trait(inner, "random") or (
            not changing.isdisjoint(inner.uses())
        ):  # fmt: skip
            changing.update(inner.results)
        elif not _stays(inner):
            moved.update(dict.fromkeys((*_below(inner, makers), inner)))
    if not moved:
        return op
    stay = {o for o in moved if _stays(o)}
    fresh = {v: Value(v.type, v.name) for o in stay for v in o.results}  # these are in both places
    ops = []
    for inner in moved:
        inner = inner.substitute(fresh)
        ops.append(inner.with_(results=tuple(fresh.get(v, v) for v in inner.results)))
    left = tuple(o for o in body.ops if o not in moved or o in stay)
    new = op.with_(regions=(condition, body.with_(ops=left)), origin=None)
    *_, placed = rw.replace(op, (*ops, new), rule="the same in each iteration: done before a loop",
                            note=f"{len(moved) - len(stay)} ops")  # fmt: skip
    return placed


def _below(op: Op, makers: Mapping[Value, Op]) -> list[Op]:
    """The ops of the body that ``op`` is made of, in program order."""
    found: list[Op] = []
    for value in op.operands:
        maker = makers.get(value)
        if maker is not None and maker not in found:
            found += [o for o in (*_below(maker, makers), maker) if o not in found]
    return found


# -- how often -------------------------------------------------------------------------------------


def _count(op: Op, rw: Rewriter, known: Known) -> None:
    """Let a loop say how often its body runs."""
    trips = trips_of(op, known) if op.get("trips") is None else None
    if trips is not None:
        new = op.with_(attributes={**op.attributes, "trips": trips}, origin=None)
        rw.replace(op, new, rule="the iterations of a loop are counted", note=f"{trips}")


@dataclass
class Known:
    """The small values of a module that follow from constants alone; evaluated when asked for."""

    body: Block
    weights: WeightStore
    makers: dict[Value, Op] = field(init=False)
    arrays: dict[Value, np.ndarray | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.makers = {v: op for op in self.body.walk() for v in op.results}

    def array(self, value: Value) -> np.ndarray | None:
        """Its elements, None where they are not known or too many."""
        if value not in self.arrays:
            self.arrays[value] = self._array(value)
        return self.arrays[value]

    def _array(self, value: Value) -> np.ndarray | None:
        op = self.makers.get(value)
        if op is None or not _is_small(op):
            return None
        given = [self.array(v) for v in op.operands]
        if any(a is None for a in given):
            return None
        made = evaluate(op, [a for a in given if a is not None], self.weights)
        return made[op.results.index(value)]


def _stays(op: Op) -> bool:
    """Whether an op stays in a loop though it reads nothing of it: kernels take copies of it, or it
    is only another way to index."""
    return not op.operands or has_trait(op, "view")


def _is_small(op: Op) -> bool:
    """Whether counting may evaluate an op again and again."""
    return not op.regions and not has_trait(op, "random") and all(
        v.type.is_static and v.type.elements <= MOST_ELEMENTS for v in op.results
    )  # fmt: skip


def trips_of(op: Op, known: Known) -> int | None:
    """How often the body of a loop runs: its counter is run until the condition does not hold.

    None where data decide, where more than a small part of the body does, and beyond
    ``MOST_TRIPS``.
    """
    places = places_read(op, [])
    condition, body = op.regions
    test, step = _part(condition, places, [0]), _part(body, places, places)
    if not all(map(_is_small, (*test.ops, *step.ops))):
        return None
    carried = [known.array(op.operands[i]) for i in places]
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
