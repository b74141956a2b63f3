"""Every view under axe, in light and dark."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests import accessibility
from tests.accessibility import findings
from workbench import report
from workbench.state import VIEWS

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
