"""Prefetched data of the graph and the diff for the browser, including stages not shown yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from widgets.encode import pack
from workbench import views
from workbench.queries import flat_graph
from workbench.queries.run import Run, Runs
from workbench.state.view_state import ViewState

#: Stages are prefetched while they have no more ops than this in total; of larger models only the
#: two that the next key leads to.
OPS_AHEAD = 60_000
_STEPPED = ("graph", "diff")


def packed(name: str, runs: Runs, state: ViewState) -> tuple[str, bytes]:
    """Return the data of view ``name``, packed: text and blob."""
    key = views.key(name, runs, state)
    return runs[0].cached_packed(key, lambda: pack(views.data(name, runs, state)))


def prefetch_tasks(run: Run, state: ViewState) -> Iterator[Callable[[], Any]]:
    """Yield functions that prefetch the stages that ``j`` and ``k`` lead to, the nearest first.

    Each takes some ten milliseconds for a model of 1,000 ops, so that commands that arrive
    meanwhile do not wait long.
    """
    panes = [name for name in state.panes if name in _STEPPED] or list(_STEPPED)
    for number in _nearest(run, run.stage_number(state.stage)):
        yield partial(run.index, number)
        if number:
            yield partial(run.diff, number - 1, number)
        stage_state = state.with_(stage=number)
        for name in panes:
            if name == "graph":
                yield partial(flat_graph.flat, run, number)
            yield partial(packed, name, (run,), stage_state)


def _nearest(run: Run, at: int) -> Iterator[int]:
    """Yield the changed stages around stage ``at``, itself first."""
    stages = {s.index: s for s in run.stages() if s.changed or s.index == 0}
    after = [n for n in stages if n > at]
    before = [n for n in reversed(stages) if n < at]
    order = [at, *after[:1], *before[:1], *after[1:], *before[1:]]
    ops = 0
    for rank, number in enumerate(order):
        ops += stages[number].ops if number in stages else 0
        if rank > 2 and (ops > OPS_AHEAD or run.live):  # a long reader blocks the writer
            return
        yield number
