"""The kernels of two recordings: those that compute the same in a row, as Compare matches them,
with launches, time of a launch and share of the time on both sides."""

from __future__ import annotations

from typing import Any

from workbench.queries import compared
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import kernels, missing


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return tuple((kernels.key(each, sight), each.version.stages) for each in (run, other))


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``rows``: kernels of A beside those of B that compute the same (None: none does); each side
    has ``count`` launches, ``us`` of all, ``median_us`` of one, ``share`` of the side's time, and
    whether these are ``measured`` or the least that the machine allows.  ``by_work`` and
    ``by_nodes`` as in Compare."""
    for each, letter in ((run, "A"), (other, "B")):
        if not each.kernels():
            raise missing.of_two(each, letter, "kernels")
    found = compared.kernels_of(run, other)
    rows = found["kernels"]
    for side in ("a", "b"):
        sides = [row[side] for row in rows if row[side] is not None]
        total = sum(each["us"] or 0.0 for each in sides)
        for each in sides:
            each["median_us"] = None if each["us"] is None else each["us"] / each["count"]
            each["share"] = each["us"] / total if each["us"] is not None and total else None
    return {"two": True, "a": compared.about(run), "b": compared.about(other), **found}


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return kernels.selection(run, sight)
