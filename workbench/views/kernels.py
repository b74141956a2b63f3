"""The kernels as a table and a roofline: launches, time and limits, GPU resources."""

from __future__ import annotations

from typing import Any

from workbench.queries import compared, executions
from workbench.queries.kernel_table import as_number, known, table
from workbench.queries.links import linked
from workbench.queries.run import Run, Runs, shown
from workbench.queries.work import has_forecasts, roofs, work
from workbench.state.view_state import ViewState
from workbench.views import missing

#: The number of executions that the view lists.
MAX_EXECUTIONS = 20
#: Launches beyond this number are not drawn as separate points.
MAX_LAUNCHES = 5_000


def key(run: Run, state: ViewState) -> tuple:
    return known(run)


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the data of one recording.

    ``rows``: one per kernel, the most expensive first; times in microseconds of one execution,
    ``median_us``, ``min_us``, ``p95_us`` of one launch; ``beyond``: it exceeds the measured limit,
    which is therefore too low. ``roofs``: the limits of the machine, by measurement or by its
    description. ``forecast``: predicted times were recorded; else they are the least times.
    ``launches``: columns, for the roofline. ``executions``: the newest first
    (:mod:`workbench.queries.executions`); each row has ``before_us``, the time of its launches in
    the previous one.
    """
    rows = table(run)
    if not rows:
        raise missing.made_by(run, "generate_code", "No kernels are generated", "kernels")
    figures, found = run.figures("timing"), roofs(run)
    return {
        "rows": rows,
        "gpu": any(row["registers"] is not None for row in rows),
        "not_executed": run.not_timed() if not run.timings() else None,
        "measured": bool(run.timings()),
        "total_ms": as_number(figures.get("total_ms")),
        "executions": executions.facts(run)[:MAX_EXECUTIONS],
        "threads": as_number(figures.get("threads")),
        "roofs": None if found is None else found.to_json(),
        "forecast": has_forecasts(work(run)),
        "launches": _launches(run, rows),
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the kernel, and the selected op, which may be one of its launches."""
    run = runs[0]
    found = linked(run, state)
    op = {} if state.op is None else {"op": state.op}
    return {} if found.kernel is None else {"kernel": found.kernel, **op}


def _launches(run: Run, rows: list[dict[str, Any]]) -> dict[str, list]:
    """Return each launch's kernel and op (ids), flops, bytes, measured or predicted time (us)."""
    ids = {row["name"]: row["id"] for row in rows}
    found = [w for w in work(run) if w.kernel in ids and w.op is not None and w.flops]
    found = sorted(found, key=lambda w: -(w.median_us or w.predicted_us or 0.0))[:MAX_LAUNCHES]
    return {
        "kernel": [ids[w.kernel] for w in found],
        "op": [w.op for w in found],
        "flops": [w.flops for w in found],
        "bytes": [w.bytes for w in found],
        "us": [w.predicted_us if w.median_us is None else w.median_us for w in found],
    }


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return ``rows``: kernels of A next to those of B that compute the same, or None.

    Each side has ``count`` launches, ``us`` of all, ``median_us`` of one, ``share`` of the side's
    time, whether these are ``measured``, and their ``sign`` if they are predicted (≈, or ≥ for the
    least time on the machine). ``by_work`` and ``by_nodes`` as in Compare.
    """
    missing.need_both(run, other, lambda each: each.kernels(), "kernels")
    found = compared.kernels_of(run, other)
    rows = found["kernels"]
    for side in ("a", "b"):
        sides = [row[side] for row in rows if row[side] is not None]
        total = sum(each["us"] or 0.0 for each in sides)
        for each in sides:
            each["median_us"] = None if each["us"] is None else each["us"] / each["count"]
            each["share"] = each["us"] / total if each["us"] is not None and total else None
    return {"two": True, "a": compared.about(run), "b": compared.about(other), **found}
