"""The library on the start page: the listed runs, and the actions on them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from core_compiler.support.errors import UserError
from widgets.encode import finite
from workbench.app.library import Library, Tags
from workbench.app.run_index import Found
from workbench.app.run_query import SORTS
from workbench.queries.numeric_results import json_rows
from workbench.state.view_state import ViewState
from workbench.ui.updates import unexpected

log = logging.getLogger("workbench")

#: The number of runs listed at a time.
PAGE_SIZE = 25
#: The number of deleted runs, and of uploads, that are listed.
MAX_TRASH = 500
#: The time for which new recordings are read before the list is updated (seconds).
READ_SECONDS = 0.4
#: The interval at which the start page looks for new recordings (seconds).
CHECK_INTERVAL = 2.0


def facts(library: Library, state: ViewState, viewer: bool = False) -> dict[str, Any]:
    """Return the facts that the start page shows of the library.

    ``runs`` of ``total`` found among ``known``, of which ``pending`` are still to be read; the
    numbers of ``deleted`` runs and ``uploaded`` files; on request the ``trash``, the ``uploads``
    (a ``viewer`` gets no tokens to restore or delete them) and a ``trend``.
    """
    problem, found, trend = None, Found([], 0, 0, 0), None
    try:
        found = library.listing(state.find, PAGE_SIZE, state.skip or 0)
        if not found.entries and state.skip:  # the runs on that page are gone
            found = library.listing(state.find, PAGE_SIZE)
            state = state.with_(skip=None)
        trend = _trend(library, state.find) if state.shelf == "trend" else None
    except UserError as error:
        problem = error.to_json()["error"]
    return {
        "find": state.find, "skip": state.skip or 0, "shelf": state.shelf, "listed": PAGE_SIZE,
        "sorts": list(SORTS), "runs": _json_runs(map(asdict, found.entries)),
        "total": found.total, "known": found.known, "pending": found.pending,
        "deleted": len(library.trash), "uploaded": len(library.uploads),
        "trend": trend, "problem": problem,
        "trash": [asdict(gone) | ({"token": ""} if viewer else {})
                  for gone in library.deleted()[:MAX_TRASH]] if state.shelf == "trash" else None,
        "uploads": [asdict(each) | ({"token": ""} if viewer else {})
                    for each in library.uploads.content()[:MAX_TRASH]]
                   if state.shelf == "uploads" else None,
    }  # fmt: skip


def _json_runs(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return json_rows(list(runs), "worst_error")


def _trend(library: Library, text: str) -> dict[str, Any]:
    found = library.trend(text)
    return {**found, "runs": _json_runs(found["runs"])} if "runs" in found else found


class Listing:
    """The listing of the library on one page.

    ``show`` receives the facts as JSON, ``failed`` an error; both are called from the working
    thread.
    """

    def __init__(
        self,
        library: Library,
        show: Callable[[str], None],
        failed: Callable[[Mapping[str, str]], None],
        viewer: bool = False,
    ):
        self._library, self._show, self._failed = library, show, failed
        self._viewer = viewer
        self._number = 0  # of the current listing: earlier ones end
        self._began = 0.0
        self._shown: tuple | None = None  # the version of the library shown last

    @property
    def is_old(self) -> bool:
        """Return whether it is time to look for new recordings."""
        return time.monotonic() - self._began > CHECK_INTERVAL

    def end(self) -> None:
        """End the current listing."""
        self._number += 1

    def begin(self, state: ViewState, quick: bool = False) -> Callable[[], None]:
        """Return a function that shows the library as indexed, then reads new recordings.

        ``quick``: only check whether something has changed.
        """
        self._number += 1
        self._began = time.monotonic()
        number = self._number

        def work() -> None:
            try:
                self._follow(number, state, quick)
            except UserError as error:
                self._failed(error.to_json()["error"])
            except Exception as error:  # an exception in a thread would be lost
                log.exception("the library could not be listed")
                self._failed(unexpected(error))

        return work

    def _follow(self, number: int, state: ViewState, quick: bool) -> None:
        if not quick:
            self._shown = None
        while number == self._number:
            version = self._library.version()
            if version != self._shown:
                self._show(json.dumps(finite(facts(self._library, state, self._viewer))))
                self._shown = version
            pending = self._library.index.refresh(READ_SECONDS, quick)
            if not pending and self._library.version() == self._shown:
                return


def annotate(library: Library, command: Mapping[str, Any]) -> None:
    """Apply the ``tags`` (to ``add``, to ``drop``), ``note`` or ``pinned`` sent for a run."""
    tags, note, pinned = (command.get(each) for each in ("tags", "note", "pinned"))
    library.annotate(
        str(command.get("run", "")),
        tags=None if tags is None else _tag_change(tags),
        note=None if note is None else str(note),
        pinned=None if pinned is None else bool(pinned),
    )


def _tag_change(tags: Mapping[str, Any]) -> Tags:
    """Return the new tags, given a run's current ones."""
    add, drop = ([str(tag) for tag in tags.get(each, ())] for each in ("add", "drop"))
    return lambda current: [*(tag for tag in current if tag not in drop), *add]


def delete_run(library: Library, name: str) -> dict[str, Any]:
    """Delete a run; return the notice with its undo action."""
    deleted = library.remove(name)
    return {
        "what": f"{deleted.model} was deleted.",
        "where": deleted.name,
        "fix": "It is kept in the trash for 30 days.",
        "act": {"label": "Undo", "name": "restore", "data": {"token": deleted.token}},
    }


def lost(library: Library, name: str, viewer: bool = False) -> dict[str, Any]:
    """Return the notice that a shown run was deleted; a ``viewer`` cannot restore it."""
    found = next((d for d in library.deleted() if d.name == name), None)
    undo = found and {"label": "Undo", "name": "restore", "data": {"token": found.token}}
    act = None if viewer else undo
    return {
        "what": "This run was deleted.",
        "where": name,
        "error": True,
        "act": act,
        "fix": "The page keeps showing it; "
        + ("it is in the trash and can be restored." if found else "its file is gone."),
    }
