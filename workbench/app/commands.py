"""The commands of a page, besides the navigation of :mod:`workbench.ui.navigation`.

Each is a function of the page and the command, which comes from the browser and is checked here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError
from widgets.encode import finite
from workbench.app import rerun, runs, tour
from workbench.app.access import Refused
from workbench.app.compiles import Compile
from workbench.app.run_query import MAX_TEXT
from workbench.app.turns import Result
from workbench.app.workspace import UntrustedCode
from workbench.model import first_bad_pass
from workbench.state.view_state import ViewState
from workbench.ui import navigation
from workbench.ui.updates import lock_all, message_for_error
from workbench.views import search

if TYPE_CHECKING:
    from workbench.app.page import Page

Command = dict[str, Any]
#: The views that compile again with an edit, and report its progress.
EDITING = ("pipeline", "overview")
#: The key of such a compile among the page's background jobs.
EDITED = "pipeline"


# -- state of the page ----------------------------------------------------------------------------


def url(page: Page, command: Command) -> None:
    """Show the address that was entered, or that the back button restored."""
    state = ViewState.parse(str(command.get("query", "")))
    if state.run != page.view_state.run:
        page.load(state)
    elif page.run is None and page.job is None:
        page.show_library_page(state.without_run(), push=False)
    else:
        page.go(state, push=False)


def home(page: Page, _command: Command) -> None:
    page.load(ViewState(), push=True)


def compare(page: Page, command: Command) -> None:
    """Compare with the recording ``with`` (a name of the library or a path); "": stop comparing.

    ``view``: a view that then shows both.
    """
    if page.run is not None:
        name = str(command.get("with", "")).strip()
        name = page.workspace.library.name(page.workspace.path(name)) if name else ""
        state = (
            navigation.two(page.view_state, {**command, "on": True}) if name else page.view_state
        )
        page.go(state.with_(other=name))


def swap(page: Page, _command: Command) -> None:
    """Open the recording that is compared with, and compare it with this one."""
    if page.run is not None and page.other is not None:
        current = page.view_state
        swapped = ViewState(
            run=current.other,
            other=current.run,
            panes=current.panes,
            fold=current.fold,
            views=current.views,
        )
        page.load(swapped, push=True)


def search_for(page: Page, command: Command) -> None:
    text, run, state = str(command.get("text", "")), page.run, page.view_state
    if run is None:
        return

    def run_search() -> None:
        results: dict[str, Any] = {"text": text, "asking": command.get("asking"), "hits": []}
        try:
            with run.lock:
                results |= asdict(search.find(run, state, text))
        except Exception as error:  # an expression that is invalid while it is typed, or a bug
            results["problem"] = message_for_error("search", error)
        answer = json.dumps(results)
        page.browser.run_on_loop(lambda: page.browser.set("bar", detail=answer))
        page.browser.run_on_loop(page.show_bar)

    page.run_in_page_thread(run_search)


# -- opening and compiling ------------------------------------------------------------------------


def open_(page: Page, command: Command) -> None:
    what = str(command.get("what", "")).strip()
    page.problem = None
    if what.lower().endswith(".run"):
        path = page.workspace.path(what)
        page.load(ViewState(run=page.workspace.library.name(path)), push=True)
        return
    origin = page.origin if command.get("again") else None
    if origin is not None and origin.what == what:
        page.start(page.workspace.job(what, {**origin.options, **command}), origin.view_state)
    else:
        page.start(page.workspace.job(what, command))


def again(page: Page, _command: Command) -> None:
    """Show the start page with this recording's model and options filled in.

    The new recording is then shown in the same view state as this one.
    """
    origin = None if page.run is None else rerun.origin(page.workspace, page.run, page.view_state)
    page.load(ViewState(), push=True)
    page.origin = origin
    page.show_start()


def take_tour(page: Page, _command: Command) -> None:
    """Open the tour's recording, or compile it."""
    page.problem = None

    def then(entries: Result) -> None:
        suitable = [e for e in entries() if tour.is_suitable(e)]
        if suitable:
            page.load(ViewState(run=suitable[0].name), push=True)
        else:
            page.start(page.workspace.job(tour.MODEL, tour.OPTIONS))
        page.begin_tour()

    page.run_in_order(then, page.workspace.library.entries)


