"""Two recordings in the views of one: IR, kernels, memory, timeline; a processor beside a GPU."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path

import pytest

from tests.workbench.test_two_graph import ones, recorded, twos
from widgets.encode import finite
from workbench import views
from workbench.queries import buffer_pairs, flat_graph, kernel_table, stage_pairs
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState
from workbench.ui import navigation
from workbench.ui.updates import UpdateTracker
from workbench.views import (
    Empty,
    diff,
    graph,
    kernels,
    memory,
    rewrites,
    source,
    timeline,
)

ABLE = [name for name, view in VIEWS.items() if view.two]


# -- the switch -----------------------------------------------------------------------------------


def test_a_view_shows_two_where_somebody_asked_for_it(both):
    cpu, cuda = both
    state = ViewState(panes=("kernels",), other="cuda.run")
    assert views.runs_for("kernels", state, cpu, cuda) == (cpu,)
    asked = navigation.two(state, {"view": "kernels", "on": True})
    assert views.runs_for("kernels", asked, cpu, cuda) == (cpu, cuda)
    assert views.runs_for("memory", asked, cpu, cuda) == (cpu,), "each view for itself"
    assert views.runs_for("kernels", asked, cpu, None) == (cpu,)
    assert ViewState.parse(asked.query()) == asked, "a link opens the same"
    assert navigation.two(asked, {"view": "kernels", "on": False}) == state
    assert navigation.two(state, {"view": "training", "on": True}) == state, "it cannot show two"


def test_what_a_view_remembers_of_its_own_does_not_turn_the_switch():
    state = ViewState().with_two("memory", True).remember("memory", {"tier": "weights"})
    assert state.shows_two("memory") and state.own_state("memory") == {"tier": "weights"}
    assert not state.with_two("memory", False).shows_two("memory")
    assert ViewState().remember("memory", {}).query() == ""
    assert not ViewState().with_view("memory", '["ab"]').shows_two("memory")


@pytest.mark.parametrize("name", [name for name in ABLE if name != "numerics"])
def test_what_is_sent_changes_with_the_switch_and_back(both, name):
    cpu, cuda = both
    showing, state = UpdateTracker(), ViewState(panes=(name,))
    seen = []
    for each in (state, state.with_two(name, True), state):
        made = [u for u in showing.updates(each, cpu, cuda, {}) if u.name == name and u.key]
        for update in made:
            showing.mark_sent(update)
        seen.append(made[0].values["data"])
    assert seen[0] == seen[2] != seen[1]
    if name != "diff":
        assert json.loads(seen[1])["two"]


def test_a_side_without_what_is_compared_is_named(both, tmp_path, two_targets):
    """As of a compile that ended early: its plan, its kernels are missing."""
    import sqlite3

    path = tmp_path / "early.run"
    shutil.copy(two_targets.cuda, path)
    with sqlite3.connect(path) as database:
        database.executescript(
            "DELETE FROM buffer; DELETE FROM kernel_op; DELETE FROM kernel_step;"
            "DELETE FROM kernel; DELETE FROM launch_time;"
        )
    database.close()
    cpu, early = both[0], Run(path)
    for module, what in ((memory, "memory plan"), (kernels, "kernels")):
        with pytest.raises(Empty, match=rf"B \(early\.run\) has no {what}"):
            module.data((cpu, early), ViewState())
        with pytest.raises(Empty, match=rf"A \(early\.run\) has no {what}"):
            module.data((early, cpu), ViewState())
    early.close()


# -- IR -------------------------------------------------------------------------------------------


def test_the_same_imports_are_equal_line_by_line(both):
    data = diff.data((both[0], both[1]), ViewState(stage=0))
    assert {line["kind"] for line in data["lines"]} == {"equal"}
    assert "cpu.run" in data["left"]["title"] and "cuda.run" in data["right"]["title"]


def test_modules_are_those_after_the_same_pass(both):
    cpu, cuda = both
    passes = {s.pass_name: s.index for s in cuda.stages()}
    for stage in cpu.stages():
        there, same = stage_pairs.partner(cpu, cuda, stage.index)
        assert same == (stage.pass_name in passes)
        assert not same or there == passes[stage.pass_name]

    class Shorter:
        @staticmethod
        def stages():
            return [s for s in cuda.stages() if s.pass_name != "fuse_elementwise"]

    missing = next(s.index for s in cpu.stages() if s.pass_name == "fuse_elementwise")
    before = cpu.stages()[missing - 1].pass_name
    assert stage_pairs.partner(cpu, Shorter, missing) == (passes[before], False)


def kinds(lines) -> list[str]:
    """What each line has of ops: names of values are another matter."""
    return [kind for line in lines for kind in re.findall(r'^ *(?:%[^"]* = )?"([\w.]+)"', line)]


def test_every_line_of_both_stages_is_there_once(both):
    cpu, cuda = both
    stage = next(s.index for s in cpu.stages() if s.pass_name == "fuse_elementwise")
    there, _ = stage_pairs.partner(cpu, cuda, stage)
    data = diff.data((cpu, cuda), ViewState(stage=stage))
    left = [line["left"] for line in data["lines"]]
    right = [line.get("right", line["left"]) for line in data["lines"]]
    for run, at, shown in ((cpu, stage, left), (cuda, there, right)):
        text = run.recording.text(at).splitlines()
        assert kinds(line for line in shown if line is not None) == kinds(text)
    ids = {cpu.op_id(op) for op in cpu.index(stage).module.walk()}
    keys = {line[side] for line in data["lines"] for side in ("leftKey", "rightKey")}
    assert {key for key in keys if isinstance(key, int)} <= ids, "B has the keys of A"


def test_answers_are_of_both(both):
    cpu, cuda = both
    ops = [cpu.op_id(op) for op in cpu.index(0).module.main.body.ops]
    state = ViewState(stage=0)
    found = diff.answer((cpu, cuda), state, {"kind": "find", "op": ops[2]})
    lines = diff.answer((cpu, cuda), state, {"kind": "lines", "from": 0, "to": 50})["lines"]
    assert lines[found["row"]]["leftKey"] == lines[found["row"]]["rightKey"] == ops[2]


# -- kernels --------------------------------------------------------------------------------------


def test_kernels_have_both_sides_as_their_own_tables_do(both):
    cpu, cuda = both
    data = kernels.data((cpu, cuda), ViewState())
    json.dumps(finite(data), allow_nan=False)
    for side, run in (("a", cpu), ("b", cuda)):
        table = {row["name"]: row for row in kernel_table.table(run) if row["count"]}
        sides = [row[side] for row in data["kernels"] if row[side]]
        assert sum(each["count"] for each in sides) == sum(r["count"] for r in table.values())
        assert sum(each["share"] for each in sides) == pytest.approx(1)
        for each in sides:
            if len(each["kernels"]) == 1:
                row = table[each["kernels"][0]["name"]]
                assert each["median_us"] == pytest.approx(
                    row["median_us"] or row["predicted_us"] / row["count"]
                )
    assert all(r["a"]["measured"] and not r["b"]["measured"] for r in data["kernels"])


# -- memory ---------------------------------------------------------------------------------------


def test_buffers_that_hold_the_same_are_in_one_match(both):
    cpu, cuda = both
    same = buffer_pairs.same_buffers(cpu, cuda)
    ones, twos = ({b.id: b for b in run.buffers()} for run in both)
    assert len({each.first for each in same}) == len({each.second for each in same}) == len(same)
    for each in same:
        a, b = ones[each.first], twos[each.second]
        assert a.kind == b.kind and a.unpadded_size == b.unpadded_size
    (argument,) = [b.id for b in cpu.buffers() if b.kind == "argument"]
    assert argument in {each.first for each in same if each.how == "recorded"}
    alone = buffer_pairs.same_buffers(cpu, cpu)
    assert [(each.first, each.how) for each in alone if each.first != each.second] == []
    assert len(alone) == len(cpu.buffers())


def test_both_maps_are_those_of_their_recordings(both):
    cpu, cuda = both
    data = memory.data((cpu, cuda), ViewState())["two"]
    for side, run in (("a", cpu), ("b", cuda)):
        own = memory.data((run,), ViewState())
        assert list(data[side]["buffers"]["key"]) == list(own["buffers"]["key"])
        assert data[side]["tiers"] == own["tiers"] and not data[side]["asks"]
    assert data["names"] == ["cpu.run", "cuda.run"]


# -- timeline -------------------------------------------------------------------------------------


def test_launches_that_compute_the_same_are_named(both):
    cpu, cuda = both
    data = timeline.data((cpu, cuda), ViewState())["two"]
    assert data["a"]["recorded"] and not data["b"]["recorded"]
    for first, second in zip(data["first"], data["second"], strict=True):
        assert data["a"]["launches"]["flops"][first] > 0 or data["b"]["launches"]["bytes"][second]
    assert set(data["first"]) == set(range(len(data["a"]["launches"]["op"])))


# -- source, rewrites -----------------------------------------------------------------------------


def test_a_line_that_moved_is_still_the_same_line(tmp_path, two_targets):
    """B's file has three lines more above the network; what each line costs stands in one row."""
    import sqlite3

    path = tmp_path / "moved.run"
    shutil.copy(two_targets.cpu, path)
    with sqlite3.connect(path) as database:
        text = b"#1\n#2\n" + Path(two_targets.source).read_bytes()
        database.execute(
            "UPDATE blob SET data = ?, size = ? WHERE id = (SELECT text FROM "
            "source_file WHERE name = ?)",
            [zlib.compress(text), len(text), two_targets.source],
        )
        database.execute("UPDATE node SET line = line + 2 WHERE file = ?", [two_targets.source])
        for key, stack in database.execute("SELECT id, stack FROM node").fetchall():
            stack = json.loads(stack)
            moved = [[f, n + 2 if f == two_targets.source else n, *rest] for f, n, *rest in stack]
            database.execute("UPDATE node SET stack = ? WHERE id = ?", [json.dumps(moved), key])
    database.close()
    a, b = Run(two_targets.cpu), Run(path)
    rows = source.data((a, b), ViewState())["rows"]
    own = [row for row in rows if row["file"] == two_targets.source]
    assert [row["text"] for row in own] == [
        "y = self.norm(x)",
        "top = y.amax(0)",
        "z = torch.relu(y - top) + x",
    ]
    for row in own:
        assert row["b"]["line"] == row["a"]["line"] + 2
        assert {**row["a"], "line": 0} == {**row["b"], "line": 0}
    costs = source.data((a,), ViewState(stage=a.version.stages - 1))["files"]
    known = {r["line"]: r for f in costs for r in f["rows"] if f["path"] == two_targets.source}
    for row in own:
        shown = known[row["a"]["line"]]
        assert (row["a"]["us"], row["a"]["now"]) == (shown["us"], shown["now"])
    for run in (a, b):
        run.close()


