"""Stepping the changes of a pass, and what is kept when the graph shows another stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.widgets.graphs import Builder
from widgets import page

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

Open = Callable[..., Any]
CHANGED = 3


def scaled() -> tuple[dict[str, Any], list[int]]:
    """Products with changed constants, which are drawn as labels of theirs, and a changed end; the
    ops that are selected for the changes, in order."""
    g = Builder()
    last = g.add("argument")
    users = []
    for _ in range(3):
        constant = g.add("constant", type="tensor<768xf32>")
        g.status[constant] = CHANGED
        last = g.add("multiply", (last, constant))
        users.append(last)
    end = g.add("output", (last,))
    g.status[end] = CHANGED
    return g.data(), [*users, end]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["]", "["])
def test_every_change_is_gone_to_in_order_from_either_end(open_page: Open, key: str) -> None:
    data, selected = scaled()
    shown = open_page(page([("graph", data)]))
    shown.focus()
    found = []
    for _ in range(len(selected) + 1):
        shown.tab.keyboard.press(key)
        found.append(shown.trait("selection")["op"])
    order = selected if key == "]" else selected[::-1]
    assert found == [*order, order[0]]


def test_a_host_that_knows_no_such_op_does_not_hold_them_up(open_page: Open) -> None:
    """As of what is only in B: the host selects nothing for it."""
    data, selected = scaled()
    shown = open_page(page([("graph", data)]))
    shown.focus()
    found = []
    for _ in selected:
        shown.tab.keyboard.press("]")
        found.append(shown.trait("selection")["op"])
        shown.tab.evaluate("workbench.models[0].receive('selection', {})")
    assert found == selected


def test_changes_go_on_from_what_a_person_selects(open_page: Open) -> None:
    data, selected = scaled()
    shown = open_page(page([("graph", data)]))
    shown.focus()
    shown.tab.keyboard.press("]")
    at = shown.call("placeOfOp", selected[1])
    shown.tab.mouse.click(at["x"], at["y"])
    shown.tab.keyboard.press("]")
    assert shown.trait("selection") == {"op": selected[2]}
    shown.tab.keyboard.press("Escape")
    shown.tab.keyboard.press("]")
    assert shown.trait("selection") == {"op": selected[0]}


# -- overlays -------------------------------------------------------------------------------------


def coloured(number: int, *names: str) -> Mapping[str, Any]:
    g = Builder()
    g.add("output", (g.add("argument"),))
    values = np.array([1.0, 2.0])
    overlays = [
        {"name": name, "unit": "", "values": values, "combine": "max", "scale": "linear"}
        for name in names
    ]
    return g.data(str(number), overlays=overlays)


def test_the_chosen_overlay_stays_where_a_stage_has_others_or_lacks_it(open_page: Open) -> None:
    shown = open_page(page([("graph", coloured(0, "time", "value"))]))
    legend = shown.view().locator(".legend .heat")
    shown.focus()
    shown.tab.keyboard.press("o")
    shown.tab.keyboard.press("o")
    assert "value" in legend.inner_text()
    shown.receive(coloured(1, "time", "error", "value"))
    assert "value" in legend.inner_text()
    shown.receive(coloured(2, "time", "error"))
    assert legend.count() == 0
    shown.receive(coloured(3, "value"))
    assert "value" in legend.inner_text()


def test_an_overlay_of_a_link_waits_for_a_stage_that_has_it(open_page: Open) -> None:
    shown = open_page(page([("graph", coloured(0, "time"))], state=[{"overlay": "value"}]))
    legend = shown.view().locator(".legend .heat")
    assert legend.count() == 0
    shown.receive(coloured(1, "time", "value"))
    assert "value" in legend.inner_text()
