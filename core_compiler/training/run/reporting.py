"""The reports of a training run to an observer: the step's compile, the iterations, the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_compiler.ir.events import IterationRecord, Observer
from core_compiler.support.errors import UserError
from core_compiler.training.audit.probes import meaning_of
from core_compiler.training.optimisers.schedules import rates
from core_compiler.training.run.step import NotFinite, TrainingStep

#: Seconds between two reports: iterations are reported together, so that a recording writes them in
#: one transaction and a step of a few milliseconds does not wait for each.
REPORT_INTERVAL = 0.5
#: The key of a recording's ``meta`` that describes the run.
KEY = "training_run"


class RunReporter:
    """A context manager that reports a run to an observer.

    ``with RunReporter(observer, step, run) as telling`` reports the compile of ``step`` (which is
    finished first if necessary), the iterations passed to ``telling.add``, and the end of the run.
    ``run`` has facts about it.
    """

    def __init__(self, observer: Observer, step: TrainingStep, run: Mapping[str, Any]):
        self._observer, self._step, self._run = observer, step, dict(run)
        self._rate = rates(step.compilation.options.training.optimizer.schedule)
        self._rows: list[IterationRecord] = []
        self._last = -REPORT_INTERVAL

    def __enter__(self) -> RunReporter:
        try:
            self._step.compilation.finish_and_report(self._observer, **{KEY: self._run})
        except BaseException as error:
            self._end(error)
            raise
        return self

    def add(self, row: IterationRecord) -> None:
        """Report a finished iteration."""
        self._rows.append(replace(row, rate=self._rate(row.number - 1)))
        if time.monotonic() - self._last >= REPORT_INTERVAL:
            self._flush()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self._last = time.monotonic()
        if rows:
            self._observer.iterations(rows)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._flush()
            if error is None:
                self._observer.figures({"state_digest": self._step.digest})
        except BaseException as later_error:  # after this no report is written
            self._end(error or later_error)
            raise
        self._end(error)

    def _non_finite_figures(self, error: NotFinite) -> dict[str, Any]:
        """Return the position in the recording of the op that made the loss not finite.

        It is a stage and the op's index in ``main``.
        """
        found: dict[str, Any] = {"not_finite/iteration": error.iteration}
        if error.op is not None:
            meaning = meaning_of(self._step.compilation)
            stages = [s.module for s in self._step.compilation.stages]
            found["not_finite/stage"] = stages.index(meaning)
            found["not_finite/place"] = meaning.main.body.ops.index(error.op)
            found["not_finite/op"] = error.location
        return found

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self._observer.end("finished")
        elif isinstance(error, KeyboardInterrupt):
            self._observer.end("cancelled", "stopped by the user")
        elif isinstance(error, UserError):
            if isinstance(error, NotFinite):
                self._observer.figures(self._non_finite_figures(error))
            self._observer.end("failed", str(error))
        else:
            self._observer.end("failed", f"{type(error).__name__}: {error}")
