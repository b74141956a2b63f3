"""Checks of a compile, pass by pass: each stage against the one before it, and statistics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from core_compiler.debug import divisions
from core_compiler.debug.bisect import locate
from core_compiler.debug.judge import Judge, pass_effect
from core_compiler.debug.statistics import stage_statistics
from core_compiler.driver.legality import levels
from core_compiler.driver.stage import Stage
from core_compiler.ir import Op, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.training.graph.roles import Roles

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation


class StageChecks:
    """The checks of the newest stage of ``made`` on ``inputs``, in the order of main's arguments.

    The first checked stage may be any: the values of the stages before it are computed then.
    """

    def __init__(self, made: Compilation, inputs: Sequence[np.ndarray]):
        self._made, self._inputs = made, inputs
        self._judge: Judge | None = None

    @property
    def judge(self) -> Judge:
        """Return the judge, with the stages before the newest one applied.

        It begins with the import, or with the last stage that changes the semantics on purpose.
        """
        if self._judge is None:
            made = self._made
            done = made.stages[:-1]
            first = next((s for s in reversed(done) if changes_semantics(s)), done[0])
            self._judge = Judge(first.module, self._inputs, made.target, made.options.threads)
            for stage in done[first.index + 1 :]:
                self._judge.follow(pass_effect(made, stage))
            self._report_divisions(first, self._judge.checker.evaluator.zero_divisors)
            self._report_values(first, self._judge.checker.values.known)
        return self._judge

    def newest(self) -> tuple[list[CheckRecord], float | None]:
        """Check the newest stage and return the records, with the error of the outputs so far.

        The error is that of the model's outputs against the import (relative to the largest value)
        if the stage changed values.  The compile's observer gets the statistics; the first failure
        becomes the compile's ``finding``.
        """
        made = self._made
        before, stage = made.stages[-2:]
        judge = self.judge
        checker = judge.checker
        done, earlier = pass_effect(made, stage), judge.fork()
        found = judge.stage(done)
        if made.finding is None and any(r.verdict == "failed" for r in found):
            made.finding = locate(made, self._inputs, judge, earlier, found, levels(made.target))
        if judge.kernels and stage.name.split("#")[0] == "generate_code":
            made.facts["kernel_checks"] = judge.kernels
        if stage.step is not None and "gradients" in stage.step.pass_.ensures:
            main = stage.module.main
            gradient_values = [main.outputs[i] for i in Roles.of(main).gradients().values()]
            self._report_values(stage, {v: checker.values[v] for v in gradient_values})
        if stage.module.main.level == "target" and before.module.main.level != "target":
            self._report_values(before, checker.values_before_buffers.known)
        may_differ = not done.exact or any(r.verdict == "failed" for r in found)
        return (
            found,
            judge.error if may_differ and stage.rewrites and not done.changes_semantics else None,
        )

    def _report_divisions(self, stage: Stage, zeros: Mapping[Op, tuple[int, int]]) -> None:
        """Warn about integer divisions by zero on the inputs, except for known ones."""
        noted = {d.where or d.op for d in stage.diagnostics}
        found = [
            d
            for d in divisions.warnings(zeros, " on the example inputs")
            if (d.where or d.op) not in noted
        ]
        if found:
            stages, diagnostics = self._made.stages, (*stage.diagnostics, *found)
            stages[stage.index] = replace(stage, diagnostics=diagnostics)
            self._made.observer.diagnostics(stage.index, found)

    def _report_values(self, stage: Stage, known: Mapping[Value, np.ndarray]) -> None:
        """Report statistics of the values of a stage that checking has evaluated."""
        started = time.perf_counter()
        found, left = stage_statistics(stage.module, known, stage.index)
        observer = self._made.observer
        observer.tensors(found)
        seconds = time.perf_counter() - started
        observer.figures({f"statistics_seconds/{stage.index}": seconds})
        if left:
            observer.figures({f"statistics_left_out/{stage.index}": left})


def changes_semantics(stage: Stage) -> bool:
    """Return whether the stage changes the semantics on purpose."""
    return stage.step is not None and stage.step.pass_.changes_semantics and bool(stage.rewrites)
