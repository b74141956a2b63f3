"""Stepping the changes of a pass, and where they go on from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.widgets.graphs import Builder
from widgets import page

Open = Callable[..., Any]
ADDED, REMOVED, CHANGED = 1, 2, 3


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
