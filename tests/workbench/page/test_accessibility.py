"""Every view under axe, in light and dark."""

from __future__ import annotations

import json
import shutil
from urllib.parse import urlencode

import pytest

from tests import accessibility
from tests.accessibility import findings
from tests.workbench.page.conftest import of_the_tour
from tests.workbench.page.test_serve_team import Team
from workbench.export import report
from workbench.state.view_state import VIEWS

pytestmark = [pytest.mark.playwright, pytest.mark.slow]


@pytest.fixture(scope="module")
def axe() -> str:
    return accessibility.axe()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser, axe):
    size = {"width": 1440, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=request.param)
    made = context.new_page()
    made.set_default_timeout(60_000)
    yield made
    context.close()


def told(wrong: dict[str, list[str]]) -> str:
    return "\n".join(f"{view}: {line}" for view, lines in wrong.items() for line in lines)


def opened(page, server, **fields: object) -> None:
    page.goto(server.url + ("?" + urlencode(fields) if fields else ""))
    page.wait_for_selector("#cw-loading", state="detached")
    page.wait_for_function("() => !document.querySelector('#cw-busy.on')")
    page.wait_for_timeout(700)  # what fades in has its colours then


def test_no_view_has_a_serious_finding(server, page, axe, recording):
    opened(page, server)
    wrong = {"start": findings(page, axe)}
    for view in VIEWS:
        opened(page, server, run=recording, panes=view, stage=8, op=3)
        wrong[view] = findings(page, axe)
    opened(page, server, run=recording, panes="graph,diff", stage=8)
    page.keyboard.press("?")
    wrong["two panes and keys"] = findings(page, axe)
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    wrong["any view"] = findings(page, axe)
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("/./")
    page.wait_for_selector("#cw-bar .told:has-text(' of ')", state="visible")
    wrong["search"] = findings(page, axe)
    page.keyboard.press("Escape")
    for view in ("graph", "overview"):
        opened(page, server, run=recording, panes=view, stage=8)
        page.locator(f"#cw-view-{view} button.save").click()
        page.wait_for_selector(f"#cw-view-{view} [role=menu]", state="visible")
        wrong[f"downloads of {view}"] = findings(page, axe)
    assert told(wrong) == ""


def test_no_view_of_a_report_has_a_serious_finding(page, axe, recording, tmp_path):
    path = tmp_path / "report.html"
    report.write(recording, path)
    page.goto(f"file://{path}#stage=8&op=3")
    page.wait_for_selector("body[data-ready]")
    wrong = {}
    for view in report.SHOWN:
        page.keyboard.press("g")
        page.keyboard.press(VIEWS[view].key)
        page.wait_for_selector(f"#cw-view-{view}.left")
        page.wait_for_timeout(500)  # what fades in has its colours then
        wrong[view] = findings(page, axe)
    assert told(wrong) == ""


def test_views_of_two_recordings_have_none(server, page, axe, two_targets):
    wrong = {}
    for view in (name for name, each in VIEWS.items() if each.two):
        state = {f"{view}.view": '{"ab":true}'}
        opened(page, server, run=two_targets.cpu, other=two_targets.cuda, panes=view, **state)
        wrong[view] = findings(page, axe)
    assert told(wrong) == ""


def test_the_views_of_a_training_run_have_none(server, page, axe, training_runs):
    wrong = {}
    for view in ("overview", "graph", "memory", "training", "divergence", "numerics", "compare"):
        opened(page, server, run=training_runs.a, other=training_runs.b, panes=view)
        wrong[view] = findings(page, axe)
    assert told(wrong) == ""


def test_what_is_drawn_over_a_graph_has_none(server, page, axe, recording):
    wrong = {}
    for overlay in ("time", "error"):
        state = {"graph.view": json.dumps({"overlay": overlay})}
        opened(page, server, run=recording, panes="graph", stage=8, op=3, **state)
        page.locator("#cw-view-graph .stage").focus()
        page.keyboard.press("p")
        page.wait_for_selector("#cw-view-graph .pins", state="visible")
        wrong[f"{overlay} and what is pinned"] = findings(page, axe)
    assert told(wrong) == ""


