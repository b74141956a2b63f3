"""Updates of a page: growth of the shown recordings, progress of the followed job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core_compiler.support.errors import UserError
from workbench.app import runs, searches
from workbench.app.compiles import Compile
from workbench.app.turns import Result
from workbench.queries.run import Run
from workbench.state.view_state import ViewState

if TYPE_CHECKING:
    from workbench.app.page import Page

#: The time for which a file may be unreadable before the page reports it: a file that is being
#: rewritten or copied is incomplete (seconds).
PATIENCE = 3.0


@dataclass
class _Changes:
    """The result of a look.

    ``replaced``: recordings whose files were replaced, with the new ones; ``problem``: why one
    cannot be read any more; ``search_progress``: the report of a search.
    """

    replaced: list[tuple[Run, Run]] = field(default_factory=list)
    problem: UserError | None = None
    search_progress: str = ""


class Growth:
    """The watcher of a page; it looks when called. ``lost``: shown recordings that were deleted."""

    def __init__(self, page: Page):
        self._page = page
        self.lost: set[Run] = set()
        self._held: set[Compile] = set()  # shown, waiting for a command
        self._seen: list[tuple] = []  # versions of the shown recordings
        self._is_checking = False
        self._broken: dict[Run, float] = {}  # unreadable recordings, and when to report them

    def check(self) -> None:
        """Show the growth of recordings, and the outcome of jobs that have ended."""
        page = self._page
        page.guard(self._report_deleted)
        changes = any(run.live or run.is_touched or run in self._broken for run in self._runs())
        changes = changes or bool(page.job or page.background_jobs)
        if not self._is_checking and (changes or self._seen != self._versions()):
            self._is_checking = True
            page.run_in_order(self._apply, self._collect_changes)

    def keep_held_alive(self) -> None:
        """Keep a held compile alive while a page that has shown it is open."""
        job = self._page.job
        if job is not None and job.job.get("hold"):
            self._held.add(job)
        self._held = {held for held in self._held if held.running}
        for held in self._held:
            held.mark_viewed()

    def _report_deleted(self) -> None:
        """Report, once, that a shown recording was deleted."""
        page = self._page
        for run in (page.run, page.other):
            if run is None or run.path.exists() != (run in self.lost):
                continue
            if run in self.lost:
                self.lost.remove(run)
            else:
                self.lost.add(run)
                library = page.workspace.library
                page.show_message(runs.lost(library, library.name(run.path), page.viewer))
            page.show_bar()

    def _runs(self) -> list[Run]:
        """Return the shown recordings that may still grow."""
        shown = (self._page.run, self._page.other)
        return [run for run in shown if run is not None and run not in self.lost]

    def _versions(self) -> list[tuple]:
        """Return the versions of the shown recordings.

        Other pages read the same recordings, so each page detects growth by comparing versions.
        """
        return [(run.path, run.version, run.status) for run in self._runs()]

    def _grown(self) -> bool:
        before, self._seen = self._seen, self._versions()
        return before != self._seen

    def _collect_changes(self) -> _Changes:
        """Refresh the recordings and collect other changes, in the page's thread."""
        page, changes = self._page, _Changes()
        for run in self._runs():
            try:
                run.refresh()
                self._broken.pop(run, None)
            except UserError:
                self._reopen(run, changes)
        if page.searches.runs(searches.WITH_PROGRESS):
            changes.search_progress = page.shown.choices(searches.WITH_PROGRESS)
        return changes

    def _reopen(self, run: Run, changes: _Changes) -> None:
        """Open the file that has replaced a recording.

        While it cannot be read it may be incomplete: the error is reported once, after a delay.
        """
        workspace = self._page.workspace
        try:
            found = workspace.acquire(run.path)
        except UserError as problem:
            if time.monotonic() > self._broken.setdefault(run, time.monotonic() + PATIENCE):
                self._broken[run], changes.problem = math.inf, problem
            return
        self._broken.pop(run, None)
        if found is run:  # the file is the same recording after all
            workspace.release(found)
        else:
            changes.replaced.append((run, found))

    def _show_replacement(self, old: Run, new: Run) -> None:
        """Show the recording that has replaced another."""
        page = self._page
        if old not in (page.run, page.other):  # the page shows something else now
            page.workspace.release(new)
            return
        page.workspace.release(old)
        if old is page.other:
            page.other = new
            page.refresh()
        if old is page.run:
            page.show_recording(new)
        page.show_message(
            {"what": "The recording was replaced: this is the new one.", "where": new.path.name}
        )

    def _apply(self, result: Result) -> None:
        self._is_checking = False
        changes, page = result(), self._page
        for old, new in changes.replaced:
            self._show_replacement(old, new)
        if changes.problem is not None:
            page.show_message(changes.problem.to_json()["error"], error=True)
        if page.run is None and page.job is not None:
            path = page.job.path
            if path.exists() and page.job.running:
                self._quietly(lambda: page.show_recording(page.workspace.acquire(path)))
            elif not page.job.running:
                self._ended()
                return
        shown_path = page.run.path if page.run is not None else None
        stages = next((version.stages for path, version, _ in self._seen if path == shown_path), 0)
        if page.run is not None and self._grown():
            self._follow_newest_stage(page.run, stages)
            page.refresh()
        elif page.reported_job is not None:
            page.show_bar()
            if changes.search_progress and page.searches.runs(searches.WITH_PROGRESS):
                page.browser.set(searches.WITH_PROGRESS, detail=changes.search_progress)
        if page.job is not None and not page.job.running:
            self._ended()
        while (ended := page.background_jobs.pop_ended()) is not None:
            job, then = ended
            then(job)

    def _follow_newest_stage(self, run: Run, stages: int) -> None:
        """Show the newest stage of a stepped compile, unless the user chose an earlier one."""
        page = self._page
        held = page.job is not None and page.job.job.get("hold")
        newest = run.version.stages - 1
        if held and newest >= stages and page.view_state.stage in (None, stages - 1):
            page.view_state = page.view_state.with_(stage=newest, rewrite=None)

    def _quietly(self, action: Callable[[], None]) -> None:
        with suppress(UserError):  # the recording is just being created
            action()

    def _ended(self) -> None:
        page = self._page
        job, page.job = page.job, None
        assert job is not None
        if page.run is None and job.path.exists():
            self._quietly(lambda: page.show_recording(page.workspace.acquire(job.path)))
        if page.run is not None:
            page.run.refresh(wait=False)
            page.restore_stage()
        if job.outcome == "failed" and job.error is not None:
            if page.run is None:
                page.view_state = page.view_state.without_run()
            page.show_message(job.error, error=True)
        elif job.outcome == "cancelled":
            fix = "the finished stages are kept" if page.run is not None else ""
            if page.run is None:
                page.view_state = ViewState()
                page.show_start()
            page.show_message({"what": "The compile was cancelled.", "fix": fix})
        page.refresh()
