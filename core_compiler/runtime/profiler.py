"""Times per launch and per kernel, with their work and the limit of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.device import Executable
from core_compiler.runtime.limits import Limits
from core_compiler.runtime.samples import Samples


@dataclass(frozen=True, slots=True)
class Timing:
    """Statistics of raw samples (``samples_us``, microseconds, in the order they were taken)."""

    samples_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        return float(np.median(self.samples_us))

    @property
    def min_us(self) -> float:
        return float(np.min(self.samples_us))

    @property
    def p95_us(self) -> float:
        return float(np.percentile(self.samples_us, 95))

    def to_json(self) -> dict:
        return {
            "median_us": self.median_us,
            "min_us": self.min_us,
            "p95_us": self.p95_us,
            "samples_us": list(self.samples_us),
        }


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """A launch of the program: its times, its compulsory work, and the percentage of the limit.

    ``timing``, ``flops`` and ``bytes`` are of all its ``runs`` in one execution (more than one in a
    loop). ``percent_of_limit`` compares the median with the time under the lower roof;
    ``imbalance`` is the fraction of thread time lost to an uneven split (0: none).
    """

    name: str
    kernel: str
    timing: Timing
    flops: int
    bytes: int
    percent_of_limit: float
    imbalance: float
    runs: int = 1

    @property
    def gflops(self) -> float:
        return _per_second(self.flops, self.timing.median_us) / 1e9

    @property
    def gbytes_per_s(self) -> float:
        return _per_second(self.bytes, self.timing.median_us) / 1e9


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """All launches of one kernel in a run, counted once per iteration in loops.

    ``median_us`` is their sum of medians divided by ``count``, ``total_us`` the sum; rates and the
    percentage of the limit are over the sum.
    """

    name: str
    count: int
    median_us: float
    total_us: float
    gflops: float
    gbytes_per_s: float
    percent_of_limit: float


@dataclass(frozen=True, eq=False)
class Profile:
    """A profile: the whole run, each launch, and the launches grouped by kernel."""

    program: str
    threads: int
    total: Timing
    launches: tuple[LaunchProfile, ...]
    limits: Limits
    samples: Samples

    @property
    def kernels(self) -> tuple[KernelProfile, ...]:
        """Rows by kernel, the most expensive first."""
        names = dict.fromkeys(launch.kernel for launch in self.launches)
        rows = (self._kernel(n, [x for x in self.launches if x.kernel == n]) for n in names)
        return tuple(sorted(rows, key=lambda r: (-r.total_us, r.name)))

    @property
    def repeats(self) -> dict[str, Any]:
        """Return the number of timed runs, ``repeats`` of ``repeats_wanted``.

        ``ended_by_budget`` is whether the time budget ended them.
        """
        done = len(self.samples.times)
        wanted = self.samples.wanted or done
        return {"repeats": done, "repeats_wanted": wanted, "ended_by_budget": done < wanted}

    def _kernel(self, name: str, launches: Sequence[LaunchProfile]) -> KernelProfile:
        total = sum(x.timing.median_us for x in launches)
        limit = sum(x.timing.median_us * x.percent_of_limit for x in launches)
        count = sum(x.runs for x in launches)
        return KernelProfile(
            name,
            count,
            total / count if count else 0.0,
            total,
            _per_second(sum(x.flops for x in launches), total) / 1e9,
            _per_second(sum(x.bytes for x in launches), total) / 1e9,
            limit / total if total else 0.0,
        )

    def to_json(self) -> dict:
        """Return plain values: ``total``, ``launches`` with samples, ``kernels``, ``limits``."""
        launches = [
            {
                "name": x.name,
                "kernel": x.kernel,
                **x.timing.to_json(),
                "flops": x.flops,
                "bytes": x.bytes,
                "gflops": x.gflops,
                "gbytes_per_s": x.gbytes_per_s,
                "percent_of_limit": x.percent_of_limit,
                "imbalance": x.imbalance,
                "runs": x.runs,
            }
            for x in self.launches
        ]
        return {
            "program": self.program,
            "threads": self.threads,
            **self.repeats,
            "total": self.total.to_json(),
            "launches": launches,
            "kernels": [asdict(k) for k in self.kernels],
            "limits": asdict(self.limits),
        }


def profile(
    executable: Executable,
    arrays: Sequence | None = None,
    *,
    repeats: int = 20,
    warmup: int = 3,
    roof: Limits | None = None,
    budget: TimeBudget | None = None,
) -> Profile:
    """Time every launch of an executable and compare it with the limits of its device.

    The device is notified if a launch exceeds them.  ``budget`` may end it after fewer repeats.
    """
    samples = executable.profile(arrays, repeats=repeats, warmup=warmup, budget=budget)
    found = summarise(samples, executable.device.limits() if roof is None else roof)
    if roof is None and any(found.limits.passed(x.percent_of_limit) for x in found.launches):
        executable.device.doubt_limits()
    return found


def summarise(samples: Samples, roof: Limits) -> Profile:
    """Return the profile of raw samples under given limits."""
    durations = samples.durations / 1e3
    imbalance = samples.imbalance
    rows = []
    for i, (launch, runs) in enumerate(zip(samples.program.launches, samples.runs, strict=True)):
        timing, count = Timing(tuple(map(float, durations[:, i]))), int(runs)
        each = timing.median_us * 1e-6 / max(count, 1)
        share = roof.percent(each, launch.flops, launch.bytes)
        rows.append(
            LaunchProfile(
                launch.name,
                launch.kernel,
                timing,
                launch.flops * count,
                launch.bytes * count,
                share,
                float(imbalance[i]),
                count,
            )
        )
    total = Timing(tuple(map(float, samples.totals / 1e3)))
    return Profile(samples.program.name, samples.threads, total, tuple(rows), roof, samples)


def _per_second(amount: float, microseconds: float) -> float:
    return amount / (microseconds * 1e-6) if microseconds > 0 else 0.0
