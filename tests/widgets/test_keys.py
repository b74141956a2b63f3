"""What the pointer does, by keys: the map of the graph, axes, facts, lines; and an open menu."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from tests.widgets.graphs import transformer
from tests.widgets.samples import diff_data, memory_data, timeline_data
from tests.widgets.test_two import two_plans
from widgets import colours, page

Open = Callable[..., Any]


def said(shown: Any) -> str:
    """What a screen reader is told."""
    return shown.view().locator("[aria-live]").first.inner_text()


def press(shown: Any, *keys: str) -> None:
    for key in keys:
        shown.tab.keyboard.press(key)
    shown.settle()


@pytest.mark.slow
def test_the_map_of_the_graph_moves_the_window(open_page: Open) -> None:
    shown = open_page(page([("graph", transformer(3).data())]))
    shown.focus()
    press(shown, "E", "f")
    whole = shown.call("camera")
    shown.focus(".minimap")
    outline = "(map) => getComputedStyle(map).outlineStyle"
    assert shown.view().locator(".minimap").evaluate(outline) == "solid"
    press(shown, "+", "+", "+", "+")
    near = shown.call("camera")
    assert near["scale"] > whole["scale"]
    press(shown, "End")
    end = shown.call("camera")
    assert "to 100 % of its height" in said(shown)
    press(shown, "ArrowUp")
    above = shown.call("camera")
    assert near["y"] < above["y"] < end["y"]
    press(shown, "ArrowDown", "Home")
    assert shown.call("camera")["y"] < near["y"]
    assert "shows 0 to" in said(shown)
    press(shown, "-")
    assert shown.call("camera")["scale"] < near["scale"]
    press(shown, "C")  # keys of the drawing act here too
    assert shown.call("shown")["ops"] < transformer(3).data()["ops"]["kind"].size
    assert shown.errors == []


@pytest.mark.slow
def test_memory_zooms_and_pans_each_axis(open_page: Open) -> None:
    shown = open_page(page([("memory", memory_data(1000))]))
    shown.focus()
    whole = shown.call("window")
    press(shown, "w")
    steps = shown.call("window")
    assert steps["to"] - steps["from"] < whole["to"] - whole["from"]
    assert (steps["low"], steps["high"]) == (whole["low"], whole["high"])
    press(shown, "W")
    both = shown.call("window")
    assert both["high"] - both["low"] < whole["high"] - whole["low"]
    press(shown, "d", "PageUp")
    moved = shown.call("window")
    assert moved["from"] > both["from"] and moved["low"] > both["low"]
    press(shown, "a", "PageDown", "s", "S")
    assert shown.call("window") == pytest.approx(whole)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("view", ["graph", "memory", "timeline"])
def test_the_focus_of_a_drawing_can_be_seen(open_page: Open, view: str) -> None:
    """At its edge, where the canvas would cover an outline."""
    data = {"graph": transformer(1).data, "memory": memory_data, "timeline": timeline_data}[view]()
    shown = open_page(page([(view, data)], theme="light"))
    stage = shown.view().locator(".stage")

    def edge() -> str:
        picture = Image.open(io.BytesIO(stage.screenshot())).convert("RGB")
        return "#{:02x}{:02x}{:02x}".format(*picture.getpixel((1, picture.height // 2)))

    accent = colours.table()["interface"]["accent"][0]
    assert edge() != accent
    shown.focus()
    press(shown, "ArrowRight")
    assert edge() == accent


@pytest.mark.slow
@pytest.mark.parametrize("view", ["memory", "timeline"])
def test_facts_of_the_selection_are_shown_and_said(open_page: Open, view: str) -> None:
    data = memory_data() if view == "memory" else timeline_data()
    shown = open_page(page([(view, data)]))
    shown.focus()
    tip = shown.view().locator(".tooltip")
    press(shown, "ArrowRight")
    assert tip.is_hidden()
    press(shown, "i")
    first = tip.inner_text()
    assert ("offset" if view == "memory" else "duration") in first
    assert said(shown).split() == first.split()
    press(shown, "ArrowRight")
    assert tip.inner_text() != first, "it goes along"
    press(shown, "i")
    assert tip.is_hidden()


@pytest.mark.slow
def test_lines_of_a_diff_and_its_folds(open_page: Open) -> None:
    data = diff_data(40)
    equal = [{"left": f"equal {i}", "kind": "equal", "leftKey": None} for i in range(200)]
    data["lines"] = data["lines"][:20] + equal + data["lines"][20:]
    shown = open_page(page([("diff", data)]))
    shown.focus(".lines")
    press(shown, "Shift+ArrowDown")
    assert shown.trait("selection") == {"op": 0}
    press(shown, *["Shift+ArrowDown"] * 7)
    assert shown.trait("selection") == {"op": "f6"}, "removed and added lines have ops of their own"
    assert "tensor.gelu" in said(shown)
    press(shown, "Shift+ArrowUp")
    assert shown.trait("selection") == {"op": 6}
    press(shown, "Tab")
    assert shown.view().locator(".fold").evaluate("(fold) => fold.matches(':focus-visible')")
    press(shown, "Enter")
    assert shown.view().locator(".fold").count() == 0
    press(shown, "j")  # the focus is back in the lines
    assert shown.view().locator(".place").inner_text().startswith("1 of ")


@pytest.mark.slow
def test_the_live_bytes_of_two_are_read_off(open_page: Open) -> None:
    shown = open_page(page([("memory", two_plans())]))
    shown.settle()
    strip = shown.view().locator(".strip")
    strip.focus()
    press(shown, "End", "ArrowLeft")
    assert strip.get_attribute("aria-valuenow") == "99"
    text = strip.get_attribute("aria-valuetext")
    assert text.startswith("99 % of the program") and "A" in text and "B" in text
    assert strip.locator(".tooltip").is_visible()
    press(shown, "Home")
    assert strip.get_attribute("aria-valuetext") != text


@pytest.mark.slow
def test_an_open_menu_stays_while_data_arrive(open_page: Open) -> None:
    shown = open_page(page([("graph", transformer(3).data())]))
    shown.view().get_by_role("button", name="Download").focus()
    press(shown, "Enter")  # the menu takes the focus a moment later
    press(shown, "ArrowDown")
    item = shown.view().get_by_role("menuitem").nth(1)
    focused = "(item) => item.getRootNode().activeElement === item"
    assert item.evaluate(focused)
    shown.receive(transformer(4).data("1", "cse"))
    shown.settle()
    assert shown.view().get_attribute("data-ready") == "2"
    assert item.is_visible() and item.evaluate(focused)


@pytest.mark.slow
def test_an_older_answer_does_not_undo_a_newer_choice(open_page: Open) -> None:
    """Keys are quicker than a host that counts what it is told."""
    shown = open_page(page([("diff", diff_data(40))]))

    def host(**selection: Any) -> None:
        shown.tab.evaluate("(s) => workbench.models[0].receive('selection', s)", selection)

    def marked() -> str:
        return shown.view().locator(".lines .selected").first.inner_text()

    host(op=0, n=0)
    shown.focus(".lines")
    press(shown, *["Shift+ArrowDown"] * 2)
    written = shown.trait("selection")
    assert written == {"op": 2, "n": 2}
    there = marked()
    host(op=1, n=1)
    assert marked() == there, "the host has not heard of the second key yet"
    press(shown, "Shift+ArrowDown")
    assert shown.trait("selection") == {"op": 3, "n": 3}, "keys go on from what is shown"
    there = marked()
    host(op=2, n=2)
    host(op=3, n=3)
    assert marked() == there
    host(op=0, n=3)
    assert marked() != there, "what the host knows better, and what other views choose"
    press(shown, "Shift+ArrowDown")
    assert shown.trait("selection") == {"op": 1, "n": 4}