def test_rules_of_both_are_counted_as_they_were_recorded(both):
    cpu, cuda = both
    rows = {(r["pass"], r["rule"]): r for r in rewrites.data((cpu, cuda), ViewState())["rows"]}
    for run, side in ((cpu, "a"), (cuda, "b")):
        counted = Counter(
            (stage.pass_name, step.rewrite.rule)
            for stage in run.stages()[1:]
            for step in run.rewrites(stage.index)
        )
        assert counted == {key: row[side]["count"] for key, row in rows.items() if row[side]}
        for stage in run.stages()[1:]:
            for step in run.rewrites(stage.index):
                row = rows[stage.pass_name, step.rewrite.rule][side]
                assert row["first"] <= step.number and row["stage"] == stage.index
        removed = sum(row[side]["removed"] for row in rows.values() if row[side])
        steps = [s.rewrite for stage in run.stages()[1:] for s in run.rewrites(stage.index)]
        assert removed == sum(len(s.old) - len(s.new) for s in steps)


# -- the page -------------------------------------------------------------------------------------


def asked(*names: str) -> str:
    return "".join(f'&{name}.view={{"ab":true}}' for name in names)


@pytest.mark.slow
@pytest.mark.playwright
def test_one_control_in_each_view_shows_both(library, tab, both):
    """Chosen once, the other recording is a click away in every view that can show two."""
    page = tab(f"{library.url}?run=cpu.run&panes=kernels")
    page.locate(".cw-tabs .two select").select_option("cuda.run")
    rows = page.locate("#cw-view-kernels .two tbody tr")
    page.wait("#cw-view-kernels .two tbody tr")
    data = kernels.data((both[0], both[1]), ViewState())
    assert rows.count() == len(data["kernels"])
    first = max(data["kernels"], key=lambda r: abs(r["b"]["us"] - r["a"]["us"]))
    assert rows.first.get_attribute("data-kernel") == str(first["a"]["kernels"][0]["id"])
    page.locate("#cw-view-kernels .two .scroll").focus()
    page.press("ArrowDown")
    page.wait_query("kernel", str(first["a"]["kernels"][0]["id"]))
    seen = {"memory": ".plan", "timeline": ".tracks", "diff": ".titles span:has-text('cuda.run')"}
    for view, selector in seen.items():
        page.show(view)
        page.drawn(view)
        assert page.locate(f"#cw-view-{view} {selector}").count() == 0, "until it is asked for"
        page.locate('.cw-tabs [data-two="both"]').click()
        page.wait(f"#cw-view-{view} {selector}")
        page.wait_query(f"{view}.view", '"ab":true', partly=True)
    for view in ("source", "rewrites"):
        page.show(view)
        page.wait(f"#cw-view-{view} tbody tr")
        page.locate('.cw-tabs [data-two="both"]').click()
        page.wait(f"#cw-view-{view} .two tbody tr")
        page.locate(f"#cw-view-{view} .two .scroll").focus()
        page.press("ArrowDown")
        page.wait(f"#cw-view-{view} .two tbody tr.on")
        page.locate('.cw-tabs [data-two="one"]').click()
        page.wait(f"#cw-view-{view} .two", state="detached")
        page.wait(f"#cw-view-{view} tbody tr")
    page.show("diff")
    page.wait('.cw-tabs [data-two="both"][aria-pressed="true"]')  # the bar has followed the view
    page.locate('.cw-tabs [data-two="one"]').click()
    page.wait('.cw-tabs [data-two="one"][aria-pressed="true"]')
    page.wait_query("diff.view", None)
    page.page.go_back()  # the way back leads through the switch as it was
    page.wait_query("diff.view", '"ab":true', partly=True)
    page.wait('.cw-tabs [data-two="both"][aria-pressed="true"]')
    page.page.go_forward()
    page.wait('.cw-tabs [data-two="one"][aria-pressed="true"]')
    page.wait_query("diff.view", None)
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_the_graph_shows_what_only_one_has(own_server, tab):
    """The switch, the legend's words, an op of both in the inspector, one that only B has."""
    server = own_server()
    folder = server.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    a, b = recorded(folder / "a.run", build=ones), recorded(folder / "b.run", build=twos)
    page = tab(f"{server.url}?run=a.run&other=b.run&panes=graph&stage=0")
    page.drawn("graph")
    page.locate('.cw-tabs [data-two="both"]').click()
    page.wait("#cw-view-graph .legend .side:has-text('b.run')")
    legend = " ".join(page.text("#cw-view-graph .legend .changes").split())
    assert re.findall(r"\d+ [a-z ]+[AB]?", legend) == ["1 only in A", "2 only in B", "1 differs"]
    data = graph.data((a, b), ViewState(stage=0))["ops"]
    keys = dict(zip(data["status"].tolist(), data["key"], strict=True))

    def click(status: int) -> None:
        place = page.view("graph", "placeOfOp", keys[status])
        page.page.mouse.click(place["x"], place["y"])

    click(flat_graph.CHANGED)
    page.wait_query("op", str(keys[flat_graph.CHANGED]))
    page.wait("#cw-inspector .head b:has-text('softmax')")
    click(flat_graph.ADDED)
    page.wait("#cw-view-graph .note:has-text('Only in B')")
    page.wait_query("op", None)
    assert page.view("graph", "selected"), "here it is"
    page.locate('.cw-tabs [data-two="one"]').click()
    page.wait("#cw-view-graph .legend .side", state="detached")
    assert page.errors == []
    a.close()
    b.close()


