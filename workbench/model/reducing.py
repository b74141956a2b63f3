"""From a wrong pass to the smallest program that shows it: what to run on what, and the files."""

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

#: Seconds that one pass may take where nothing else is said: it is taken for endless then.
PASS_SECONDS = 60.0
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Suspect:
    """A module, what to run on it, and the whole that it was found in: the ``model``'s name and the
    ``stage`` that shows what is wrong.  ``notes`` are for people.  ``whole``: the same from the
    first stage on, where a pass is wrong only by what was done before."""

    module: Module
    inputs: Sequence[np.ndarray]
    trial: Trial
    model: str
    stage: int
    notes: tuple[str, ...] = ()
    whole: Suspect | None = None


def suspect(
    modules: Sequence[Module], steps: Sequence[Step], stage: int, model: str,
    inputs: Sequence[np.ndarray], target: Any, options: Options, tolerance: float,
    notes: tuple[str, ...] = (),
) -> Suspect:  # fmt: skip
    """What to run: the pass that makes ``stage`` alone where its module is plain tensor ops, else
    the passes since the last such module.  ``modules`` are those of the stages before it.
    UserError where there is no such module."""
    plain = [n for n in range(stage) if is_plain(modules[n])]
    if not plain:
        raise UserError(
            f"pass {steps[stage - 1].label} works on the model's own graph, and only programs of "
            "tensor ops can be reduced", model,
            "import it as tensor ops (without --frontend onnx-passes), or cut the graph by hand",
        )  # fmt: skip

    def since(start: int, whole: Suspect | None) -> Suspect:
        trial = reproducer.trial(
            steps[start:stage], target, options.target, options.pass_timeout or PASS_SECONDS,
            tolerance, options.threads,
        )  # fmt: skip
        given = _inputs_at(modules, start, inputs)
        return Suspect(modules[start], given, trial, model, stage, notes, whole)

    first, last = plain[0], plain[-1]
    return since(last, since(first, None) if first != last else None)


def _inputs_at(modules: Sequence[Module], stage: int, inputs) -> Sequence[np.ndarray]:
    """The inputs in the order of a stage's arguments (passes keep them, by value)."""
    given = dict(zip(modules[0].main.arguments, inputs, strict=True))
    arguments = modules[stage].main.arguments
    return [given[v] for v in arguments] if all(v in given for v in arguments) else inputs


def written(
    found: Suspect, folder: Path, seconds: float, progress: Progress
) -> tuple[dict[str, Any], Reduced] | None:
    """Reduce a suspect for at most ``seconds`` and write the program that runs alone into
    ``folder``: what there is to say, as plain data, and the case.  None where nothing fails when
    the passes run on their own."""
    made = reduce(found.module, found.inputs, found.trial, seconds=seconds, progress=progress)
    if made is None:
        return written(found.whole, folder, seconds, progress) if found.whole else None
    target = found.trial.target.name
    files = reproducer.write(folder, made, target, found.model)
    # Who has lost patience does not wait for a process more.
    shows, said = (
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
        "says": said,
        "notes": list(found.notes),
    }
    return data, made