def test_the_shelves_of_the_library_have_none(page, axe, recording, own_server):
    server = own_server()
    folder = server.root / "recordings"
    folder.mkdir(parents=True)
    for name in ("one", "two", "three"):
        shutil.copy(recording, folder / f"{name}.run")
    uploaded = server.root / "uploads" / "20260101-x" / "mine.onnx"
    uploaded.parent.mkdir(parents=True)
    uploaded.write_bytes(bytes(2048))
    opened(page, server)
    runs = "#cw-start .runs"
    page.locator(f'{runs} [aria-label="Delete three.run"]').click()
    page.locator(f'{runs} [aria-label="Tags and note of two.run"]').click()
    page.locator(f"{runs} .edit input").fill("fast")
    page.locator(f"{runs} .edit textarea").fill("as released")
    wrong = {"tags and note": findings(page, axe)}
    page.locator(f"{runs} .edit button.primary").click()
    page.wait_for_selector(f"{runs} .tag:has-text('fast')")
    wrong["tagged"] = findings(page, axe)
    for shelf, there in (
        ("trash", f"{runs} tr:has-text('three.run')"),
        ("uploads", f"{runs} tr:has-text('mine.onnx')"),
        ("trend", '#cw-start figure[data-figure="compile_s"] circle >> nth=1'),
    ):
        page.locator(f"#cw-start [data-do={shelf}]").click()
        page.wait_for_selector(there, state="attached")
        page.wait_for_timeout(500)
        wrong[shelf] = findings(page, axe)
    assert told(wrong) == ""


def test_the_tour_has_none(page, axe, recording, own_server):
    server = own_server()
    sample = server.root / "recordings" / "sample.run"
    sample.parent.mkdir(parents=True)
    shutil.copy(recording, sample)
    of_the_tour(sample)
    opened(page, server)
    page.locator("#cw-start [data-do=tour]").click()
    wrong, card, number = {}, "#cw-tour .card", 1
    while True:
        page.wait_for_selector(f"{card} :text('{number} of ')")
        page.wait_for_function("() => !document.querySelector('#cw-busy.on')")
        page.wait_for_timeout(500)
        wrong[f"step {number} of the tour"] = findings(page, axe)
        if f"{number} of {number}" in page.locator(card).inner_text():
            break
        page.keyboard.press("ArrowRight")
        number += 1
    assert number > 5
    assert told(wrong) == ""


#: A compile waits before a pass, with what its pass raised before that.
_HELD = """
from workbench.app.page import Page
PAUSED = {"next": "fuse", "at": 3, "total": 20, "to_come": ["fuse", "tile"], "stages": 3,
          "problem": {"what": "the pass raised ValueError", "where": "pass mine",
                      "fix": "mend it and run it again"}}
Page.job_facts = lambda self: {"what": "compiling", "done": 3, "total": 20, "elapsed": 1.0,
                               "paused": PAUSED}
"""


def test_a_compile_that_waits_has_none(page, axe, recording, own_server):
    opened(page, own_server(before=_HELD), run=recording)
    page.wait_for_selector("#cw-bar .held", state="visible")
    wrong = {"a held compile": findings(page, axe)}
    page.locator("#cw-bar .held").hover()
    wrong["its bar under the pointer"] = findings(page, axe)
    assert told(wrong) == ""


def test_the_sign_in_has_none(page, axe, tmp_path):
    users = tmp_path / "users.json"
    users.write_text(json.dumps({"alice": "wonder"}))
    users.chmod(0o600)
    team = Team(tmp_path / "store", "--auth", str(users))
    page.goto(team.url)
    page.wait_for_selector("input[name=password]")
    wrong = {"sign in": findings(page, axe)}
    page.locator("input[name=username]").fill("alice")
    page.locator("input[name=password]").fill("builder")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert], .error")
    wrong["a wrong password"] = findings(page, axe)
    assert team.stop() == 0
    assert told(wrong) == ""
