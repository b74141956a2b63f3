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
MAX_BREAKPOINTS = 20

Position = tuple[int, int]


def is_valid(text: str) -> bool:
    """Return whether a text is a valid breakpoint; a URL may contain anything."""
    what, colon, value = text.partition(":")
    if not colon or not value or what not in (PASS, RULE, OP):
        return False
    return what != OP or (value.isascii() and value.isdigit() and len(value) < 16)


def toggle(breakpoints: Sequence[str], stop: str) -> tuple[str, ...]:
    """Return ``breakpoints`` with the breakpoint added, or removed if it was present."""
    if stop in breakpoints:
        return tuple(s for s in breakpoints if s != stop)
    return (*breakpoints, stop)[-MAX_BREAKPOINTS:]


def next_breakpoint(run: Run, breakpoints: Sequence[str], at: Position, by: int) -> Position | None:
    """Return the nearest place after (``by`` 1) or before (-1) ``at`` with a breakpoint."""
    passes, rules = (
        {value for what, _, value in (s.partition(":") for s in breakpoints) if what == wanted}
        for wanted in (PASS, RULE)
    )
    ops = [position for op in _ops(breakpoints) if exists(run, op) for position in changes(run, op)]
    for stage in run.stages()[:: 1 if by > 0 else -1]:
        if stage.index < at[0] if by > 0 else stage.index > at[0]:
            continue
        positions = [position for position in ops if position[0] == stage.index]
        if stage.pass_name in passes:
            positions.append((stage.index, -1))
        if rules and stage.rewrites:
            positions += [
                (stage.index, r.number)
                for r in run.rewrites(stage.index)
                if r.rewrite.rule in rules
            ]
        found = nearest(positions, at, by)
        if found is not None:
            return found
    return None


def _ops(breakpoints: Sequence[str]) -> Iterator[int]:
    return (int(s.partition(":")[2]) for s in breakpoints if is_valid(s) and s.startswith(f"{OP}:"))


def changes(run: Run, op: int) -> list[Position]:
    """Return the places of the rewrites that created or changed an op or its descendants."""
    history = run.op_history(op)
    return sorted(set(_places(run, history.earlier)) | set(_places(run, history.later)))


def _places(run: Run, steps: Sequence) -> Iterator[Position]:
    for step in steps:
        if step.stage is None:
            continue
        numbers = {r.id: r.number for r in run.rewrites(step.stage)} if step.rewrite else {}
        yield step.stage, numbers.get(step.rewrite, -1)


def nearest(positions: Sequence[Position], at: Position, by: int) -> Position | None:
    if by > 0:
        return min((p for p in positions if p > at), default=None)
    return max((p for p in positions if p < at), default=None)
