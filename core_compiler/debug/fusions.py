"""The reason that a fusion did not join two ops: the first of its conditions that refused.

The pass is replayed along its recorded merges, and only the pair in question is tested, at the time
when the pass tested it and with the units grown as far as they were then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core_compiler.debug.trails import Changes, key, parts
from core_compiler.ir import Op, Rewriter, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.grouping import Fusion, Pair, feeder, feeders, is_unit, not_a_unit
from core_compiler.passes.layouts import is_free_view

HOLDS = Refusal(
    "a rewrite left",
    "every condition holds in the pass's result: it stopped before this (a limit on its "
    "rewrites), or the ops became adjacent only after they were considered",
)
Claims = Callable[[Op], bool]


@dataclass(frozen=True)
class Closest:
    """The closest attempt of a fusion; ``refusal`` keeps two neighbouring units separate.

    ``held`` counts the conditions that held before it: 0 both are units, 1 one reads the other, 2
    neither is claimed by the target, 3 the pass handles such pairs, 4 no cycle, 5 one kernel.
    """

    refusal: Refusal
    held: int
    ops: tuple[Op, ...]


def closest(
    fusion: Fusion,
    first: Sequence[Op],
    second: Sequence[Op],
    changes: Changes,
    rewriter: Rewriter,
    claims: Claims,
) -> Closest:
    """Return the closest attempt between any of ``first`` and any of ``second``.

    The pass left these ops separate; ``rewriter`` views the block of ``first`` after the pass.  If
    other units lie between the two, the first pair on the path is tested.
    """
    first, second = work_of(first), work_of(second)
    ends = first[0], second[0]
    second = [op for op in second if op in rewriter]
    if not second:
        text = "{0} and {1} are in different blocks of control flow"
        return Closest(refuse("one block", text, *ends), 0, ends)
    path = _path(rewriter, first, second) or _path(rewriter, second, first)
    if path is None:
        return Closest(_unconnected(*ends, rewriter), 0, ends)
    producer = path[0]
    consumer = next((op for op in path[1:-1] if not is_free_view(op)), path[-1])
    refused, held = _between(fusion, producer, consumer, changes, rewriter, claims)
    if consumer is not path[-1]:
        count = len(refused.about)
        text = f"the path from {{{count}}} to {{{count + 1}}} goes through {{{count + 2}}}: "
        about = (*refused.about, path[0], path[-1], consumer)
        refused = Refusal(refused.condition, text + refused.text, about, refused.code_location)
    return Closest(refused, held, (producer, consumer))


def work_of(ops: Sequence[Op]) -> Sequence[Op]:
    """Return those of ``ops`` that are work for a kernel, or all of them if none is."""
    return [op for op in ops if is_unit(op)] or ops


def _between(
    fusion: Fusion, producer: Op, consumer: Op, changes: Changes, rewriter: Rewriter, claims: Claims
) -> tuple[Refusal, int]:
    """Return the first refused condition between two neighbours, and how many held before it."""
    for unit in (producer, consumer):
        refused = not_a_unit(unit)
        if refused is not None:
            return refused, 0
    views: tuple[Op, ...] | None = None
    broken: Refusal | None = None
    for value in consumer.operands:
        fed = feeder(value, rewriter)
        if isinstance(fed, Refusal):
            broken = broken or (fed if _comes_from(value, producer, rewriter) else None)
        elif fed[0] is producer:
            views = fed[1]
            break
    if views is None:
        return broken or _unconnected(producer, consumer, rewriter), 1
    pair, refused = _last_tested_pair(fusion, producer, consumer, changes, claims)
    if pair is None:  # the pass did not reach it
        position = {op: n for n, op in enumerate(rewriter.ops)}
        pair = Pair(producer, views, consumer)
        refused = fusion.refusal(pair, rewriter, position, claims)
    return (HOLDS, 4) if refused is None else (refused, _count_held(fusion, pair, refused))


def _last_tested_pair(
    fusion: Fusion, producer: Op, consumer: Op, changes: Changes, claims: Claims
) -> tuple[Pair | None, Refusal | None]:
    """Return the last tested pair that grew into these two units, and its refusal."""
    merges = {r.old: r.new[0] for r in changes.rewrites if len(r.new) == 1}
    merged_into = {op: new for old, new in merges.items() for op in old}
    tested: list[tuple[Pair, Refusal | None]] = []
    first_ancestor = next(op for op in _ancestors(producer, merges) if op in changes.before.home)
    name, block = changes.before.home[first_ancestor]
    replay = Rewriter(block, name)

    def decide(pair: Pair, position: dict[Op, int]) -> Op | None:
        group = merges.get(pair.units)
        if (
            group is None
            and _merges_into(pair.producer, producer, merged_into)
            and (_merges_into(pair.consumer, consumer, merged_into))
        ):
            tested[:] = [(pair, fusion.refusal(pair, replay, position, claims))]
        return group

    fusion.apply(replay, claims, decide)
    return tested[0] if tested else (None, None)


def _ancestors(op: Op, merges: Mapping[tuple[Op, ...], Op]) -> list[Op]:
    """Return an op and those that were merged into it."""
    made = {new: old for old, new in merges.items()}
    found = [op]
    for unit in found:  # the list grows
        found += made.get(unit, ())
    return found


def _merges_into(op: Op, end: Op, merged_into: Mapping[Op, Op]) -> bool:
    """Return whether ``op`` is ``end`` or grew into it by the recorded merges."""
    while op is not end and (key(op) is not key(end) or parts(op) != parts(end)):
        new = merged_into.get(op)
        if new is None or new is op:
            return False
        op = new
    return True


def _path(rewriter: Rewriter, starts: Sequence[Op], ends: Sequence[Op]) -> list[Op] | None:
    """Return the shortest path along values from one of ``starts`` to one of ``ends``, or None."""
    came_from: dict[Op, Op | None] = dict.fromkeys(starts)
    queue = list(starts)
    goal = set(ends)
    for op in queue:  # the list grows
        if op in goal:
            path = [op]
            while (before := came_from[path[-1]]) is not None:
                path.append(before)
            return path[::-1]
        for value in op.results:
            for user in rewriter.users(value):
                if user not in came_from:
                    came_from[user] = op
                    queue.append(user)
    return None


def readers(unit: Op, rewriter: Rewriter) -> list[Op]:
    """Return the ops that read the results of ``unit``, also through free views."""
    worklist = [u for value in unit.results for u in rewriter.users(value)]
    found: dict[Op, None] = {}
    for op in worklist:  # the list grows
        if is_free_view(op):
            worklist += rewriter.users(op.result)
        else:
            found[op] = None
    return list(found)


def _comes_from(value: Value, producer: Op, rewriter: Rewriter) -> bool:
    """Return whether ``value`` comes from ``producer`` through free views alone."""
    maker = rewriter.producer(value)
    while maker is not None and maker is not producer and is_free_view(maker):
        maker = rewriter.producer(maker.operands[0])
    return maker is producer


def _unconnected(first: Op, second: Op, rewriter: Rewriter) -> Refusal:
    """Return the refusal for two ops that are not connected by reads.

    Neither reads the other, not even through others: units merge with their producers.
    """
    where = feeders.__code__, 0
    shared = next((v for v in first.uses() if v in second.uses()), None)
    users = {u: None for v in first.results for u in rewriter.users(v)}
    reader = next((u for v in second.results for u in rewriter.users(v) if u in users), None)
    text = "{0} and {1} do not depend on each other"
    if shared is not None:
        text = "{0} and {1} both read {2}, but neither depends on the other"
    elif reader is not None:
        text = "{2} reads both {0} and {1}, but neither depends on the other"
    text += ": fusion joins a producer with its consumer"
    about = first, second, shared if shared is not None else reader
    return Refusal("producer and consumer", text, about if about[2] else about[:2], where)


def _count_held(fusion: Fusion, pair: Pair, refused: Refusal) -> int:
    """Return the number of a fusion's conditions that held."""
    if refused.condition == "not claimed":
        return 2
    kind_refusal = fusion.kind_refusal(pair.producer, pair.consumer)
    return 3 if kind_refusal is not None else 4 if refused.condition == "no cycle" else 5
