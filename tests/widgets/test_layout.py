"""Properties of the graph view's layout, on the code that the browser runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.widgets.graphs import Builder, sized, trained, transformer
from workbench.queries import op_search

RunLayout = Callable[..., list[dict[str, Any]]]
#: Of processor time, for 100,000 ops; they take 2 to 4.  The layout is linear in ops and edges, so
#: one that is not takes minutes.
MOST_SECONDS = 20


def check(report: dict[str, Any]) -> None:
    """No two items of a scope overlap, every drawn edge runs down, each scope holds its items."""
    items, containers = report["items"], report["containers"]
    members: list[list[dict[str, Any]]] = [[] for _ in containers]
    for item in items:
        members[item["container"]].append(item)
    for inside, container in zip(members, containers, strict=True):
        for item in inside:
            assert item["x"] >= container["x"]
            assert item["y"] >= container["y"]
            assert item["x"] + item["width"] <= container["x"] + container["width"]
            assert item["y"] + item["height"] <= container["y"] + container["height"]
        # A sweep over y: only items whose rows meet can overlap.
        inside.sort(key=lambda item: (item["y"], item["x"]))
        for i, a in enumerate(inside):
            for b in inside[i + 1 :]:
                if b["y"] >= a["y"] + a["height"]:
                    break
                apart = b["x"] >= a["x"] + a["width"] or a["x"] >= b["x"] + b["width"]
                assert apart, (a, b)
        for source, target, stub in container["edges"]:
            if not stub:
                assert items[source]["y"] + items[source]["height"] < items[target]["y"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("long_edges", [True, False])
@pytest.mark.parametrize("scopes", [True, False])
@pytest.mark.parametrize("open", ["initial", "all"])
def test_transformer(run_layout: RunLayout, long_edges: bool, scopes: bool, open: str) -> None:
    (report,) = run_layout(sized(1000, long_edges=long_edges, scopes=scopes).data(), open=open)
    check(report)


@pytest.mark.slow
def test_largest(run_layout: RunLayout) -> None:
    """100,000 ops all drawn, and the next stage."""
    g, options = sized(100_000), {"max_visible": 1_000_000}
    stages = [g.data("0", options=options), without(g, 50_000).data("1", options=options)]
    for report in run_layout(*stages, open="all", timed=True):
        assert report["drawnOps"] > 70_000
        check(report)
        assert report["seconds"] < MOST_SECONDS


@pytest.mark.slow
def test_time_is_bounded_where_rows_and_edges_are_many(run_layout: RunLayout) -> None:
    """20,000 ops in one scope, all of which read one, or any three of the last fifty; then as many
    new ones."""
    wide, dense, random = Builder(), Builder(), np.random.default_rng(0)
    for i in range(20_000):
        wide.add("add", (0,) if i else ())
        dense.add("add", tuple(int(o) for o in random.integers(max(0, i - 50), i, 3)) if i else ())
    for g in (wide, dense):
        first = g.data("0")
        for _ in range(20_000):
            g.add("mul", (int(random.integers(1_000)) if g is dense else 0,))
        for report in run_layout(first, g.data("1"), open="all", timed=True):
            assert report["seconds"] < MOST_SECONDS


@st.composite
def graphs(draw: st.DrawFn) -> Builder:
    """Any op graph: operands come from anywhere before (or, rarely, the op is a leaf)."""
    g = Builder()
    count = draw(st.integers(1, 60))
    for i in range(count):
        arity = draw(st.integers(0, 3)) if i else 0
        operands = tuple(draw(st.integers(0, i - 1)) for _ in range(arity))
        kind = draw(st.sampled_from(["add", "matmul", "constant", "a_rather_long_kind_of_op"]))
        scope = draw(st.sampled_from(["", "a", "a/b", "a/c", "d"]))
        g.add(kind, operands, scope=scope)
    return g


@pytest.mark.slow
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(graphs(), min_size=8, max_size=8))
def test_any_graph(run_layout: RunLayout, many: list[Builder]) -> None:
    """Also as successive stages: the second stage has nothing to do with the first."""
    data = [g.data(stage=str(i)) for i, g in enumerate(many)]
    for report in run_layout(*data, open="all"):
        check(report)


def test_deterministic(run_layout: RunLayout) -> None:
    data = sized(1000).data()
    assert run_layout(data, open="all") == run_layout(data, open="all")


#: The key of an op that is in no generated graph.
NEW = 100_000


def places(report: dict[str, Any]) -> dict[Any, tuple[float, float]]:
    return {item.get("op", item.get("scope")): (item["x"], item["y"]) for item in report["items"]}


def test_same_stage_moves_nothing(run_layout: RunLayout) -> None:
    g = sized(1000)
    first, second = run_layout(g.data("0"), g.data("1"), open="all")
    assert places(first) == places(second)


def without(g: Builder, index: int) -> Builder:
    """The graph without one op; its users read the op's first operand, if it has one, instead."""
    after = copy.deepcopy(g)
    instead = after.operands[index][:1]
    for column in vars(after).values():
        del column[index]
    after.operands = [
        tuple(o - (o > index) for x in operands for o in (instead if x == index else (x,)))
        for operands in after.operands
    ]
    return after


