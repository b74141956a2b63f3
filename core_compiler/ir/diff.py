"""The difference of two modules: ops matched by identity, by values, or by structure.

Unchanged ops are the same objects. An op whose value survives (it is defined again, or a rewrite's
value map names the value with its meaning) has a *recorded* counterpart. Only the remaining ops are
matched by structure, and such a match is labelled *guessed*.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir.core import Module, Op, Value
from core_compiler.ir.rewriter import Rewrite

RECORDED, GUESSED = "recorded", "guessed"


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """A pair of counterparts.

    ``new`` is the counterpart of ``old``; ``how`` is recorded or guessed; ``why`` is the evidence:
    the name of the rule, ``same value`` or ``same structure``.
    """

    old: Op
    new: Op
    how: str
    why: str


@dataclass(frozen=True, eq=False, slots=True)
class ModuleDiff:
    """The difference of two modules, each list in program order.

    ``kept`` are the same op objects, ``moved`` those among them in another order, ``changed``
    one-to-one counterparts. ``merged`` are removed ops whose meaning another op of the new module
    also has (fused, merged with an equal one). ``removed`` and ``added`` have no counterpart
    (``removed`` includes the merged ones).
    """

    kept: list[Op]
    moved: list[Op]
    changed: list[Match]
    merged: list[Match]
    removed: list[Op]
    added: list[Op]

    def partners(self) -> dict[Op, Op]:
        """Return old op -> new op, for kept and changed ops."""
        table = {op: op for op in self.kept}
        table.update((m.old, m.new) for m in self.changed)
        return table

    def reversed(self) -> ModuleDiff:
        """Return the inverse difference (in the order of the former old module)."""
        changed = [Match(m.new, m.old, m.how, m.why) for m in self.changed]
        return ModuleDiff(self.kept, self.moved, changed, [], self.added, self.removed)

    def is_empty(self) -> bool:
        return not (self.moved or self.changed or self.removed or self.added)


def diff(before: Module, after: Module, rewrites: Sequence[Rewrite] = ()) -> ModuleDiff:
    """Return the difference of two stages; ``rewrites`` are those between them, in order."""
    old = {op: i for i, op in enumerate(before.walk())}
    new = {op: i for i, op in enumerate(after.walk())}
    kept = [op for op in new if op in old]
    moved = _out_of_order(kept, [old[op] for op in kept])
    removed = [op for op in old if op not in new]
    added = [op for op in new if op not in old]
    matches = _recorded(removed, new, rewrites)
    changed, merged = _one_to_one(matches, old)
    taken_old = {m.old for m in changed}
    taken_new = {m.new for m in changed}
    changed += _guessed(
        [op for op in removed if op not in taken_old],
        [op for op in added if op not in taken_new],
        value_map(rewrites),
    )
    taken_old.update(m.old for m in changed)
    taken_new.update(m.new for m in changed)
    return ModuleDiff(
        kept,
        moved,
        sorted(changed, key=lambda m: new[m.new]),
        [m for m in merged if m.old not in taken_old],
        [op for op in removed if op not in taken_old],
        [op for op in added if op not in taken_new],
    )


def value_map(rewrites: Iterable[Rewrite]) -> dict[Value, tuple[Value, str]]:
    """Return the value that has the meaning of each replaced value after all rewrites.

    It comes with the rule that first replaced it. Values that survive unchanged are not included.
    """
    step: dict[Value, tuple[Value, str]] = {}
    for rewrite in rewrites:
        for a, b in rewrite.values.items():
            if a is not b:
                step[a] = (b, rewrite.rule)
    final: dict[Value, tuple[Value, str]] = {}
    for value, (target, rule) in step.items():
        seen = {value}
        while target in step and target not in seen:
            seen.add(target)
            target = step[target][0]
        final[value] = (target, rule)
    return final


def longest_increasing(numbers: Sequence[int]) -> list[int]:
    """Return the positions of a longest increasing subsequence."""
    if list(numbers) == sorted(set(numbers)):
        return list(range(len(numbers)))
    tails: list[int] = []
    tail_positions: list[int] = []
    before = [-1] * len(numbers)
    for position, number in enumerate(numbers):
        k = bisect_left(tails, number)
        if k == len(tails):
            tails.append(number)
            tail_positions.append(position)
        else:
            tails[k], tail_positions[k] = number, position
        before[position] = tail_positions[k - 1] if k else -1
    chain = []
    position = tail_positions[-1] if tail_positions else -1
    while position >= 0:
        chain.append(position)
        position = before[position]
    return chain[::-1]


def _out_of_order(ops: list[Op], numbers: list[int]) -> list[Op]:
    in_order = set(longest_increasing(numbers))
    return [op for position, op in enumerate(ops) if position not in in_order]


def _recorded(
    removed: list[Op], new: Mapping[Op, int], rewrites: Sequence[Rewrite]
) -> Iterator[Match]:
    """Yield counterparts by values: defined again by another op, or mapped by a rewrite."""
    maker = {value: op for op in new for value in op.results}
    renamed = value_map(rewrites)
    for op in removed:
        for value in op.results:
            target, why = renamed.get(value, (value, "same value"))
            if (successor := maker.get(target)) is not None:
                yield Match(op, successor, RECORDED, why)
                break


def _one_to_one(matches: Iterable[Match], old: Mapping[Op, int]) -> tuple[list[Match], list[Match]]:
    """Return the best old op for each new one, and the remaining matches.

    Kept ops already have their counterpart.
    """
    best: dict[Op, Match] = {}
    merged: list[Match] = []
    for match in matches:
        other = best.get(match.new)
        if match.new in old:
            merged.append(match)
        elif other is None or _closeness(match) >= _closeness(other):
            best[match.new] = match
            merged += [other] if other is not None else []
        else:
            merged.append(match)
    return list(best.values()), sorted(merged, key=lambda m: old[m.old])


def _closeness(match: Match) -> tuple[bool, bool]:
    return match.old.kind == match.new.kind, match.why == "same value"


def _guessed(
    removed: list[Op], added: list[Op], renamed: Mapping[Value, tuple[Value, str]]
) -> list[Match]:
    """Return matches by structure: equal kind and types, and equal operands or the same origin."""

    def by_operands(op: Op):
        operands = tuple(renamed.get(v, (v, ""))[0] for v in op.operands)
        return (op.kind, operands) if operands else None

    def by_origin(op: Op):
        if op.origin is None:
            return None
        return op.kind, tuple(v.type for v in op.results), op.origin.nodes() or op.origin

    found: list[Match] = []
    for key in (by_operands, by_origin):
        waiting: dict[object, list[Op]] = {}
        for op in reversed(added):
            waiting.setdefault(key(op), []).append(op)
        rest = []
        for op in removed:
            candidates = waiting.get(key(op)) if key(op) is not None else None
            if candidates:
                found.append(Match(op, candidates.pop(), GUESSED, "same structure"))
            else:
                rest.append(op)
        removed = rest
        taken = {m.new for m in found}
        added = [op for op in added if op not in taken]
    return found
