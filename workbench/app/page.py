"""An open page: its state, and the commands it receives.

Commands arrive on the server's loop, which all pages share: it does not wait for other pages that
are deriving data from a recording. Data that commands need is read in a thread of the page's own,
in order of arrival. The views' data is in :mod:`workbench.app.shown`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from core_compiler.support.errors import UserError
from widgets.encode import finite
from workbench.advice import findings
from workbench.advice.finding import NOTE, Finding
from workbench.app import commands, components, rerun, runs, searches, tour
from workbench.app.access import EDITOR
from workbench.app.asides import BackgroundJobs
from workbench.app.browser import Browser
from workbench.app.compiles import Compile
from workbench.app.growth import Growth
from workbench.app.shown import ShownViews
from workbench.app.turns import QueuedTask, Result, TaskQueue
from workbench.app.workspace import Workspace
from workbench.queries import executions
from workbench.queries.run import Run
from workbench.state.view_state import PRESETS, VIEWS, ViewState
from workbench.ui import navigation
from workbench.ui.updates import unexpected

log = logging.getLogger("workbench")

#: The time for which the loop waits for a recording that is being prefetched (seconds).
PATIENCE = 0.01
#: The key of the execution of the shown recording among the background jobs.
EXECUTION = "execution"
#: The interval at which a growing recording and a running compile are checked, and messages that
#: Panel may have held back are sent (milliseconds).
POLL = 400
#: Findings in the note that is shown until the page is drawn.
FINDINGS = 3


class Page:
    """A session.

    ``roots`` are its components by name; ``document`` is its Bokeh document; ``user`` and ``role``
    those of the signed-in user.
    """

    def __init__(
        self,
        workspace: Workspace,
        document: Any,
        query: str = "",
        user: str = "",
        role: str = EDITOR,
    ):
        self.workspace, self.document = workspace, document
        self.user, self.viewer = user, role != EDITOR
        self.view_state = ViewState()
        self.run: Run | None = None
        self.other: Run | None = None
        self.job: Compile | None = None  # the compile that writes the shown recording
        self.problem: dict[str, str] | None = None
        self.origin: rerun.Origin | None = None  # the recording that the start page compiles again
        self._previous_state: ViewState | None = None  # the view state for the recording being made
        self.background_jobs = BackgroundJobs()
        self.searches = searches.Searches()
        self._tour: dict[str, Any] | None = None
        self._commands = 0  # received: a reply is new even if the state is the same
        self.roots: dict[str, Any] = {
            name: make(sizing_mode="stretch_both")
            for name, make in {**components.FRAME, **components.COMPONENTS}.items()
        }
        self._layout: Any = None
        self._notice: dict[str, Any] | None = None
        self._listing = runs.Listing(
            workspace.library,
            self._show_runs,
            lambda error: self.browser.run_on_loop(lambda: self._show_error(error)),
            self.viewer,
        )
        self._push = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self.browser: Browser = Browser(document, self.roots)
        self.shown = ShownViews(self)
        self._queue = TaskQueue(self.run_in_page_thread, self.browser.run_on_loop)
        self.growth = Growth(self)
        self._listen()
        with self.browser.making():
            self.load(ViewState.parse(query))

    def first_modules(self) -> list[str]:
        """Return the modules that the first view needs, for the browser to preload."""
        if self.run is None:
            return ["bar", "start"]
        return ["bar", "passes", "inspector", *self.view_state.panes]

    def opening(self) -> dict[str, Any]:
        """Return the text shown until the page is drawn: ``title`` and ``findings``.

        There are no findings if other pages hold the recording. The views report errors in reading
        them.
        """
        run = self.run
        if run is None:
            return {"title": "Opening the workbench", "findings": []}
        found: list[Finding] = []
        if run.lock.acquire(timeout=PATIENCE):
            try:
                found = [each for each in findings.problems(run) if each.severity != NOTE]
            except Exception:
                log.debug("no findings in the note of %s", run.path, exc_info=True)
            finally:
                run.lock.release()
        return {"title": f"Opening {run.path.name}", "findings": found[:FINDINGS]}

    # -- events ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        for name, root in self.roots.items():
            root.param.watch(partial(self._on_command, name), "command")
        self.shown.listen()
        self.document.add_periodic_callback(self._poll, POLL)
        self.document.on_session_destroyed(self._close)

    def _close(self, _context: Any) -> None:
        self.shown.outdate()
        self._listing.end()
        self._thread.shutdown(wait=False, cancel_futures=True)
        for run in (self.run, self.other):
            if run is not None:
                self.workspace.release(run)

    def _on_command(self, component: str, event: Any) -> None:
        try:
            command = json.loads(event.new)
            self.shown.note_message(component, command)
            command.pop("n", None)
            name = str(command.pop("name", ""))
        except (ValueError, AttributeError, TypeError):
            return
        if name == "ready":  # releases the messages that waited for the browser
            self.browser.mark_ready()
        elif navigation.known(name):
            self.move(
                lambda r, s: navigation.move(name, r, s, command),
                name not in navigation.WITHOUT_HISTORY,
                navigation.is_quick(name, command),
            )
        else:
            open_names = {self.view_state.run, self.view_state.other, ""}
            wanted = [
                each for each in commands.opened_recordings(name, command) if each not in open_names
            ]
            self.run_in_order(
                partial(self._run_command, name, command),
                partial(self.workspace.acquire_all, wanted) if wanted else None,
            )

    def _run_command(self, name: str, command: dict[str, Any], result: Result) -> None:
        """Run a command, with the recordings open that it will show."""
        held = result() or []
        self._commands += 1
        try:
            commands.run(name, self, command, self.viewer)
        finally:
            for run in held:
                self.workspace.release(run)

    def run_in_order(
        self,
        then: Callable[[Result], None],
        work: Callable[[], Any] | None = None,
        urgent: bool = False,
    ) -> None:
        """Run ``work`` in the page's thread after earlier commands, then ``then`` on the loop.

        ``then`` receives the result.

        ``urgent``: stop deriving the data of the current state.
        """
        if urgent:
            self.shown.outdate()
        self._queue.submit(
            QueuedTask(lambda result: self.guard(lambda: then(result)), work, urgent)
        )

    def run_on_library(self, then: Callable[[Result], None], work: Callable[[], Any]) -> None:
        """Run as :meth:`run_in_order`, but first stop listing the library in the same thread."""
        self._listing.end()
        self.run_in_order(then, work)

    def move(
        self,
        move: Callable[[Run | None, ViewState], ViewState],
        push: bool = True,
        quick: bool = False,
    ) -> None:
        """Go to the state that a command leads to; report if there is nothing further.

        ``quick``: it takes no time, so it runs on the loop if the recording is free.
        """

        def work() -> ViewState | None:
            run = self.run
            if run is None and self.job is None:
                return None
            with nullcontext() if run is None else run.lock:
                return move(run, self.view_state)

        def then(result: Result) -> None:
            self._commands += 1
            try:
                state = result()
            except Exception as error:
                self.refresh()  # its derivation was interrupted
                if not isinstance(error, navigation.NoTarget):
                    raise
                self.show_message({"what": str(error)})
                return
            if state is not None:
                self.go(state, push)

        run = self.run
        if quick and self._queue.is_idle:
            self.shown.outdate()  # stops prefetching
            if run is None or run.lock.acquire(timeout=PATIENCE):
                try:
                    self.run_in_order(lambda _: then(work))
                finally:
                    if run is not None:
                        run.lock.release()
                return
        self.run_in_order(then, work, urgent=True)

    def guard(self, action: Callable[[], None]) -> None:
        """Run an action; any error is reported on the page, and the page continues."""
        try:
            action()
        except UserError as error:
            self.show_message(error.to_json()["error"], error=True)
        except Exception as error:
            log.exception("a command failed")
            self.show_message(unexpected(error), error=True)

    def show_message(self, what: Mapping[str, Any], error: bool = False) -> None:
        self._notice = {"error": error, **what, "n": time.time()}
        if self.run is None and error:
            self.problem = dict(what)
            self.show_start()
        self.show_bar()

    # -- navigation ------------------------------------------------------------------------------

    def go(self, state: ViewState, push: bool = True) -> None:
        """Show another view state; ``push``: add it to the browser's history."""
        self._push = push and state != self.view_state
        self.view_state = state
        self._open_other()
        self.refresh()

    def load(self, state: ViewState, push: bool = False) -> None:
        """Show the recording that ``state`` names, or the start page."""
        commands.leave(self)
        self._push = push
        if self.run is not None:
            self.workspace.release(self.run)
        self.run, self.job, self.problem = None, None, None
        self.origin, self._previous_state = None, None
        self._listing.end()
        self._tour = None
        self.shown.clear()
        if state.run:
            self.guard(partial(self._open_recording, state.run))
        found = self.run is not None or self.job is not None  # a compile that has yet to write it
        self.view_state = state if found else state.without_run()
        if not found:
            self.show_start()
        self._open_other()
        self._find_searches()
        self.refresh()

    def _find_searches(self) -> None:
        """Follow the running searches in the shown recording, of any user."""
        if self.run is not None:
            for view, job in searches.running(self.workspace.compiles, self.run.path):
                self.follow_search(view, job)
            running = self.workspace.compiles.of(rerun.execution_key(self.run.path))
            if running is not None and running.running:
                self.follow_execution(running)

    def follow_search(self, view: str, job: Compile) -> None:
        self.background_jobs.begin(view, job, partial(self._search_ended, view))
        self.searches.begun(view, job)

    def follow_execution(self, job: Compile) -> None:
        self.background_jobs.begin(EXECUTION, job, self._execution_ended)

    def _execution_ended(self, job: Compile) -> None:
        """Refresh the page after an execution: the new times are in the recording."""
        if job.outcome == "failed" and job.error is not None:
            self.show_message(job.error, error=True)
        elif job.outcome == "cancelled":
            self.show_message({"what": "The execution was cancelled; the recording is unchanged."})
        elif self.run is not None:
            self.run.refresh(wait=False)
            self.show_message({"what": executions.describe_latest(self.run)})
        self.refresh()

    def _open_other(self) -> None:
        """Open the recording that the view state compares with."""
        other_name, current = self.view_state.other, self.other
        if current is not None and self.workspace.library.name(current.path) != other_name:
            self.workspace.release(current)
            self.other = None
        if not other_name or self.other is not None:
            return
        self.view_state = self.view_state.with_(other="")  # if it cannot be opened
        self.guard(partial(self._load_other, other_name))

    def _load_other(self, name: str) -> None:
        self.other = self.workspace.acquire(self.workspace.path(name))
        self.view_state = self.view_state.with_(other=self.workspace.library.name(self.other.path))

    def _open_recording(self, name: str) -> None:
        path = self.workspace.path(name)
        job = self.workspace.compiles.of(path)
        is_running = job is not None and job.running
        if not is_running:
            self.workspace.check_deleted(path)
        self.job = job
        try:
            self.run = self.workspace.acquire(path)
        except UserError:
            if not is_running:
                raise  # a compile that has just begun will write it

    def refresh(self) -> None:
        """Show the changes in the visible views."""
        self.shown.outdate()
        layout = self.view_state.panes, self.view_state.zoom, self.view_state.fold, self.run is None
        if layout != self._layout:
            # A view needs its size before it gets data: it centres the selection.
            self._layout = layout
            self.show_bar(done=False)
        if not self._queue.has_urgent:  # the waiting command will show its result
            self.shown.begin()

    def run_in_page_thread(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the page's thread, whatever is shown by then."""
        with suppress(RuntimeError):  # the page is closed
            self._thread.submit(work)

    # -- the bar and the start page --------------------------------------------------------------

    def show_bar(self, done: bool = True) -> None:
        """Update the bar; ``done``: all views show the view state, so it stops indicating work."""
        run, job, state = self.run, self.job, self.view_state
        shown: dict[str, Any] | None = None
        if run is not None:
            meta = run.meta()
            status = "" if run.status == "finished" else _STATUS.get(run.status, run.status)
            if run.live and run.version.iterations:
                status = "training"
            status = "deleted" if run in self.growth.lost else status
            detail = meta.get("target"), meta.get("mode"), run.path.name, status
            shown = {
                "execute": self.shown.not_executable,
                "model": str(meta.get("model", run.path.stem)),
                "path": str(run.path),
                "detail": " · ".join(str(d) for d in detail if d),
                "training": meta.get("mode") == "training",
            }
        elif job is not None:
            shown = {"model": str(job.job["model"]), "path": str(job.path), "detail": "starting"}
        messages = self.shown.messages
        if run is None and job is not None:
            messages = {n: {"what": f"{job.progress['what']} …"} for n in state.panes}
        facts = {
            "run": shown,
            "start": run is None and job is None,
            "query": state.query(),
            "push": self._push,
            "done": done and not self._queue.has_urgent,
            "panes": state.panes,
            "zoom": state.zoom,
            "fold": state.fold,
            "views": [{"name": n, "title": v.title, "key": v.key} for n, v in VIEWS.items()],
            "presets": [[key, title, panes] for key, (title, panes) in PRESETS.items()],
            "wide": [n for n, view in VIEWS.items() if view.wide],
            "messages": messages,
            "notice": self._notice,
            "job": self.job_facts(),
            "user": self.user,
            "viewer": self.viewer,
            "tour": self._tour_facts(),
            "commands": self._commands,
            "two": None if run is None else self.shown.offers.facts(run, state, self.other),
        }
        self.browser.set("bar", data=json.dumps(finite(facts)))
        self._push = False

    @property
    def reported_job(self) -> tuple[str, Compile] | None:
        """Return the job that the bar reports, with its view; None if there is none.

        It is the compile of the shown recording (view ""), else the newest background job.
        """
        if self.job is not None and self.job.running:
            return "", self.job
        return self.background_jobs.newest()

    def job_facts(self) -> dict[str, Any] | None:
        reported_job = self.reported_job
        return None if reported_job is None else {**reported_job[1].facts, "of": reported_job[0]}

    def begin_tour(self) -> None:
        """Start the tour of the shown recording, once that is complete."""
        self._tour = {"n": time.time(), "steps": []}
        self.show_bar(done=False)

    def _tour_facts(self) -> dict[str, Any] | None:
        """Return the requested tour; its steps exist when its recording is complete."""
        run = self.run
        if self._tour is None or self._tour["steps"] or (self.job is not None and self.job.running):
            return self._tour
        if run is None or run.status != "finished":
            self._tour = None  # the compile failed or was cancelled, which is reported
        elif not self._tour.get("asked"):
            self._tour = {**self._tour, "asked": True}
            self.run_in_order(self._set_tour_steps, partial(_steps, run, self.view_state.run))
        return self._tour

    def _set_tour_steps(self, result: Result) -> None:
        if self._tour is not None:
            self._tour = {**self._tour, "steps": result()}
            self.show_bar()

    def show_start(self) -> None:
        """Show the start page; model and options of a recording to compile again are filled in."""
        facts = self.workspace.start_page()
        facts |= {
            "error": self.problem,
            "user": self.user,
            "viewer": self.viewer,
            "again": None if self.origin is None else self.origin.to_json(),
        }
        self.browser.set("start", data=json.dumps(finite(facts)))
        self.list_runs()

    def show_library_page(self, state: ViewState, push: bool) -> None:
        """Show another page of the library."""
        self.view_state, self._push = state, push
        self.list_runs()
        self.show_bar()

    def list_runs(self, quick: bool = False) -> None:
        """Show the library, and new runs as they are read."""
        self.run_in_page_thread(self._listing.begin(self.view_state, quick))

    def _show_runs(self, detail: str) -> None:
        if detail != self.roots["start"].detail:
            self.browser.run_on_loop(lambda: self.browser.set("start", detail=detail))

    def _show_error(self, what: Mapping[str, Any]) -> None:
        self._notice = {"error": True, **what, "n": time.time()}
        self.show_bar()

    def _poll(self) -> None:
        self.browser.beat()
        self.growth.keep_held_alive()
        if self.run is not None or self.job is not None:
            self.growth.check()
        elif self.browser.is_ready and self._listing.is_old:
            self.list_runs(quick=True)

    def show_recording(self, run: Run) -> None:
        """Show the recording of a compile, which now exists."""
        self.run = run
        self.shown.clear()
        self.refresh()

    # -- compiling ---------------------------------------------------------------------------------

    def start(self, job: dict[str, Any], previous_state: ViewState | None = None) -> None:
        """Compile into a new recording and show it as it grows.

        It is shown in the panes of ``previous_state``, and at the end at its pass.
        """
        made = self.workspace.compiles.start(job, self.user)
        commands.leave(self)
        self._listing.end()
        if self.run is not None:
            self.workspace.release(self.run)
        self.run, self.job, self._tour = None, made, None
        self.growth.keep_held_alive()
        self.shown.clear()
        self.shown.messages = {}
        self.view_state = rerun.state_while_compiling(
            previous_state, self.workspace.library.name(made.path)
        )
        self._previous_state, self.origin = previous_state, None
        self._push = True
        self.show_bar()

    def restore_stage(self) -> None:
        """Show, after a repeated compile, the pass that was shown of the original recording.

        It does nothing if the user has gone elsewhere.
        """
        previous_state, self._previous_state = self._previous_state, None
        if previous_state is None or self.run is None or self.view_state.stage is not None:
            return
        found = next(
            (s.index for s in self.run.stages() if s.pass_name == previous_state.find), None
        )
        self.view_state = self.view_state.with_(stage=found)

    def _search_ended(self, view: str, job: Compile) -> None:
        self.searches.ended(view, job)
        self.refresh()
        if job.outcome == "failed" and job.error is not None and view not in self.view_state.panes:
            self.show_message(job.error, error=True)


def _steps(run: Run, name: str) -> list[dict[str, Any]]:
    with run.lock:
        return tour.steps(run, name)


_STATUS = {
    "recording": "compiling",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}
