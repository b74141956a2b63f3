"""Tracking of ops from stage to stage: the origin of an op before a pass, and its successors.

A rewrite says which ops it turned into which; ops that only have new operands now define the same
values.  An op inside a group or a launch is tracked by its position among the members, which groups
keep when they grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from core_compiler.ir import Block, Module, Op, Rewrite, Value
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.passes.base import CONTROL_FLOW

Key = Value | Op


def key(op: Op) -> Key:
    """Return the key of an op, which stays when its operands are replaced: its first value."""
    return op.results[0] if op.results else op


def parts(op: Op) -> tuple[Op, ...]:
    """Return the members of a group or launch, else the op itself."""
    return op.regions[0].ops if op.kind in MEANING_IN_REGION and op.regions else (op,)


@dataclass(frozen=True, slots=True)
class OpLocation:
    """An op of a stage by its key; ``member`` is the index of one of its members (None: all)."""

    key: Key
    member: int | None = None


class Index:
    """The ops of a module by key, with the block that contains each, without kernels' ops.

    ``home`` maps each op to its function's name (as rewrites name it) and its block.
    """

    def __init__(self, module: Module):
        self.module = module
        self.top: dict[Key, Op] = {}
        self.home: dict[Op, tuple[str, Block]] = {}
        for function in module.functions.values():
            if function.level != "kernel":
                self._enter(function.body, function.name)

    def _enter(self, block: Block, name: str) -> None:
        home = name, block
        for op in block.ops:
            self.top[key(op)] = op
            self.home[op] = home
            if op.kind in CONTROL_FLOW:
                for region in op.regions:
                    self._enter(region, f"{name}/{op.kind}")

    @cached_property
    def _members(self) -> dict[Op, OpLocation]:
        return {
            member: OpLocation(key(op), number)
            for op in self.home
            if op.kind in MEANING_IN_REGION
            for number, member in enumerate(parts(op))
        }

    @cached_property
    def by_origin(self) -> dict[tuple[int, str], list[Op]]:
        """Return ops by the identity of their origin and their kind."""
        found: dict[tuple[int, str], list[Op]] = defaultdict(list)
        for op in self.home:
            found[id(op.origin), op.kind].append(op)
        return found

    def location(self, op: Op) -> OpLocation | None:
        """Return the place of an op of this module, or None for other ops."""
        return OpLocation(key(op)) if op in self.home else self._members.get(op)

    def ops(self, locations: Iterable[OpLocation]) -> list[Op]:
        """Return the ops of the blocks that contain these places, each once."""
        found = (self.top.get(location.key) for location in locations)
        return list(dict.fromkeys(op for op in found if op is not None))

    def shown(self, location: OpLocation) -> Op | None:
        """Return the op at a place itself, or the member if it names one."""
        op = self.top.get(location.key)
        if op is None or location.member is None:
            return op
        return parts(op)[location.member]


class Changes:
    """The effect of a pass on places: ``rewrites`` between the module before and the one after."""

    def __init__(self, before: Index, rewrites: Sequence[Rewrite], after: Index):
        self.before, self.rewrites, self.after = before, rewrites, after
        self._by_old: dict[Key, list[int]] = defaultdict(list)
        self._by_new: dict[Key, list[int]] = defaultdict(list)
        for number, rewrite in enumerate(rewrites):
            for op in rewrite.old:
                self._by_old[key(op)].append(number)
            for op in rewrite.new:
                self._by_new[key(op)].append(number)

    def forward(
        self, locations: Iterable[OpLocation], until: int | None = None
    ) -> list[OpLocation]:
        """Return the same ops after the pass, or after rewrite ``until`` within it."""
        return self.trace(locations, until)[0]

    def trace(
        self, locations: Iterable[OpLocation], until: int | None = None
    ) -> tuple[list[OpLocation], list[int]]:
        """Return :meth:`forward` and the rewrites on the way."""
        end = len(self.rewrites) if until is None else until + 1
        done: dict[OpLocation, None] = {}
        through: set[int] = set()
        work = [(location, -1) for location in locations]
        for location in locations:
            op = self.before.top.get(location.key)
            if op is not None and location.member is None:
                copies = self._copies.get((id(op.origin), op.kind), ())
                work += [(copy, number) for number, copy in copies if number < end]
                through |= {number for number, _ in copies if number < end}
        for location, since in work:  # the list grows
            number = next((n for n in self._by_old.get(location.key, ()) if since < n < end), None)
            if number is None:
                done[location] = None
                continue
            through.add(number)
            work += [(p, number) for p in _moved_to(self.rewrites[number], location)]
        if until is None:
            done = {location: None for location in done if location.key in self.after.top}
        return list(done), sorted(through)

    def backward(self, locations: Iterable[OpLocation]) -> list[OpLocation]:
        """Return the same ops before the pass."""
        done: dict[OpLocation, None] = {}
        work = [(location, len(self.rewrites)) for location in locations]
        seen = set(work)
        for location, since in work:  # the list grows
            number = next(
                (n for n in reversed(self._by_new.get(location.key, ())) if n < since), None
            )
            if number is None:
                if location.key in self.before.top:
                    done[location] = None
                continue
            for found in self._trace_back(self.rewrites[number], location):
                if (found, number) not in seen:
                    seen.add((found, number))
                    work.append((found, number))
        return list(done)

    @cached_property
    def _copies(self) -> dict[tuple[int, str], list[tuple[int, OpLocation]]]:
        """Return members that a rewrite copied into a group, by origin and kind."""
        found: dict[tuple[int, str], list[tuple[int, OpLocation]]] = defaultdict(list)
        for number, rewrite in enumerate(self.rewrites):
            for number_in_group in range(max(0, _copied(rewrite) or 0)):
                (group,) = rewrite.new
                member = parts(group)[number_in_group]
                found[id(member.origin), member.kind].append(
                    (number, OpLocation(key(group), number_in_group))
                )
        return found

    def _trace_back(self, rewrite: Rewrite, location: OpLocation) -> list[OpLocation]:
        copied = _copied(rewrite)
        if copied is not None and location.member is not None:
            if location.member < copied:
                member = parts(rewrite.new[0])[location.member]
                known = self.before.by_origin.get((id(member.origin), member.kind), ())
                return [OpLocation(key(op)) for op in known[:1]]
            number = location.member - copied
            for op in rewrite.old:
                if number < len(parts(op)):
                    return [OpLocation(key(op), number if op.kind in MEANING_IN_REGION else None)]
                number -= len(parts(op))
        new = next(op for op in rewrite.new if key(op) == location.key)
        kept = _same_holder(new, rewrite.old)
        if kept is not None:
            return [OpLocation(key(kept), location.member)]
        return [
            OpLocation(key(op)) for op in _relatives(new, rewrite.new, rewrite.old, rewrite, True)
        ]


def _copied(rewrite: Rewrite) -> int | None:
    """Return the number of members copied from elsewhere by a rewrite that groups units.

    They come first.  None for other rewrites.
    """
    if len(rewrite.new) != 1 or rewrite.new[0].kind not in MEANING_IN_REGION or not rewrite.old:
        return None
    more = len(parts(rewrite.new[0])) - sum(len(parts(op)) for op in rewrite.old)
    return more if more >= 0 else None


def _moved_to(rewrite: Rewrite, location: OpLocation) -> list[OpLocation]:
    """Return where a rewrite moved the op at ``location``, which it replaced."""
    old = next(op for op in rewrite.old if key(op) == location.key)
    copied = _copied(rewrite)
    if copied is not None:
        (group,) = rewrite.new
        start = copied
        for op in rewrite.old:
            if op is old:
                break
            start += len(parts(op))
        numbers = range(len(parts(old))) if location.member is None else (location.member,)
        return [OpLocation(key(group), start + n) for n in numbers]
    kept = _same_holder(old, rewrite.new)
    if kept is not None:
        return [OpLocation(key(kept), location.member)]
    if not rewrite.new:  # equal to another op, which its values were replaced by
        replacements = (rewrite.values.get(v) for v in old.results)
        return [OpLocation(v) for v in replacements if v is not None]
    return [OpLocation(key(op)) for op in _relatives(old, rewrite.old, rewrite.new, rewrite, False)]


def _same_holder(op: Op, others: Sequence[Op]) -> Op | None:
    """Return the only group or launch in ``others`` with as many members as ``op``, or None."""
    if op.kind not in MEANING_IN_REGION:
        return None
    found = [o for o in others if o.kind in MEANING_IN_REGION]
    return found[0] if len(found) == 1 and len(parts(found[0])) == len(parts(op)) else None


def _relatives(
    op: Op, side: Sequence[Op], others: Sequence[Op], rewrite: Rewrite, back: bool
) -> Sequence[Op]:
    """Return the ops on the other side of a rewrite that correspond to ``op``.

    All of them if ``op`` is its whole side, else those that define its values, else those of its
    kind.
    """
    if len(side) == 1 or len(others) == 1:
        return others
    if back:
        values = {a for a, b in rewrite.values.items() if b in op.results}
    else:
        values = {rewrite.values[v] for v in op.results if v in rewrite.values}
    made = [o for o in others if any(v in values for v in o.results)]
    return made or [o for o in others if o.kind == op.kind] or others
