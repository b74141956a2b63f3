"""The views of one open page: the data sent to each of them, and the messages received from them.

The data is derived in the page's thread and shown on the loop when it is ready. A newer command
invalidates it: derivation stops, and the result is not shown.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from panel.io.document import unlocked

from core_compiler.runtime import heap
from widgets.encode import finite
from widgets.requests import Requests
from workbench import views
from workbench.app.offers import Offers
from workbench.queries.run import Run
from workbench.state.url_text import short
from workbench.state.view_state import VIEWS, ViewState
from workbench.ui import navigation
from workbench.ui.prefetch import prefetch_tasks
from workbench.ui.updates import Message, Update, UpdateTracker, lock_all, unexpected

if TYPE_CHECKING:
    from workbench.app.page import Page

log = logging.getLogger("workbench")

#: Updates that are ready within this time (seconds) are shown together.
BATCH_SECONDS = 0.1
#: How long after connecting the browser has the machine to itself (milliseconds).
QUIET_MS_AFTER_OPENING = 400


class ShownViews:
    """The state of a page's views.

    ``messages``: messages of views in place of data; ``offers``: recordings to compare with;
    ``not_executable``: why its program is not executed from here (None: not known yet).
    """

    def __init__(self, page: Page):
        self._page = page
        self.messages: dict[str, Message] = {}
        self.offers = Offers(page.workspace)
        self.not_executable: str | None = None
        self._tracker = UpdateTracker()
        self._selections: dict[str, dict[str, Any]] = {}
        self._states: dict[str, dict[str, Any]] = {}
        # States reported by views that the view state does not have yet.
        self._pending_states: Counter[str] = Counter()
        self._generation = 0

    def listen(self) -> None:
        """Watch the views for messages."""
        for name in VIEWS:
            view = self._page.roots[name]
            view.param.watch(partial(self._on_selection, name), "selection")
            view.param.watch(partial(self._on_state, name), "state")
            if hasattr(views.module(name), "answer"):
                requests = Requests(partial(self._answer, name))
                view.param.watch(partial(self._on_request, name, requests), "request")

    # -- data sent to the views ------------------------------------------------------------------

    def clear(self) -> None:
        """Forget what is shown."""
        self._tracker.clear()
        self.not_executable = None

    def outdate(self) -> None:
        """Invalidate the running derivation."""
        self._generation += 1

    def begin(self) -> None:
        """Derive what the page's view state shows."""
        page = self._page
        alone = page.view_state.panes == ("overview",) and not page.view_state.shows_two("overview")
        if page.browser.is_making and alone and _is_free(page.run):
            self._derive(self._generation, page.view_state, page.run)  # takes milliseconds
            if page.run is not None:
                rest = partial(self._submit, self._offer_and_prefetch)
                page.browser.when_ready(
                    lambda: page.document.add_timeout_callback(rest, QUIET_MS_AFTER_OPENING)
                )
        else:
            self._submit(self._work)

    def _submit(self, work: Callable[[int, ViewState, Run | None], None]) -> None:
        """Run ``work`` for the current state in the page's thread."""
        page = self._page
        page.run_in_page_thread(partial(work, self._generation, page.view_state, page.run))

    def _work(self, generation: int, view_state: ViewState, run: Run | None) -> None:
        page = self._page
        try:
            self._derive(generation, view_state, run)
            self._offer_and_prefetch(generation, view_state, run)
        except Exception as error:  # a thread would lose it, and the page stay empty
            log.exception("the page could not be derived")
            message = unexpected(error)
            page.browser.run_on_loop(lambda: page.show_message(message, error=True))

    def _offer_and_prefetch(self, generation: int, view_state: ViewState, run: Run | None) -> None:
        """Find recordings to compare with, then prefetch, once the views are up to date."""
        if run is None:
            return
        known, self.not_executable = (self.not_executable, self._page.workspace.not_executable(run))
        if self.offers.refresh(run, view_state) or known != self.not_executable:
            self._page.browser.run_on_loop(partial(self._show_offers, generation))
        self._prefetch(generation, view_state, run)

    def _show_offers(self, generation: int) -> None:
        if generation == self._generation:
            self._page.show_bar()

    def _derive(self, generation: int, view_state: ViewState, run: Run | None) -> None:
        """Derive the changes, then show them on the loop."""
        page = self._page
        messages: dict[str, Message] = {}
        made: list[Update] = []
        began = time.perf_counter()
        if run is not None:
            for name in view_state.panes:
                if hasattr(views.module(name), "choices"):
                    made.append(Update(name, {"detail": self.choices(name)}))
            for update in self._tracker.updates(view_state, run, page.other, messages):
                if generation != self._generation:
                    return
                made.append(update)
                if time.perf_counter() - began > BATCH_SECONDS:
                    page.browser.run_on_loop(partial(self._apply, generation, view_state, made))
                    made, began = [], time.perf_counter()
        page.browser.run_on_loop(partial(self._apply, generation, view_state, made, messages))

    def choices(self, name: str) -> str:
        """Return the ``detail`` of a view that compares or searches.

        It has the library, what may run here, the state of its search, and the data for an upload.
        """
        page = self._page
        found = views.module(name).choices(page.workspace.entries())
        job = page.background_jobs.job(name)
        search = page.searches.facts(name, None if job is None else job.facts)
        may = not page.viewer
        more = {
            "may_run": may and page.workspace.runs_code,
            "search": search,
            "token": page.workspace.token if may else "",
        }
        return json.dumps(finite({**found, **more}))

    def _prefetch(self, generation: int, view_state: ViewState, run: Run) -> None:
        """Prefetch the states that the next keys lead to, piece by piece, while idle."""
        with run.lock:
            work = list(prefetch_tasks(run, view_state)) if run.version.stages else []
        self._prefetch_next(generation, run, iter(work))

    def _prefetch_next(self, generation: int, run: Run, work: Iterator[Callable[[], Any]]) -> None:
        """Make the next piece, then queue the others behind any commands that have arrived."""
        if generation != self._generation:
            return
        task = next(work, None)
        if task is None:
            heap.trim()
            return
        # Errors in a stage are reported when it is shown.
        with suppress(Exception), run.lock:
            task()
        time.sleep(0)  # yield to the server's loop
        self._page.run_in_page_thread(partial(self._prefetch_next, generation, run, work))

    def _apply(
        self,
        generation: int,
        view_state: ViewState,
        made: list[Update],
        messages: dict[str, Message] | None = None,
    ) -> None:
        """Show the updates made for ``view_state`` in one message, so that the browser draws once.

        ``messages``: messages in place of views; the updates then cover the whole view state.
        """
        if generation != self._generation:
            return
        with unlocked():
            for update in made:
                if "state" in update.values and self._is_old_state(update.name, view_state):
                    continue
                self._update(update.name, update.values)
                self._tracker.mark_sent(update)
            if messages is not None:
                self.messages = messages
                self._page.show_bar()

    def _is_old_state(self, name: str, view_state: ViewState) -> bool:
        """Return whether the user has changed the view since ``view_state`` was shown.

        The data of a live run is derived all the time, and must not undo the change.
        """
        current = self._page.view_state.own_state(name)
        return bool(self._pending_states[name]) or current != view_state.own_state(name)

    def _update(self, name: str, updates: dict[str, Any]) -> None:
        root = self._page.roots[name]
        if "selection" in updates:
            self._selections[name] = updates["selection"]
        if "state" in updates:
            self._states[name] = updates["state"]
        changed = {k: v for k, v in updates.items() if getattr(root, k) != v}
        if changed:
            self._page.browser.set(name, **changed)

    # -- messages from the views -----------------------------------------------------------------

    def note_message(self, name: str, message: Mapping[str, Any]) -> None:
        """Note that component ``name`` sent a message that may select, with a number."""
        self._tracker.note_message(name, message)

    def _on_selection(self, name: str, event: Any) -> None:
        chosen = dict(event.new or {})
        self.note_message(name, chosen)
        run = self._page.run
        if run is None or chosen == self._selections.get(name):
            return
        self._selections[name] = chosen
        self._page.move(lambda _, s: navigation.apply_selection(run, s, name, chosen))

    def _on_state(self, name: str, event: Any) -> None:
        if event.new != self._states.get(name):
            self._pending_states[name] += 1
            self._page.run_in_order(lambda _: self._keep_state(name, event.new))

    def _keep_state(self, name: str, state: Any) -> None:
        page = self._page
        self._pending_states[name] -= 1
        if page.view_state.own_state(name) == state:
            return
        previous, page.view_state = page.view_state, page.view_state.remember(name, state or {})
        text = page.view_state.remembered_text(name)
        if text and not short(text) and short(previous.remembered_text(name)):
            what = f"{VIEWS[name].title}: its state is too large for the URL of this page"
            page.show_message({"what": what, "fix": "it is lost on reload, unless you run it"})
        page.show_bar()

    def _on_request(self, name: str, requests: Requests, event: Any) -> None:
        page = self._page

        def reply() -> None:
            response = requests.answer(event.new)
            if response is not None:
                page.browser.run_on_loop(lambda: page.browser.set(name, response=response))

        page.run_in_page_thread(reply)

    def _answer(self, name: str, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request of view ``name``, in the page's thread."""
        page = self._page
        run, other, view_state = page.run, page.other, page.view_state
        if run is None:
            raise ValueError("no recording is open")
        runs = views.runs_for(name, view_state, run, other)
        with lock_all(*runs):
            answer = views.answer(name, runs, view_state, dict(request))
        if name == "pipeline":
            page.workspace.typed.remember_code(page.user, request, answer)
        return answer


def _is_free(run: Run | None) -> bool:
    """Return whether no thread derives anything from a recording at this moment."""
    if run is None or not run.lock.acquire(blocking=False):
        return run is None
    run.lock.release()
    return True
