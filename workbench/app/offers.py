"""The recordings that a page offers for comparison, in the views that can show two."""

from __future__ import annotations

import time
from typing import Any

from workbench.app.run_entry import Entry
from workbench.app.workspace import Workspace
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState

#: How long a result from the library is used before the next look (seconds).
UPDATE_INTERVAL = 5.0
#: The number of recordings of the model that are offered; the comparison offers all.
MAX_OFFERED = 20


class Offers:
    """The other recordings of the shown model, as of the last look.

    They are in the library, or next to files opened from elsewhere.
    """

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._last_refresh: tuple[str, float] = ("", 0.0)
        self._found: list[Entry] = []

    def refresh(self, run: Run, state: ViewState) -> bool:
        """Look for them if a shown view can use them; return True if they have changed."""
        if not any(VIEWS[name].two for name in state.panes):
            return False
        model, now = str(run.meta().get("model", "")), time.monotonic()
        if self._last_refresh[0] == model and now - self._last_refresh[1] < UPDATE_INTERVAL:
            return False
        self._last_refresh = model, now
        before, self._found = self._found, self._workspace.runs_of_model(model, MAX_OFFERED)
        return before != self._found

    def facts(self, run: Run, state: ViewState, other: Run | None) -> dict[str, Any]:
        """Return the views that can show two recordings, and the recordings to compare with.

        ``views``: the titles of their switches; ``on``: those that show two; ``other``: the name
        of the recording compared with; ``offered``: the other candidates.
        """
        return {
            "views": {name: view.two for name, view in VIEWS.items() if view.two},
            "on": [name for name in state.panes if VIEWS[name].two and state.shows_two(name)],
            "other": state.other if other is not None else "",
            "offered": [
                {
                    "name": e.name,
                    "target": e.target,
                    "variant": e.variant,
                    "total_ms": e.total_ms,
                    "began": e.began,
                }
                for e in self._found
                if e.path != str(run.path)
            ],
        }
