"""The numbers of two recordings: statistics of the values that both know, side by side.

Recordings hold statistics of what checking evaluated, at a few stages; tensors only where whoever
recorded them said so.  Equal statistics do not prove equal bits, and the data say which it is.
"""

from __future__ import annotations

from typing import Any

from workbench.queries import contracts
from workbench.queries.numeric_results import Row
from workbench.queries.run import Run
from workbench.queries.value_pairs import _by_stage, values
from workbench.state.view_state import Sight
from workbench.views import Empty, missing, numerics

#: Rows that are sent at the most: those that differ before the others.
MAX_ROWS = 2_000


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return tuple((r.version.checks, r.version.figures, r.version.stages, r.status)
                 for r in (run, other))  # fmt: skip


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``a`` and ``b``: names of the recordings; ``parts``: the stages that both have statistics of,
    with how many values only one side knows (``only``); ``rows``: a value each, in program order,
    with its statistics on both sides, ``how`` it was matched and ``why``, whether it ``differs``,
    the largest ``difference`` of a statistic (or of an element, where both kept the tensor:
    ``exact``, with ``ulps`` and how many elements are ``unequal``); ``first`` of them that differs.
    ``outputs``: the digests of the results as they were executed."""
    if why := contracts.refusal(run, other):
        raise Empty(why, contracts.remedy(run, other))
    rows, parts = values(run, other)
    first = next((row for row in rows if row["differs"]), None)
    digests = [str(each.figures().get("digest", "")) for each in (run, other)]
    return {
        "two": True, "a": _about(run), "b": _about(other), "parts": parts,
        "rows": _chosen(rows), "total": len(rows), "first": first,
        "differing": sum(row["differs"] for row in rows),
        "exact": sum(row["exact"] for row in rows),
        "outputs": {"a": digests[0], "b": digests[1]},
    }  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return numerics.selection(run, sight)


def _about(run: Run) -> dict[str, str]:
    meta = run.meta()
    return {"name": run.path.name, "path": str(run.path),
            "about": f"{meta.get('model', run.path.stem)} · {meta.get('target', '')}"}  # fmt: skip


def _nothing(run: Run, other: Run) -> Exception:
    lacking = [each for each in (run, other) if not _by_stage(each)]
    if not lacking:
        return missing.alike("statistics of the same stage")
    return missing.statistics(lacking[0], "A" if lacking[0] is run else "B")


def _chosen(rows: list[Row]) -> list[Row]:
    if len(rows) <= MAX_ROWS:
        return rows
    places = sorted(range(len(rows)), key=lambda at: (not rows[at]["differs"], at))[:MAX_ROWS]
    return [rows[at] for at in sorted(places)]


# -- which values ---------------------------------------------------------------------------------


# -- how far apart --------------------------------------------------------------------------------