@pytest.mark.slow
@pytest.mark.playwright
def test_a_buffer_of_the_other_recording_selects_what_it_is_here(library, tab, both):
    cpu, cuda = both
    page = tab(f"{library.url}?run=cpu.run&other=cuda.run&panes=memory{asked('memory')}")
    page.wait("#cw-view-memory .plan")
    twins = {each.second: each.first for each in buffer_pairs.same_buffers(cpu, cuda)}
    arena = [b for b in cuda.buffers() if b.tier == "dram" and b.id in twins]
    biggest = max(arena, key=lambda b: b.size * (b.end + 1 - b.start))
    place = page.locate('#cw-view-memory .plan[data-side="b"]').evaluate(
        "(node, key) => node.workbench.placeOfBuffer(key)", biggest.id
    )
    page.page.mouse.click(place["x"], place["y"])
    page.wait_query("buffer", str(twins[biggest.id]))
    page.wait("#cw-inspector .head b")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_compare_leads_to_the_views_that_show_both(library, tab):
    page = tab(f"{library.url}?run=cpu.run&other=cuda.run&panes=compare")
    page.locate('#cw-view-compare [data-both="memory"]').click()
    page.wait("#cw-view-memory .plan")
    page.wait_query("panes", "compare,memory")
    assert page.errors == []
