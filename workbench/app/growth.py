"""What grows under a page: the recordings that it shows, the compile or search that it follows."""

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

#: How long a file may hold no recording before the page says so: one that is being written anew or
#: copied over holds half of one (seconds).
PATIENCE = 3.0


@dataclass
class _News:
    """``anew``: recordings that others were written in the place of, with these; ``problem``: why
    one cannot be read any more; ``telling``: what a search tells of itself."""

    anew: list[tuple[Run, Run]] = field(default_factory=list)
    problem: UserError | None = None
    telling: str = ""


class Growth:
    """Looks at it when it is told to.  ``lost``: what is shown, and was deleted meanwhile."""

    def __init__(self, page: Page):
        self._page = page
        self.lost: set[Run] = set()
        self._held: set[Compile] = set()  # that were shown, and wait for what they are told
        self._seen: list[tuple] = []  # how far the recordings had come that are shown
        self._looking = False
        self._broken: dict[Run, float] = {}  # that cannot be read, and when that was to be told

    def look(self) -> None:
        """Show what has grown, and how what has ended did."""
        page = self._page
        page.guard(self._look_for_files)
        news = any(run.live or run.is_touched or run in self._broken for run in self._runs())
        news = news or bool(page.job or page.asides)
        if not self._looking and (news or self._seen != self._versions()):
            self._looking = True
            page.in_turn(self._looked, self._read)

    def stay_with_held(self) -> None:
        """A compile that is held goes on as long as a page is there that has shown it."""
        job = self._page.job
        if job is not None and job.job.get("hold"):
            self._held.add(job)
        self._held = {held for held in self._held if held.running}
        for held in self._held:
            held.looked_at()

    def _look_for_files(self) -> None:
        """Say so, once, when a recording that is shown is deleted."""
        page = self._page
        for run in (page.run, page.other):
            if run is None or run.path.exists() != (run in self.lost):
                continue
            if run in self.lost:
                self.lost.remove(run)
            else:
                self.lost.add(run)
                library = page.workspace.library
                page.tell(runs.lost(library, library.name(run.path), page.viewer))
            page.show_bar()

    def _runs(self) -> list[Run]:
        """What is shown and may still grow."""
        shown = (self._page.run, self._page.other)
        return [run for run in shown if run is not None and run not in self.lost]

    def _versions(self) -> list[tuple]:
        """How far the shown recordings have come.  Other pages read them too: that one of them has
        grown is news to each page once."""
        return [(run.path, run.version, run.status) for run in self._runs()]

    def _grown(self) -> bool:
        before, self._seen = self._seen, self._versions()
        return before != self._seen

    def _read(self) -> _News:
        """In the page's thread: how far the recordings are, and what else is new."""
        page, news = self._page, _News()
        for run in self._runs():
            try:
                run.refresh()
                self._broken.pop(run, None)
            except UserError:
                self._open_anew(run, news)
        if page.searches.runs(searches.TELLING):
            news.telling = page.shown.choices(searches.TELLING)
        return news

    def _open_anew(self, run: Run, news: _News) -> None:
        """Open what lies in the place of a recording.  As long as that cannot be read it may be
        half written: what is wrong with it is told once, and not at once."""
        workspace = self._page.workspace
        try:
            found = workspace.acquire(run.path)
        except UserError as problem:
            if time.monotonic() > self._broken.setdefault(run, time.monotonic() + PATIENCE):
                self._broken[run], news.problem = math.inf, problem
            return
        self._broken.pop(run, None)
        if found is run:  # it was there after all
            workspace.release(found)
        else:
            news.anew.append((run, found))

    def _take_anew(self, old: Run, new: Run) -> None:
        """Show what was written in the place of a recording."""
        page = self._page
        if old not in (page.run, page.other):  # the page has gone elsewhere
            page.workspace.release(new)
            return
        page.workspace.release(old)
        if old is page.other:
            page.other = new
            page.refresh()
        if old is page.run:
            page.take(new)
        page.tell({"what": "The recording was written anew: this is the new one.",
                   "where": new.path.name})  # fmt: skip

    def _looked(self, result: Result) -> None:
        self._looking = False
        news, page = result(), self._page
        for old, new in news.anew:
            self._take_anew(old, new)
        if news.problem is not None:
            page.tell(news.problem.to_json()["error"], error=True)
        if page.run is None and page.job is not None:
            path = page.job.path
            if path.exists() and page.job.running:
                self._quietly(lambda: page.take(page.workspace.acquire(path)))
            elif not page.job.running:
                self._ended()
                return
        own = page.run.path if page.run is not None else None
        stages = next((version.stages for path, version, _ in self._seen if path == own), 0)
        if page.run is not None and self._grown():
            self._stay_at_the_end(page.run, stages)
            page.refresh()
        elif page.working is not None:
            page.show_bar()
            if news.telling and page.searches.runs(searches.TELLING):
                page.browser.set(searches.TELLING, detail=news.telling)
        if page.job is not None and not page.job.running:
            self._ended()
        while (ended := page.asides.take_ended()) is not None:
            job, then = ended
            then(job)

    def _stay_at_the_end(self, run: Run, stages: int) -> None:
        """Of a compile that is stepped through the newest stage is shown, unless the person has
        gone to an earlier one."""
        page = self._page
        held = page.job is not None and page.job.job.get("hold")
        newest = run.version.stages - 1
        if held and newest >= stages and page.view_state.stage in (None, stages - 1):
            page.view_state = page.view_state.with_(stage=newest, rewrite=None)

    def _quietly(self, action: Callable[[], None]) -> None:
        with suppress(UserError):  # the recording is being created at this moment
            action()

    def _ended(self) -> None:
        page = self._page
        job, page.job = page.job, None
        assert job is not None
        if page.run is None and job.path.exists():
            self._quietly(lambda: page.take(page.workspace.acquire(job.path)))
        if page.run is not None:
            page.run.refresh(wait=False)
            page.take_place()
        if job.outcome == "failed" and job.error is not None:
            if page.run is None:
                page.view_state = page.view_state.outside()
            page.tell(job.error, error=True)
        elif job.outcome == "cancelled":
            fix = "the stages it finished are kept" if page.run is not None else ""
            if page.run is None:
                page.view_state = ViewState()
                page.show_start()
            page.tell({"what": "The compile was cancelled.", "fix": fix})
        page.refresh()