def execute(page: Page, command: Command) -> None:
    """Execute this recording's program once more and add its times to the recording.

    The views stay.

    Code that a foreign recording names runs only if the user allows it.
    """
    run = page.run
    if run is None:
        return

    def then(job: Result) -> None:
        try:
            page.follow_execution(page.workspace.compiles.start(job(), page.user))
            page.show_bar()
        except UntrustedCode as error:
            trust_action = {"label": "Run that code", "name": "execute", "data": {"trust": True}}
            page.show_message({**error.to_json()["error"], "act": trust_action}, error=True)

    page.run_in_order(then, lambda: rerun.execution(page.workspace, run, command))


def compile_again(page: Page, command: Command) -> None:
    """Compile again with an edited pipeline (``draft``); until it is done the page does not change.

    ``compare``: show the comparison then.
    """
    run = page.run
    if run is None:
        return
    command = {**command, "draft": dict(command.get("draft") or {})}

    def then(result: Result) -> None:
        try:
            job = result()
            if job["hold"]:  # it is shown while it runs
                page.start(job)
                return
            made = page.workspace.compiles.start(job, page.user)
        except UserError as error:
            ask = isinstance(error, UntrustedCode)
            _send_edit_status(page, {"state": "refused", **error.to_json(), "ask": ask})
            return
        start = str(command["draft"].get("start", ""))
        view = "compare" if command.get("compare") else ""
        page.background_jobs.begin(
            EDITED, made, lambda ended: _finish_edited_compile(page, ended, start, view)
        )
        _send_edit_status(page, {"state": "running"})

    page.run_in_order(then, lambda: rerun.job(page.workspace, run, command, page.user))


def _send_edit_status(page: Page, what: Mapping[str, Any]) -> None:
    # The same message is sent again: a user who repeated the command waits for it.
    facts = {**what, "run": page.run and page.run.path.name, "n": time.time()}
    for name in EDITING:
        page.browser.set(name, detail=json.dumps(finite(facts)))
    page.show_bar()


def _finish_edited_compile(page: Page, job: Compile, start: str, view: str) -> None:
    if job.outcome != "finished":
        report = rerun.failure(page.workspace, job)
        _send_edit_status(page, report)
        if not set(EDITING) & set(page.view_state.panes):
            page.show_message(report["error"], error=job.outcome == "failed")
        return
    _send_edit_status(page, {"state": "done"})
    page.load(rerun.state_of(page.workspace, page.view_state, job, start, view), push=True)


def step_held_compile(page: Page, command: Command) -> None:
    """Send a held compile its next action (``do``, see :mod:`workbench.model.stepping`)."""
    if page.job is not None:
        page.job.send_command(
            {"do": str(command.get("do", "")), "stops": list(page.view_state.stops)}
        )
        page.show_bar()


def cancel(page: Page, command: Command) -> None:
    """Cancel the background job of view ``of``; "": the compile of the shown recording."""
    view = str(command.get("of", ""))
    job = page.background_jobs.job(view) if view else page.job
    if job is not None:
        job.cancel()
        page.show_bar()


def leave(page: Page) -> None:
    """Stop following the background jobs, because another recording will be shown."""
    if page.background_jobs.job(EDITED) is not None:
        _send_edit_status(page, {"state": "done"})
    page.background_jobs.clear()
    page.searches.clear()


# -- searches -------------------------------------------------------------------------------------


def diverge(page: Page, command: Command) -> None:
    """Search the op in which the two shown training runs differ first."""
    run, other = page.run, page.other
    if run is None or other is None:
        return
    _begin_search(
        page,
        "divergence",
        {"a": str(run.path), "b": str(other.path)},
        lambda: page.workspace.search(run, other, trust=bool(command.get("trust"))),
    )


def bisect(page: Page, command: Command) -> None:
    """Show the view of the first bad pass (``beside`` another), and search it.

    Unless ``again`` is set, it searches only if no result is stored.
    """
    run = page.run
    if run is None:
        return
    if "bisect" not in page.view_state.panes:
        page.move(lambda r, s: navigation.move("show", r, s, {**command, "view": "bisect"}))
    has_result = first_bad_pass.newest(run.path, run.identity) is not None
    if command.get("again") or not (has_result or page.reported_job is not None):
        _begin_search(page, "bisect", {}, lambda: page.workspace.bisect(run, command))


