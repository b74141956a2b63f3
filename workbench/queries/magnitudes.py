"""How large values and gradients are: overlays of the graph, from the recorded statistics.

Checking looks at the values of the import, the gradients of parameters and the last stage that is
the same for all targets: what an op of ``main`` makes, or what leaves a group.  Ops that another
stage still has, have their figures there too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from core_compiler.ir import Op
from core_compiler.passes.outline_kernels import LAUNCH
from core_compiler.record import Recording
from workbench.queries import joint, numeric_results
from workbench.queries.run import Run


def values(run: Run, ops: Sequence[Op]) -> np.ndarray | None:
    """The largest finite magnitude of what each of ``ops`` makes; NaN where nobody looked.  None
    where nobody looked at any."""
    return _any([_sizes(run).get(op, math.nan) for op in ops])


def gradients(run: Run, stage: int, ops: Sequence[Op]) -> np.ndarray | None:
    """The largest finite magnitude of the gradients of those parameters that each of ``ops`` reads
    or, in the backward pass, makes the gradient of.  NaN and None as in :func:`values`."""
    step = joint.joint(run, stage)
    if step is None or not step.linked(stage):
        return None
    derivation, sizes = step.derivation, _sizes(run)

    def size(op: Op) -> float:
        roots = derivation.roots(op, stage)
        back = (g for root in roots for g in (root, *derivation.gradients.get(root, ())))
        found = [sizes[g] for g in back if g in derivation.makes and g in sizes]
        return max(found, default=math.nan)

    return _any([math.nan if joint.is_quiet(op) else size(op) for op in ops])


def _sizes(run: Run) -> dict[Op, float]:
    """The largest finite magnitudes by op: of the ops of ``main``, and of members of groups."""
    version = run.version.checks, run.version.figures
    return run.kept(("magnitudes", version), lambda: _read(run.recording))


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
    """The op of a group or launch that makes one of its results."""
    if op.kind not in ("core.group", LAUNCH) or not op.regions:
        return []
    value = op.regions[0].outputs[result]
    return [member for member in op.regions[0].ops if value in member.results]


def _any(found: Sequence[float]) -> np.ndarray | None:
    made = np.array(found, np.float64)
    return None if np.isnan(made).all() else made
