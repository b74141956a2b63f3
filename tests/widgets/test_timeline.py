"""The timeline in a browser, without a server: figures, zoom, pan, walking, ten thousand spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.widgets.samples import timeline_data
from widgets import page

Open = Callable[..., Any]


@pytest.fixture
def shown(open_page: Open) -> Any:
    made = open_page(page([("timeline", timeline_data())], theme="light"))
    made.settle()
    return made


def until(reached: Callable[[], bool], shown: Any) -> None:
    """Wait for what the view writes when it has not moved for a while."""
    for _ in range(200):
        if reached():
            return
        shown.tab.wait_for_timeout(50)
    raise AssertionError("it never came to that")


def test_its_figures_are_those_of_the_spans(shown: Any) -> None:
    data = timeline_data()
    text = shown.view().locator(".figures").inner_text()
    busy = data["spans"]["duration"].sum() / len(data["lanes"])
    assert f"at work {100 * busy / data['total']:.1f} %" in text
    assert "launches 60" in text and data["note"] in text
    assert f"peak live {data['live'].max() / 1024:.0f} KiB" in text.replace(".0", "")
    assert int(shown.view().get_attribute("data-drawn")) == len(data["spans"]["launch"])
    assert shown.errors == []


def test_a_click_selects_the_op_of_the_launch_and_arrows_walk(shown: Any) -> None:
    spans = timeline_data()["spans"]
    wide = int(spans["launch"][np.argmax(spans["duration"])])
    at = shown.call("placeOfLaunch", wide)
    shown.tab.mouse.click(at["x"], at["y"])
    assert shown.trait("selection") == {"op": 1000 + wide}
    first = [int(n) for n, lane in zip(spans["launch"], spans["lane"], strict=True) if lane == 0]
    shown.tab.keyboard.press("ArrowRight")
    assert shown.trait("selection") == {"op": 1000 + first[first.index(wide) + 1]}
    shown.tab.keyboard.press("ArrowLeft")
    shown.tab.keyboard.press("ArrowLeft")
    assert shown.trait("selection") == {"op": 1000 + first[first.index(wide) - 1]}
    shown.tab.keyboard.press("Escape")
    assert shown.trait("selection") == {}


@pytest.mark.slow
def test_keys_zoom_and_pan_within_the_execution(shown: Any) -> None:
    total = timeline_data()["total"]
    shown.focus()
    whole = shown.call("window")
    assert (whole["from"], whole["to"]) == (0, pytest.approx(total))
    for _ in range(4):
        shown.tab.keyboard.press("w")
    near = shown.call("window")
    assert near["to"] - near["from"] == pytest.approx(total * 0.7**4)
    shown.tab.keyboard.press("d")
    right = shown.call("window")
    assert right["from"] > near["from"] and right["to"] - right["from"] == pytest.approx(
        near["to"] - near["from"]
    )
    for _ in range(30):
        shown.tab.keyboard.press("a")
    assert shown.call("window")["from"] == 0
    for _ in range(12):
        shown.tab.keyboard.press("s")
    assert shown.call("window") == whole
    # What is seen is in the link; the whole is not worth one.
    shown.tab.keyboard.press("w")
    until(lambda: "from" in shown.trait("state"), shown)
    shown.tab.keyboard.press("f")
    until(lambda: "from" not in shown.trait("state"), shown)
    # The host shows a view state from before it was zoomed.
    shown.tab.keyboard.press("w")
    until(lambda: "from" in shown.trait("state"), shown)
    shown.tab.evaluate("workbench.models[0].receive('state', {})")
    assert shown.call("window") == whole


def test_the_wheel_zooms_at_the_pointer_and_shift_pans(shown: Any) -> None:
    box = shown.view().locator(".stage").bounding_box()
    shown.tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80)
    shown.tab.mouse.wheel(0, -400)
    near = shown.call("window")
    total = timeline_data()["total"]
    assert 0 < near["from"] < near["to"] < total
    shown.tab.keyboard.down("Shift")
    shown.tab.mouse.wheel(0, 120)
    shown.tab.keyboard.up("Shift")
    later = shown.call("window")
    assert later["from"] > near["from"]
    assert later["to"] - later["from"] == pytest.approx(near["to"] - near["from"])


def test_the_peak_and_a_launch_are_gone_to(shown: Any) -> None:
    data = timeline_data()
    peak = int(np.argmax(data["live"]))
    start = data["spans"]["start"][list(data["spans"]["launch"]).index(peak)]
    shown.focus()
    shown.tab.keyboard.press("p")
    seen = shown.call("window")
    assert seen["from"] <= start <= seen["to"] and seen["to"] - seen["from"] < data["total"] / 3


def test_the_host_marks_launches(shown: Any) -> None:
    shown.tab.evaluate("workbench.models[0].receive('selection', {launches: [3, 9]})")
    assert sorted(shown.call("marked")) == [3, 9]
    shown.tab.evaluate("workbench.models[0].receive('selection', {op: 1005})")
    assert shown.call("marked") == [5]
    shown.tab.evaluate("workbench.models[0].receive('selection', {kernel: 8})")
    assert sorted(shown.call("marked")) == list(range(1, 60, 3))


def test_the_table_has_every_span(shown: Any) -> None:
    rows = shown.call("csv").split("\n")
    spans = timeline_data()["spans"]
    assert len(rows) == 1 + len(spans["launch"])
    cells = [row.split(",") for row in rows[1:]]
    assert [int(c[0]) for c in cells] == spans["launch"].tolist()
    np.testing.assert_array_equal([float(c[4]) for c in cells], spans["duration"])


@pytest.mark.slow
def test_fifty_thousand_spans_are_culled(open_page: Open) -> None:
    """Thin spans are drawn together when all are seen; only what is in the window when few are."""
    data = timeline_data(25_000)
    shown = open_page(page([("timeline", data)]))
    shown.settle()
    assert int(shown.view().get_attribute("data-drawn")) == len(data["spans"]["launch"])
    paths = shown.call("svg").count("M")
    assert paths < 20_000, "what is thinner than a pixel is one shape"
    shown.focus()
    for _ in range(22):
        shown.tab.keyboard.press("w")
    shown.settle()
    assert 0 < int(shown.view().get_attribute("data-drawn")) < 60
    assert shown.errors == []


@pytest.mark.slow
def test_many_threads_are_scrolled_through(open_page: Open) -> None:
    data = timeline_data(200, lanes=96)
    shown = open_page(page([("timeline", data)]))
    shown.settle()
    spans = data["spans"]
    shared = int(spans["launch"][list(spans["lane"]).index(95)])
    at = shown.call("placeOfLaunch", shared)
    shown.tab.mouse.click(at["x"], at["y"])
    for _ in range(95):
        shown.tab.keyboard.press("ArrowDown")
    assert shown.trait("selection") == {"op": 1000 + shared}
    assert shown.call("window")["scroll"] > 0


def test_a_lane_of_predicted_launches_says_so(open_page: Open) -> None:
    data = timeline_data(lanes=1) | {"recorded": False, "note": "not executed: end to end"}
    data |= {"predicted": True, "bounds": ["dependent latency"] * 60}
    data["launches"]["median"] = np.full(60, np.nan)
    del data["live"], data["percent"]
    shown = open_page(page([("timeline", data)], theme="dark"))
    shown.settle()
    figures = shown.view().locator(".figures").inner_text()
    assert "not executed" in figures and "predicted" in figures and "execution" not in figures
    assert shown.call("csv").split("\n")[1].split(",")[5] == ""
    assert shown.errors == []


def test_a_launch_above_the_limit_is_no_full_bar_without_a_word(open_page: Open) -> None:
    data = timeline_data(lanes=1)
    spans = data["spans"]
    wide = int(spans["launch"][np.argmax(spans["duration"])])
    data["percent"][wide] = 140.0
    shown = open_page(page([("timeline", data)]))
    shown.settle()
    at = shown.call("placeOfLaunch", wide)
    shown.tab.mouse.move(at["x"], at["y"])
    tip = shown.view().locator(".tooltip:visible")
    tip.wait_for()
    assert "140.0 % of this machine's lower roof; it was measured while" in tip.inner_text()
    assert shown.errors == []
