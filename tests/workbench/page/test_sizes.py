"""The page in windows of several sizes: what folds, what stacks, how wide the rail is; and that
nothing moves once it has been drawn."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.workbench.page.conftest import Server, Tab

pytestmark = [pytest.mark.playwright, pytest.mark.slow]

INSPECTOR, RAIL = "#cw-inspector", "#cw-rail"
#: Notes what moves after the loading note has gone: the score of each layout shift and what moved.
_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) {
    if (document.getElementById('cw-loading')) continue;
    const moved = each.sources.map(({ node: n }) => n && (n.id || n.className || n.nodeName));
    window.shifts.push([each.value, each.startTime, moved.join(' ')]);
  }
}).observe({ type: 'layout-shift', buffered: true });
"""


@pytest.fixture
def small(tab, server: Server, recording: Path):
    def open_(panes: str, width: int = 1024, height: int = 700) -> Tab:
        page: Tab = tab(f"{server.url}?run={quote(str(recording))}&panes={panes}")
        page.page.set_viewport_size({"width": width, "height": height})
        page.rest()
        page.page.wait_for_timeout(200)
        return page

    return open_


def width_of(page: Tab, selector: str) -> float:
    return page.page.locator(selector).bounding_box()["width"]


def test_in_a_narrow_window_the_inspector_lies_over_the_panes(small):
    page = small("graph,diff")
    page.drawn("graph")
    assert not page.page.locator(INSPECTOR).is_visible()
    panes = width_of(page, "#cw-panes")
    page.press("]")
    page.wait(INSPECTOR)
    assert width_of(page, "#cw-panes") == panes
    assert page.query("fold") is None  # in a wide window it has its column as before
    page.locate("#cw-panes [data-do=inspector]").click()
    page.wait(INSPECTOR, state="hidden")
    page.page.set_viewport_size({"width": 1440, "height": 900})
    page.wait(INSPECTOR)
    assert width_of(page, "#cw-panes") < 1440 - width_of(page, RAIL) - 200


def test_two_panes_without_room_stand_below_each_other(small):
    page = small("graph,diff")
    page.drawn("graph")
    page.drawn("diff")
    graph, diff = (page.page.locator(f"#cw-view-{v}").bounding_box() for v in ("graph", "diff"))
    assert diff["y"] > graph["y"] and diff["width"] == graph["width"] > 600
    page.page.set_viewport_size({"width": 1700, "height": 900})
    page.page.wait_for_timeout(300)
    graph, diff = (page.page.locator(f"#cw-view-{v}").bounding_box() for v in ("graph", "diff"))
    assert diff["x"] > graph["x"]


def test_the_model_and_the_passes_have_their_whole_names(small):
    page = small("overview")
    page.wait("#cw-rail .pass")
    cut = page.page.locator("#cw-rail .pass .name, #cw-bar .run b").evaluate_all(
        "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"
    )
    assert cut == []


def test_the_rail_is_as_wide_as_it_was_made(small, server, recording):
    page = small("overview", 1440, 900)
    before = width_of(page, RAIL)
    page.page.locator("#cw-rail-edge").focus()
    for _ in range(4):
        page.press("ArrowRight")
    assert width_of(page, RAIL) == before + 64
    page.open(f"{server.url}?run={quote(str(recording))}")
    page.wait("#cw-rail .pass")
    assert width_of(page, RAIL) == before + 64
    page.press("[")
    page.wait(RAIL, state="hidden")
    assert page.page.locator("#cw-panes").bounding_box()["x"] == 0


@pytest.mark.parametrize("panes", ["overview", "graph,diff", "kernels,code"])
def test_nothing_moves_once_it_is_drawn(browser, server, recording, panes):
    """Also when advice, and what the recording can be compared with, come."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(_SHIFTS)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{server.url}?run={quote(str(recording))}&panes={panes}")
    page.wait_for_selector("#cw-loading", state="detached")
    if panes == "overview":
        page.wait_for_selector(
            "h2:has-text('Advice') span:not(:has-text('searching'))", state="attached"
        )
    page.wait_for_function("() => !document.querySelector('#cw-busy.on')")
    page.wait_for_timeout(2500)
    shifts = page.evaluate("() => window.shifts")
    page.evaluate("() => document.getElementById('cw').style.marginTop = '40px'")
    page.wait_for_function("() => window.shifts.length")  # it would have been seen
    context.close()
    assert shifts == []
