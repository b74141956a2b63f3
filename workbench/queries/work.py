"""The work of each launch, the least time for it, the predicted and the measured time.

Work is flops and compulsory bytes; the least time is the roofline model's, for any machine that the
recording describes.  A prediction is what the compiler recorded, or the least time without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core_compiler.hardware.limits import Limits, from_json, of_machine
from core_compiler.hardware.prediction import BOUNDS
from core_compiler.ir.target import Launch
from core_compiler.record.reader import Timing
from core_compiler.targets.link import launch_cost
from workbench.queries.links import launches, planned_runs
from workbench.queries.numeric_results import by_launch
from workbench.queries.run import Run

#: A working set larger than any cache (bytes): its bandwidth is that of memory.
LARGE_BYTES = 1 << 30
#: The machine assumed for a GPU recording that does not state its own.
_GPU = "h200"


@dataclass(frozen=True)
class Roofs:
    """The limits of a machine, ``measured`` or from its description."""

    name: str
    limits: Limits
    measured: bool

    def least_us(self, flops: float, nbytes: float) -> float:
        return self.limits.least_seconds(flops, nbytes) * 1e6

    def passed(self, percent: float | None) -> bool:
        """Return whether a share of the limit shows that the limit was measured too low."""
        return self.measured and percent is not None and self.limits.passed(percent)

    def bound(self, flops: float, nbytes: float) -> str:
        """Return which roof is the lower one: ``arithmetic`` or ``memory``."""
        memory = nbytes / self.limits.bandwidth(nbytes) if nbytes else 0.0
        return "arithmetic" if flops / self.limits.peak_flops() > memory else "memory"

    def to_json(self) -> dict[str, Any]:
        """Return GFLOP/s; GB/s from memory, and from the nearest cache if measured."""
        nearest = self.limits.read[0][0]
        near = self.limits.bandwidth(nearest) if len(self.limits.read) > 1 else None
        return {
            "name": self.name,
            "measured": self.measured,
            "gflops": self.limits.peak_flops() / 1e9,
            "gbytes_per_s": self.limits.bandwidth(LARGE_BYTES) / 1e9,
            "cache_gbytes_per_s": None if near is None else near / 1e9,
            "cache_bytes": nearest if near is not None else None,
        }


@dataclass(frozen=True)
class Work:
    """A launch: ``op`` (an id) of ``kernel`` (a name), with how often it ``runs``.

    ``least_us`` is the time at the lower roof, ``forecast_us`` the recorded prediction, with the
    words ``bound_by`` and the microseconds that it ``needs`` of each resource, ``median_us`` the
    measured time; None or empty if not known.
    """

    op: int | None
    kernel: str
    flops: int
    bytes: int
    least_us: float | None
    median_us: float | None = None
    runs: int = 1
    forecast_us: float | None = None
    bound_by: str = ""
    needs: Mapping[str, float] = field(default_factory=dict)

    @property
    def predicted_us(self) -> float | None:
        """The recorded prediction, else the least time."""
        return self.least_us if self.forecast_us is None else self.forecast_us


def has_forecasts(works: Iterable[Work]) -> bool:
    """Return whether predictions were recorded: predicted times are no lower bounds then."""
    return any(w.forecast_us is not None for w in works)


def sign(works: Iterable[Work]) -> str:
    """Return what precedes a predicted time of launches: an estimate, or a lower bound."""
    return "≈" if has_forecasts(works) else "≥"


def roofs(run: Run) -> Roofs | None:
    """Return the measured limits, else those of the machine compiled for; None: unknown."""
    return run.cached(("roofs", run.version.figures, run.version.timings), lambda: _roofs(run))


def _roofs(run: Run) -> Roofs | None:
    timing, figures = run.figures("timing"), run.figures()
    name = str(figures.get("machine", ""))
    if run.timings() and "limits" in timing:
        return _parse_limits(name or "this machine", timing["limits"], True)
    if run.timings() and "peak_gflops" in timing and "dram_gbytes_per_s" in timing:
        curve = ((1, 1e9 * float(timing["dram_gbytes_per_s"])),)
        found = Limits(1, 1e9 * float(timing["peak_gflops"]), curve, curve)
        return Roofs(name or "this machine", found, True)
    if "machine_limits" in figures:
        return _parse_limits(name, figures["machine_limits"], False)
    return _of_shipped(_GPU) if run.meta().get("target") == "cuda" else None


def _parse_limits(name: str, text: Any, measured: bool) -> Roofs | None:
    """Return limits that a recording stores as JSON; None if they are invalid."""
    try:
        return Roofs(name, from_json(str(text)), measured)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _of_shipped(name: str) -> Roofs | None:
    from core_compiler.hardware.machine import shipped

    found = of_machine(shipped(name))
    return None if found is None else Roofs(name, found, False)


def work(run: Run) -> list[Work]:
    """Return every launch of one execution in program order, measured or not."""
    versions = run.version
    key = "work", versions.stages, versions.kernels, versions.timings, versions.figures
    return run.cached(key, lambda: _work(run))


def _work(run: Run) -> list[Work]:
    forecasts = _forecasts(run)
    return [_with_forecast(each, forecasts) for each in _without_forecasts(run)]


def _without_forecasts(run: Run) -> list[Work]:
    roof = roofs(run)
    if run.timings():
        figures = run.figures("timing")
        percents = {} if "limits" in figures else by_launch(figures, "percent_of_limit")
        ran = by_launch(figures, "runs")
        return [
            _measured(t, roof, percents.get(t.launch), int(ran.get(t.launch, 1)))
            for t in run.timings()
        ]
    found: list[Work] = []
    runs = planned_runs(run) if run.version.stages else {}
    counted = _recorded(run)
    for key, op in (launches(run) if run.version.stages else {}).items():
        flops, moved = counted.get(key) or launch_cost(op)
        n = runs.get(key, 1)
        least = None if roof is None else n * roof.least_us(flops, moved)
        found.append(Work(key, Launch.of(op).kernel, n * flops, n * moved, least, runs=n))
    return found


def _with_forecast(work: Work, forecasts: Mapping[int, Mapping[str, Any]]) -> Work:
    found = None if work.op is None else forecasts.get(work.op)
    if found is None:
        return work
    return replace(
        work,
        forecast_us=work.runs * float(found["us"]),
        bound_by=str(found.get("bound_by", "")),
        needs={n: work.runs * us for n, us in found.get("terms", {}).items() if n in BOUNDS},
    )


def _forecasts(run: Run) -> dict[int, Mapping[str, Any]]:
    """Return the prediction of each launch (by id) that the compiler recorded."""
    return {
        launch: found
        for kernel in run.kernels()
        for launch, found in zip(kernel.launches, kernel.facts.get("predictions", ()), strict=False)
        if isinstance(found, Mapping) and isinstance(found.get("us"), int | float)
    }


def _recorded(run: Run) -> dict[int, tuple[int, int]]:
    """Return the flops and bytes of each launch (by id) that the compile counted.

    Empty before the kernels are recorded.
    """
    return {
        launch: (int(flops), int(moved))
        for kernel in run.kernels()
        for launch, (flops, moved) in zip(
            kernel.launches, kernel.facts.get("work", ()), strict=False
        )
    }


def _measured(timing: Timing, roof: Roofs | None, percent: float | None, runs: int) -> Work:
    """Return the work of a launch, by ``percent`` of the limit if there is no bandwidth curve."""
    least = None
    if roof is not None and runs > 0:
        least = runs * roof.least_us(timing.flops / runs, timing.bytes / runs)
    if percent is not None and timing.median_us is not None:
        least = timing.median_us * percent / 100
    return Work(timing.op, timing.kernel, timing.flops, timing.bytes, least, timing.median_us, runs)
