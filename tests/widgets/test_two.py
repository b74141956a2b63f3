"""The views that show two recordings, on a static page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.widgets.samples import memory_data, timeline_data
from widgets import page

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

Open = Callable[..., Any]
MINUS = "\N{MINUS SIGN}"
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def plan(buffers: int, seed: int) -> dict[str, Any]:
    """A plan whose keys are numbers, as recordings have them."""
    made = memory_data(buffers, seed)
    made["buffers"]["key"] = np.arange(buffers, dtype=np.int32) + 100 * seed
    return made


def two_plans(shared: int = 40) -> dict[str, Any]:
    """Plans of which the first ``shared`` buffers hold the same."""
    numbers = np.arange(shared, dtype=np.int32)
    return {
        "two": {
            "a": plan(60, 3),
            "b": plan(50, 4),
            "names": ["a.run", "b.run"],
            "first": numbers + 300,
            "second": numbers + 400,
            "guessed": (numbers % 2).astype(np.uint8),
            "why": np.zeros(shared, np.uint8),
            "whys": ["value map"],
        }
    }


def two_timelines() -> dict[str, Any]:
    a, b = timeline_data(), timeline_data(40, 3, seed=6)
    numbers = np.arange(30, dtype=np.int32)
    made = {
        "two": {
            "a": a,
            "b": b,
            "names": ["a.run", "b.run"],
            "first": numbers,
            "second": numbers + 5,
            "guessed": np.zeros(30, np.uint8),
        }
    }
    made["two"]["pairs"] = launch_pairs(a, b)
    return made


def launch_pairs(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Launch i of A beside i + 5 of B, for 30 of them; the others alone."""
    ones, twos = (len(each["launches"]["op"]) for each in (a, b))
    of_a = np.arange(ones, dtype=np.int32)
    of_b = np.arange(twos, dtype=np.int32) - 5
    alone = (of_b < 0) | (of_b >= 30)
    of_b[alone] = np.arange(ones, ones + alone.sum())
    count = ones + int(alone.sum())

    def side(launches: dict[str, Any], of: np.ndarray) -> dict[str, Any]:
        us = np.full(count, np.nan)
        us[of] = launches["median"]
        return {"us": us, "sign": np.zeros(count, np.uint8)}

    return {
        "title": ["conv2d · relu"] * count,
        "place": ["/home/x/model.py:7"] * count,
        "a": side(a["launches"], of_a),
        "b": side(b["launches"], of_b),
        "guessed": np.zeros(count, np.uint8),
        "of_a": of_a,
        "of_b": of_b,
    }


def alive(data: dict[str, Any]) -> tuple[float, set[int]]:
    """The peak and the keys of what is alive there, by looking at every step."""
    b, steps = data["buffers"], np.arange(data["steps"])[:, None]
    there = (b["start"] <= steps) & (steps < b["end"])
    live = there @ b["size"]
    return live.max(), set(b["key"][there[live.argmax()]].tolist())


def test_both_peaks_and_what_is_alive_at_them(open_page: Open) -> None:
    data = two_plans()
    shown = open_page(page([("memory", data)]))
    (peak_a, ones), (peak_b, twos) = (alive(data["two"][side]) for side in "ab")
    assert shown.call("peaks") == [peak_a, peak_b]
    together = {a for a in ones if a < 340 and a + 100 in twos}
    assert shown.call("rows") == len(ones) + len(twos) - len(together)
    head, *rows = shown.call("csv").split("\n")
    assert head.startswith("buffer,computes,place,a_bytes,b_bytes,difference_bytes")
    apart = [abs(float(row.split(",")[5])) for row in rows]
    assert apart == sorted(apart, reverse=True)
    known = {row.split(",")[6] for row in rows if row.split(",")[3] and row.split(",")[4]}
    assert known <= {"recorded", "guessed"} and (known or not together)
    assert shown.errors == []


