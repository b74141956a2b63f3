"""One open page: its sight, and what each view shows of it.

Commands arrive on the server's loop; what they ask for is read in a thread of the page's own, and
shown when it is ready.  A newer command makes an older answer worthless: it is dropped.
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

from panel.io.document import unlocked

from core_compiler.errors import UserError
from workbench import moves, views
from workbench.ahead import finite, pieces
from workbench.app import commands, components, runs, searches, tour
from workbench.app.access import EDITOR
from workbench.app.browser import Browser
from workbench.app.compiles import Compile
from workbench.app.workspace import Workspace
from workbench.showing import Showing, Update, held, kept_state, unexpected
from workbench.state import PRESETS, VIEWS, Sight
from workbench.views.reading import Run

log = logging.getLogger("workbench")

#: What is ready within this time (seconds) is shown together.
TOGETHER = 0.1
#: How long after it is connected the browser has the machine for itself (milliseconds).
AFTER_OPENING = 400
#: How often a growing recording and a running compile are looked at, and messages that Panel may
#: have forgotten are sent (milliseconds).
POLL = 400


class Page:
    """A session.  ``roots`` are its components by name; ``document`` is its Bokeh document;
    ``user`` and ``role`` of who has signed in."""

    def __init__(self, workspace: Workspace, document: Any, query: str = "", user: str = "",
                 role: str = EDITOR):  # fmt: skip
        self.workspace, self.document = workspace, document
        self.user, self._viewer = user, role != EDITOR
        self.sight = Sight()
        self.run: Run | None = None
        self.other: Run | None = None
        self.job: Compile | None = None
        self.problem: dict[str, str] | None = None
        # A job beside what is shown, and what is done when it ends.
        self._aside: tuple[Compile, Callable[[Compile], None]] | None = None
        self.searches = searches.Searches()
        self._tour: dict[str, Any] | None = None
        self._commands = 0  # that came: an answer is news even where it leads nowhere else
        self._seen: list[tuple] = []  # how far the recordings had come that are shown
        self.roots: dict[str, Any] = {
            name: make(sizing_mode="stretch_both")
            for name, make in {**components.FRAME, **components.COMPONENTS}.items()
        }  # fmt: skip
        self._showing = Showing()
        self._messages: dict[str, dict[str, Any]] = {}
        self._selections: dict[str, dict[str, Any]] = {}
        self._states: dict[str, dict[str, Any]] = {}
        self._generation = 0
        self._layout: Any = None
        self._notice: dict[str, Any] | None = None
        self._lost: set[Run] = set()  # shown, and deleted meanwhile
        self._listing = runs.Listing(
            workspace.library,
            self._show_runs,
            lambda told: self.browser.later(lambda: self._tell_bar(told)),
        )
        self._push = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self.browser: Browser = Browser(document, self.roots)
        self._listen()
        with self.browser.making():
            self.load(Sight.parse(query))

    def first_modules(self) -> list[str]:
        """The modules that the first sight needs, for the browser to fetch beforehand."""
        if self.run is None:
            return ["bar", "start"]
        return ["bar", "passes", "inspector", *self.sight.panes]

    # -- listening -------------------------------------------------------------------------------

    def _listen(self) -> None:
        for root in self.roots.values():
            root.param.watch(self._on_command, "command")
        for name in VIEWS:
            view = self.roots[name]
            view.param.watch(partial(self._on_selection, name), "selection")
            view.param.watch(partial(self._on_state, name), "state")
            if hasattr(views.module(name), "answer"):
                view.on_request(partial(self._answer, name))
        self.document.add_periodic_callback(self._poll, POLL)
        self.document.on_session_destroyed(self._close)

    def _close(self, _context: Any) -> None:
        self._generation += 1
        self._listing.end()
        self._thread.shutdown(wait=False, cancel_futures=True)
        for run in (self.run, self.other):
            if run is not None:
                self.workspace.release(run)

    def _on_command(self, event: Any) -> None:
        try:
            command = json.loads(event.new)
            command.pop("n", None)
            name = str(command.pop("name", ""))
        except (ValueError, AttributeError, TypeError):
            return
        self._commands += 1
        if moves.known(name):
            self._guard(lambda: self.move(
                lambda r, s: moves.move(name, r, s, command), name not in moves.UNRECORDED
            ))  # fmt: skip
        else:
            self._guard(lambda: commands.run(name, self, command, self._viewer))

    def move(self, move: Callable[[Run | None, Sight], Sight], push: bool = True) -> None:
        """Go where a command leads; say so where there is nothing further."""
        if self.run is None and self.job is None:
            return
        try:
            with nullcontext() if self.run is None else self.run.lock:
                sight = move(self.run, self.sight)
        except moves.Nowhere as end:
            self.tell({"what": str(end)})
            return
        self.go(sight, push)

    def _guard(self, action: Callable[[], None]) -> None:
        """Run an action; whatever goes wrong is told on the page, and the page goes on."""
        try:
            action()
        except UserError as error:
            self.tell(error.to_json()["error"], error=True)
        except Exception as error:
            log.exception("a command failed")
            self.tell(unexpected(error), error=True)

    def tell(self, what: Mapping[str, Any], error: bool = False) -> None:
        self._notice = {"error": error, **what, "n": time.time()}
        if self.run is None and error:
            self.problem = dict(what)
            self.show_start()
        self.show_bar()

    # -- going somewhere -------------------------------------------------------------------------

    def go(self, sight: Sight, push: bool = True) -> None:
        """Show another sight; ``push``: the way back leads through it."""
        self._push = push and sight != self.sight
        self.sight = sight
        self._open_other()
        self.refresh()

    def load(self, sight: Sight, push: bool = False) -> None:
        """Show the recording that ``sight`` names, or the start page."""
        self._push = push
        if self.run is not None:
            self.workspace.release(self.run)
        self.run, self.job, self.problem = None, None, None
        self._listing.end()
        self._aside, self._tour = None, None
        self.searches.clear()
        self._showing.clear()
        if sight.run:
            self._guard(partial(self._open_recording, sight.run))
        found = self.run is not None or self.job is not None  # a compile that has yet to write it
        self.sight = sight if found else sight.outside()
        if not found:
            self.show_start()
        self._open_other()
        self._find_search()
        self.refresh()

    def _find_search(self) -> None:
        """A search in the shown recording goes on, whoever began it."""
        if self.run is None or self.job is not None:
            return
        found = searches.running(self.workspace.compiles, self.run.path)
        if found is not None:
            self.follow_search(*found)

    def follow_search(self, view: str, job: Compile) -> None:
        self.begin_aside(job, partial(self._search_ended, view))
        self.searches.begun(view, job)

    def _open_other(self) -> None:
        """Have the recording open that the sight compares with."""
        wanted, there = self.sight.other, self.other
        if there is not None and self.workspace.library.name(there.path) != wanted:
            self.workspace.release(there)
            self.other = None
        if not wanted or self.other is not None:
            return
        self.sight = self.sight.with_(other="")  # where it cannot be opened
        self._guard(partial(self._take_other, wanted))

    def _take_other(self, name: str) -> None:
        self.other = self.workspace.acquire(self.workspace.path(name))
        self.sight = self.sight.with_(other=self.workspace.library.name(self.other.path))

    def _open_recording(self, name: str) -> None:
        path = self.workspace.path(name)
        self.job = self.workspace.compiles.of(path)
        if self.job is None:
            self.workspace.check_deleted(path)
        try:
            self.run = self.workspace.acquire(path)
        except UserError:
            if self.job is None or not self.job.running:
                raise  # a compile that has just begun writes it in a moment

    def refresh(self) -> None:
        """Show what is new in the views that can be seen."""
        self._generation += 1
        layout = self.sight.panes, self.sight.zoom, self.sight.fold, self.run is None
        if layout != self._layout:
            # A view must have its place before it gets data: it centres what is selected.
            self._layout = layout
            self.show_bar(done=False)
        if self.browser.is_making and self.sight.panes == ("overview",):
            self._derive(self._generation, self.sight, self.run)  # takes milliseconds
            if self.run is not None:
                ahead_of = partial(self._submit, self._look_ahead)
                self.browser.when_ready(
                    lambda: self.document.add_timeout_callback(ahead_of, AFTER_OPENING)
                )
        else:
            self._submit(self._work)

    def _submit(self, work: Callable[[int, Sight, Run | None], None]) -> None:
        """In the page's thread: ``work`` for what is shown now."""
        with suppress(RuntimeError):  # the page is closed
            self._thread.submit(work, self._generation, self.sight, self.run)

    def aside_of_views(self, work: Callable[[], None]) -> None:
        """In the page's thread: ``work`` whatever is shown by then."""
        with suppress(RuntimeError):  # the page is closed
            self._thread.submit(work)

    def _work(self, generation: int, sight: Sight, run: Run | None) -> None:
        try:
            self._derive(generation, sight, run)
            self._look_ahead(generation, sight, run)
        except Exception as error:  # a thread's exception would vanish, and the page stay empty
            log.exception("the page could not be derived")
            told = unexpected(error)
            self.browser.later(lambda: self.tell(told, error=True))

    def _derive(self, generation: int, sight: Sight, run: Run | None) -> None:
        """Derive what changed, then show it on the loop."""
        messages: dict[str, dict[str, Any]] = {}
        made: list[Update] = []
        began = time.perf_counter()
        if run is not None:
            for name in sight.panes:
                if hasattr(views.module(name), "choices"):
                    made.append(Update(name, {"detail": self._choices(name)}))
            for update in self._showing.updates(sight, run, self.other, messages):
                if generation != self._generation:
                    return
                made.append(update)
                if time.perf_counter() - began > TOGETHER:
                    self.browser.later(partial(self._apply, generation, made))
                    made, began = [], time.perf_counter()
        self.browser.later(partial(self._apply, generation, made, messages))

    def _choices(self, name: str) -> str:
        """The ``detail`` of a view that compares or searches: the library, what may run here, how
        its search goes, and what an upload needs."""
        found = views.module(name).choices(self.workspace.library.entries())
        search = self.searches.facts(name, self._job_facts())
        more = {"may_run": self.workspace.runs_code, "search": search,
                "token": self.workspace.token}  # fmt: skip
        return json.dumps(finite({**found, **more}))

    def _look_ahead(self, generation: int, sight: Sight, run: Run | None) -> None:
        """Make what the next keys lead to ready, piece by piece, while nobody waits."""
        if run is None:
            return
        with run.lock:
            work = list(pieces(run, sight)) if run.version.stages else []
        for piece in work:
            if generation != self._generation:
                return
            # Whatever is wrong with a stage is told when it is shown.
            with suppress(Exception), run.lock:
                piece()
            time.sleep(0)  # the server's loop first

    def _apply(self, generation: int, made: list[Update],
               messages: dict[str, dict[str, Any]] | None = None) -> None:  # fmt: skip
        """Show what was made, in one message: the browser then draws once.  ``messages``: instead
        of views, and this is all of the sight."""
        if generation != self._generation:
            return
        with unlocked():
            for update in made:
                self._update(update.name, update.values)
                self._showing.sent(update)
            if messages is not None:
                self._messages = messages
                self.show_bar()

    def _update(self, name: str, updates: dict[str, Any]) -> None:
        root = self.roots[name]
        if "selection" in updates:
            self._selections[name] = updates["selection"]
        if "state" in updates:
            self._states[name] = updates["state"]
        changed = {k: v for k, v in updates.items() if getattr(root, k) != v}
        if changed:
            self.browser.set(name, **changed)

    # -- the bar and the start page --------------------------------------------------------------

    def show_bar(self, done: bool = True) -> None:
        """``done``: all views show the sight (the page stops saying that it works)."""
        run, job = self.run, self.job
        shown: dict[str, Any] | None = None
        if run is not None:
            meta = run.meta()
            status = "" if run.status == "finished" else _STATUS.get(run.status, run.status)
            if run.live and run.version.iterations:
                status = "training"
            status = "deleted" if run in self._lost else status
            detail = meta.get("target"), meta.get("mode"), run.path.name, status
            shown = {"model": str(meta.get("model", run.path.stem)), "path": str(run.path),
                     "detail": " · ".join(str(d) for d in detail if d),
                     "training": meta.get("mode") == "training"}  # fmt: skip
        elif job is not None:
            shown = {"model": str(job.job["model"]), "path": str(job.path), "detail": "starting"}
        messages = self._messages
        if run is None and job is not None:
            messages = {n: {"what": f"{job.progress['what']} …"} for n in self.sight.panes}
        facts = {
            "run": shown, "start": run is None and job is None,
            "query": self.sight.query(), "push": self._push, "done": done,
            "panes": self.sight.panes, "zoom": self.sight.zoom, "fold": self.sight.fold,
            "views": [{"name": n, "title": view.title} for n, view in VIEWS.items()],
            "presets": [[key, title, panes] for key, (title, panes) in PRESETS.items()],
            "wide": [n for n, view in VIEWS.items() if view.wide],
            "messages": messages, "notice": self._notice, "job": self._job_facts(),
            "user": self.user, "viewer": self._viewer,
            "tour": self._tour_facts(), "commands": self._commands,
        }  # fmt: skip
        self.browser.set("bar", data=json.dumps(finite(facts)))
        self._push = False

    def _job_facts(self) -> dict[str, Any] | None:
        job = self.job
        if job is None or not job.running:
            return None
        elapsed = int(time.time() - job.started)
        return {**job.progress, "elapsed": elapsed, "paused": job.paused}

    def begin_tour(self) -> None:
        """Walk through what is shown, once its recording is complete."""
        self._tour = {"n": time.time(), "steps": []}
        self.show_bar(done=False)

    def _tour_facts(self) -> dict[str, Any] | None:
        """The tour that was asked for; its steps are there when its recording is complete."""
        run = self.run
        if self._tour is None or self._tour["steps"] or (self.job is not None and self.job.running):
            return self._tour
        if run is None or run.status != "finished":
            self._tour = None  # the compile failed or was cancelled, which is told
        else:
            with run.lock:
                self._tour = {**self._tour, "steps": tour.steps(run, self.sight.run)}
        return self._tour

    def show_start(self, what: str = "") -> None:
        """``what``: the model that is filled in."""
        facts = self.workspace.start_page()
        facts |= {"error": self.problem, "user": self.user, "viewer": self._viewer}
        facts |= {"what": what} if what else {}
        self.browser.set("start", data=json.dumps(finite(facts)))
        self.list_runs()

    def list_at(self, sight: Sight, push: bool) -> None:
        """Show another part of the library."""
        self.sight, self._push = sight, push
        self.list_runs()
        self.show_bar()

    def list_runs(self, quick: bool = False) -> None:
        """Show the library, and what is new in it as it is read."""
        self.aside_of_views(self._listing.begin(self.sight, quick))

    def _show_runs(self, detail: str) -> None:
        if detail != self.roots["start"].detail:
            self.browser.later(lambda: self.browser.set("start", detail=detail))

    def _tell_bar(self, what: Mapping[str, Any]) -> None:
        self._notice = {"error": True, **what, "n": time.time()}
        self.show_bar()

    # -- what grows ------------------------------------------------------------------------------

    def _poll(self) -> None:
        self.browser.beat()
        if self.run is None and self.job is None:
            if self.browser.is_ready and self._listing.is_old:
                self.list_runs(quick=True)
            return
        self._guard(self._look_for_files)
        live = any(run.live for run in self._runs())
        if self.job is not None or live or self._seen != self._versions():
            self._guard(self._look)

    def _look_for_files(self) -> None:
        """Say so, once, when a recording that is shown is deleted."""
        for run in (self.run, self.other):
            if run is None or run.path.exists() != (run in self._lost):
                continue
            if run in self._lost:
                self._lost.remove(run)
            else:
                self._lost.add(run)
                library = self.workspace.library
                self.tell(runs.lost(library, library.name(run.path)))
            self.show_bar()

    def _runs(self) -> list[Run]:
        """What is shown and may still grow."""
        return [run for run in (self.run, self.other) if run is not None and run not in self._lost]

    def _versions(self) -> list[tuple]:
        """How far the shown recordings have come.  Other pages read them too: that one of them has
        grown is news to each page once."""
        return [(run.path, run.version, run.status) for run in self._runs()]

    def _grown(self) -> bool:
        for run in self._runs():
            run.refresh()
        before, self._seen = self._seen, self._versions()
        return before != self._seen

    def _look(self) -> None:
        if self.run is None and self.job is not None:
            path = self.job.path
            if path.exists() and self.job.running:
                self._guard_quietly(lambda: self._take(self.workspace.acquire(path)))
            elif not self.job.running:
                self._ended()
                return
        stages = 0 if self.run is None else self.run.version.stages
        if self.run is not None and self._grown():
            self._stay_at_the_end(stages)
            self.refresh()
        elif self._job_facts() is not None:
            self.show_bar()
            if self.searches.runs(searches.TELLING):
                self.browser.set(searches.TELLING, detail=self._choices(searches.TELLING))
        if self.job is not None and not self.job.running:
            self._ended()

    def _stay_at_the_end(self, stages: int) -> None:
        """Of a compile that is stepped through the newest stage is shown, unless the person has
        gone to an earlier one."""
        assert self.run is not None
        held = self.job is not None and self.job.job.get("hold") and self._aside is None
        newest = self.run.version.stages - 1
        if held and newest >= stages and self.sight.stage in (None, stages - 1):
            self.sight = self.sight.with_(stage=newest, rewrite=None)

    def _guard_quietly(self, action: Callable[[], None]) -> None:
        with suppress(UserError):  # the recording is being created at this moment
            action()

    def _take(self, run: Run) -> None:
        self.run = run
        self._showing.clear()
        self.refresh()

    def _ended(self) -> None:
        job, self.job = self.job, None
        assert job is not None
        if self._aside is not None and self._aside[0] is job:
            then, self._aside = self._aside[1], None
            then(job)
            return
        if self.run is None and job.path.exists():
            self._guard_quietly(lambda: self._take(self.workspace.acquire(job.path)))
        if self.run is not None:
            self.run.refresh()
        if job.outcome == "failed" and job.error is not None:
            if self.run is None:
                self.sight = self.sight.outside()
            self.tell(job.error, error=True)
        elif job.outcome == "cancelled":
            fix = "the stages it finished are kept" if self.run is not None else ""
            if self.run is None:
                self.sight = Sight()
                self.show_start()
            self.tell({"what": "The compile was cancelled.", "fix": fix})
        self.refresh()

    # -- compiling ---------------------------------------------------------------------------------

    def begin_aside(self, job: Compile, then: Callable[[Compile], None]) -> None:
        """A job beside what is shown, which stays; ``then`` is called with it when it has ended."""
        self.job, self._aside = job, (job, then)

    def start(self, job: dict[str, Any]) -> None:
        """Compile into a new recording, and show it as it grows."""
        made = self.workspace.compiles.start(job, self.user)
        self._listing.end()
        if self.run is not None:
            self.workspace.release(self.run)
        self.run, self.job, self._tour = None, made, None
        self._showing.clear()
        self._messages = {}
        self.sight = Sight(run=self.workspace.library.name(made.path))
        self._push = True
        self.show_bar()

    def _search_ended(self, view: str, job: Compile) -> None:
        self.searches.ended(view, job)
        self.refresh()
        if job.outcome == "failed" and job.error is not None and view not in self.sight.panes:
            self.tell(job.error, error=True)

    # -- what views tell -------------------------------------------------------------------------

    def _on_selection(self, name: str, event: Any) -> None:
        chosen = dict(event.new or {})
        run = self.run
        if run is None or chosen == self._selections.get(name):
            return
        self._selections[name] = chosen
        self._guard(lambda: self.move(lambda _, s: moves.chosen_in(run, s, name, chosen)))

    def _on_state(self, name: str, event: Any) -> None:
        if event.new == self._states.get(name):
            return
        text = json.dumps(event.new or {}, separators=(",", ":"))
        if len(text) < 1500 and kept_state(self.sight, name) != event.new:
            self.sight = self.sight.with_view(name, text if event.new else "")
            self.show_bar()

    def _answer(self, name: str, request: Mapping[str, Any]) -> Any:
        """What the browser module of view ``name`` asks for."""
        if self.run is None:
            raise ValueError("no recording is open")
        self.browser.told()
        with held(self.run, self.other):
            return views.answer(name, self.run, self.sight, dict(request), self.other)


_STATUS = {"recording": "compiling", "failed": "failed", "cancelled": "cancelled",
           "interrupted": "interrupted"}  # fmt: skip
