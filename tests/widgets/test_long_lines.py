"""Long lines wrapped, and the lines of one op alone, in the IR diff and the code view."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.widgets.samples import code_data, diff_data
from widgets import page

Open = Callable[..., Any]
LONG = "%9 = core.matmul(%7, %8) : (tensor<128x768xf32>, tensor<768x3072xf32>) " * 6
ROW = 18
#: The rows of the list that are built: their tops, heights, and whether their text is cut off.
ROWS = """(view, name) => [...view.querySelectorAll(`${name} .row`)].map((row) => {
  const code = row.querySelector('.code');
  const box = row.getBoundingClientRect();
  return { top: box.top, height: box.height, text: row.textContent,
           cut: Boolean(code) && (code.scrollWidth > code.clientWidth + 1
                                  || code.scrollHeight > box.height + 1) };
}).sort((a, b) => a.top - b.top)"""


def rows(shown: Any, name: str) -> list[dict[str, Any]]:
    return shown.view().evaluate(ROWS, name)


def with_a_long_line() -> dict[str, Any]:
    data = diff_data(40)
    at = next(i for i, line in enumerate(data["lines"]) if line["kind"] == "changed")
    data["lines"][at] |= {"left": f"{LONG}old", "right": f"{LONG}new"}
    return data


@pytest.mark.slow
@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("width", [700, 1400])
def test_a_wrapped_line_is_whole_and_pushes_the_next_ones_down(
    open_page: Open, unified: bool, width: int
) -> None:
    shown = open_page(
        page([("diff", with_a_long_line())], theme="light", state=[{"unified": unified}])
    )
    shown.tab.set_viewport_size({"width": width, "height": 700})
    shown.settle()
    assert all(row["height"] == ROW for row in rows(shown, ".lines"))
    shown.view().locator(".lines").focus()
    shown.tab.keyboard.press("w")
    shown.settle()
    found = rows(shown, ".lines")
    high = [row for row in found if row["height"] > ROW]
    assert any(row["text"].endswith(("old", "new")) for row in high)
    assert not [row["text"][:40] for row in found if row["cut"]]
    for above, below in pairwise(found):
        assert below["top"] == pytest.approx(above["top"] + above["height"], abs=0.5)
    assert shown.trait("state")["wrap"] is True


def test_only_the_lines_of_the_selected_op(open_page: Open) -> None:
    data = diff_data(60)
    chosen = next(line for line in data["lines"] if line.get("rightKey") is not None)
    shown = open_page(page([("diff", data)], theme="light", state=[{"unified": False}]))
    shown.tab.evaluate(
        "(op) => workbench.models[0].receive('selection', { op })", chosen["rightKey"]
    )
    shown.view().locator(".lines").focus()
    shown.tab.keyboard.press("o")
    shown.settle()
    wanted = [
        line
        for line in data["lines"]
        if chosen["rightKey"] in (line.get("leftKey"), line.get("rightKey"))
    ]
    assert len(rows(shown, ".lines")) == len(wanted)
    shown.tab.keyboard.press("o")
    shown.settle()
    assert len(rows(shown, ".lines")) > len(wanted)


def long_code() -> dict[str, Any]:
    data = code_data()
    data["panes"][0]["text"] = data["panes"][0]["text"].replace("\n", f"  # {LONG}\n", 3)
    return data


@pytest.mark.slow
def test_code_is_wrapped_too(open_page: Open) -> None:
    shown = open_page(page([("code", long_code())], theme="light"))
    shown.settle()
    shown.view().locator(".lines").first.focus()
    shown.tab.keyboard.press("w")
    shown.settle()
    first = ".pane:first-child"
    assert any(row["height"] > ROW for row in rows(shown, first))
    assert not [row["text"][:40] for row in rows(shown, first) if row["cut"]]


@pytest.mark.slow
def test_a_narrow_view_shows_one_text_and_the_others_by_their_buttons(open_page: Open) -> None:
    shown = open_page(page([("code", code_data())], theme="light"))
    shown.settle()
    texts = shown.view().locator(".pane:visible")
    all_of_them = texts.count()
    assert all_of_them > 1
    shown.tab.set_viewport_size({"width": 640, "height": 700})
    shown.settle()
    assert texts.count() == 1
    shown.view().locator("[aria-label=Texts] button").nth(1).click()
    shown.settle()
    assert texts.count() == 1
    assert texts.locator("h3 span").first.inner_text() == code_data()["panes"][1]["title"]


def test_code_opens_where_the_time_goes(open_page: Open) -> None:
    data = code_data(repeat=12)
    lines = data["panes"][0]["text"].count("\n")
    data["hot"] = hot = lines - 10
    shown = open_page(page([("code", data)], theme="light"))
    shown.settle()
    pane = shown.view().locator(".pane").first
    assert pane.locator(f'.row[data-line="{hot}"]').is_visible()
    assert not pane.locator('.row[data-line="1"]').count()


def test_where_nothing_became_of_the_hot_line_its_nearest_says_where_the_others_open(
    open_page: Open,
) -> None:
    """A call that was inlined has no line of its own in the texts that it became."""
    data = code_data(repeat=12)
    lines, llvm = (p["text"].count("\n") for p in data["panes"][:2])
    data["hot"] = hot = lines - 2  # of the last repetition, whose line before it has some
    for group in data["groups"]:
        if hot in group["lines"][0]:
            group["lines"][1] = group["lines"][2] = []
    near = min(
        (g for g in data["groups"] if g["lines"][1]),
        key=lambda g: min(abs(n - hot) for n in g["lines"][0]),
    )
    shown = open_page(page([("code", data)], theme="light"))
    shown.settle()
    pane = shown.view().locator(".pane").nth(1)
    assert near["lines"][1][0] > llvm - 30
    assert pane.locator(f'.row[data-line="{near["lines"][1][0]}"]').is_visible()
    assert not pane.locator('.row[data-line="1"]').count()
