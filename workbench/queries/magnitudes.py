"""Magnitudes of values and gradients: overlays of the graph, from the recorded statistics.

Checking evaluates the values of the import, the gradients of parameters, and the last stage that
all targets share: the results of ops of ``main``, or the results of a group. Ops that another
stage still has get their figures there too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from core_compiler.ir import Op
from core_compiler.ir.target import LAUNCH
from core_compiler.record import Recording
from workbench.queries import joint, numeric_results
from workbench.queries.run import Run


def values(run: Run, ops: Sequence[Op]) -> np.ndarray | None:
    """Return the largest finite magnitude of the results of each of ``ops``; NaN if not evaluated.

    None if none of them was evaluated.
    """
    return _any([_sizes(run).get(op, math.nan) for op in ops])


def gradients(run: Run, stage: int, ops: Sequence[Op]) -> np.ndarray | None:
    """Return the largest finite magnitude of the gradients of the parameters that each op uses.

    These are the parameters that it reads or, in the backward pass, makes the gradient of. NaN and
    None as in :func:`values`.
    """
    step = joint.joint(run, stage)
    if step is None or not step.linked(stage):
        return None
    derivation, sizes = step.derivation, _sizes(run)

    def size(op: Op) -> float:
        roots = derivation.roots(op, stage)
        back = (g for root in roots for g in (root, *derivation.gradients.get(root, ())))
        found = [sizes[g] for g in back if g in derivation.parameter_of and g in sizes]
        return max(found, default=math.nan)

    return _any([math.nan if joint.computes_nothing(op) else size(op) for op in ops])


def _sizes(run: Run) -> dict[Op, float]:
    """Return the largest finite magnitudes of ops of ``main`` and of members of groups."""
    version = run.version.checks, run.version.figures
    return run.cached(("magnitudes", version), lambda: _read(run.recording))


def _read(recording: Recording) -> dict[Op, float]:
    stats = recording.tensors()
    found: dict[Op, float] = {}
    makers = {s: numeric_results.made_by(recording, s) for s in {each.stage for each in stats}}
    for each in stats:
        size, op = numeric_results.largest(each), makers[each.stage].get(each.value)
        if op is not None and size is not None:
            for maker in (op, *_inside(op, op.results.index(each.value))):
                found[maker] = max(found.get(maker, 0.0), size)
    return found


def _inside(op: Op, result: int) -> list[Op]:
    """Return the op inside a group or launch that makes one of its results."""
    if op.kind not in ("core.group", LAUNCH) or not op.regions:
        return []
    value = op.regions[0].outputs[result]
    return [member for member in op.regions[0].ops if value in member.results]


def _any(found: Sequence[float]) -> np.ndarray | None:
    made = np.array(found, np.float64)
    return None if np.isnan(made).all() else made
