"""Advice with evidence: hazards found in a recording, their costs, the evidence, and suggestions.

Nothing is compiled or executed here. A hazard is a function of the `Program`; each threshold is a
named constant with its reason. A suggestion is an edit of the recording's own pipeline, in the
form that the view Pipeline and `workbench compile` take (`workbench.model.pipeline_editor`), or a
sentence if the model itself would have to change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from core_compiler.support.errors import UserError
from workbench.advice import gpu, launches, memory, numerics
from workbench.advice.finding import WARNING, Finding
from workbench.advice.program import Program
from workbench.queries.run import Run

log = logging.getLogger("workbench")

#: The hazards by name; several functions may report the same hazard in their own ways.
HAZARDS: Mapping[str, Callable[[Program], Iterator[Finding]]] = {
    "unfused chain": launches.unfused,
    "layouts": launches.layouts,
    "far from its limit": launches.far_from_limit,
    "constant work": launches.constant,
    "work done twice": launches.twice,
    "sets the peak": memory.peak,
    "recompute in vain": memory.recomputed,
    "plan above its bound": memory.plan,
    "padding": memory.padding,
    "never read": memory.unread,
    "precision loss": numerics.passes,
    "cancellation": numerics.cancellations,
    "spill": gpu.spills,
    "occupancy": gpu.occupancy,
    "grid": gpu.grid,
}


def advise(run: Run) -> list[Finding]:
    """Return the hazards of a finished recording, the worst and most expensive first.

    Returns [] while the recording grows.
    """
    key = "advice", run.version, run.status
    return [] if run.live else run.cached(key, lambda: _advise(run))


def _advise(run: Run) -> list[Finding]:
    program = Program(run)
    found = [each for hazard in HAZARDS for each in _looked_for(hazard, program)]
    return sorted(found, key=lambda each: each.rank)


def _looked_for(hazard: str, program: Program) -> list[Finding]:
    """Return the findings of a hazard.

    An internal error is reported as a finding and does not hide others.
    """
    try:
        return [
            replace(each, tries=tuple(map(program.bench.resolve, each.tries)))
            for each in HAZARDS[hazard](program)
        ]
    except UserError:  # the recording itself cannot be read
        raise
    except Exception as error:
        log.exception("the search for the hazard %s failed", hazard)
        detail = (
            f"{type(error).__name__}: {error}"[:300]
            + "; please report this (other hazards were searched)"
        )
        return [
            Finding(WARNING, f"The search for the hazard {hazard!r} failed", detail, {}, hazard)
        ]
