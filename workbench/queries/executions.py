"""The executions of a recorded program, each with its median and confidence interval."""

from __future__ import annotations

from typing import Any

from core_compiler.record.reader import Execution
from workbench.queries.run import Run
from workbench.support import intervals, units


def facts(run: Run) -> list[dict[str, Any]]:
    """Return one row per execution, the newest first.

    A row has ``median_ms`` with its interval (``low_ms``, ``high_ms``; None: too few samples), the
    number of samples, the date, the machine, and the digest of the outputs.
    """
    return run.cached(
        ("execution rows", run.version.timings),
        lambda: [_row(each) for each in reversed(run.executions())],
    )


def _row(each: Execution) -> dict[str, Any]:
    bounds = intervals.median(each.samples_us)
    low, high = (None, None) if bounds is None else (bound / 1e3 for bound in bounds)
    return {
        "id": each.id,
        "began": each.began,
        "machine": each.machine,
        "threads": each.threads,
        "digest": each.digest,
        "samples": len(each.samples_us),
        "median_ms": None if each.median_us is None else each.median_us / 1e3,
        "low_ms": low,
        "high_ms": high,
    }


def spread(row: dict[str, Any]) -> str:
    """Return the interval of an execution's median as text; "" if there are too few samples."""
    bounds = (None if row[name] is None else 1e3 * row[name] for name in ("low_ms", "high_ms"))
    return intervals.describe(*bounds)


def describe_latest(run: Run) -> str:
    """Return the newest execution time as text, compared with the previous one."""
    newest, *before = facts(run)
    if newest["median_ms"] is None:
        return "Executed."
    text = f"Executed: {units.duration(1e3 * newest['median_ms'])}"
    if newest["low_ms"] is not None:
        text += f", {spread(newest)}"
    if before and before[0]["median_ms"] is not None:
        text += f"; before: {units.duration(1e3 * before[0]['median_ms'])}"
    return f"{text}."


def differing(run: Run) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two executions of the program whose outputs have different bits; None if all agree."""
    known = [row for row in facts(run) if row["digest"]]
    return next(((row, known[-1]) for row in known if row["digest"] != known[-1]["digest"]), None)
