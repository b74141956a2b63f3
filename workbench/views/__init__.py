"""What each view shows, as plain data: one file a view.

`workbench.state.view_state.VIEWS` lists them.  A view's module has

``key(run, state)``               what its data depend on of one recording, hashable;
``data(runs, state)``             what its browser module draws: JSON-able data with NumPy arrays;
``selection(runs, state)``        (where it has one) the selection as that module knows it;
``answer(runs, state, request)``  (where it has one) the answer to what the browser asks;
``choices(entries)``              (where it has one) which recordings of the library it can be
                                  compared with.

``runs`` is the recording that is shown, or two: that one (A) and the one it is compared with (B).
``Empty`` says why there is nothing to show, and what to do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from workbench.queries.run import Run, Runs
from workbench.state.view_state import VIEWS, ViewState


def module(name: str) -> ModuleType:
    """The module of view ``name``."""
    return import_module(f"workbench.views.{name}")


def runs_for(name: str, state: ViewState, run: Run, other: Run | None) -> Runs:
    """The recordings that view ``name`` shows, where ``other`` is compared with."""
    view = VIEWS[name]
    takes = view.pair or (view.two and state.shows_two(name))
    return (run,) if other is None or not takes else (run, other)


def key(name: str, runs: Runs, state: ViewState) -> Hashable:
    """What the data of view ``name`` depend on."""
    made = module(name)
    others = tuple((run.path, run.version.stages) for run in runs[1:])
    return name, others, tuple(made.key(run, state) for run in runs)


def data(name: str, runs: Runs, state: ViewState) -> dict[str, Any]:
    """The data of view ``name``; `Empty` where there is nothing to show."""
    return module(name).data(runs, state)


def selection(name: str, runs: Runs, state: ViewState) -> dict[str, Any] | None:
    """The selection as view ``name`` knows it; None where it knows none."""
    made = module(name)
    return made.selection(runs, state) if hasattr(made, "selection") else None


def answer(name: str, runs: Runs, state: ViewState, request: Mapping[str, Any]) -> Any:
    """What view ``name`` answers to its browser module."""
    return module(name).answer(runs, state, request)


class Empty(Exception):
    """There is nothing to show: ``what`` says why, ``fix`` what would bring something, and ``do``
    is the page's command that does it, if there is one (``again``, ``execute``)."""

    def __init__(self, what: str, fix: str = "", do: str = ""):
        super().__init__(f"{what} {fix}".strip())
        self.message = {"what": what, "fix": fix, "do": do}
