"""A recording is untrusted: whatever it calls anything is shown as text, in every view, in the
library and in the report; nothing runs, nothing is made of it, nothing is asked from outside."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlparse

import pytest

from core_compiler.record import Recording
from tests.workbench.page import hostile
from tests.workbench.page.conftest import Server, of_the_tour
from workbench.app.library import Library
from workbench.export import report
from workbench.state.view_state import VIEWS

pytestmark = pytest.mark.playwright

#: Views that show names of a compile, and of training runs.
NAMED = ("overview", "graph", "diff", "rewrites", "source", "kernels", "code", "numerics", "bisect")
NAMED_OF_TRAINING = ("overview", "training", "divergence", "compare")
#: Views that show two recordings at once.
OF_TWO = tuple(name for name, view in VIEWS.items() if view.two)


@dataclass(frozen=True)
class Store:
    """A library of attacks: two that were compiled, two that were trained."""

    server: Server
    compiled: Path
    changed: Path
    a: Path
    b: Path


@pytest.fixture(scope="module")
def store(tmp_path_factory, recording, training_runs):
    root = tmp_path_factory.mktemp("hostile")
    folder = root / "recordings"
    folder.mkdir()
    compiled = hostile.compiled(recording, folder / f"{hostile.NAME[:60]}.run")
    changed = hostile.changed(compiled, folder / f"b{hostile.NAME[:60]}.run")
    a, b = hostile.trained(training_runs, folder)
    library = Library(root)
    for run in (compiled, changed, a, b):
        library.annotate(library.name(run), tags=["<b>tag</b>"], note=hostile.ATTACK)
    server = Server(root).start()
    yield Store(server, compiled, changed, a, b)
    server.stop()


class Watched:
    """A page that says what it did that it was not to do."""

    def __init__(self, page):
        self.page = page
        self.dialogs = []
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def untouched(self, where, requests=(), own=("127.0.0.1",)):
        for node in self.page.locator("[title]:visible").all()[:3]:
            node.hover(timeout=2000, force=True)
        assert self.page.evaluate(hostile.FOUND) == [], where
        assert self.dialogs == [], where
        asked = [url for url in requests if not url.startswith(("data:", "blob:", "file:"))]
        assert {urlparse(url).hostname for url in asked} <= set(own), where


def shown(page, view):
    """Wait until a view shows its data, or why it has none."""
    page.wait(f"#cw-view-{view}.left")
    page.wait("#cw-busy:not(.on)", state="attached")
    page.wait(f"#cw-view-{view} :is(.cw[data-ready], .root > *, .cw-message):visible")


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["compiled", "trained"]
)
def test_no_view_makes_anything_of_a_name(store, tab, training):
    path, other = (store.a, store.b) if training else (store.compiled, store.a)
    with Recording.open(path) as run:
        stage = next(s.index for s in run.stages() if s.index % 2 and s.rewrites)
    about = f"run={quote(str(path))}&other={quote(str(other))}&stage={stage}&rewrite=0&op=3"
    page = tab(f"{store.server.url}?{about}&panes=overview")
    watched = Watched(page.page)
    page.wait("#cw-view-overview h1")
    page.wait("#cw-inspector section")
    for view in VIEWS:
        page.show(view)
        shown(page, view)
        watched.untouched(view, page.requests)
        if view in (NAMED_OF_TRAINING if training else NAMED):
            # The graph draws names; where the scopes begin above the window, crumbs have them, one
            # that is too long in the ellipsis's title.
            if view == "graph":
                page.locate("#cw-view-graph .stage").focus()
                for _ in range(6):
                    page.press("+")
            named = "[title*='onerror']" if view == "graph" else ":text('onerror')"
            page.wait(f"#cw-view-{view} {named} >> nth=0")
    page.press("/")
    page.type("img")
    page.wait("#cw-bar .found:visible")
    watched.untouched("search", page.requests)
    assert "This part of the page failed" not in page.locate("#cw").inner_text()
    assert page.errors == []


@pytest.mark.slow
def test_no_view_of_two_recordings_makes_anything_of_a_name(store, tab):
    """With A | B on: what both have, what differs and where it stands."""
    with Recording.open(store.compiled) as run:
        stage = next(s.index for s in run.stages() if s.index % 2 and s.rewrites)
        ((kernel,), *_) = run.query("SELECT min(id) FROM kernel").rows
    on = "".join(f"&{view}.view={quote(json.dumps({'ab': True}))}" for view in OF_TWO)
    about = f"run={quote(str(store.compiled))}&other={quote(str(store.changed))}{on}"
    page = tab(
        f"{store.server.url}?{about}&stage={stage}&rewrite=0&kernel={kernel}&panes={OF_TWO[0]}"
    )
    watched = Watched(page.page)
    for view in OF_TWO:
        page.show(view)
        shown(page, view)
        if view in NAMED:  # also where a message names what the other one lacks
            page.wait(f"#cw-view-{view} :text('onerror') >> nth=0")
        watched.untouched(f"{view} of two", page.requests)
    assert page.errors == []


@pytest.mark.slow
def test_the_library_makes_nothing_of_tags_notes_and_names(store, tab):
    page = tab(store.server.url)
    watched = Watched(page.page)
    page.wait("#cw-start .runs tbody tr >> nth=2")
    assert "onerror" in page.text("#cw-start .runs")
    watched.untouched("the library", page.requests)
    page.locate("#cw-start .runs [aria-label^='Tags and note']").first.click()
    page.wait("#cw-start .edit textarea")
    watched.untouched("tags and note", page.requests)
    page.locate("#cw-start .runs tr[data-run^=a] [aria-label^='Over time']").click()
    page.wait("#cw-start figure circle")
    watched.untouched("over time", page.requests)
    page.locate("#cw-start .runs-head input").fill(hostile.ATTACK)
    page.wait_query("find", hostile.ATTACK)
    watched.untouched("a search", page.requests)


#: A compile waits before a pass; all that it tells of itself is an attack.
_HELD = f"""
from workbench.app.page import Page
ATTACK = {hostile.ATTACK!r}
PAUSED = {{"next": ATTACK, "at": 1, "total": 2, "to_come": [ATTACK], "stages": 1,
          "problem": {{"what": ATTACK, "where": ATTACK, "fix": ATTACK}}}}
