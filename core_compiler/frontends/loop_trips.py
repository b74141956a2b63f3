"""The loop trip of random numbers in the numerics contract.

It is the number of times that the loops around a random op have run their bodies before.  A loop
that draws random numbers counts its iterations; an inner loop continues the outer one's count, and
the outer one continues where the inner one ended: no two executions of an op have the same number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core_compiler.ir import Block, Op, Origin, Value, tensor
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder

LOOP, BRANCH = "core.while", "core.if"


def number_trips(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the ``ops`` of main with a trip number for random ops inside loops."""
    made: list[Op] = []
    for op in ops:
        made += _loop(op, None)[0] if op.kind == LOOP and _draws(op) else [_number_branch(op)]
    return tuple(made)


def _number_branch(op: Op) -> Op:
    """Return a branch outside of loops with its loops numbered."""
    if not op.regions or not _draws(op):
        return op
    regions = tuple(r.with_(ops=number_trips(r.ops)) for r in op.regions)
    return op.with_(regions=regions)


def _draws(op: Op) -> bool:
    if op.regions:
        return any(_draws(inner) for region in op.regions for inner in region.ops)
    return "random" in definition(op).traits


def _builder(op: Op) -> Builder:
    return Builder(origin=op.origin or Origin.synthetic("import", "loops that draw count"))


def _loop(op: Op, trip: Value | None) -> tuple[Sequence[Op], Value]:
    """Return the loop with a count that starts at ``trip`` (None: 0), and the count after it."""
    before = _builder(op)
    start = before.constant(0, "i64") if trip is None else trip
    condition, body = op.regions
    condition_number, number, after = (Value(tensor((), "i64")) for _ in range(3))
    condition_ops, _ = _block(condition.ops, condition_number)
    ops, last = _block(body.ops, number)
    end = _builder(op)
    next_number = end.add(last, end.constant(1, "i64"))
    regions = (
        Block((*condition.arguments, condition_number), condition_ops, condition.outputs),
        Block((*body.arguments, number), (*ops, *end.ops), (*body.outputs, next_number)),
    )
    made = op.with_(operands=(*op.operands, start), results=(*op.results, after), regions=regions)
    return (*before.ops, made), after


def _block(ops: Iterable[Op], trip: Value) -> tuple[tuple[Op, ...], Value]:
    """Return the ops of a region in a loop with the trip, and the count after them."""
    made: list[Op] = []
    for op in ops:
        if not _draws(op):
            made.append(op)
        elif op.kind == LOOP:
            numbered_ops, trip = _loop(op, trip)
            made += numbered_ops
        elif op.kind == BRANCH:
            branch, trip = _branch(op, trip)
            made.append(branch)
        else:
            b = _builder(op)
            rest = [b.constant(0, "i64") for _ in range(3 - len(op.operands))]
            made += [*b.ops, op.with_(operands=(*op.operands, *rest, trip))]
    return tuple(made), trip


def _branch(op: Op, trip: Value) -> tuple[Op, Value]:
    """Return a branch in a loop, with the count after it if a loop in it draws."""
    regions = [(r, *_block(r.ops, trip)) for r in op.regions]
    if all(after is trip for *_, after in regions):
        return op.with_(regions=tuple(r.with_(ops=ops) for r, ops, _ in regions)), trip
    blocks = tuple(r.with_(ops=ops, outputs=(*r.outputs, after)) for r, ops, after in regions)
    count = Value(tensor((), "i64"))
    return op.with_(regions=blocks, results=(*op.results, count)), count
