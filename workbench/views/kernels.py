"""The kernel table: how often each kernel is launched, how long it takes, how near to the limit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from core_compiler.record.reader import Kernel, Timing
from workbench.state import Sight
from workbench.views import Empty
from workbench.views.links import linked
from workbench.views.reading import Run

#: What ptxas says of a GPU's kernel: of a block, of a thread, and bytes.
GPU_FACTS = ("threads", "registers", "shared", "spilled", "occupancy")


def key(run: Run, sight: Sight) -> tuple:
    return run.version.kernels, run.version.timings, run.version.figures, run.status


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """``rows``: one a kernel, the most expensive first; times in microseconds of one launch."""
    rows = table(run)
    if not rows:
        raise Empty(
            "No kernels are generated yet: the pass generate_code makes them."
            if run.live
            else "This recording holds no kernels. Press Compile to make one that does."
        )
    figures = run.figures("timing")
    return {
        "rows": rows,
        "gpu": any(row["registers"] is not None for row in rows),
        "not_executed": run.figures().get("not_executed") if not run.timings() else None,
        "measured": bool(run.timings()),
        "total_ms": _number(figures.get("total_ms")),
        "threads": _number(figures.get("threads")),
        "peak_gflops": _number(figures.get("peak_gflops")),
        "dram_gbytes_per_s": _number(figures.get("dram_gbytes_per_s")),
    }


def table(run: Run) -> list[dict[str, Any]]:
    """The rows of the table; figures that were not measured are None."""
    return run.kept(("kernel table", key(run, Sight())), lambda: _table(run))


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    found = linked(run, sight)
    return {} if found.kernel is None else {"kernel": found.kernel}


def launches(count: int) -> str:
    return f"{count} launch" if count == 1 else f"{count} launches"


def _table(run: Run) -> list[dict[str, Any]]:
    timings: dict[str, list[Timing]] = {}
    for timing in run.timings():
        timings.setdefault(timing.kernel, []).append(timing)
    percents = _percents(run)
    total = sum(t.median_us or 0.0 for t in run.timings())
    rows = [_row(kernel, timings.get(kernel.name, []), percents, total) for kernel in run.kernels()]
    return sorted(rows, key=lambda row: (-(row["total_us"] or 0.0), row["name"]))


def _row(kernel: Kernel, timings: list[Timing], percents: list[float], total: float):
    row: dict[str, Any] = {
        "id": kernel.id, "name": kernel.name, "count": len(kernel.launches),
        "cached": kernel.cached, "compile_seconds": kernel.compile_seconds,
        "core": bool(kernel.facts.get("core")), "steps": len(kernel.steps),
        **{fact: _number(kernel.facts.get(fact)) for fact in GPU_FACTS},
        "occupancy_limit": str(kernel.facts.get("occupancy_limit", "")),
        **dict.fromkeys(("median_us", "min_us", "p95_us", "total_us", "share", "gflops",
                         "gbytes_per_s", "percent")),
    }  # fmt: skip
    medians = [t.median_us for t in timings if t.median_us is not None]
    if not medians:
        return row
    spent = sum(medians)
    samples = np.concatenate([t.samples_us for t in timings])
    row |= {
        "median_us": spent / len(medians),
        "min_us": min(t.min_us for t in timings if t.min_us is not None),
        "p95_us": float(np.quantile(samples, 0.95)) if samples.size else None,
        "total_us": spent, "share": spent / total if total else None,
        "gflops": sum(t.flops for t in timings) / spent / 1e3 if spent else None,
        "gbytes_per_s": sum(t.bytes for t in timings) / spent / 1e3 if spent else None,
    }  # fmt: skip
    near = [
        (t.median_us, percents[t.launch])
        for t in timings
        if t.median_us is not None and t.launch < len(percents)
    ]
    if near and spent:
        row["percent"] = sum(time * share for time, share in near) / spent
    return row


def _percents(run: Run) -> list[float]:
    try:
        found = json.loads(str(run.figures("timing").get("percent_of_limit", "[]")))
        return [float(part) for part in found]
    except (ValueError, TypeError):
        return []


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
