"""What a page offers to compare its recording with, in the views that can show two."""

from __future__ import annotations

import time
from typing import Any

from workbench.app.run_entry import Entry
from workbench.app.workspace import Workspace
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState

#: How long what was found in the library is offered before somebody looks again (seconds).
LOOK = 5.0
#: How many recordings of the model are offered; the comparison offers all.
MAX_OFFERED = 20


class Offers:
    """The other recordings of the shown model, as they were at the last look: in the library, and
    beside what was opened from elsewhere."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._looked: tuple[str, float] = ("", 0.0)
        self._found: list[Entry] = []

    def look(self, run: Run, state: ViewState) -> bool:
        """Look for them where a shown view can use them; True where they are others now."""
        if not any(VIEWS[name].two for name in state.panes):
            return False
        model, now = str(run.meta().get("model", "")), time.monotonic()
        if self._looked[0] == model and now - self._looked[1] < LOOK:
            return False
        self._looked = model, now
        before, self._found = self._found, self._workspace.alike(model, MAX_OFFERED)
        return before != self._found

    def facts(self, run: Run, state: ViewState, other: Run | None) -> dict[str, Any]:
        """``views``: the titles of the switch of each view that can show two; ``on``: those that
        do; ``other``: the name of what is compared with; ``offered``: what else can be."""
        return {
            "views": {name: view.two for name, view in VIEWS.items() if view.two},
            "on": [name for name in state.panes if VIEWS[name].two and state.shows_two(name)],
            "other": state.other if other is not None else "",
            "offered": [
                {"name": e.name, "target": e.target, "variant": e.variant, "total_ms": e.total_ms,
                 "began": e.began}
                for e in self._found if e.path != str(run.path)
            ],
        }  # fmt: skip