def test_a_buffer_of_either_side_selects_it_in_a(open_page: Open) -> None:
    shown = open_page(page([("memory", two_plans())]))
    shown.settle()
    row = shown.view().locator("tbody tr:not([data-a=''])").first
    key = int(row.get_attribute("data-a"))
    row.click()
    assert shown.trait("selection") == {"buffer": key, "op": key - 300}
    assert row.get_attribute("aria-selected") == "true"
    only_b = shown.view().locator("tbody tr[data-a='']").first
    only_b.click()
    assert shown.trait("selection").get("buffer") is None
    assert only_b.get_attribute("aria-selected") == "true"
    shown.view().locator(".list").focus()
    shown.tab.keyboard.press("Home")
    assert shown.view().locator("tbody tr").first.get_attribute("aria-selected") == "true"


def test_one_map_two_maps_and_one_again(open_page: Open) -> None:
    shown = open_page(page([("memory", memory_data())]))
    one = shown.view().locator(".figures").first.inner_text()
    shown.receive(two_plans(), 0)
    shown.settle()
    assert shown.view().locator(".plan:visible").count() == 2
    assert shown.view().locator(".side:visible").count() == 0
    shown.receive(memory_data(), 0)
    shown.settle()
    assert shown.view().locator(".plan:visible").count() == 0
    assert shown.view().locator(".figures:visible").inner_text() == one
    assert shown.errors == []


def saved_by(data: dict[str, Any]) -> dict[int, float]:
    """The buffers alive on both sides of the border, by key, by looking at both positions."""
    b, at = data["buffers"], data["border"]
    there = (b["start"] < at) & (b["end"] > at + 1)
    return dict(zip(b["key"][there].tolist(), b["size"][there].tolist(), strict=True))


def test_what_two_training_steps_save_where_nobody_answers(open_page: Open) -> None:
    data = two_plans()
    data["two"]["a"]["border"], data["two"]["b"]["border"] = 25, 20
    shown = open_page(page([("memory", data)]))
    tabs = shown.view().locator(".bar [data-side]:visible")
    assert tabs.all_inner_texts() == ["at peak", "backward"], "the others need an answer"
    tabs.last.click()
    assert shown.trait("state") == {"side": "backward"}
    ones, twos = (saved_by(data["two"][side]) for side in "ab")
    wanted = [(size, twos.get(key + 100) if key < 340 else None) for key, size in ones.items()]
    wanted += [(None, size) for key, size in twos.items() if key >= 440 or key - 100 not in ones]
    cells = [row.split(",") for row in shown.call("csv").split("\n")[1:]]
    found = [tuple(float(text) if text else None for text in row[3:5]) for row in cells]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    for row in cells:
        assert float(row[5]) == float(row[4] or 0) - float(row[3] or 0)
    del data["two"]["b"]["border"]
    shown.receive(data)
    assert tabs.all_inner_texts() == ["at peak"], "one trains"
    assert shown.errors == []


def test_two_timelines_have_one_window_and_one_selection(open_page: Open) -> None:
    data = two_timelines()
    shown = open_page(page([("timeline", data)]))
    shown.settle()

    def each(what: str) -> list[Any]:
        tracks = "[...root.querySelectorAll('.tracks')]"
        return shown.view().evaluate(f"(root) => {tracks}.map((e) => e.workbench.{what}())")

    total = max(data["two"][side]["total"] for side in "ab")
    assert [(w["from"], w["to"]) for w in each("window")] == [(0, total)] * 2
    shown.view().locator(".tracks .stage").nth(1).focus()
    shown.tab.keyboard.press("w")
    one, two = each("window")
    assert (one["from"], one["to"]) == (two["from"], two["to"]) != (0, total)
    shown.tab.keyboard.press("f")
    shown.tab.evaluate("workbench.models[0].receive('selection', {launches: [7]})")
    assert each("marked") == [[7], [12]]
    place = shown.view().evaluate(
        "(root) => root.querySelectorAll('.tracks')[1].workbench.placeOfLaunch(20)"
    )
    shown.tab.mouse.click(place["x"], place["y"])
    assert shown.trait("selection") == {"op": 1015}
    assert each("marked") == [[15], [20]]


