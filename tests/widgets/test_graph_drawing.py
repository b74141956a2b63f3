"""What the graph's canvas shows: labels instead of long edges, the lines of what is pointed at,
only what is in the window, and changes that move to where they belong."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from tests.widgets.graphs import Builder, transformer
from widgets import page

#: Keeps where curves are drawn, in pixels of the canvas, as (x of the start, x of the end).
CURVES = """() => {
  const draw = CanvasRenderingContext2D.prototype.bezierCurveTo;
  const move = CanvasRenderingContext2D.prototype.moveTo;
  window.curves = [];
  let from = 0;
  CanvasRenderingContext2D.prototype.moveTo = function (x, y) { from = x; move.call(this, x, y); };
  CanvasRenderingContext2D.prototype.bezierCurveTo = function (...at) {
    const { a, e } = this.getTransform();
    window.curves.push([a * from + e, a * at[4] + e]);
    draw.apply(this, at);
  };
}"""


def chain(inserted: bool = False) -> Builder:
    """Ops of kinds k0, k1, ... in a row, the first and the last of which read a second argument;
    ``inserted``: with one more behind the third."""
    g = Builder()
    x, mask = g.add("argument"), g.add("argument")
    for number in range(10):
        if inserted and number == 3:
            x = g.add("new", (x,))
        x = g.add(f"k{number}", (x, mask) if number in (0, 9) else (x,))
    keys = {"new": 100} | {f"k{n}": 2 + n for n in range(10)}
    g.keys = [keys.get(kind, at) for at, kind in enumerate(g.kinds)]
    g.status = [int(kind == "new") for kind in g.kinds]
    return g


def texts(shown: Any) -> list[str]:
    """The texts of the drawing."""
    root = ElementTree.fromstring(shown.call("svg"))
    found = root.iter("{http://www.w3.org/2000/svg}text")
    return ["".join(each.itertext()) for each in found]


#: Keeps how far down the canvas each kind of op was written last, in pixels.
WRITTEN = """() => {
  window.written = {};
  for (const { prototype } of [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D]) {
    const write = prototype.fillText;
    prototype.fillText = function (text, x, y, ...more) {
      const { d, f } = this.getTransform();
      if (/^k\\d$/.test(text)) window.written[text] = d * y + f;
      write.call(this, text, x, y, ...more);
    };
  }
}"""


@pytest.mark.slow
def test_a_long_edge_is_a_label_and_drawn_only_for_what_is_pointed_at(open_page):
    shown = open_page(page([("graph", chain().data())], theme="light"))
    shown.settle()
    assert any("← %1 argument" in text for text in texts(shown)), texts(shown)
    assert sum("←" in text for text in texts(shown)) == 1, "the edges of the chain are drawn"
    last, mask = shown.call("placeOfOp", 11), shown.call("placeOfOp", 1)
    shown.tab.mouse.move(1400, 880)
    shown.settle()
    shown.tab.evaluate(CURVES)
    left = shown.view().locator("canvas").first.bounding_box()["x"]

    def is_drawn() -> bool:
        curves = shown.tab.evaluate("() => curves.splice(0)")
        wanted = mask["x"] - left, last["x"] - left
        return any(abs(a - wanted[0]) < 2 and abs(b - wanted[1]) < 2 for a, b in curves)

    shown.tab.mouse.move(shown.call("placeOfOp", 5)["x"], shown.call("placeOfOp", 5)["y"])
    shown.settle()
    assert not is_drawn()
    shown.tab.mouse.move(last["x"], last["y"])
    shown.settle()
    assert is_drawn()


@pytest.mark.slow
def test_only_what_is_in_the_window_is_drawn(open_page):
    shown = open_page(page([("graph", transformer(8).data())], theme="light"))
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.tab.keyboard.press("f")
    shown.tab.keyboard.press("f")  # again: all of it, however small
    shown.settle()
    whole = int(shown.view().get_attribute("data-drawn"))
    for _ in range(12):
        shown.tab.keyboard.press("+")
    shown.settle()
    near = int(shown.view().get_attribute("data-drawn"))
    assert 0 < near < whole / 4
    assert whole <= shown.call("shown")["items"]


#: Counts what is drawn: texts, curves and lines of edges, boxes with and without round corners.
COUNTED = """() => {
  window.counted = { fillText: 0, bezierCurveTo: 0, lineTo: 0, roundRect: 0, fillRect: 0, rect: 0 };
  for (const { prototype } of [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D]) {
    for (const name of Object.keys(window.counted)) {
      const draw = prototype[name];
      prototype[name] = function (...given) { window.counted[name] += 1; draw.apply(this, given); };
    }
  }
}"""


@pytest.mark.slow
def test_the_farther_away_the_less_detail_is_drawn(open_page):
    shown = open_page(page([("graph", transformer(40).data())], theme="light"))
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.tab.keyboard.press("f")
    shown.tab.keyboard.press("f")  # again: all of it, however small
    shown.settle()
    shown.tab.evaluate(COUNTED)
    found: dict[str, dict[str, int]] = {}
    for _ in range(60):
        scale = shown.call("camera")["scale"]
        zone = next(
            name
            for name, least in (("near", 0.45), ("shapes", 0.16), ("edges", 0.05), ("far", 0))
            if scale >= least
        )
        if zone not in found:
            shown.tab.evaluate("() => { for (const name in counted) counted[name] = 0; }")
            shown.tab.set_viewport_size({"width": 1440, "height": 901 + len(found)})  # drawn anew
            shown.tab.wait_for_timeout(400)
            found[zone] = shown.tab.evaluate("() => ({ ...counted })")
        if zone == "near":
            break
        shown.tab.keyboard.press("+")
        shown.tab.wait_for_timeout(150)
    drawn = {zone: {what for what, n in counts.items() if n} for zone, counts in found.items()}
    assert {"fillText", "bezierCurveTo", "roundRect"} <= drawn["near"]
    assert "fillText" not in drawn["shapes"] and {"bezierCurveTo", "roundRect"} <= drawn["shapes"]
    assert not {"fillText", "bezierCurveTo"} & drawn["edges"] and "lineTo" in drawn["edges"]
    assert not {"fillText", "bezierCurveTo", "lineTo"} & drawn["far"]
    assert found["far"]["rect"] > 1000, "each op is a box still"


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_what_moves_goes_to_its_place_step_by_step_or_stands_there_at_once(open_page, motion):
    """By a clock that the test moves on: the way takes 240 ms."""
    shown = open_page(page([("graph", chain().data())], theme="light"))
    shown.settle()
    shown.tab.emulate_media(reduced_motion=motion)
    shown.tab.clock.install()
    shown.tab.evaluate(WRITTEN)

    def written() -> dict[str, float]:
        return shown.tab.evaluate("() => ({ ...written })")

    shown.receive(chain().data("0 again"))
    shown.tab.clock.run_for(1000)
    before = written()
    shown.receive(chain(inserted=True).data("1", "insert"))
    shown.tab.clock.run_for(80)
    between = written()
    shown.tab.clock.run_for(1000)
    after = written()
    assert int(shown.view().get_attribute("data-moved")) > 0
    moving = [op for op in before if abs(after[op] - before[op]) > 1]
    assert len(before) == 10 and 0 < len(moving) < 10
    distance = {op: after[op] - before[op] for op in moving}
    assert max(distance.values()) - min(distance.values()) < 0.1, "all of them by the same"
    for op in before:
        if motion == "reduce" or op not in moving:
            assert abs(between[op] - after[op]) < 0.1, op
        else:
            assert 0.05 < (between[op] - before[op]) / distance[op] < 0.999, op
