"""Updates of the components for a view state: the components that changed, with their new values.

The page, the notebook and the report differ in how they send them; the values are made here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from core_compiler.support.errors import UserError
from widgets.encode import finite, pack
from workbench import views
from workbench.queries.run import Run, Runs
from workbench.state.view_state import ViewState
from workbench.ui.prefetch import packed
from workbench.views import Empty, inspector, missing, passes

log = logging.getLogger("workbench")

#: A view's message in place of data: ``what``, and for an error ``where``, ``fix`` and ``error``.
Message = dict[str, Any]


@dataclass(frozen=True)
class Update:
    """New values for traits of a component; ``key``: the source of its data, if included."""

    name: str
    values: dict[str, Any]
    key: Hashable = None


Updates = Iterator[Update]


class UpdateTracker:
    """The record of what is shown, so that only changes are derived and sent.

    ``kept``: the values sent are stored and read without a server, like those of a notebook's
    widgets; a view that requests parts of its data (``whole``) then gets all of them.
    """

    def __init__(self, standalone: bool = False) -> None:
        self._standalone = standalone
        self._shown: dict[tuple[str, ...], Hashable] = {}
        self._last_message: dict[str, int] = {}

    def note_message(self, name: str, message: Mapping[str, Any]) -> None:
        """Note that component ``name`` sent a selection or a command.

        The selections sent to it from now on include its number ``n``, so that it ignores older
        ones after a new choice.
        """
        number = message.get("n")
        if isinstance(number, int):  # of two browsers at one notebook the larger: neither waits
            self._last_message[name] = max(number, self._last_message.get(name, 0))

    def clear(self) -> None:
        """Forget what is shown."""
        self._shown.clear()

    def mark_sent(self, update: Update) -> None:
        """Note that the component has these values now.

        An update that is derived but never sent (because the user went on) must not count as
        shown: its view would stay empty.
        """
        if update.key is not None:
            self._shown[_slot(update)] = update.key

    def _is_new(self, update: Update) -> bool:
        return self._shown.get(_slot(update)) != update.key

    def updates(
        self, state: ViewState, run: Run, other: Run | None, messages: dict[str, Message]
    ) -> Updates:
        """Yield the changes, those of visible views first.

        Messages of views in place of data go to ``messages``.
        """
        with run.lock:
            shown = {
                "stage": run.stage_number(state.stage),
                "rewrite": state.rewrite,
                "stops": list(state.stops),
            }
        yield self._answer("rail", shown)
        yield from self._parts((("rail", passes.key, passes.data, "data"),), state, run)
        panes = state.panes if state.zoom is None else (state.panes[state.zoom],)
        for name in panes:
            try:
                runs = views.runs_for(name, state, run, other)
                with lock_all(*runs):
                    yield from self._view(name, state, runs)
                messages.pop(name, None)
            except Exception as error:
                messages[name] = message_for_error(name, error)
        around = (
            ("rail", passes.detail_key, passes.detail, "detail"),
            ("inspector", inspector.key, inspector.data, "data"),
        )
        yield from self._parts(around, state, run)

    def _parts(self, parts: Iterable[tuple], state: ViewState, run: Run) -> Updates:
        """Yield the changes of components around the views.

        An error in one does not affect the others.
        """
        for name, key, data, trait in parts:
            try:
                with run.lock:
                    yield from self._part(name, key, data, trait, state, run)
            except UserError as error:  # the views report it too
                log.warning("%s: %s", name, error)
            except Exception:
                log.exception("%s failed", name)

    def _part(self, name, key, data, trait: str, state: ViewState, run: Run) -> Updates:
        made = Update(name, {trait: ""}, (run, key(run, state)))
        if self._is_new(made):
            made.values[trait] = json.dumps(finite(data((run,), state)))
            yield made

    def _view(self, name: str, state: ViewState, runs: Runs) -> Updates:
        run = runs[0]
        if not run.version.stages and name != "overview":
            raise missing.stages(run)
        # A view needs its remembered state before its data: it draws with both. An empty state is
        # sent too, because the view may still have an earlier one.
        view_settings = state.own_state(name)
        if name == "diff" and "unified" not in view_settings:
            view_settings = {
                **view_settings,
                "unified": len(state.panes) > 1 and state.zoom is None,
            }
        yield Update(name, {"state": view_settings})
        key = runs, views.key(name, runs, state)
        made = Update(name, {"data": "", "blob": b""}, key)
        if self._is_new(made):
            all_data = getattr(views.module(name), "whole", None) if self._standalone else None
            if all_data and len(runs) == 1 and run.status != "recording":
                made.values["data"], made.values["blob"] = pack(all_data(run))
            else:
                made.values["data"], made.values["blob"] = packed(name, runs, state)
            yield made
        chosen = views.selection(name, runs, state)
        if chosen is not None:
            yield self._answer(name, chosen)

    def _answer(self, name: str, chosen: Mapping[str, Any]) -> Update:
        return Update(name, {"selection": {**chosen, "n": self._last_message.get(name, 0)}})


def _slot(update: Update) -> tuple[str, ...]:
    return update.name, *update.values


def lock_all(*runs: Run | None) -> ExitStack:
    """Return the locks of recordings, taken in the order of their paths.

    Two sessions that compare the same two recordings in opposite order thus do not deadlock.
    """
    stack = ExitStack()
    for run in sorted((r for r in runs if r is not None), key=lambda r: str(r.path)):
        stack.enter_context(run.lock)
    return stack


def message_for_error(name: str, error: Exception) -> Message:
    """Return the message of view ``name`` in place of data, for an error in deriving them."""
    if isinstance(error, Empty):
        return error.message
    if isinstance(error, UserError):
        return {**error.to_json()["error"], "error": True}
    log.error("view %s failed", name, exc_info=error)
    return {**unexpected(error), "error": True}


def unexpected(error: Exception) -> Message:
    """Return the message for an internal error."""
    return {
        "what": f"{type(error).__name__}: {error}"[:300],
        "where": "this part of the page",
        "fix": "the other parts work; reload to try again, and please report this",
    }