def _begin_search(page: Page, view: str, facts: dict[str, Any], job: Callable[[], dict]) -> None:
    """Start the worker that searches, and show its progress in the view."""

    def work() -> dict:
        with lock_all(page.run, page.other):
            return job()

    def then(result: Result) -> None:
        try:
            page.follow_search(view, page.workspace.compiles.start(result(), page.user))
        except UserError as error:
            page.searches.refused(view, error, facts)
        page.refresh()

    page.run_in_order(then, work)


# -- the library ----------------------------------------------------------------------------------


def remove(page: Page, command: Command) -> None:
    def then(notice: Result) -> None:
        page.show_message(notice())
        page.list_runs()

    page.run_on_library(
        then, lambda: runs.delete_run(page.workspace.library, str(command.get("run", "")))
    )


def restore(page: Page, command: Command) -> None:
    def then(name: Result) -> None:
        page.show_message({"what": "The run was restored.", "where": name()})
        if page.run is None:
            page.list_runs()

    page.run_on_library(then, lambda: page.workspace.library.restore(str(command.get("token", ""))))


def purge(page: Page, command: Command) -> None:
    """Delete permanently the run that ``token`` names in the trash; "": all of them."""

    def then(count: Result) -> None:
        number = count()
        what = "1 run was" if number == 1 else f"{number:,} runs were"
        page.show_message({"what": f"{what} deleted permanently."})
        page.list_runs()

    page.run_on_library(then, lambda: page.workspace.library.purge(str(command.get("token", ""))))


def discard(page: Page, command: Command) -> None:
    """Delete an uploaded file permanently, by its ``token``."""

    def then(done: Result) -> None:
        done()
        page.list_runs()

    page.run_on_library(then, lambda: page.workspace.library.discard(str(command.get("token", ""))))


def annotate(page: Page, command: Command) -> None:
    def then(done: Result) -> None:
        done()
        page.list_runs()
        page.show_bar()

    page.run_on_library(then, lambda: runs.annotate(page.workspace.library, command))


def find_runs(page: Page, command: Command) -> None:
    """Run another search, or show another page of its results, on the start page."""
    if page.run is None and page.job is None:
        state = ViewState.of(
            {
                "find": str(command.get("find", ""))[:MAX_TEXT],
                "skip": str(command.get("skip") or ""),
                "shelf": str(command.get("shelf", "")),
            }
        )
        page.show_library_page(state, push=bool(command.get("push", True)))


# -- dispatch -------------------------------------------------------------------------------------

COMMANDS: Mapping[str, Callable[[Page, Command], None]] = {
    "url": url, "home": home, "search": search_for, "open": open_, "again": again,
    "compare": compare, "swap": swap, "execute": execute, "cancel": cancel, "remove": remove,
    "rerun": compile_again, "diverge": diverge, "bisect": bisect, "held": step_held_compile,
    "restore": restore, "purge": purge, "annotate": annotate, "runs": find_runs, "tour": take_tour,
    "discard": discard,
}  # fmt: skip

#: The commands of a viewer; ``open`` applies to recordings only.
VIEWER_COMMANDS = {"url", "home", "search", "open", "compare", "swap", "runs"}


def opened_recordings(name: str, command: Command) -> list[str]:
    """Return the recordings that a command shows, by their names."""
    if name == "url":
        state = ViewState.parse(str(command.get("query", "")))
        return [state.run, state.other]
    what = str(command.get({"open": "what", "compare": "with"}.get(name, ""), "")).strip()
    return [what] if what.lower().endswith(".run") else []


def run(name: str, page: Page, command: Command, viewer: bool = False) -> None:
    """Run the command ``name``, if it exists; Refused if a ``viewer`` may not."""
    if viewer and not _is_allowed_for_viewer(name, command):
        raise Refused(name)
    if name in COMMANDS:
        COMMANDS[name](page, command)


def _is_allowed_for_viewer(name: str, command: Command) -> bool:
    opens_recording = str(command.get("what", "")).strip().lower().endswith(".run")
    return name in VIEWER_COMMANDS and (name != "open" or opens_recording)
