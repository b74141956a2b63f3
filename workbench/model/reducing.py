"""Reduction of a wrong pass to the smallest program that shows it: the trial, and the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.debug.failure import Trial
from core_compiler.debug.reduce import Reduced, is_plain, reduce
from core_compiler.driver import reproducer
from core_compiler.driver.compilation import Options
from core_compiler.ir import Module
from core_compiler.pipelines.pipeline import Step
from core_compiler.support.errors import UserError

#: The default time limit of one pass (seconds): longer is treated as an endless loop.
PASS_SECONDS = 60.0
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Suspect:
    """A module, the trial to run on it, and its context.

    The context is the ``model``'s name and the ``stage`` that shows the fault. ``notes`` are for
    the user. ``fallback``: the same from the first stage on, in case a pass is wrong only after
    earlier passes.
    """

    module: Module
    inputs: Sequence[np.ndarray]
    trial: Trial
    model: str
    stage: int
    notes: tuple[str, ...] = ()
    fallback: Suspect | None = None


def suspect(
    modules: Sequence[Module],
    steps: Sequence[Step],
    stage: int,
    model: str,
    inputs: Sequence[np.ndarray],
    target: Any,
    options: Options,
    tolerance: float,
    notes: tuple[str, ...] = (),
) -> Suspect:
    """Return the trial: the passes to run, from the last module of plain tensor ops.

    This is the pass that makes ``stage`` alone if its own module has plain tensor ops.

    ``modules`` are those of the stages before it. UserError if there is no such module.
    """
    plain = [n for n in range(stage) if is_plain(modules[n])]
    if not plain:
        raise UserError(
            f"pass {steps[stage - 1].label} works on the model's own graph, and only programs of "
            "tensor ops can be reduced",
            model,
            "import it as tensor ops (without --frontend onnx-passes), or cut the graph by hand",
        )

    def suspect_from(start: int, fallback: Suspect | None) -> Suspect:
        trial = reproducer.trial(
            steps[start:stage],
            target,
            options.target,
            options.pass_timeout or PASS_SECONDS,
            tolerance,
            options.threads,
        )
        given = _inputs_at(modules, start, inputs)
        return Suspect(modules[start], given, trial, model, stage, notes, fallback)

    first, last = plain[0], plain[-1]
    return suspect_from(last, suspect_from(first, None) if first != last else None)


def _inputs_at(modules: Sequence[Module], stage: int, inputs) -> Sequence[np.ndarray]:
    """Return the inputs in the order of a stage's arguments (passes keep them, by value)."""
    given = dict(zip(modules[0].main.arguments, inputs, strict=True))
    arguments = modules[stage].main.arguments
    return [given[v] for v in arguments] if all(v in given for v in arguments) else inputs


def reduce_and_write(
    found: Suspect, folder: Path, seconds: float, progress: Progress
) -> tuple[dict[str, Any], Reduced] | None:
    """Reduce a suspect for at most ``seconds`` and write a standalone program into ``folder``.

    Returns the report as plain data, and the case. None if nothing fails when the passes run on
    their own.
    """
    made = reduce(found.module, found.inputs, found.trial, seconds=seconds, progress=progress)
    if made is None:
        return (
            reduce_and_write(found.fallback, folder, seconds, progress) if found.fallback else None
        )
    target = found.trial.target.name
    files = reproducer.write(folder, made, target, found.model)
    # A user who interrupted does not want to wait for another process.
    shows, output = (
        (False, "not tried") if made.stopped == "interrupted" else reproducer.shows(files[0])
    )
    data = {
        "pass": made.failure.pass_label,
        "how": made.failure.how,
        "what": made.failure.what,
        "note": made.failure.note,
        "model": found.model,
        "target": target,
        "stage": found.stage,
        "ops_before": made.before,
        "ops_after": made.case.ops,
        "inputs": 0 if made.case.inputs is None else len(made.case.inputs),
        "tried": made.tried,
        "seconds": made.seconds,
        "stopped": made.stopped or None,
        "files": [str(path) for path in files],
        "runs_alone": shows,
        "says": output,
        "notes": list(found.notes),
    }
    return data, made
