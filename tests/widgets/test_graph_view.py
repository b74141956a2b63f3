"""The graph view in a real browser, on a static page that needs no server."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest

from tests.widgets.graphs import sized, trained, transformer, with_overlays
from widgets import page

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

Open = Callable[..., Any]


def graph_page(open_page: Open, **options: Any) -> Any:
    return open_page(page([("graph", transformer(3).data())], theme="light", **options))


def click_op(shown: Any, key: int) -> None:
    at = shown.call("placeOfOp", key)
    shown.tab.mouse.click(at["x"], at["y"])


def first_shown(shown: Any, kind: str) -> int:
    g = transformer(3)
    keys = [key for key, each in zip(g.keys, g.kinds, strict=True) if each == kind]
    return next(key for key in keys if shown.call("placeOfOp", key) is not None)


def test_click_selects(open_page: Open) -> None:
    shown = graph_page(open_page)
    key = first_shown(shown, "gather")
    click_op(shown, key)
    assert shown.trait("selection") == {"op": key}
    assert "gather" in shown.view().locator("[aria-live]").first.inner_text()


def test_selection_from_the_host_is_revealed(open_page: Open) -> None:
    """An op inside closed scopes is opened up to and brought into the window."""
    shown = graph_page(open_page)
    g = transformer(3)
    key = max(key for key, kind in zip(g.keys, g.kinds, strict=True) if kind == "exp")
    assert shown.call("placeOfOp", key) is None
    shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
    shown.settle()
    at = shown.call("placeOfOp", key)
    assert 0 < at["x"] < 1440 and 30 < at["y"] < 900


def test_arrow_keys_walk_edges(open_page: Open) -> None:
    shown = graph_page(open_page)
    key = first_shown(shown, "exp")
    shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
    shown.focus()
    g = transformer(3)
    shown.tab.keyboard.press("ArrowDown")
    below = shown.trait("selection")["op"]
    assert key in g.operands[below]
    shown.tab.keyboard.press("ArrowUp")
    assert shown.trait("selection")["op"] == key
    shown.tab.keyboard.press("Backspace")
    assert shown.trait("selection") == {"scope": "encoder/layer.0/attention"}


def test_keys_act_only_while_focused(open_page: Open) -> None:
    shown = graph_page(open_page)
    before = shown.call("shown")
    shown.tab.keyboard.press("E")
    assert shown.call("shown") == before
    shown.focus()
    shown.tab.keyboard.press("E")
    assert shown.call("shown")["ops"] > before["ops"]


def test_handled_keys_do_not_reach_the_page(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.tab.evaluate(
        "() => { window.keys = []; addEventListener('keydown', (e) => keys.push(e.key)); }"
    )
    shown.focus()
    shown.tab.keyboard.press("ArrowDown")
    shown.tab.keyboard.press("F2")
    assert shown.tab.evaluate("keys") == ["F2"]


@pytest.mark.slow
def test_expand_and_collapse(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("C")
    shown.settle()
    closed = shown.call("shown")["items"]
    at = shown.call("placeOfScope", "embeddings")
    shown.tab.mouse.dblclick(at["x"] + 20, at["y"])
    shown.settle()
    assert shown.call("shown")["items"] == closed + 2
    moved = shown.call("placeOfScope", "embeddings")
    assert abs(moved["y"] - at["y"]) < 3  # what was clicked stays under the pointer
    shown.tab.keyboard.press("Enter")
    shown.settle()
    assert shown.call("shown")["items"] == closed


def test_state_names_what_is_open(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("C")
    at = shown.call("placeOfScope", "embeddings")
    shown.tab.mouse.dblclick(at["x"] + 20, at["y"])
    shown.settle()
    shown.tab.wait_for_timeout(300)
    assert shown.trait("state")["open"] == ["embeddings"]


@pytest.mark.slow
def test_where_nothing_is_remembered_it_is_as_at_first(open_page: Open) -> None:
    """The host shows a view state from before something was searched, opened or coloured."""
    data = with_overlays(transformer(3).data())
    first = open_page(page([("graph", data)])).call("svg")
    state = {"open": ["embeddings"], "overlay": "error", "query": "gather", "dim": ["backward"]}
    shown = open_page(page([("graph", data)], state=[state]))
    assert shown.call("svg") != first
    shown.tab.evaluate("workbench.models[0].receive('state', {})")
    shown.settle()
    assert "hit" not in shown.view().locator(".hits").inner_text()
    assert shown.call("svg") == first


def test_state_from_the_host_restores(open_page: Open) -> None:
    data = with_overlays(transformer(3).data())
    state = {"open": ["embeddings"], "overlay": "error", "query": "gather"}
    shown = open_page(page([("graph", data)], state=[state]))
    shown.settle()
    assert shown.view().locator("select").input_value().startswith("error")
    assert "1 hit" in shown.view().locator(".hits").inner_text()
    g = transformer(3)
    assert shown.call("placeOfOp", g.kinds.index("gather")) is not None
    assert shown.call("placeOfOp", g.kinds.index("exp")) is None


@pytest.mark.slow
def test_search_counts_and_steps(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("/")
    shown.tab.keyboard.type("kind:exp")
    hits = shown.view().locator(".hits")
    shown.tab.wait_for_function(
        "() => document.querySelector('#view-0').shadowRoot.querySelector('.hits').textContent"
    )
    assert hits.inner_text() == "3 hits"
    g = transformer(3)
    found = [key for key, kind in zip(g.keys, g.kinds, strict=True) if kind == "exp"]
    for i, key in enumerate(found):
        shown.tab.keyboard.press("Enter")
        shown.settle()
        assert hits.inner_text() == f"{i + 1} of 3"
        assert shown.trait("selection") == {"op": key}
        assert shown.call("placeOfOp", key) is not None
    shown.tab.keyboard.press("Escape")
    assert hits.inner_text() == ""


#: Takes 2 ** 40 steps to find that it is not in forty a's and a b.
ENDLESS = "name:/(a+)+$/"


def named(**options: Any) -> str:
    """A page with an op on which `ENDLESS` does not end."""
    g = transformer(3)
    g.names[5] = "a" * 40 + "b"
    return page([("graph", g.data())], **options)


def hits_say(shown: Any, text: str) -> None:
    shown.view().locator(f".hits:text-is('{text}')").wait_for()


@pytest.mark.slow
def test_an_expression_that_never_ends_is_stopped(open_page: Open) -> None:
    """The page answers all the time, and finds the next thing at once."""
    shown = open_page(named())
    box = shown.view().locator("input[type=search]")
    box.fill(ENDLESS)
    hits_say(shown, "searching")
    box.fill("kind:exp")
    hits_say(shown, "3 hits")
    box.fill(ENDLESS)
    hits_say(shown, "expression takes too long")
    note = shown.view().locator(".note").inner_text()
    assert "takes too long; leave out nested repeats" in note
    box.fill("kind:/^EXP$/")
    box.press("Enter")
    hits_say(shown, "1 of 3")
    assert shown.errors == []


@pytest.mark.slow
def test_an_expression_of_a_link_is_stopped_too(open_page: Open) -> None:
    shown = open_page(named(state=[{"query": ENDLESS}]))
    hits_say(shown, "searching")
    hits_say(shown, "expression takes too long")
    assert shown.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["script-src 'unsafe-inline' blob:; worker-src 'none'", None])
def test_without_workers_no_expression_runs(open_page: Open, policy: str | None) -> None:
    """Where a policy forbids them, and in a browser that has none."""
    html = named()
    if policy:
        html = html.replace("script-src 'unsafe-inline' blob:", policy)
    else:
        html = html.replace("<head>", "<head><script>delete window.Worker</script>")
    shown = open_page(html)
    shown.view().locator("input[type=search]").fill(ENDLESS)
    hits_say(shown, "expressions unavailable")
    assert "this page does not allow workers" in shown.view().locator(".note").inner_text()


def test_cap_is_said(open_page: Open) -> None:
    data = sized(1000).data(options={"max_visible": 300})
    shown = open_page(page([("graph", data)]))
    shown.focus()
    shown.tab.keyboard.press("E")
    assert "cap 300" in shown.view().locator(".note").inner_text()
    drawn = shown.call("shown")
    assert drawn["items"] <= 300
    text = shown.view().locator(".shown").inner_text()
    kinds = sized(1000).kinds
    constants = kinds.count("constant")
    assert text == f"{drawn['ops']} of {len(kinds) - constants} ops, {constants} constants"


def diff_stage() -> dict[str, Any]:
    g = transformer(1)
    for kind, status in {"exp": 1, "reduce_sum": 2, "divide": 3, "erf": 4}.items():
        g.status[g.kinds.index(kind)] = status
    return g.data("1", "after")


def test_diff_has_colours_signs_and_legend(open_page: Open) -> None:
    shown = open_page(page([("graph", diff_stage())], theme="light"))
    legend = shown.view().locator(".legend").inner_text()
    for text in ("1 added", "1 removed", "1 changed", "1 moved", "+", "\u2212", "~", "↕"):
        assert text in legend
    shown.focus()
    shown.tab.keyboard.press("E")
    drawing = shown.call("svg")
    for colour in ("#007352", "#ad4700", "#0a5fb4", "#a03d78"):
        assert f'stroke="{colour}"' in drawing
    assert "stroke-dasharray" in drawing
    for sign in ("+", "\u2212", "~", "↕"):
        assert f">{sign}</text>" in drawing


def test_only_training_steps_have_a_legend_of_phases(open_page: Open) -> None:
    shown = graph_page(open_page)
    assert shown.call("phases") == []
    assert shown.view().locator(".legend .phases").count() == 0


@pytest.mark.slow
def test_phases_have_colours_counts_and_switches(open_page: Open) -> None:
    data = trained(1)
    shown = open_page(page([("graph", data)], theme="light"))
    legend = shown.view().locator(".legend")
    drawn = {each["name"]: each["count"] for each in shown.call("phases")}
    assert list(drawn) == ["forward", "loss", "backward"] and drawn["loss"] == 1
    for name, count in drawn.items():
        assert f"{name} {count}" in legend.inner_text()
    shown.focus()
    shown.tab.keyboard.press("E")
    forward, backward = "#5a94cf", "#e27650"
    assert shown.call("svg").count(f'fill="{backward}"') >= drawn["backward"]
    shown.view().locator('[data-phase="backward"]').click()
    shown.settle()
    assert [each["dim"] for each in shown.call("phases")] == [False, False, True]
    drawing = shown.call("svg")
    assert f'fill="{backward}"' not in drawing and f'fill="{forward}"' in drawing
    assert f"backward {drawn['backward']}" in legend.inner_text(), "its count stays"
    shown.tab.wait_for_timeout(350)  # what is remembered is written a moment later
    assert shown.trait("state")["dim"] == ["backward"]
    shown.tab.keyboard.press("Enter")  # the switch keeps the focus
    shown.settle()
    assert f'fill="{backward}"' in shown.call("svg")
    shown.tab.evaluate("workbench.models[0].receive('state', { dim: ['forward'] })")
    assert [each["dim"] for each in shown.call("phases")] == [True, False, False]


@pytest.mark.slow
def test_linked_ops_are_marked_both_ways(open_page: Open) -> None:
    data = trained(1)
    n = len(data["ops"]["key"])
    shown = open_page(page([("graph", data)]))
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.settle()
    g = transformer(1)
    top = [path.partition("/")[0] for path in g.scopes]
    key = next(
        k
        for k in range(n // 2)
        if top[k]
        and top[k] != top[n - 1 - k]
        and shown.call("placeOfOp", k)
        and shown.call("placeOfOp", n - 1 - k)
    )
    click_op(shown, key)
    assert shown.call("linked") == [n - 1 - key]
    shown.tab.evaluate(f"workbench.models[0].receive('selection', {{ op: {n - 1 - key} }})")
    assert shown.call("linked") == [key]
    shown.focus()
    shown.tab.keyboard.press("C")
    shown.settle()
    assert shown.call("linked") == [f"\u00a7{top[key]}"], "the closed scope that holds it"
    shown.tab.keyboard.press("Escape")
    assert shown.call("linked") == []


def test_changes_can_be_stepped(open_page: Open) -> None:
    shown = open_page(page([("graph", diff_stage())]))
    shown.focus()
    g = transformer(1)
    changed = sorted(g.kinds.index(kind) for kind in ("exp", "reduce_sum", "divide", "erf"))
    for key in changed:
        shown.tab.keyboard.press("]")
        assert shown.trait("selection") == {"op": key}
    shown.tab.keyboard.press("[")
    assert shown.trait("selection") == {"op": changed[-2]}


def test_overlay_legend_has_scale_and_unit(open_page: Open) -> None:
    shown = open_page(page([("graph", with_overlays(transformer(3).data()))]))
    shown.focus()
    legend = shown.view().locator(".legend")
    assert legend.is_hidden()
    shown.tab.keyboard.press("o")
    text = legend.inner_text()
    assert "time" in text and "log scale" in text and "sum" in text
    assert re.search(r"\d (ns|µs|ms)", text)
    shown.tab.keyboard.press("o")
    assert re.search(r"\d (B|KiB|MiB)", legend.inner_text())
    shown.tab.keyboard.press("o")
    assert "ulp" in legend.inner_text() and "max" in legend.inner_text()


def test_hover_tells_type_attributes_and_line(open_page: Open) -> None:
    shown = graph_page(open_page)
    g = transformer(3)
    key = g.kinds.index("gather")
    at = shown.call("placeOfOp", key)
    shown.tab.mouse.move(at["x"], at["y"])
    shown.settle()
    tip = shown.view().locator(".tooltip").inner_text()
    for text in (
        "gather",
        "tensor<1x128x768xf32>",
        "axis = 0",
        f"model/transformer.py:{g.lines[key]}",
    ):
        assert text in tip


def test_next_stage_moves_only_what_changed(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.settle()
    before = {key: shown.call("placeOfOp", key) for key in (8, 20, 40, 60)}
    shown.receive(transformer(3).data("1", "cse"))
    shown.settle()
    assert {key: shown.call("placeOfOp", key) for key in before} == before
    assert shown.view().get_attribute("data-moved") == "0"


def test_path_between_two_ops(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.settle()
    g = transformer(3)
    first = g.kinds.index("exp")
    shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", first)
    shown.settle()
    at = shown.call("placeOfOp", g.kinds.index("divide"))
    accent, path = "#0a5fb4", "#a03d78"
    before = shown.call("svg")
    assert f'stroke="{accent}"' in before, "the file has what is selected"
    assert f'stroke="{path}"' not in before
    shown.tab.keyboard.down("Shift")
    shown.tab.mouse.click(at["x"], at["y"])
    shown.tab.keyboard.up("Shift")
    assert "Path of 2 ops" in shown.view().locator(".note").inner_text()
    after = shown.call("svg")
    assert f'stroke="{path}"' in after and "NaN" not in after


def test_path_by_keys(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.tab.keyboard.press("t")
    assert "Pin an op" in shown.view().locator(".note").inner_text()
    g = transformer(3)
    for name in ("exp", "divide"):
        key = g.kinds.index(name)
        shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
        shown.settle()
        shown.focus()
        shown.tab.keyboard.press("p" if name == "exp" else "t")
    assert "Path of 2 ops" in shown.view().locator(".note").inner_text()


@pytest.mark.slow
def test_exports(open_page: Open) -> None:
    shown = graph_page(open_page)
    for kind in ("SVG", "PNG", "DOT"):
        shown.view().get_by_role("button", name="Download").click()
        with shown.tab.expect_download() as download:
            shown.view().get_by_role("menuitem", name=kind).click()
        assert download.value.suggested_filename == f"import.{kind.lower()}"
    drawing = shown.call("svg")
    assert drawing.startswith("<svg") and ">gather</text>" in drawing


@pytest.mark.slow
def test_dot_is_what_is_drawn(open_page: Open) -> None:
    """Read by Graphviz: nodes, clusters, and the edges between what is drawn."""
    graphviz = pytest.importorskip("pygraphviz", reason="the extra `draw` is not installed")
    shown = graph_page(open_page)
    g = transformer(3)
    shown.focus()
    shown.tab.keyboard.press("E")
    shown.settle()
    drawn = graphviz.AGraph(string=shown.call("dot"))
    assert len(drawn.nodes()) == shown.call("shown")["ops"]
    labels = [node.attr["label"] for node in drawn.nodes()]
    assert sum(label.startswith("gather") for label in labels) == g.kinds.count("gather")
    seen = [shown.call("placeOfOp", key) is not None for key in g.keys]
    edges = {(a, b) for b, each in enumerate(g.operands) for a in each if seen[a] and seen[b]}
    assert len(drawn.edges()) == len(edges) > 100
    hostile = transformer(1)
    hostile.scopes = [f'{scope}/a "quoted" \\ name' for scope in hostile.scopes]
    shown.receive(hostile.data("1", 'a "stage"\\'))
    shown.settle()
    assert len(graphviz.AGraph(string=shown.call("dot")).nodes()) > 0


def test_names_that_are_no_xml_leave_files_that_can_be_read(open_page: Open) -> None:
    shown, odd = graph_page(open_page), transformer(1)
    odd.kinds = [f"{kind}\1\x1f\ufffe\0\t\U0001f600" for kind in odd.kinds]
    shown.receive(odd.data("1", "a\1b"))
    shown.settle()
    texts = list(ElementTree.fromstring(shown.call("svg")).itertext())
    assert any("gather\ufffd\ufffd\ufffd\ufffd" in text for text in texts)
    drawn = shown.call("dot")
    assert drawn.startswith('digraph "a\ufffdb"') and "\1" not in drawn


@pytest.mark.slow
def test_cones_dim_the_rest(open_page: Open) -> None:
    shown = graph_page(open_page)
    g = transformer(3)
    shown.focus()
    shown.tab.keyboard.press("i")
    assert "Select an op" in shown.view().locator(".note").inner_text()
    shown.tab.keyboard.press("E")
    key = g.kinds.index("exp")
    shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
    shown.settle()
    whole = shown.call("svg")
    for letter, direction in (("i", "feed"), ("u", "depend on")):
        shown.focus()
        shown.tab.keyboard.press(letter)
        shown.settle()
        lit = shown.call("lit")
        assert 1 < lit < len(g.keys)
        assert f"{lit - 1} ops of {len(g.keys)} {direction} %{key}" in (
            shown.view().locator(".note").inner_text()
        )
        assert shown.call("svg").count("<text") < whole.count("<text")
        shown.tab.keyboard.press(letter)
        assert shown.call("lit") is None
    shown.tab.keyboard.press("u")
    shown.tab.keyboard.press("Escape")
    assert shown.call("lit") is None and shown.trait("selection") == {"op": key}


@pytest.mark.slow
def test_pinned_ops_are_compared(open_page: Open) -> None:
    shown = graph_page(open_page)
    g = transformer(3)
    shown.focus()
    shown.tab.keyboard.press("E")
    first, second = (g.kinds.index(kind) for kind in ("exp", "divide"))
    table = shown.view().locator(".pins")
    for key in (first, second):
        shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
        shown.settle()
        shown.focus()
        if key == first:
            shown.tab.keyboard.press("p")
    assert shown.call("pinned") == [first]
    heads = table.locator("thead th").all_inner_texts()
    assert [text.split()[0] for text in heads[1:]] == ["exp", "divide"]
    assert "import" in heads[1] and "selected" in heads[2]
    differs = table.locator("tr.differs th").all_inner_texts()
    assert "inputs" in differs and "type" not in differs
    shown.receive(transformer(3).data("1", "cse"))  # the same op in another stage is another column
    shown.settle()
    table.get_by_role("button", name=f"Select exp %{first}", exact=True).click()
    assert shown.trait("selection") == {"op": first}
    assert len(table.locator("thead th").all_inner_texts()) == 3
    shown.focus()
    shown.tab.keyboard.press("P")
    assert table.is_hidden() and shown.call("pinned") == []


@pytest.mark.slow
def test_a_link_has_what_is_pinned_and_lit(open_page: Open) -> None:
    shown = graph_page(open_page)
    g = transformer(3)
    shown.focus()
    shown.tab.keyboard.press("E")
    key = g.kinds.index("exp")
    shown.tab.evaluate("(key) => workbench.models[0].receive('selection', {op: key})", key)
    shown.settle()
    shown.focus()
    for letter in "pu":
        shown.tab.keyboard.press(letter)
    lit, state = shown.call("lit"), shown.trait("state")
    assert state["lit"] == ["users", key] and [pin["key"] for pin in state["pins"]] == [key]
    receive = "(state) => workbench.models[0].receive('state', state)"
    shown.tab.evaluate(receive, {"open": state["open"]})  # back to a link before them
    shown.settle()
    assert shown.call("lit") is None and shown.call("pinned") == []
    shown.tab.evaluate(receive, state)
    shown.settle()
    assert shown.call("lit") == lit > 1 and shown.call("pinned") == [key]
    strange = {"lit": ["nowhere", {}], "pins": [{"key": [], "facts": "x"}, None, 3]}
    shown.tab.evaluate(receive, strange)
    shown.settle()
    assert shown.call("lit") is None and shown.call("pinned") == []


def test_a_wrong_expression_is_told(open_page: Open) -> None:
    shown = graph_page(open_page)
    shown.focus()
    shown.tab.keyboard.press("/")
    shown.tab.keyboard.type("kind:/(/")
    hits = shown.view().locator(".hits")
    hits.get_by_text("invalid expression").wait_for()
    assert "Invalid regular expression" in hits.get_attribute("title")
    assert "Invalid regular expression" in shown.view().locator(".note").inner_text()
