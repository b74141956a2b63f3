"""The memory maps of two recordings, and which of their buffers are the same; passes, planners and
what is done again of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.ir.diff import GUESSED
from workbench.queries import compared
from workbench.queries.buffer_pairs import same_buffers
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import memory, missing


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return memory.key(run, sight), memory.key(other, sight)


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``two``: the maps ``a`` and ``b``, their ``names``, and the buffers that both have: ``first``
    in A, ``second`` in B, whether that is ``guessed``, and ``why`` (a number in ``whys``).  What is
    asked, is asked of both (``answer``), of none of the maps alone."""
    for each, letter in ((run, "A"), (other, "B")):
        if not each.buffers():
            raise missing.of_two(each, letter, "memory plan")
    same = same_buffers(run, other)
    whys = list(dict.fromkeys(each.why for each in same))
    return {
        "two": {
            "a": {**memory.data(run, sight), "asks": False},
            "b": {**memory.data(other, sight), "asks": False},
            "names": [run.path.name, other.path.name],
            "first": np.array([each.first for each in same], np.int32),
            "second": np.array([each.second for each in same], np.int32),
            "guessed": np.array([each.how == GUESSED for each in same], np.uint8),
            "why": np.array([whys.index(each.why) for each in same], np.uint8), "whys": whys,
            "asks": True,
        }
    }  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return memory.selection(run, sight)


def answer(run: Run, sight: Sight, request: dict[str, Any], other: Run) -> dict[str, Any]:
    """``a`` and ``b``: what `memory.answer` says of either.  Of ``passes`` also ``stages``: of each
    pass the ``name`` and its stages in ``a`` and ``b``, None where it is only in one, as Compare
    lists them."""
    both = {"a": memory.answer(run, sight, request), "b": memory.answer(other, sight, request)}
    if request.get("kind") != "passes":
        return both
    stages = [
        {"name": row["name"], **{side: row[side] and row[side]["index"] for side in "ab"}}
        for row in compared.passes(run, other)
    ]
    return {**both, "stages": stages}
