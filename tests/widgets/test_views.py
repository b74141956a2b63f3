"""Every view in a real browser, on a static page that needs no server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.slow import slow_but
from tests.widgets.graphs import transformer
from tests.widgets.samples import code_data, diff_data, memory_data, timeline_data
from tests.widgets.snapshots import assert_alike
from widgets import page

Open = Callable[..., Any]

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


VIEWS = {
    "graph": lambda: transformer(3).data(),
    "diff": diff_data,
    "code": code_data,
    "memory": memory_data,
    "timeline": timeline_data,
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", list(VIEWS))
def test_renders_without_network(
    open_page: Open, view: str, theme: str, pytestconfig: pytest.Config
) -> None:
    shown = open_page(page([(view, VIEWS[view]())], theme=theme))
    shown.settle()
    assert shown.errors == []
    assert shown.view().get_attribute("data-theme") == theme
    assert shown.view().get_attribute("data-ready") == "1"
    outside = [url for url in shown.requests if not url.startswith(("file:", "blob:", "data:"))]
    assert outside == []
    picture = shown.tab.screenshot()
    assert_alike(picture, f"{view}-{theme}", pytestconfig.getoption("--workbench-update"))


@pytest.mark.slow
@pytest.mark.parametrize("view", slow_but(("graph", "diff"), VIEWS))
def test_theme_follows_the_system(open_page: Open, view: str) -> None:
    shown = open_page(page([(view, VIEWS[view]())]))
    shown.tab.emulate_media(color_scheme="dark")
    shown.settle()
    assert shown.view().get_attribute("data-theme") == "dark"
    shown.tab.emulate_media(color_scheme="light")
    shown.settle()
    assert shown.view().get_attribute("data-theme") == "light"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("view", list(VIEWS))
def test_broken_data_is_an_error_text(open_page: Open, view: str) -> None:
    """Bad data ends this view with a message; the others stand, and good data brings it back."""
    shown = open_page(page([(view, VIEWS[view]()), ("code", code_data())]))
    shown.tab.evaluate("workbench.models[0].receive('data', '{\"nothing\": 1}')")
    assert "failed" in shown.view(0).locator("[role=alert]").inner_text()
    assert shown.view(1).locator(".row").count() > 0
    shown.receive(VIEWS[view](), 0)
    assert shown.view(0).locator("[role=alert]").count() == 0


def test_half_arrived_data_waits(open_page: Open) -> None:
    """The JSON of the next stage without its bytes changes nothing yet."""
    shown = open_page(page([("graph", transformer(3).data())], theme="light"))
    from widgets import pack

    text, _ = pack(transformer(4).data("1"))
    shown.tab.evaluate("(text) => workbench.models[0].receive('data', text)", text)
    assert shown.view().get_attribute("data-ready") == "1"
    shown.receive(transformer(4).data("1"))
    assert shown.view().get_attribute("data-ready") == "2"
    assert shown.errors == []


def test_names_are_text(open_page: Open) -> None:
    """HTML and script in any name are shown, in the page and in the SVG, and never run."""
    g = transformer(1)
    g.scopes = [
        scope.replace("embeddings", f"embeddings{HOSTILE.replace('/', '|')}") for scope in g.scopes
    ]
    g.kinds = [kind.replace("gather", HOSTILE) for kind in g.kinds]
    g.names = [HOSTILE] * len(g.names)
    g.attributes = [HOSTILE] * len(g.attributes)
    lines = diff_data(10)
    for line in lines["lines"]:
        line["left"] = HOSTILE
    source = code_data()
    source["panes"][0]["text"] = HOSTILE
    source["title"] = HOSTILE
    memory = memory_data()
    memory["buffers"]["name"] = [HOSTILE] * 120
    memory["tiers"][0]["name"] = HOSTILE
    times = timeline_data()
    times["kernels"]["name"] = [HOSTILE] * 3
    times["lanes"], times["note"], times["places"] = [HOSTILE] * 2, HOSTILE, [HOSTILE] * 2
    views = [
        ("graph", g.data()),
        ("diff", lines),
        ("code", source),
        ("memory", memory),
        ("timeline", times),
    ]
    shown = open_page(page(views, headings=[HOSTILE], title=HOSTILE))
    g0 = shown.call("placeOfOp", g.kinds.index(HOSTILE))
    shown.tab.mouse.move(g0["x"], g0["y"])
    shown.settle()
    assert HOSTILE in shown.view().locator(".tooltip").inner_text()
    drawing = shown.call("svg")
    assert "<img" not in drawing and "<script" not in drawing
    assert "<img" not in shown.call("svg", i=3)
    assert shown.view(1).locator(".code").first.inner_text() == HOSTILE
    assert shown.tab.evaluate("window.hacked") is None
    for i in range(len(views)):
        assert shown.view(i).locator("img").count() == 0


def test_selection_is_shared_between_views(open_page: Open) -> None:
    shown = open_page(page([("graph", transformer(1).data()), ("diff", diff_data())]))
    shown.view(1).locator('[data-row="4"] .cell.right').click()
    assert shown.trait("selection", 0)["op"] == shown.trait("selection", 1)["op"] == 4


# ------------------------------------------------------------------ diff


def test_diff_hunks_and_modes(open_page: Open) -> None:
    shown = open_page(page([("diff", diff_data(60))], theme="light"))
    view = shown.view()
    assert view.locator(".place").inner_text() == "12 hunks"
    assert "+6 added" in view.locator(".totals").inner_text()
    shown.focus(".lines")
    shown.tab.keyboard.press("j")
    shown.tab.keyboard.press("j")
    assert view.locator(".place").inner_text() == "2 of 12"
    shown.tab.keyboard.press("k")
    assert view.locator(".place").inner_text() == "1 of 12"
    row = view.locator('[data-row="3"]')
    assert row.locator(".left .word").all_inner_texts() == ["add", "f32"]
    assert row.locator(".right .word").all_inner_texts() == ["multiply", "bf16"]
    shown.tab.keyboard.press("u")
    assert view.locator('[data-row="3"]').count() == 2
    assert shown.trait("state") == {"unified": True, "whole": False}


def test_diff_click_selects_both_ways(open_page: Open) -> None:
    shown = open_page(page([("diff", diff_data(60))]))
    shown.view().locator('[data-row="3"] .cell.right').click()
    assert shown.trait("selection") == {"op": 3}
    shown.tab.evaluate("workbench.models[0].receive('selection', {op: 55})")
    assert shown.view().locator(".row.selected").count() == 1
    assert "%55" in shown.view().locator(".row.selected .code").first.inner_text()


def test_diff_folds_and_opens(open_page: Open) -> None:
    data = diff_data(40)
    equal = [{"left": f"equal {i}", "kind": "equal", "leftKey": None} for i in range(200)]
    data["lines"] = data["lines"][:20] + equal + data["lines"][20:]
    shown = open_page(page([("diff", data)]))
    fold = shown.view().locator(".fold")
    assert re.search(r"⋯ \d+ equal lines", fold.inner_text())
    fold.click()
    assert shown.view().locator(".fold").count() == 0


@pytest.mark.slow
def test_diff_of_100_000_lines_builds_few_rows(open_page: Open) -> None:
    shown = open_page(page([("diff", diff_data(95_000))], state=[{"whole": True}]))
    rows = shown.view().locator(".row")
    assert rows.count() < 120
    shown.focus(".lines")
    shown.tab.keyboard.press("End")
    rows.filter(has_text="%94999").last.wait_for()
    assert rows.count() < 120
    assert "%94999" in rows.last.inner_text()


def test_diff_asks_for_the_lines_it_lacks(open_page: Open) -> None:
    """Only the first page is sent; scrolling asks for the others, and the answer is shown."""
    import numpy as np

    data = diff_data(9000)
    lines = data["lines"]
    kinds = ("equal", "changed", "added", "removed")
    data["kinds"] = np.array([kinds.index(line["kind"]) for line in lines], np.uint8)
    data["count"], data["lines"] = len(lines), lines[:2000]
    shown = open_page(page([("diff", data)], state=[{"whole": True}]))
    shown.view().locator(".lines").evaluate("(e) => { e.scrollTop = 6200 * 18; }")
    shown.tab.wait_for_function("() => workbench.models[0].get('request') !== ''")
    import json

    (request,) = json.loads(shown.trait("request"))
    assert (request["kind"], request["from"], request["to"]) == ("lines", 6000, 8000)
    value = {"start": 6000, "lines": lines[6000:8000]}
    answer = [{"id": request["id"], "session": request["session"], "value": value}]
    shown.tab.evaluate(
        "(text) => workbench.models[0].receive('response', text)", json.dumps(answer)
    )
    shown.settle()
    assert shown.view().locator('[data-row="6200"] .code').first.inner_text() in str(lines[6200])


# ------------------------------------------------------------------ code


def test_code_links_lines_both_ways(open_page: Open) -> None:
    shown = open_page(page([("code", code_data())]))
    panes = shown.view().locator(".pane")
    panes.nth(0).locator('[data-line="9"]').hover()
    assert panes.nth(1).locator(".row.hover").count() == 4
    assert panes.nth(2).locator(".row.hover").count() == 6
    panes.nth(2).locator('[data-line="8"]').click()
    assert panes.nth(0).locator(".row.pinned").get_attribute("data-line") == "8"
    assert shown.trait("selection") == {
        "line": {"pane": 2, "line": 8},
        "kernel": "add_gelu",
        "op": 11,
    }
    shown.focus(".lines")
    shown.tab.keyboard.press("Escape")
    assert shown.view().locator(".row.pinned").count() == 0


def test_code_selection_from_the_host(open_page: Open) -> None:
    shown = open_page(page([("code", code_data(40))], selection={"op": 12}))
    panes = shown.view().locator(".pane")
    for i in range(3):
        assert panes.nth(i).locator(".row.pinned").count() > 0


def test_code_scrolls_together(open_page: Open) -> None:
    shown = open_page(page([("code", code_data(60))]))
    panes = shown.view().locator(".pane .lines")
    panes.nth(0).hover()
    shown.view().get_by_role("button", name="The other panes follow").click()
    panes.nth(0).hover()
    shown.tab.mouse.wheel(0, 3000)
    shown.tab.wait_for_timeout(500)
    assert panes.nth(1).evaluate("(e) => e.scrollTop") > 3000
    assert panes.nth(2).evaluate("(e) => e.scrollTop") > 3000


def test_code_has_syntax_colours(open_page: Open) -> None:
    shown = open_page(page([("code", code_data())]))
    panes = shown.view().locator(".pane")
    assert "def" in panes.nth(0).locator(".hl-k").all_inner_texts()
    assert "%va" in panes.nth(1).locator(".hl-v").all_inner_texts()
    assert "vaddps" in panes.nth(2).locator(".hl-k").all_inner_texts()


# ------------------------------------------------------------------ memory


def test_memory_figures(open_page: Open) -> None:
    """Against a direct computation of live bytes and the arena."""
    import numpy as np

    data = memory_data()
    buffers = data["buffers"]
    steps = np.arange(data["steps"])[:, None]
    live = ((buffers["start"] <= steps) & (steps < buffers["end"])) @ buffers["size"]
    arena = (buffers["offset"] + buffers["size"]).max()
    top = np.where(
        (buffers["start"] <= steps) & (steps < buffers["end"]),
        buffers["offset"] + buffers["size"],
        0,
    ).max(axis=1)
    shown = open_page(page([("memory", data)]))
    text = shown.view().locator(".figures").inner_text()
    assert f"arena {arena / 2**20:.1f} MiB" in text
    assert f"peak live {live.max() / 2**20:.1f} MiB" in text
    assert f"fragmentation at peak {(top - live)[live.argmax()] / 2**10:.0f} KiB" in text
    assert f"peak {live.max() / 2**20:.1f} MiB at {live.argmax()}" in shown.call("svg")


def test_memory_selects_both_ways(open_page: Open) -> None:
    shown = open_page(page([("memory", memory_data())]))
    shown.settle()
    at = shown.call("placeOfBuffer", "b32")
    shown.tab.mouse.click(at["x"], at["y"])
    assert shown.trait("selection") == {"buffer": "b32", "op": 32}
    shown.focus()
    shown.tab.keyboard.press("ArrowRight")
    assert shown.trait("selection") == {"buffer": "b33", "op": 33}
    shown.tab.evaluate("workbench.models[0].receive('selection', {op: 57})")
    shown.tab.keyboard.press("ArrowLeft")
    assert shown.trait("selection")["buffer"] == "b56"


def test_memory_zoom_and_peak(open_page: Open) -> None:
    shown = open_page(page([("memory", memory_data(1000))]))
    shown.focus()
    whole = shown.call("window")
    shown.tab.keyboard.press("p")
    near = shown.call("window")
    assert near["to"] - near["from"] < whole["to"] - whole["from"]
    shown.tab.keyboard.press("f")
    assert shown.call("window") == whole


def test_memory_csv(open_page: Open) -> None:
    shown = open_page(page([("memory", memory_data())]))
    shown.view().get_by_role("button", name="Download", exact=True).click()
    with shown.tab.expect_download() as download:
        shown.view().get_by_role("menuitem", name="All buffers, CSV").click()
    with open(download.value.path(), encoding="utf-8") as file:
        rows = file.read().split("\n")
    assert len(rows) == 121 and rows[0].startswith("key,name,tier")
