"""Alternative memory plans for a recording: by other planners, and with recomputation."""

from __future__ import annotations

from typing import Any

from core_compiler.passes.plan_memory import PlanMemory
from core_compiler.placement.planner import Effort, compare
from core_compiler.placement.problem import Lifetime
from core_compiler.placement.recompute import Choice, Plan, choose
from core_compiler.training.passes.order_launches import OrderLaunches
from core_compiler.training.passes.recompute import Recompute, recompute_problem
from workbench.queries.run import Run

#: The approximate number of recomputation plans that are shown.
OFFERS = 12


#: The time budget for the comparison of planners: a page waits for it.
EFFORT = Effort(placements=4_000, nodes=200, rounds=2)


#: With more buffers than this only the fast planners run (each takes a second for 20,000).
MANY, QUICK = 3_000, ("best", "greedy_size", "greedy_start")


def again(run: Run) -> list[dict[str, Any]]:
    """Return the savings and costs of recomputing forward launches, from none to most.

    The choice of this program is marked.
    """
    return run.cached(("again", run.version.stages), lambda: _again(run))


def _again(run: Run) -> list[dict[str, Any]]:
    stages = run.stages()
    ordered = next((s for s in stages if s.pass_name == OrderLaunches.name()), None)
    if ordered is None:
        return []
    _, problem = recompute_problem(run.recording.module(ordered.index).main)
    recompute_stage = next((s for s in stages if s.pass_name == Recompute.name()), None)
    fraction = (
        float(dict(recompute_stage.options).get("budget", 1.0))
        if recompute_stage is not None
        else 1.0
    )
    choice = choose(problem, fraction)
    work = max(1, sum(step.cost for step in problem.steps))
    saved = max(1, choice.baseline.held)
    return [
        {
            "held": plan.held,
            "part": plan.held / saved,
            "extra": plan.extra / work,
            "bound": choice.bound / work,
            "peak": plan.peak,
            "again": len(plan.again),
            "chosen": plan == choice.plan,
        }
        for plan in _spaced_out(choice)
    ]


def _spaced_out(choice: Choice) -> list[Plan]:
    """Return some of the plans, evenly spaced by the bytes they hold, and the chosen one."""
    chosen: list[Plan] = []
    step = choice.baseline.held / OFFERS
    for plan in choice.alternatives:
        if plan == choice.plan or not chosen or chosen[-1].held - plan.held >= step:
            chosen.append(plan)
    return chosen


def planners(run: Run) -> list[dict[str, Any]]:
    """Return the arena that each planner needs for the recorded buffers, smallest first; bytes, ms.

    With more buffers than ``MANY`` only the fast planners run.
    """
    return run.cached(("planners", run.version.buffers), lambda: _planners(run))


def alignment(run: Run) -> int:
    """Return the alignment of the buffers of a recording (bytes)."""
    made = next((s for s in run.stages() if s.pass_name == PlanMemory.name()), None)
    return int(dict(made.options if made else {}).get("alignment", PlanMemory().alignment))


def _planners(run: Run) -> list[dict[str, Any]]:
    unit = alignment(run)
    lives = [
        Lifetime(str(b.id), b.unpadded_size, b.start, b.end + 1, unit)
        for b in run.buffers()
        if b.tier == "dram"
    ]
    used = run.figures("memory").get("planner")
    rows = [
        {
            "planner": p.planner,
            "bytes": p.peak,
            "bound": p.lower_bound,
            "ms": 1e3 * p.seconds,
            "used": p.planner == used,
        }
        for p in compare(lives, QUICK if len(lives) > MANY else None, EFFORT)
    ]
    return sorted(rows, key=lambda r: (r["bytes"], not r["used"], r["ms"]))
