"""The execution times of a compiled model, for the command that compiles it."""

from __future__ import annotations

import json
from typing import Any

from typing_extensions import override

from core_compiler.ir.events import Observer
from core_compiler.runtime.samples import executed_on
from workbench.support import intervals, units


class ExecutionTimes(Observer):
    """An observer of execution times.

    It collects ``median_us`` with its interval (``low_us``, ``high_us``; None: too few samples),
    the number of ``samples``, and the ``digest`` of the outputs.
    """

    result: dict[str, Any] | None = None

    @override
    def timings(self, timings, figures):
        samples = json.loads(figures["total_samples_us"])
        low, high = intervals.median(samples) or (None, None)
        self.result = {
            "median_us": 1e3 * figures["total_ms"],
            "low_us": low,
            "high_us": high,
            "samples": len(samples),
            "threads": figures["threads"],
            "digest": figures["digest"],
        }


def describe(found: dict[str, Any]) -> str:
    """Return them as a line of text."""
    sure = intervals.describe(found["low_us"], found["high_us"])
    times = units.counted(found["samples"], "time")
    return (
        f"executed {times} on {executed_on(found['threads'])}: median "
        f"{units.duration(found['median_us'])}" + (f", {sure}" if sure else "")
    )