def test_launches_are_listed_by_how_much_longer_they_take_in_b(open_page: Open) -> None:
    data = two_timelines()
    shown = open_page(page([("timeline", data)]))
    shown.settle()
    pairs, sides = data["two"]["pairs"], [data["two"][side] for side in "ab"]
    a, b = (np.nan_to_num(pairs[side]["us"]) for side in "ab")
    head, *rows = shown.call("differences").split("\n")
    assert head.split(",")[6:10] == ["a_us", "b_us", "difference_us", "difference_percent"]
    cells = [row.split(",") for row in rows]
    by = [float(row[8]) for row in cells]
    np.testing.assert_allclose(sorted(by), sorted(b - a))
    assert [abs(each) for each in by] == sorted((abs(each) for each in by), reverse=True)
    assert sum(row[10] == "recorded" for row in cells) == 30
    assert {(row[4], row[5]) for row in cells if not row[10]} == {("0", "1"), ("1", "0")}
    for row in cells[:30]:
        if row[10]:
            wanted = 100 * (float(row[7]) - float(row[6])) / float(row[6])
            assert float(row[9]) == pytest.approx(wanted)

    view = shown.view()
    matched = next(i for i, row in enumerate(cells) if row[10])
    line = view.locator(".differences tbody tr").nth(matched)
    line.click()
    at = int(line.get_attribute("data-row"))
    marked = "(root) => [...root.querySelectorAll('.tracks')].map((e) => e.workbench.marked())"
    assert view.evaluate(marked) == [[at], [at + 5]], "in both stacks"
    assert shown.trait("selection")["op"] == sides[0]["launches"]["op"][at]
    assert line.get_attribute("aria-selected") == "true"
    view.locator(".tracks .stage").first.focus()
    shown.tab.keyboard.press("i")
    facts = view.locator(".tracks .tooltip:visible").inner_text()
    assert (
        "A | B" in facts and f"B {MINUS} A" in facts and "%" in facts.partition(f"B {MINUS} A")[2]
    )

    only = next(i for i, row in enumerate(cells) if (row[4], row[5]) == ("0", "1"))
    view.locator(".differences tbody tr").nth(only).click()
    ones, twos = view.evaluate(marked)
    assert (ones, len(twos)) == ([], 1) and "op" not in shown.trait("selection")
    view.locator(".differences .list").focus()
    shown.tab.keyboard.press("Home")
    assert view.locator(".differences tbody tr").first.get_attribute("aria-selected") == "true"
    view.locator("[data-sort=a]").click()
    shown_a = [row.split(",")[6] for row in shown.call("differences").split("\n")[1:]]
    known = [float(each) for each in shown_a if each]
    assert known == sorted(known, reverse=True)
    assert shown.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("view", ["memory", "timeline"])
def test_names_of_both_are_text(open_page: Open, view: str) -> None:
    data = two_plans() if view == "memory" else two_timelines()
    for side in "ab":
        part = data["two"][side]
        if view == "memory":
            part["buffers"]["name"] = [HOSTILE] * len(part["buffers"]["key"])
        else:
            part["kernels"]["name"], part["note"] = [HOSTILE] * 3, HOSTILE
            found = data["two"]["pairs"]
            found["title"] = found["place"] = [HOSTILE] * len(found["title"])
    data["two"]["names"] = [HOSTILE, HOSTILE]
    shown = open_page(page([(view, data)]))
    shown.settle()
    assert HOSTILE in shown.view().inner_text()
    assert shown.view().locator("img").count() == 0
    assert shown.tab.evaluate("window.hacked") is None
