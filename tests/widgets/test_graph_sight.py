"""The first look at a graph: readable, at the first change; and what opening a scope, another size
of the pane and "fit" make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.widgets.graphs import Builder, sized, transformer
from tests.widgets.test_graph_window import chain, stage
from widgets import page

Open = Callable[..., Any]
#: From this scale on the smallest text of an op has 9 pixels.
READABLE = 0.9


def box_of(shown: Any) -> dict[str, float]:
    return shown.view().locator(".stage").bounding_box()


def inside(box: dict[str, float], at: dict[str, float]) -> bool:
    across = box["x"] < at["x"] < box["x"] + box["width"]
    return across and box["y"] < at["y"] < box["y"] + box["height"]


@pytest.mark.slow
@pytest.mark.parametrize("ops", [4, 14, 60, 400])
@pytest.mark.parametrize("at", ["first", "last"])
def test_the_change_of_a_pass_is_in_sight_and_readable(open_page: Open, ops: int, at: str) -> None:
    g = chain(ops)
    changed = g.keys[2] if at == "first" else g.keys[-2]
    shown = open_page(page([("graph", stage(g, 1, **{f"op{changed}": 1}))], theme="light"))
    shown.settle()
    assert shown.call("camera")["scale"] >= READABLE
    assert inside(box_of(shown), shown.call("placeOfOp", changed))


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 700, 1300])
def test_without_a_change_it_begins_at_the_first_op(open_page: Open, width: int) -> None:
    """Also of a graph that is wider than the pane: nothing is cut off at its left edge."""
    shown = open_page(page([("graph", wide().data())], theme="light"))
    shown.tab.set_viewport_size({"width": width, "height": 600})
    shown.settle()
    assert shown.call("camera")["scale"] >= READABLE
    assert inside(box_of(shown), shown.call("placeOfOp", 0))


def wide() -> Builder:
    """One argument, twenty ops beside each other, and a long chain below them."""
    g = Builder()
    first = g.add("argument")
    made = [g.add("exp", (first,)) for _ in range(20)]
    last = made[0]
    for each in made[1:]:
        last = g.add("add", (last, each))
    g.add("output", (last,))
    return g


def test_another_size_of_the_pane_fits_it_again(open_page: Open) -> None:
    shown = open_page(page([("graph", chain(8).data())], theme="light"))
    shown.settle()
    for size in ((500, 420), (1200, 900)):
        shown.tab.set_viewport_size({"width": size[0], "height": size[1]})
        shown.settle()
        assert inside(box_of(shown), shown.call("placeOfOp", 0))
    last = len(chain(8).keys) - 1
    assert inside(box_of(shown), shown.call("placeOfOp", last))  # 900 pixels are enough for all


@pytest.mark.slow
def test_a_window_that_was_moved_keeps_its_middle(open_page: Open) -> None:
    shown = open_page(page([("graph", chain(200).data())], theme="light"))
    shown.settle()
    shown.focus()
    box = box_of(shown)
    shown.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.tab.mouse.wheel(0, 900)
    shown.settle()

    def middle() -> tuple[float, float]:
        camera, now = shown.call("camera"), box_of(shown)
        return (
            camera["x"] + now["width"] / 2 / camera["scale"],
            camera["y"] + now["height"] / 2 / camera["scale"],
        )

    before = middle()
    shown.tab.set_viewport_size({"width": 620, "height": 500})
    shown.settle()
    assert middle() == pytest.approx(before, abs=1.0)


@pytest.mark.slow
def test_fit_shows_the_width_of_a_graph_that_would_be_a_hairline(open_page: Open) -> None:
    shown = open_page(page([("graph", sized(7000).data())], theme="light"))
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.settle()
    shown.tab.keyboard.press("f")
    shown.settle()
    wide = shown.call("camera")["scale"]
    assert "f again to show all" in shown.view().locator(".note").inner_text()
    shown.tab.keyboard.press("f")
    shown.settle()
    assert wide >= 0.1 > shown.call("camera")["scale"]


def scope_of(shown: Any) -> tuple[str, dict[str, float]]:
    """An open scope that has its title in the window, and where that is."""
    box = box_of(shown)
    for scope in shown.call("scopes"):
        at = shown.call("placeOfScope", scope["id"]) if scope["id"] else None
        if at and inside(box, at) and at["y"] > box["y"] + 60:
            return scope["id"], at
    raise AssertionError("no scope in the window")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["triangle", "double click"])
def test_opening_a_scope_keeps_the_selection(open_page: Open, how: str) -> None:
    shown = open_page(page([("graph", transformer(2).data())], theme="light"))
    shown.settle()
    shown.tab.evaluate("workbench.models[0].receive('selection', {op: 0})")
    shown.settle()
    scope, at = scope_of(shown)
    drawn = shown.call("shown")
    if how == "triangle":
        left, scale = shown.call("boxOfScope", scope)["left"], shown.call("camera")["scale"]
        shown.tab.mouse.click(left + 10 * scale, at["y"])
    else:
        shown.tab.mouse.dblclick(at["x"], at["y"])
    shown.settle()
    assert shown.call("shown") != drawn  # it has opened or closed
    assert shown.trait("selection").get("op") == 0 and "scope" not in shown.trait("selection")


def test_no_tooltip_stays_when_what_it_was_about_has_gone(open_page: Open) -> None:
    shown = open_page(page([("graph", transformer(2).data())], theme="light"))
    shown.settle()
    _, at = scope_of(shown)
    shown.tab.mouse.move(at["x"], at["y"])
    shown.tab.mouse.move(at["x"] + 1, at["y"])
    shown.settle()
    shown.tab.mouse.dblclick(at["x"], at["y"])
    shown.settle()
    assert not shown.view().locator(".tooltip").is_visible()
