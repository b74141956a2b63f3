"""Facts that a recording states about a training run."""

from __future__ import annotations

from typing import Any

from workbench.queries.run import Run


def is_training(run: Run) -> bool:
    return run.meta().get("mode") == "training"


def not_finite(run: Run) -> dict[str, Any] | None:
    """Return the iteration whose loss ended a training run; None if all losses are finite.

    The row has the first op that made values that are not finite (``op``, "" if it is not known),
    and the link ``go`` that shows it.
    """
    figures = run.figures()
    iteration = figures.get("not_finite/iteration")
    if run.status != "failed" or not isinstance(iteration, int):
        return None
    stage, place = figures.get("not_finite/stage"), figures.get("not_finite/place")
    found: dict[str, Any] = {
        "iteration": iteration,
        "op": "",
        "go": {"panes": ["training", "graph"]},
    }
    if isinstance(stage, int) and isinstance(place, int) and 0 <= stage < run.version.stages:
        ops = run.index(stage).module.main.body.ops
        if 0 <= place < len(ops):
            found |= {
                "op": str(figures.get("not_finite/op", "")),
                "go": {"stage": stage, "op": run.op_id(ops[place]), "panes": ["graph", "source"]},
            }
    return found