def with_between(g: Builder, at: int, producer: int, users: set[int], kind: str) -> Builder:
    """The graph with an op of key `NEW` at place `at`, in the scope of the op before or after it,
    whichever is its producer or user; `users` (places) read it instead of `producer`."""
    after = copy.deepcopy(g)
    like = producer if at == producer + 1 else at
    for column in vars(after).values():
        column.insert(at, column[like])
    after.keys[at], after.kinds[at] = NEW, kind
    for i, operands in enumerate(g.operands):
        reads = [at if i in users and o == producer else o + (o >= at) for o in operands]
        after.operands[i + (i >= at)] = tuple(reads)
    after.operands[at] = (producer,)
    return after


def test_removed_op_leaves_a_gap(run_layout: RunLayout) -> None:
    """Nothing else moves when one op goes."""
    g = transformer(3)
    removed = next(i for i, kind in enumerate(g.kinds) if kind == "divide")
    first, second = run_layout(g.data("0"), without(g, removed).data("1"), open="all")
    before, after = places(first), places(second)
    del before[removed]
    moved = {key for key in after if after[key] != before[key]}
    assert not moved


def test_replaced_ops_take_the_gap(run_layout: RunLayout) -> None:
    """A softmax that becomes one op: only the new op has a new place."""
    g = transformer(3)
    start = g.kinds.index("reduce_max")
    fused = copy.deepcopy(g)
    for index in (start + 4, start + 3, start + 2, start + 1):
        fused = without(fused, index)
    fused.kinds[start] = "softmax"
    fused.keys[start] = NEW
    fused.types[start] = g.types[start - 1]
    first, second = run_layout(g.data("0"), fused.data("1"), open="all")
    before, after = places(first), places(second)
    assert [key for key in after if key in before and after[key] != before[key]] == []
    check(second)


def test_inserted_op_moves_only_what_is_below(run_layout: RunLayout) -> None:
    """What is above stays; what is below moves down together and not sideways."""
    g = transformer(2, long_edges=False)
    at = g.kinds.index("exp")
    after = with_between(g, at + 1, at, set(range(at + 1, len(g.keys))), "clamp")
    first, second = run_layout(g.data("0"), after.data("1"), open="all")
    check(second)
    before, now = places(first), places(second)
    assert NEW in now
    shared = [key for key in before if key in now]
    assert all(before[key][0] == now[key][0] for key in shared)
    deltas = {now[key][1] - before[key][1] for key in shared}
    assert len(deltas) == 2 and 0 in deltas


#: The scopes of a graph in program order.
RUNS = ("", "a", "a/b", "a", "a/c", "d", "")


@st.composite
def nested(draw: st.DrawFn) -> Builder:
    """Any op graph whose scopes hold what stands together in it, and whose constants (which are
    drawn with their users) read nothing."""
    g = draw(graphs())
    g.operands = [
        () if kind == "constant" else operands
        for kind, operands in zip(g.kinds, g.operands, strict=True)
    ]
    runs = sorted(draw(st.sampled_from(range(len(RUNS)))) for _ in g.keys)
    g.scopes = [RUNS[run] for run in runs]
    return g


@st.composite
def changed_in_place(draw: st.DrawFn) -> tuple[Builder, Builder]:
    """A graph, and the same with one op removed, replaced by one that is no wider, or with another
    attribute."""
    g = draw(nested())
    index = draw(st.integers(0, len(g.keys) - 1))
    change = draw(st.sampled_from(["removed", "replaced", "attribute"]))
    # A constant that nothing reads any more would be drawn, which is a change more.
    assume(change != "removed" or all(g.kinds[o] != "constant" for o in g.operands[index]))
    if change == "removed":
        return g, without(g, index)
    after = copy.deepcopy(g)
    if change == "replaced":
        after.keys[index] = NEW
        if g.kinds[index] != "constant":  # a constant is drawn with its user, and stays one
            after.kinds[index] = "mul"
    else:
        after.attributes[index] = "axis = 1"
    return g, after


