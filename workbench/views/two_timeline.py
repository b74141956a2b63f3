"""An execution of each of two recordings, which of their launches compute the same, and how much
longer these take in the second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.queries import compared
from workbench.queries.pairs import Launched, Pair, pairs
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import missing, timeline


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return timeline.key(run, sight), timeline.key(other, sight)


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``two``: the timelines ``a`` and ``b``, their ``names``, and the launches that compute the
    same: a row for each of A (``first``, a place in its columns) with each of B (``second``);
    ``guessed`` where flops, bytes and order alone say so; ``pairs``: see :func:`_pairs`."""
    for each, letter in ((run, "A"), (other, "B")):
        if not timeline.is_known(each):
            raise missing.of_two(each, letter, "launches")
    ones, twos = (timeline.places_of(each) for each in (run, other))
    found = pairs(run, other)
    rows = [
        (ones[a.op], twos[b.op], pair.by_work)
        for pair in found for a in pair.first for b in pair.second
        if a.op in ones and b.op in twos
    ]  # fmt: skip
    return {
        "two": {
            "a": timeline.data(run, sight), "b": timeline.data(other, sight),
            "names": [run.path.name, other.path.name],
            "first": np.array([row[0] for row in rows], np.int32),
            "second": np.array([row[1] for row in rows], np.int32),
            "guessed": np.array([row[2] for row in rows], np.uint8),
            "pairs": _pairs(run, other, found),
        }
    }  # fmt: skip


def _pairs(run: Run, other: Run, found: Sequence[Pair]) -> dict[str, Any]:
    """What both need for the same work, a row for each pair of Compare: ``title`` and ``place``;
    ``us`` of ``a`` and of ``b``, the medians of its launches (NaN: it has none), ``least`` where
    that is the least that the machine allows, since nothing was measured; ``guessed``; and
    ``of_a`` and ``of_b``: to which row each launch belongs (-1: to none)."""
    rows = [compared.launch(run, other, pair) for pair in found]

    def side(letter: str) -> dict[str, Any]:
        sides = [row[letter] for row in rows]
        return {
            "us": np.array([np.nan if e is None or e["us"] is None else e["us"] for e in sides]),
            "least": np.array([e is not None and not e["measured"] for e in sides], np.uint8),
        }

    def of(each: Run, launches: Sequence[Sequence[Launched]]) -> np.ndarray:
        places = timeline.places_of(each)
        belongs = np.full(len(places), -1, np.int32)
        for row, some in enumerate(launches):
            for launch in some:
                if launch.op in places:
                    belongs[places[launch.op]] = row
        return belongs

    return {
        "title": [row["title"] for row in rows], "place": [row["place"] for row in rows],
        "a": side("a"), "b": side("b"),
        "guessed": np.array([pair.by_work for pair in found], np.uint8),
        "of_a": of(run, [pair.first for pair in found]),
        "of_b": of(other, [pair.second for pair in found]),
    }  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return timeline.selection(run, sight)


def answer(run: Run, sight: Sight, request: dict[str, Any], other: Run) -> Any:
    return timeline.answer(run, sight, request)
