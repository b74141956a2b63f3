"""The lines of the model in two recordings: what each costs in both.

Lines of one file are the same where its text says so, so that a line keeps its row when others
were added above it; nodes of a graph are the same by name and kind.
"""

from __future__ import annotations

from typing import Any

from workbench.queries import compared
from workbench.queries.line_pairs import lines
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import source


def key(run: Run, sight: Sight, other: Run) -> tuple:
    version = other.version
    return (source.key(run, sight),
            (version.stages, version.checks, version.kernels, version.timings))  # fmt: skip


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``rows``: the lines that either has ops of (None: it has none there): ``place``, ``text``,
    and each side's ``us`` of its own ops, ``all_us`` with what is called from it, ``bytes``,
    ``import`` and ``now`` ops (at the import, at the end of the compile); ``nodes``: they are the
    nodes of the graph, for no line is known.  Empty where a side knows none."""
    return {"two": True, "a": compared.about(run), "b": compared.about(other), **lines(run, other)}


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return source.selection(run, sight)


# -- which lines are the same ---------------------------------------------------------------------
