"""An execution of each of two recordings, and which of their launches compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.state import Sight
from workbench.views import missing, timeline
from workbench.views.pairs import pairs
from workbench.views.reading import Run


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return timeline.key(run, sight), timeline.key(other, sight)


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``two``: the timelines ``a`` and ``b``, their ``names``, and the launches that compute the
    same: a row for each of A (``first``, a place in its columns) with each of B (``second``);
    ``guessed`` where flops, bytes and order alone say so."""
    for each, letter in ((run, "A"), (other, "B")):
        if not timeline.is_known(each):
            raise missing.of_two(each, letter, "launches")
    ones, twos = (timeline.places_of(each) for each in (run, other))
    rows = [
        (ones[a.op], twos[b.op], pair.by_work)
        for pair in pairs(run, other) for a in pair.first for b in pair.second
        if a.op in ones and b.op in twos
    ]  # fmt: skip
    return {
        "two": {
            "a": timeline.data(run, sight), "b": timeline.data(other, sight),
            "names": [run.path.name, other.path.name],
            "first": np.array([row[0] for row in rows], np.int32),
            "second": np.array([row[1] for row in rows], np.int32),
            "guessed": np.array([row[2] for row in rows], np.uint8),
        }
    }  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return timeline.selection(run, sight)


def answer(run: Run, sight: Sight, request: dict[str, Any], other: Run) -> Any:
    return timeline.answer(run, sight, request)
