"""What the window of the graph shows: below the crumbs, at the change of a new stage, and how much
of the graph it says that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.widgets.graphs import FILE, Builder, transformer
from widgets import page

Open = Callable[..., Any]


def chain(ops: int = 60, named: str = "") -> Builder:
    """Ops below each other, higher than any window, with a weight each."""
    g = Builder()
    last = g.add("argument")
    for _ in range(ops):
        weight = g.add("constant", type="tensor<768xf32>")
        last = g.add("add", (last, weight), scope=named)
    g.add("output", (last,))
    return g


def stage(g: Builder, number: int, **status: int) -> dict[str, Any]:
    """The graph as a pass left it: ``op5=3`` says that op 5 was changed."""
    g.status = [status.get(f"op{key}", 0) for key in g.keys]
    return g.data(str(number), f"after pass {number}")


def top_of(shown: Any) -> float:
    """Where the overlays at the top end, in the page."""
    boxes = [shown.view().locator(name).bounding_box() for name in (".crumbs", ".shown")]
    return max(box["y"] + box["height"] for box in boxes if box)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", [None, "f"])
@pytest.mark.parametrize("ops", [8, 60])
def test_the_first_node_is_below_the_crumbs(open_page: Open, ops: int, key: str | None) -> None:
    """A chain of 8 ops is shown whole, of 60 from its beginning."""
    shown = open_page(page([("graph", chain(ops, "block").data())], theme="light"))
    shown.focus()
    if key:
        shown.tab.keyboard.press(key)
    shown.settle()
    half_a_name = 10 * shown.call("camera")["scale"]
    assert shown.call("placeOfOp", 0)["y"] - half_a_name >= top_of(shown)


def test_what_only_moved_is_no_change_to_stay_at(open_page: Open) -> None:
    """An op that moved into another group is in the window, the op that was added is far below."""
    g = chain()
    shown = open_page(page([("graph", stage(g, 1))], theme="light"))
    added = g.keys[-2]
    before = shown.call("camera")
    shown.receive(stage(g, 2, **{"op2": 4, f"op{added}": 1}))
    shown.settle()
    box = shown.view().locator(".stage").bounding_box()
    at = shown.call("placeOfOp", added)
    assert shown.call("camera") != before
    assert top_of(shown) <= at["y"] < box["y"] + box["height"]
    assert shown.trait("selection") == {}


def test_a_changed_weight_is_shown_at_its_user(open_page: Open) -> None:
    g = chain()
    shown = open_page(page([("graph", stage(g, 1))], theme="light"))
    weight = max(i for i, kind in enumerate(g.kinds) if kind == "constant")
    shown.receive(stage(g, 2, **{f"op{weight}": 3}))
    shown.settle()
    box = shown.view().locator(".stage").bounding_box()
    assert box["y"] < shown.call("placeOfOp", weight + 1)["y"] < box["y"] + box["height"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("status", [1, 2, 3])
def test_where_a_change_is_in_the_window_nothing_moves(open_page: Open, status: int) -> None:
    g = chain()
    shown = open_page(page([("graph", stage(g, 1))], theme="light"))
    before = shown.call("camera")
    shown.receive(stage(g, 2, **{"op4": status, f"op{g.keys[-2]}": 1}))
    shown.settle()
    assert shown.call("camera") == before


def test_with_a_selection_the_window_stays(open_page: Open) -> None:
    g = chain()
    shown = open_page(page([("graph", stage(g, 1))], theme="light"))
    shown.tab.evaluate("workbench.models[0].receive('selection', {op: 2})")
    shown.settle()
    before = shown.call("camera")
    shown.receive(stage(g, 2, **{f"op{g.keys[-2]}": 1}))
    shown.settle()
    assert shown.call("camera") == before


def test_the_count_says_what_is_counted(open_page: Open) -> None:
    g = chain(60)
    shown = open_page(page([("graph", stage(g, 1, op2=2, op4=1))], theme="light"))
    status = shown.view().locator(".shown")
    assert status.inner_text() == "61 of 61 ops, 60 constants, 1 removed"
    assert "constants" in status.get_attribute("title").lower()
    shown.focus()
    shown.tab.keyboard.press("w")  # draws weights; they are no ops for that
    assert status.inner_text() == "61 of 61 ops, 60 constants, 1 removed"
    shown.tab.set_viewport_size({"width": 560, "height": 600})
    assert status.inner_text() == "61 of 61 ops"


def test_a_pinned_op_has_the_short_path_of_its_line(open_page: Open) -> None:
    g = transformer(1)
    data = g.data()
    data["files"] = [f"/home/me/.venv/lib/python3.11/site-packages/deep/{FILE}"]
    shown = open_page(page([("graph", data)], theme="light"))
    shown.focus()
    shown.tab.keyboard.press("E")
    key = g.kinds.index("exp")
    shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
    shown.settle()
    shown.focus()
    shown.tab.keyboard.press("p")
    row = shown.view().locator(".pins tr", has=shown.tab.get_by_role("rowheader", name="from"))
    assert row.locator("td").first.inner_text() == f"deep/{FILE}:{g.lines[key]}"


# -- no window without anything in it -------------------------------------------------------------


def test_a_stage_far_from_what_was_shown_is_not_out_of_the_window(open_page: Open) -> None:
    """Nothing of the long chain's end is left, and nothing is called a change."""
    shown = open_page(page([("graph", stage(chain(200), 1))], theme="light"))
    shown.tab.evaluate("workbench.models[0].receive('selection', {op: 400})")
    shown.settle()
    shown.tab.evaluate("workbench.models[0].receive('selection', {})")
    short = chain(4)
    short.keys = [1000 + key for key in short.keys]
    shown.receive(short.data("2", "after pass 2"))
    shown.settle()
    box = shown.view().locator(".stage").bounding_box()
    ends = [shown.call("placeOfOp", key) for key in (short.keys[0], short.keys[-1])]
    assert any(box["y"] < at["y"] < box["y"] + box["height"] for at in ends)


@pytest.mark.slow
@pytest.mark.parametrize("selected", [None, 100])
def test_a_graph_that_came_while_it_was_hidden_is_seen_from_its_beginning(
    open_page: Open, selected: int | None
) -> None:
    html = page([("graph", chain(200).data())], theme="light")
    shown = open_page(html.replace("<main", '<main style="display: none"', 1))
    if selected is not None:
        shown.tab.evaluate("(op) => workbench.models[0].receive('selection', {op})", selected)
    shown.tab.evaluate("document.querySelector('main').style.display = ''")
    shown.settle()
    box = shown.view().locator(".stage").bounding_box()
    at = shown.call("placeOfOp", selected or 0)
    assert top_of(shown) <= at["y"] < box["y"] + box["height"]
    assert box["x"] < at["x"] < box["x"] + box["width"]
