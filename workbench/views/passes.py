"""The pass rail: each pass with its changes, time and checks; the rewrites of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.record.reader import Stage
from workbench.queries.numeric_results import json_number
from workbench.queries.run import Run, Runs
from workbench.state.view_state import ViewState

#: The most rewrites of a stage that are listed; the rail states how many there are.
MAX_REWRITES = 2000


def key(run: Run, state: ViewState) -> tuple:
    return run.version.stages, run.version.checks


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return ``stages`` in order: index, name, ops after, difference, rewrites, seconds, check."""
    run = runs[0]
    stages = run.stages()
    rows = []
    for number, stage in enumerate(stages):
        before = stages[number - 1].ops if number else None
        rows.append(
            {
                "index": stage.index,
                "name": stage.pass_name,
                "summary": stage.summary,
                "half": stage.half,
                "ops": stage.ops,
                "change": None if before is None else stage.ops - before,
                "rewrites": stage.rewrites,
                "changed": stage.changed or number == 0,
                "seconds": stage.seconds,
                "check": check(stage),
            }
        )
    return {"stages": rows}


def detail_key(run: Run, state: ViewState) -> tuple:
    return run.stage_number(state.stage), run.version.checks, bool(run.version.stages)


def detail(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the rewrites of the shown stage: rule, ops before and after, check."""
    run = runs[0]
    if not run.version.stages:
        return {"stage": 0, "rewrites": [], "total": 0}
    stage = run.stage_number(state.stage)
    steps = run.rewrites(stage) if stage else []
    rows = [
        {
            "rule": step.rewrite.rule,
            "before": len(step.rewrite.old),
            "after": len(step.rewrite.new),
            "check": "" if step.check is None else step.check.verdict,
        }
        for step in steps[:MAX_REWRITES]
    ]
    return {"stage": stage, "rewrites": rows, "total": len(steps)}


def values(stage: Stage) -> str:
    """Return what a stage's pass may do to values."""
    return "bit-exact" if stage.exact else f"may change: {stage.tolerance_class}"


def check(stage: Stage) -> dict[str, Any] | None:
    """Return the mark of a stage's checks: the worst verdict, with counts; None if no check ran."""
    verdicts: Mapping[str, int] = stage.verdicts
    if not verdicts:
        return None
    worst = next(v for v in ("failed", "within", "unchecked", "bitwise") if verdicts.get(v))
    if worst == "unchecked" and verdicts.get("bitwise"):
        worst = "bitwise"
    return {"verdict": worst, "error": json_number(stage.worst_error), "counts": dict(verdicts)}