Page.job_facts = lambda self: {{"what": ATTACK, "done": 1, "total": 2, "elapsed": 1, "paused": PAUSED}}
"""  # noqa: E501


@pytest.mark.slow
def test_a_compile_that_waits_makes_nothing_of_what_it_says(own_server, tab, recording):
    page = tab(f"{own_server(before=_HELD).url}?run={quote(str(recording))}")
    watched = Watched(page.page)
    page.wait("#cw-bar .held b:has-text('onerror')")
    page.wait("#cw-bar .toast.error:visible")
    page.locate("#cw-bar .held").hover()
    watched.untouched("a compile that waits", page.requests)
    assert page.errors == []


@pytest.mark.slow
def test_the_tour_makes_nothing_of_the_names_it_shows(store, tab, tmp_path):
    """Of its sample model the library has a run in which all else is an attack."""
    sample = store.server.root / "recordings" / f"sample{hostile.NAME[:60]}.run"
    shutil.copy(store.compiled, sample)
    of_the_tour(sample)
    page = tab(store.server.url)
    watched = Watched(page.page)
    page.locate("#cw-start [data-do=tour]").click()
    card, number = "#cw-tour .card", 1
    while True:
        page.wait(f"{card} :text('{number} of ')")
        page.wait("#cw-busy:not(.on)", state="attached")
        watched.untouched(page.text(f"{card} h2"), page.requests)
        if f"{number} of {number}" in page.text(card):
            break
        page.press("ArrowRight")
        number += 1
    assert number > 5 and sample.name == page.query("run")
    sample.unlink()
    assert page.errors == []


@pytest.mark.slow
def test_a_report_makes_nothing_of_a_name(store, browser, tmp_path):
    path = tmp_path / "report.html"
    report.write(store.compiled, path)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    watched = Watched(page)
    page.goto(f"file://{path}#stage=1&rewrite=0&op=3")
    page.wait_for_selector("body[data-ready]")
    assert "onerror" in page.title()
    for view in report.SHOWN:
        page.keyboard.press("g")
        page.keyboard.press(VIEWS[view].key)
        page.wait_for_selector(f"#cw-view-{view}.left")
        ready = ":is(.cw[data-ready], .root > *, .cw-message):visible"
        page.wait_for_selector(f"#cw-view-{view} {ready}")
        watched.untouched(view, requests, own=())
    context.close()
