"""Checks of a compile, pass by pass: each stage against the one before it, and its statistics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from core_compiler.debug import divisions
from core_compiler.debug.check import Checker
from core_compiler.debug.kernels import check_kernels
from core_compiler.debug.statistics import stage_statistics
from core_compiler.debug.steps import check_schedules
from core_compiler.ir import Op, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.stage import Stage
from core_compiler.training.roles import Roles

if TYPE_CHECKING:
    from core_compiler.compiler import Compilation


class StageChecks:
    """Checks the newest stage of ``made`` on ``inputs``, in the order of main's arguments.

    The first one may be any: what the stages before it made is computed then.
    """

    def __init__(self, made: Compilation, inputs: Sequence[np.ndarray]):
        self._made, self._inputs = made, inputs
        self._checker: Checker | None = None

    def newest(self) -> tuple[list[CheckRecord], float | None]:
        """What checking the newest stage says, and where it moved numbers how far the model's
        outputs are from those of the import by now (of the largest).  The compile's observer is
        told the statistics."""
        made = self._made
        before, stage = made.stages[-2:]
        checker = self._checker or self._begun()
        exact = stage.step is None or stage.step.pass_.exact
        found = checker.stage(stage.rewrites, exact, before.module, stage.module, anew(stage))
        found += self._of_target(checker, stage)
        if stage.step is not None and "gradients" in stage.step.pass_.ensures:
            main = stage.module.main
            ends = [main.outputs[i] for i in Roles.of(main).gradients().values()]
            self._tell_values(stage, {v: checker.values[v] for v in ends})
        if stage.module.main.level == "target" and before.module.main.level != "target":
            self._tell_values(before, checker.sealed.known)
        if anew(stage):  # what comes is compared with what is computed from here on
            self._checker = Checker(stage.module, self._inputs)
            return found, None
        moved = not exact or any(r.verdict == "failed" for r in found)
        return found, checker.end_to_end(stage.module) if moved and stage.rewrites else None

    def _of_target(self, checker: Checker, stage: Stage) -> list[CheckRecord]:
        """What else there is to check of schedules and of machine code."""
        made, name = self._made, stage.name.split("#")[0]
        if name == "schedule_kernels":
            return list(check_schedules(stage.module, made.facts["schedules"]))
        if name != "generate_code" or made.target.available() is not None:
            return []
        found = check_kernels(
            stage.module, made.facts, made.target, self._inputs, checker.evaluator,
            made.options.threads,
        )  # fmt: skip
        made.facts["kernel_checks"] = found
        return [f.record for f in found]

    def _begun(self) -> Checker:
        """A checker that knows what the stages before the newest one made, and where buffers lie;
        it begins with the import, or with the last stage that computes something else on purpose.
        """
        done = self._made.stages[:-1]
        first = next((s for s in reversed(done) if anew(s)), done[0])
        self._checker = checker = Checker(first.module, self._inputs)
        self._tell_divisions(first, checker.evaluator.zero_divisors)
        for before, stage in zip(done[first.index :], done[first.index + 1 :], strict=False):
            if stage.module.main.level == "target":
                checker.stage(stage.rewrites, True, before.module, stage.module)
            for rewrite in stage.rewrites:
                checker.values.learn(rewrite.new)
        self._tell_values(first, checker.values.known)
        return checker

    def _tell_divisions(self, stage: Stage, zeros: Mapping[Op, tuple[int, int]]) -> None:
        """Warn of integer divisions by zero on the inputs, those aside that are known already."""
        noted = {d.where or d.op for d in stage.diagnostics}
        found = [d for d in divisions.warnings(zeros, " on the example inputs")
                 if (d.where or d.op) not in noted]  # fmt: skip
        if found:
            stages, diagnostics = self._made.stages, (*stage.diagnostics, *found)
            stages[stage.index] = replace(stage, diagnostics=diagnostics)
            self._made.observer.diagnostics(stage.index, found)

    def _tell_values(self, stage: Stage, known: Mapping[Value, np.ndarray]) -> None:
        """Statistics of the values of a stage that checking has evaluated."""
        started = time.perf_counter()
        found, left = stage_statistics(stage.module, known, stage.index)
        observer = self._made.observer
        observer.tensors(found)
        seconds = time.perf_counter() - started
        observer.figures({f"statistics_seconds/{stage.index}": seconds})
        if left:
            observer.figures({f"statistics_left_out/{stage.index}": left})


def anew(stage: Stage) -> bool:
    """Whether the stage computes something else than the one before it, and is meant to."""
    return stage.step is not None and stage.step.pass_.anew and bool(stage.rewrites)
