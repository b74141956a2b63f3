"""Breakpoints: passes, rules and ops at which stepping through a recording stops.

In the view state (and the URL) a breakpoint is a text: ``pass:fold_constants#2``, ``rule:TEXT``,
``op:NUMBER``. A place is a stage and the index of one of its rewrites, -1 for the stage itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.queries.links import exists
from workbench.queries.run import Run

PASS, RULE, OP = "pass", "rule", "op"
#: The most breakpoints of one view state: they are part of the URL.
MOST = 20

Place = tuple[int, int]


def known(text: str) -> bool:
    """Return whether a text is a valid breakpoint; a URL may contain anything."""
    what, colon, value = text.partition(":")
    if not colon or not value or what not in (PASS, RULE, OP):
        return False
    return what != OP or (value.isascii() and value.isdigit() and len(value) < 16)


def toggled(stops: Sequence[str], stop: str) -> tuple[str, ...]:
    """Return ``stops`` with the breakpoint added, or removed if it was present."""
    if stop in stops:
        return tuple(s for s in stops if s != stop)
    return (*stops, stop)[-MOST:]


def following(run: Run, stops: Sequence[str], at: Place, by: int) -> Place | None:
    """Return the nearest place after (``by`` 1) or before (-1) ``at`` with a breakpoint."""
    passes, rules = (
        {value for what, _, value in (s.partition(":") for s in stops) if what == wanted}
        for wanted in (PASS, RULE)
    )
    ops = [place for op in _ops(stops) if exists(run, op) for place in changes(run, op)]
    for stage in run.stages()[:: 1 if by > 0 else -1]:
        if stage.index < at[0] if by > 0 else stage.index > at[0]:
            continue
        places = [place for place in ops if place[0] == stage.index]
        if stage.pass_name in passes:
            places.append((stage.index, -1))
        if rules and stage.rewrites:
            places += [
                (stage.index, r.number)
                for r in run.rewrites(stage.index)
                if r.rewrite.rule in rules
            ]
        found = nearest(places, at, by)
        if found is not None:
            return found
    return None


def _ops(stops: Sequence[str]) -> Iterator[int]:
    return (int(s.partition(":")[2]) for s in stops if known(s) and s.startswith(f"{OP}:"))


def changes(run: Run, op: int) -> list[Place]:
    """Return the places of the rewrites that created or changed an op or its descendants."""
    history = run.op_history(op)
    return sorted(set(_places(run, history.earlier)) | set(_places(run, history.later)))


def _places(run: Run, steps: Sequence) -> Iterator[Place]:
    for step in steps:
        if step.stage is None:
            continue
        numbers = {r.id: r.number for r in run.rewrites(step.stage)} if step.rewrite else {}
        yield step.stage, numbers.get(step.rewrite, -1)


def nearest(places: Sequence[Place], at: Place, by: int) -> Place | None:
    if by > 0:
        return min((p for p in places if p > at), default=None)
    return max((p for p in places if p < at), default=None)