@st.composite
def changed_in_size(draw: st.DrawFn) -> tuple[Builder, Builder]:
    """A graph that has a drawn edge, and the same with an op on that edge or with a wider op."""
    g = draw(nested())
    edges = [(o, i) for i, each in enumerate(g.operands) for o in each if g.kinds[o] != "constant"]
    assume(edges)
    producer, user = draw(st.sampled_from(edges))
    change = draw(st.sampled_from(["after the producer", "before the user", "wider"]))
    if change == "wider":
        after = copy.deepcopy(g)
        after.kinds[user] = "a_kind_of_op_with_a_very_long_name"
        return g, after
    at = user if change == "before the user" else producer + 1
    return g, with_between(g, at, producer, {user}, draw(st.sampled_from(["add", "clamp_it_all"])))


def pairs(run_layout: RunLayout, graphs: list[tuple[Builder, Builder]]) -> list[Any]:
    """The layouts of each graph and, as the next stage, of the changed one."""
    stages = [g.data(str(i)) for pair in graphs for i, g in enumerate(pair)]
    reports = run_layout(*stages, open="all", turns=2)
    for report in reports:
        check(report)
    return list(zip(reports[::2], reports[1::2], strict=True))


MANY = settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.slow
@MANY
@given(st.lists(changed_in_place(), min_size=8, max_size=8))
def test_what_is_changed_in_place_moves_nothing_else(
    run_layout: RunLayout, many: list[tuple[Builder, Builder]]
) -> None:
    for first, second in pairs(run_layout, many):
        before, now = places(first), places(second)
        assert {k: at for k, at in now.items() if k in before and before[k] != at} == {}


@pytest.mark.slow
@MANY
@given(st.lists(changed_in_size(), min_size=8, max_size=8))
def test_what_needs_room_moves_little(
    run_layout: RunLayout, many: list[tuple[Builder, Builder]]
) -> None:
    """Within each scope: what moves down is all that is below, by one distance; what moves to the
    right is right of what became wider in its row.  Nothing moves up or to the left."""
    for first, second in pairs(run_layout, many):
        names = [container["scope"] for container in second["containers"]]
        for number, container in enumerate(first["containers"]):
            if container["scope"] not in names:
                continue
            old = inside(first, number)
            new = inside(second, names.index(container["scope"]))
            kept = [(old[key], new[key]) for key in old if key in new]
            down = {b["y"] - a["y"] for a, b in kept} - {0}
            assert len(down) <= 1 and all(by > 0 for by in down)
            moved = [a["y"] for a, b in kept if b["y"] != a["y"]]
            assert all(a["y"] < min(moved, default=math.inf) for a, b in kept if b["y"] == a["y"])
            grown = [a for a, b in kept if b["width"] > a["width"]]
            for a, b in kept:
                pushed = any(g["y"] == a["y"] and g["x"] < a["x"] for g in grown)
                assert b["x"] == a["x"] or (pushed and b["x"] > a["x"])


def inside(report: dict[str, Any], number: int) -> dict[Any, dict[str, float]]:
    """The items of a scope by name, their places within it."""
    container = report["containers"][number]
    return {
        item.get("op", item.get("scope")): {
            "x": item["x"] - container["x"],
            "y": item["y"] - container["y"],
            "width": item["width"],
        }
        for item in report["items"]
        if item["container"] == number
    }


def test_going_back_restores_places(run_layout: RunLayout) -> None:
    g = transformer(3)
    removed = g.kinds.index("divide")
    smaller = without(g, removed)
    first, _, again = run_layout(g.data("0"), smaller.data("1"), g.data("0"), open="all")
    assert places(first) == places(again)


def test_repeats_from_scopes(run_layout: RunLayout) -> None:
    (report,) = run_layout(transformer(12).data())
    groups = [scope for scope in report["scopes"] if scope["kind"] == "group"]
    layers = next(scope for scope in groups if scope["label"] == "layer.0 … layer.11")
    assert (layers["repeats"], layers["uniform"]) == (12, True)


