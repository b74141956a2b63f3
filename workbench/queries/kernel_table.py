"""The kernels of a recording as rows: launches, times and the machine's limits, GPU resources."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.hardware.prediction import BOUNDS
from core_compiler.record.reader import Kernel, Timing
from workbench.queries import executions
from workbench.queries.run import Run
from workbench.queries.work import Roofs, Work, roofs, work
from workbench.support import units

#: Resources that are named with the time that a kernel needs of each.
MAX_NEEDS = 4
#: Resource use that ptxas reports of a GPU kernel: per block, per thread, and bytes.
GPU_FACTS = ("threads", "registers", "shared", "spilled", "occupancy")


def known(run: Run) -> tuple:
    """Return the cache key of a recording's kernels."""
    return run.version.kernels, run.version.timings, run.version.figures, run.status


def table(run: Run) -> list[dict[str, Any]]:
    """Return the rows of the table; figures that were not measured are None."""
    return run.cached(("kernel table", known(run)), lambda: _table(run))


def _table(run: Run) -> list[dict[str, Any]]:
    if not run.kernels():
        return []  # and the stages, which may still grow, are not looked at
    timings: dict[str, list[Timing]] = {}
    for timing in run.timings():
        timings.setdefault(timing.kernel, []).append(timing)
    works: dict[str, list[Work]] = {}
    for each in work(run):
        works.setdefault(each.kernel, []).append(each)
    total = sum(t.median_us or 0.0 for t in run.timings())
    predicted = sum(w.predicted_us or 0.0 for w in work(run))
    found, before = roofs(run), _before(run)
    rows = [
        _static(kernel)
        | _work(run, works.get(kernel.name, []), predicted)
        | _measured(timings.get(kernel.name, []), total)
        for kernel in run.kernels()
    ]
    for row in rows:
        limit, spent = row["least_us"], row["total_us"]
        known = limit is not None and spent
        row["ratio"] = spent / row["predicted_us"] if known and row["predicted_us"] else None
        row["percent"] = 100 * limit / spent if known else None
        row["beyond"] = found is not None and found.passed(row["percent"])
        row["before_us"] = before.get(row["name"])
    return sorted(rows, key=lambda r: (-(r["total_us"] or 0), -(r["predicted_us"] or 0), r["name"]))


def _before(run: Run) -> dict[str, float]:
    """Return the time of each kernel's launches in the previous execution, in microseconds."""
    older = executions.facts(run)[1:]
    spent: dict[str, float] = {}
    for timing in run.timings_of(older[0]["id"]) if older else ():
        spent[timing.kernel] = spent.get(timing.kernel, 0.0) + (timing.median_us or 0.0)
    return spent


def _static(kernel: Kernel) -> dict[str, Any]:
    """Return the facts that are known of a kernel before it is launched."""
    items = [int(n) for n in kernel.facts.get("work_items", ())]
    return {
        "id": kernel.id,
        "name": kernel.name,
        "count": len(kernel.launches),
        "cached": kernel.cached,
        "compile_seconds": kernel.compile_seconds,
        "core": bool(kernel.facts.get("core")),
        "steps": len(kernel.steps),
        **{fact: as_number(kernel.facts.get(fact)) for fact in GPU_FACTS},
        "occupancy_limit": str(kernel.facts.get("occupancy_limit", "")),
        "grid": max(items, default=None),
        "grid_least": min(items, default=None),
    }


def _work(run: Run, works: list[Work], total_predicted: float) -> dict[str, Any]:
    """Return the work of its launches, the predicted and the least time, the costliest line."""
    row: dict[str, Any] = dict.fromkeys(
        (
            *("flops", "bytes", "intensity", "least_us", "predicted_us", "predicted_share"),
            *("bound", "needs", "place", "op"),
        )
    )
    if not works:
        return row
    flops, moved = sum(w.flops for w in works), sum(w.bytes for w in works)
    row |= {
        "flops": flops,
        "bytes": moved,
        "intensity": flops / moved if moved else None,
        "count": sum(w.runs for w in works),
    }
    known = [w.predicted_us for w in works if w.predicted_us is not None]
    least = [w.least_us for w in works if w.least_us is not None]
    if known:
        row |= {
            "least_us": sum(least) if least else None,
            "predicted_us": sum(known),
            "predicted_share": sum(known) / total_predicted if total_predicted else None,
            "bound": _bound(roofs(run), works),
            "needs": _needs(works),
        }
    costliest = max(works, key=lambda w: (w.median_us or 0.0, w.predicted_us or 0.0))
    if costliest.op is not None:
        file, line = run.source_location(run.recording.op(costliest.op))
        row |= {"op": costliest.op, "place": f"{file}:{line}" if file else None}
    return row


def _needs(works: list[Work]) -> str | None:
    """Return what its launches need of each resource, the most first, as the compiler predicted."""
    needs: dict[str, float] = {}
    for each in works:
        for name, us in each.needs.items():
            needs[name] = needs.get(name, 0.0) + us
    shown = sorted(needs.items(), key=lambda pair: -pair[1])[:MAX_NEEDS]
    return ", ".join(f"{BOUNDS[name]} {units.duration(us)}" for name, us in shown if us > 0) or None


def _bound(found: Roofs | None, works: list[Work]) -> str | None:
    """Return what bounds most of the time of its launches: as recorded, else the lower roof."""
    times: dict[str, float] = {}
    for each in works:
        name = each.bound_by or (found.bound(each.flops, each.bytes) if found else "")
        times[name] = times.get(name, 0.0) + (each.predicted_us or 0.0)
    return max(times, key=lambda name: times[name]) or None


def _measured(timings: list[Timing], total: float) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        ("median_us", "min_us", "p95_us", "total_us", "share", "gflops", "gbytes_per_s")
    )
    medians = [t.median_us for t in timings if t.median_us is not None]
    if not medians:
        return row
    spent = sum(medians)
    samples = np.concatenate([t.samples_us for t in timings])
    return row | {
        "median_us": spent / len(medians),
        "min_us": min(t.min_us for t in timings if t.min_us is not None),
        "p95_us": float(np.quantile(samples, 0.95)) if samples.size else None,
        "total_us": spent,
        "share": spent / total if total else None,
        "gflops": sum(t.flops for t in timings) / spent / 1e3 if spent else None,
        "gbytes_per_s": sum(t.bytes for t in timings) / spent / 1e3 if spent else None,
    }


def as_number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
