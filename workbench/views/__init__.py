"""The data of each view, as plain data: one file per view.

`workbench.state.view_state.VIEWS` lists them. A view's module has

``key(run, state)``               what its data depend on of one recording, hashable;
``data(runs, state)``             the data for its browser module: JSON-able with NumPy arrays;
``selection(runs, state)``        (optional) the selection in the form of that module;
``answer(runs, state, request)``  (optional) the response to a request of the browser;
``choices(entries)``              (optional) the recordings of the library it can be compared
                                  with.

``runs`` is the recording that is shown, or two: that one (A) and the one it is compared with (B).
``Empty`` states why there is nothing to show, and what to do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from workbench.queries.run import Run, Runs
from workbench.state.view_state import VIEWS, ViewState


def module(name: str) -> ModuleType:
    """Return the module of view ``name``."""
    return import_module(f"workbench.views.{name}")


def runs_for(name: str, state: ViewState, run: Run, other: Run | None) -> Runs:
    """Return the recordings that view ``name`` shows; ``other`` is the one compared with."""
    view = VIEWS[name]
    takes = view.pair or (view.two and state.shows_two(name))
    return (run,) if other is None or not takes else (run, other)


def key(name: str, runs: Runs, state: ViewState) -> Hashable:
    """Return what the data of view ``name`` depend on."""
    made = module(name)
    others = tuple((run.path, run.version.stages) for run in runs[1:])
    return name, others, tuple(made.key(run, state) for run in runs)


def data(name: str, runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data of view ``name``; raise `Empty` if there is nothing to show."""
    return module(name).data(runs, state)


def selection(name: str, runs: Runs, state: ViewState) -> dict[str, Any] | None:
    """Return the selection in the form of view ``name``; None if it has none."""
    made = module(name)
    return made.selection(runs, state) if hasattr(made, "selection") else None


def answer(name: str, runs: Runs, state: ViewState, request: Mapping[str, Any]) -> Any:
    """Return the response of view ``name`` to a request of its browser module."""
    return module(name).answer(runs, state, request)


class Empty(Exception):
    """A view has nothing to show.

    ``what`` states why, ``fix`` what would change that, and ``do`` is the page's command that does
    it, if there is one (``again``, ``execute``).
    """

    def __init__(self, what: str, fix: str = "", do: str = ""):
        super().__init__(f"{what} {fix}".strip())
        self.message = {"what": what, "fix": fix, "do": do}