def test_group_stays_when_one_block_changes(run_layout: RunLayout) -> None:
    """The group is not torn apart by a rewrite in one of its blocks, and says they differ."""
    g = transformer(12)
    changed = copy.deepcopy(g)
    changed.kinds[g.kinds.index("erf")] = "tanh"
    _, second = run_layout(g.data("0"), changed.data("1"))
    layers = next(s for s in second["scopes"] if s["label"] == "layer.0 … layer.11")
    assert (layers["repeats"], layers["uniform"]) == (12, False)


def test_a_group_encloses_nothing_foreign(run_layout: RunLayout) -> None:
    """Query, key, value and output are equal, but the attention itself runs between them."""
    (report,) = run_layout(transformer(1).data(), open="all")
    assert [s["label"] for s in report["scopes"] if s["kind"] == "group"] == []
    inner = next(c for c in report["containers"] if c["scope"] == "encoder/layer.0/attention")
    assert all(source < target for source, target, _ in inner["edges"])


def test_unequal_blocks_are_no_repeat(run_layout: RunLayout) -> None:
    g = transformer(3)
    g.kinds[g.kinds.index("erf")] = "tanh"
    (report,) = run_layout(g.data())
    layers = [s for s in report["scopes"] if s["kind"] == "group" and "layer" in s["label"]]
    assert layers == []


def test_repeats_without_scopes(run_layout: RunLayout) -> None:
    """12 blocks are found in a flat list of ops by what they are."""
    (report,) = run_layout(transformer(12, scopes=False).data())
    groups = [scope for scope in report["scopes"] if scope["kind"] == "group"]
    assert max(group["repeats"] for group in groups) in (11, 12)
    assert all(scope["ops"] <= 600 for scope in report["scopes"])


def test_flat_graph_becomes_sections(run_layout: RunLayout) -> None:
    """No repeats and no scopes: sections by program order, none with more than 300 drawn ops."""
    g = Builder()
    last = g.add("argument")
    for i in range(2000):
        last = g.add(f"kind{i}", (last,))
    (report,) = run_layout(g.data())
    sections = [scope for scope in report["scopes"] if scope["kind"] == "section"]
    assert len(sections) >= 7
    assert all(section["ops"] <= 300 for section in sections)
    assert sum(section["ops"] for section in sections) == 2001


def test_wide_fan_out_becomes_stubs(run_layout: RunLayout) -> None:
    g = Builder()
    mask = g.add("argument")
    last = g.add("argument")
    for _ in range(40):
        last = g.add("add", (last, mask))
    (report,) = run_layout(g.data())
    stubs = [edge for edge in report["containers"][0]["edges"] if edge[2]]
    assert len(stubs) >= 38


def test_constants_fold(run_layout: RunLayout) -> None:
    (report,) = run_layout(transformer(1).data(), open="all")
    shown = {item.get("op") for item in report["items"]}
    g = transformer(1)
    weights = [
        key for key, kind in zip(g.keys, g.kinds, strict=True) if kind in ("weight", "constant")
    ]
    assert weights and not shown.intersection(weights)


def test_weights_at_the_top_of_the_program_do_not_draw_their_layer_there(
    run_layout: RunLayout,
) -> None:
    """As an ONNX graph has them: its initializers come first, each in the scope of its layer; also
    one that nobody reads any more, and one of a layer of which nothing else is left."""
    g = Builder()
    weights = [g.add("weight", scope=f"net/{layer}") for layer in (2, 1, 0)]
    g.add("weight", scope="net/2")
    folded = g.add("weight", scope="net/norm")
    x = g.add("argument")
    layers = []
    for layer in range(3):
        operands = (x, weights[2 - layer], *((folded,) if layer == 1 else ()))
        layers.append(x := g.add("conv", operands, scope=f"net/{layer}"))
    (report,) = run_layout(g.data(), open="all")
    check(report)
    found = places(report)
    assert {"net/0", "net/1", "net/2"} == {name for name in found if str(name).startswith("net/")}
    heights = [found[layer][1] for layer in layers]
    assert heights == sorted(set(heights))
    assert not any(edge[2] for container in report["containers"] for edge in container["edges"])


