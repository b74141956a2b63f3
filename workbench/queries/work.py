"""What each launch has to do (flops, compulsory bytes), the least time that needs, and the time it
took: the roofline model, for whatever the recording knows of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core_compiler.hardware.limits import Limits, from_json, of_machine
from core_compiler.record.reader import Timing
from core_compiler.targets.link import launch_cost
from workbench.queries.links import launches, planned_runs
from workbench.queries.numeric_results import by_launch
from workbench.queries.run import Run

#: Bytes touched by a kernel that is held against memory, not against a cache.
FAR = 1 << 30
#: The machine that a recording for a GPU was compiled for where it does not say.
_GPU = "h200"


@dataclass(frozen=True)
class Roofs:
    """What a machine can do at most: ``limits``, ``measured`` or as its description says."""

    name: str
    limits: Limits
    measured: bool

    def least_us(self, flops: float, nbytes: float) -> float:
        return self.limits.least_seconds(flops, nbytes) * 1e6

    def passed(self, percent: float | None) -> bool:
        """Whether a share of the limit proves that it was measured too low."""
        return self.measured and percent is not None and self.limits.passed(percent)

    def bound(self, flops: float, nbytes: float) -> str:
        """Which roof is the lower one: ``arithmetic`` or ``memory``."""
        memory = nbytes / self.limits.bandwidth(nbytes) if nbytes else 0.0
        return "arithmetic" if flops / self.limits.peak_flops() > memory else "memory"

    def to_json(self) -> dict[str, Any]:
        """GFLOP/s; GB/s from memory, and from the nearest cache where that was measured."""
        nearest = self.limits.read[0][0]
        near = self.limits.bandwidth(nearest) if len(self.limits.read) > 1 else None
        return {
            "name": self.name, "measured": self.measured,
            "gflops": self.limits.peak_flops() / 1e9,
            "gbytes_per_s": self.limits.bandwidth(FAR) / 1e9,
            "cache_gbytes_per_s": None if near is None else near / 1e9,
            "cache_bytes": nearest if near is not None else None,
        }  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A launch, as often as it ``runs`` in an execution: ``op`` (an id) of ``kernel`` (a name);
    ``least_us`` is what the lower roof allows, ``median_us`` what was measured; None where that is
    not known."""

    op: int | None
    kernel: str
    flops: int
    bytes: int
    least_us: float | None
    median_us: float | None = None
    runs: int = 1


def roofs(run: Run) -> Roofs | None:
    """The measured limits, else those of the machine that was compiled for; None: unknown."""
    return run.kept(("roofs", run.version.figures, run.version.timings), lambda: _roofs(run))


def _roofs(run: Run) -> Roofs | None:
    timing, figures = run.figures("timing"), run.figures()
    name = str(figures.get("machine", ""))
    if run.timings() and "limits" in timing:
        return _told(name or "this machine", timing["limits"], True)
    if run.timings() and "peak_gflops" in timing and "dram_gbytes_per_s" in timing:
        curve = ((1, 1e9 * float(timing["dram_gbytes_per_s"])),)
        found = Limits(1, 1e9 * float(timing["peak_gflops"]), curve, curve)
        return Roofs(name or "this machine", found, True)
    if "machine_limits" in figures:
        return _told(name, figures["machine_limits"], False)
    return _of_shipped(_GPU) if run.meta().get("target") == "cuda" else None


def _told(name: str, text: Any, measured: bool) -> Roofs | None:
    """Limits that a recording holds as JSON; None where they make no sense."""
    try:
        return Roofs(name, from_json(str(text)), measured)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _of_shipped(name: str) -> Roofs | None:
    from core_compiler.hardware.machine import shipped

    found = of_machine(shipped(name))
    return None if found is None else Roofs(name, found, False)


def work(run: Run) -> list[Work]:
    """Every launch of one execution in program order, measured or not."""
    key = "work", run.version.stages, run.version.timings, run.version.figures
    return run.kept(key, lambda: _work(run))


def _work(run: Run) -> list[Work]:
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
    for key, op in (launches(run) if run.version.stages else {}).items():
        (flops, moved), n = launch_cost(op), runs.get(key, 1)
        least = None if roof is None else n * roof.least_us(flops, moved)
        found.append(Work(key, op["kernel"], n * flops, n * moved, least, runs=n))
    return found


def _measured(timing: Timing, roof: Roofs | None, percent: float | None, runs: int) -> Work:
    """``percent`` of the limit: of a recording that keeps no curve of bandwidths."""
    least = None
    if roof is not None and runs > 0:
        least = runs * roof.least_us(timing.flops / runs, timing.bytes / runs)
    if percent is not None and timing.median_us is not None:
        least = timing.median_us * percent / 100
    return Work(timing.op, timing.kernel, timing.flops, timing.bytes, least, timing.median_us, runs)
