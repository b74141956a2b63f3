"""The rewrites of two recordings: how often each rule of each pass applied, and what it cost."""

from __future__ import annotations

from typing import Any

from workbench.queries import compared
from workbench.queries.rule_counts import rules
from workbench.queries.run import Run
from workbench.state.view_state import Sight


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return tuple((r.version.stages, r.version.checks, r.status) for r in (run, other))


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``rows``: a rule of a pass, in the order of A's passes, then B's: ``pass``, ``rule``, and for
    each side (None: it never applied there) its ``stage``, ``count`` of applications, ``us`` that
    matching and rewriting took, ``removed`` ops (negative: made), the worst ``error`` of its
    checks, ``failed`` checks and the number of its ``first`` rewrite."""
    return {"two": True, "a": compared.about(run), "b": compared.about(other),
            "rows": rules(run, other)}  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """The ``stage``, and the ``rule`` of the selected rewrite (None where none is)."""
    if not run.version.stages:
        return {}
    stage, number = run.stage_number(sight.stage), sight.rewrite
    steps = run.rewrites(stage) if stage and number is not None else []
    rule = steps[number].rewrite.rule if number is not None and 0 <= number < len(steps) else None
    return {"stage": stage, "rule": rule}