def test_wide_row_wraps(run_layout: RunLayout) -> None:
    """500 arguments do not make a drawing 50,000 pixels wide."""
    g = Builder()
    arguments = [g.add("argument") for _ in range(500)]
    for i in range(0, 500, 4):
        g.add("concatenate", tuple(arguments[i : i + 4]))
    (report,) = run_layout(g.data(), open="all")
    check(report)
    assert report["containers"][0]["width"] < 6000


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("kind:erf", {"erf"}),
        ("softm", set()),
        ("kind:matmul shape:1x128x3072", {"matmul"}),
        ("shape:1\u00d7128\u00d73072 kind:erf", {"erf"}),
        ("scope:mlp kind:add", {"add"}),
        ("attr:permutation", {"transpose"}),
        ("kind:/^(erf|exp)$/", {"erf", "exp"}),
        ("/^ERF$/", {"erf"}),
        ("/1x128x3072/ kind:erf", {"erf"}),
        ('kind:"erf" dtype:f32', {"erf"}),
        ("kind:erf dtype:f3", set()),
        ('attr:"axis = 0"', {"gather"}),
        ("name:%17", None),
        ("line:transformer.py", None),
        ("line:no_such_file.py", set()),
        ("transformer.py:12", None),
        ("MLP relu", set()),
        ('"axis = 0" gather', {"gather"}),
        ("colour:red", set()),
        ("line:/transformer/ kind:exp", {"exp"}),
        ("kind:/exp", set()),
    ],
)
def test_search(run_layout: RunLayout, query: str, kinds: set[str] | None) -> None:
    g = transformer(2)
    (report,) = run_layout(g.data(), query=query)
    assert report["found"] == found_by_the_page(g.data(), query)
    if kinds is None:
        assert report["found"]
    else:
        assert {g.kinds[g.keys.index(key)] for key in report["found"]} == kinds


@pytest.mark.slow
def test_cones_are_what_feeds_and_what_depends(run_layout: RunLayout) -> None:
    g = transformer(3)
    uses: dict[int, set[int]] = {key: set() for key in g.keys}
    for user, operands in zip(g.keys, g.operands, strict=True):
        for operand in operands:
            uses[operand].add(user)
    feeds = {key: set(operands) for key, operands in zip(g.keys, g.operands, strict=True)}
    middle, last = g.kinds.index("exp"), g.keys[-1]
    for direction, edges in (("inputs", feeds), ("users", uses)):
        for roots in ([middle], [last], [0], [middle, 0]):
            wanted, work = set(roots), list(roots)
            while work:
                new = edges[work.pop()] - wanted
                wanted |= new
                work += new
            (report,) = run_layout(g.data(), cone={"roots": roots, "direction": direction})
            assert report["cone"] == sorted(wanted)


def found_by_the_page(data: dict[str, Any], query: str) -> list[int]:
    """What the search of the page finds, which is written in Python."""
    places = op_search.matching(data, op_search.terms(query))
    return [int(data["ops"]["key"][i]) for i in places]


def test_search_by_line(run_layout: RunLayout) -> None:
    g = transformer(1)
    (report,) = run_layout(g.data(), query=f"line:transformer.py:{g.lines[20]}")
    assert report["found"] == [
        key for key, line in zip(g.keys, g.lines, strict=True) if line == g.lines[20]
    ]


def test_search_by_phase(run_layout: RunLayout) -> None:
    data = trained(1)
    keys, phase = data["ops"]["key"], data["ops"]["phase"]
    (report,) = run_layout(data, query="phase:backward")
    assert report["found"] == [int(k) for k, p in zip(keys, phase, strict=True) if p == 3]
    assert report["found"] == found_by_the_page(data, "phase:backward")
    (report,) = run_layout(data, query="phase:loss kind:no_such")
    assert report["found"] == []
    (report,) = run_layout(transformer(1).data(), query="phase:backward")
    assert report["found"] == []


def test_bad_phases_and_links_are_named(run_layout: RunLayout) -> None:
    data = trained(1)
    data["ops"]["phase"] = data["ops"]["phase"][:-1]
    with pytest.raises(AssertionError, match=r"ops\.phase has \d+ entries"):
        run_layout(data)
    data = trained(1)
    data["ops"]["link"] = data["ops"]["link"] + 10_000
    with pytest.raises(AssertionError, match=r"link \d+ is not an op"):
        run_layout(data)


def test_bad_columns_are_named(run_layout: RunLayout) -> None:
    data = transformer(1).data()
    data["ops"]["kind"] = data["ops"]["kind"][:-1]
    with pytest.raises(AssertionError, match=r"ops\.kind has \d+ entries"):
        run_layout(data)
