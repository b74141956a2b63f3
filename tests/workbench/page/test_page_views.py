"""What each view shows, against the recording itself."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.record.reader import Recording
from core_compiler.support.errors import UserError
from tests.passes import loops
from tests.passes.programs import program
from widgets.encode import pack
from workbench.queries import flat_graph, kernel_texts
from workbench.queries.links import linked
from workbench.queries.run import Run
from workbench.state.glossary import GLOSSARY
from workbench.state.view_state import ViewState
from workbench.support import user_regex
from workbench.views import (
    code,
    diff,
    graph,
    inspector,
    kernels,
    memory,
    overview,
    passes,
    search,
)


@pytest.fixture(scope="module")
def run(recording):
    made = Run(recording)
    yield made
    made.close()


@pytest.fixture(scope="module")
def file(recording):
    with Recording.open(recording) as opened:
        yield opened


def test_every_view_draws_every_stage(run):
    for stage in run.stages():
        state = ViewState(stage=stage.index)
        for view in (graph, diff):
            text, _ = pack(view.data((run,), state))
            assert json.loads(text)
        json.dumps(inspector.data((run,), state), allow_nan=False)


def test_the_rail_counts_what_the_passes_did(run, file):
    rows = passes.data((run,), ViewState())["stages"]
    assert [r["name"] for r in rows] == [s.pass_name for s in file.stages()]
    assert rows[0]["ops"] + sum(r["change"] for r in rows[1:]) == rows[-1]["ops"]
    assert sum(r["rewrites"] for r in rows) == file.query("SELECT count(*) FROM rewrite").rows[0][0]
    assert {r["check"]["verdict"] for r in rows if r["check"]} <= {"bitwise", "within", "unchecked"}


def test_the_graph_has_the_ops_of_the_stage_and_those_that_went(run, file):
    for stage in range(1, file.stage_count()):
        data = graph.data((run,), ViewState(stage=stage))["ops"]
        status = data["status"]
        there = {file.op_id(op) for op in file.module(stage).walk()}
        gone = {file.op_id(op) for op in file.diff(stage - 1, stage).removed}
        shown = dict(zip(data["key"].tolist(), status.tolist(), strict=True))
        assert {k for k, s in shown.items() if s != flat_graph.REMOVED} <= there
        assert {k for k, s in shown.items() if s == flat_graph.REMOVED} <= gone
        assert len(shown) == len(data["key"]), "an op is drawn once"


def test_edges_of_the_graph_are_the_operands_of_the_ops(run, file):
    data = graph.data((run,), ViewState(stage=0))["ops"]
    module = file.module(0)
    maker = {v: file.op_id(op) for op in module.main.body.ops for v in op.results}
    keys = data["key"]
    for i, op in enumerate(module.main.body.ops):
        reads = data["operand"][data["operand_start"][i] : data["operand_start"][i + 1]]
        assert [None if r < 0 else keys[r] for r in reads] == [maker.get(v) for v in op.operands]


@pytest.mark.parametrize("name", ["nested", "branch", "flag"])
def test_regions_are_scopes_and_their_edges_run_with_the_program(tmp_path, name):
    module = program(*loops.CASES[name])
    made = cc.compile(module, finish=False)
    run = Run(made.record(tmp_path / "loops.run"))
    data = graph.data((run,), ViewState(stage=0))
    ops, kinds = data["ops"], [data["kinds"][k] for k in data["ops"]["kind"]]
    scopes = [data["scopes"][s] for s in ops["scope"]]
    inside = [op for op in module.walk() if op not in module.main.body.ops]
    regions = {"condition", "body", "then", "else"}
    assert sum(bool(regions & set(s.split("/"))) for s in scopes) == len(inside) > 3
    for i, kind in enumerate(kinds):
        reads = ops["operand"][ops["operand_start"][i] : ops["operand_start"][i + 1]]
        assert all(read < i for read in reads)
        if kind == "core.while":  # it gathers what its regions make
            made_in = {scopes[read] for read in reads if read >= 0}
            assert any(s.startswith(f"{scopes[i]}/body") for s in made_in)
    run.close()


def test_launches_that_follow_each_other_are_joined_through_their_buffers(run, file):
    last = file.stage_count() - 1
    data = graph.data((run,), ViewState(stage=last))
    kinds, ops = data["kinds"], data["ops"]
    fed = {int(i) for i in ops["operand"] if i >= 0}
    computing = [
        i for i, k in enumerate(ops["kind"]) if kinds[k].startswith("core.") and not ops["fold"][i]
    ]
    assert computing, "the ops inside the launches are drawn"
    assert len([i for i in computing if i not in fed]) <= 1 + len(file.meta()["outputs"])


def test_the_diff_has_each_line_of_both_stages_once(run, file):
    for stage in range(1, file.stage_count()):
        rows = diff.data((run,), ViewState(stage=stage))["lines"]
        left = [r["left"] for r in rows if r["kind"] != "added"]
        right = [r.get("right", r["left"]) for r in rows if r["kind"] != "removed"]
        cut = diff.MAX_COLUMNS
        assert [t[:cut] for t in right][1:] == [t[:cut] for t in file.lines(stage).lines][1:]
        assert [t[:cut] for t in left][1:] == [t[:cut] for t in file.lines(stage - 1).lines][1:]


def test_a_long_diff_is_sent_in_parts(run, file, monkeypatch):
    for stage in range(file.stage_count()):
        state = ViewState(stage=stage)
        whole = diff.data((run,), state)["lines"]
        with monkeypatch.context() as patch:
            patch.setattr(diff, "MAX_LINES", 10)
            patch.setattr(diff, "PAGE", 7)
            first = diff.data((run,), state)
            parts = list(first["lines"])
            while len(parts) < first["count"]:
                request = {"kind": "lines", "from": len(parts), "to": len(whole)}
                parts += diff.answer((run,), state, request)["lines"]
            found = {row["rightKey"] for row in whole if row["rightKey"] is not None}
            for key in sorted(found, key=str)[::9]:
                place = diff.answer((run,), state, {"kind": "find", "op": key})["row"]
                assert key in (whole[place]["leftKey"], whole[place]["rightKey"])
            assert diff.answer((run,), state, {"kind": "find", "op": -1})["row"] is None
        assert parts == whole
        assert [diff.KINDS[k] for k in first["kinds"]] == [row["kind"] for row in whole]


def test_lines_to_copy_are_whole(run, file, monkeypatch):
    stage = file.stage_count() - 1
    whole = diff.data((run,), ViewState(stage=stage))["lines"]
    monkeypatch.setattr(diff, "MAX_COLUMNS", 20)
    cut = diff.data((run,), ViewState(stage=stage))["lines"]
    assert any(row.get("cut") for row in cut) and not any(row.get("cut") for row in whole)
    assert all(row["left"] is None or len(row["left"]) <= 22 for row in cut)
    request = {"kind": "lines", "from": 0, "to": len(whole), "whole": True}
    assert diff.answer((run,), ViewState(stage=stage), request)["lines"] == whole


def test_kernel_times_are_those_of_the_samples(run, file):
    rows = {r["name"]: r for r in kernels.data((run,), ViewState())["rows"]}
    timings = file.timings()
    total = sum(np.median(t.samples_us) for t in timings)
    for name, row in rows.items():
        mine = [t for t in timings if t.kernel == name]
        if not mine:
            assert row["median_us"] is None
            continue
        medians = [np.median(t.samples_us) for t in mine]
        assert row["count"] == len(mine)
        assert row["median_us"] == pytest.approx(np.mean(medians))
        assert row["min_us"] == min(t.samples_us.min() for t in mine)
        assert row["share"] == pytest.approx(sum(medians) / total)
        assert row["gflops"] == pytest.approx(sum(t.flops for t in mine) / sum(medians) / 1e3)
    assert sum(r["share"] for r in rows.values() if r["share"]) == pytest.approx(1.0)


def test_the_code_is_the_recordings(run, file):
    row = kernels.data((run,), ViewState())["rows"][0]
    panes = code.data((run,), ViewState(kernel=row["id"]))["panes"]
    assert panes[0]["text"] == file.kernel_text(row["id"], "source")
    assert {"python", "llvm", "asm"} == {p["language"] for p in panes}


def test_debug_locations_link_llvm_and_assembly_lines_to_the_source():
    llvm = (
        "define void @k() !dbg !4 {\n  ret void, !dbg !7\n}\n!7 = !DILocation(line: 3, column: 1)"
    )
    assert kernel_texts._llvm_lines(llvm) == [(2, 3)]
    assembly = "k:\n\t.loc 1 3 0\n\tpushq %rbp\n.L1:\n\t.loc 1 5 0\n\tretq\n"
    assert kernel_texts._assembly_lines(assembly) == [(3, 3), (6, 5)]


def test_the_memory_map_has_the_buffers_and_their_bounds(run, file):
    data = memory.data((run,), ViewState())
    buffers = file.buffers()
    columns = data["buffers"]
    assert columns["key"].tolist() == [b.id for b in buffers]
    assert columns["offset"].tolist() == [b.offset for b in buffers]
    assert (columns["end"] > columns["start"]).all(), "lifetimes are half open here"
    arena = data["tiers"][0]
    inside = columns["tier"] == 0
    top = (columns["offset"] + columns["size"])[inside].max()
    assert arena["lower_bound"] <= top == file.figures("memory")["arena_bytes"]


def test_an_op_is_followed_to_its_kernel_and_buffer_and_back(run, file):
    conv = next(op for op in file.module(0).main.body.ops if op.kind == "core.conv")
    last = file.stage_count() - 1
    found = linked(run, ViewState(stage=last, op=file.op_id(conv)))
    kernel = next(k for k in file.kernels() if k.id == found.kernel)
    assert "conv" in kernel.name
    assert found.op in {file.op_id(op) for op in file.module(last).walk()}
    back = linked(run, ViewState(stage=0, kernel=kernel.id))
    assert file.op(back.op).kind in ("core.conv", "core.batch_norm", "core.relu", "core.max_pool")
    assert linked(run, ViewState(stage=0, buffer=found.buffer)).op is not None


def test_the_overview_says_what_the_recording_says(run, file):
    data = overview.data((run,), ViewState())
    figures = {f["label"]: f for f in data["figures"]}
    assert data["title"] == "digits-cnn" and data["status"] == "finished"
    assert figures["peak memory"]["value"] == file.figures("memory")["arena_bytes"]
    assert figures["time per execution"]["value"] == float(file.figures("timing")["total_ms"])
    assert file.figures()["identity"].startswith(figures["identity"]["text"])
    assert not [f for f in data["findings"] if f["severity"] == "error"]


def test_search_finds_passes_kernels_and_ops(run):
    found = search.hits(run, ViewState(stage=0), "conv")
    assert {"op", "kernel"} <= {h["what"] for h in found}
    assert search.hits(run, ViewState(stage=0), "fold_batch_norm")[0]["what"] == "pass"
    assert search.hits(run, ViewState(stage=0), "no such thing") == []


def test_search_takes_fields_and_expressions(run, file):
    """The syntax of the graph's search; only ops have fields, and a name is one."""
    ops = file.module(0).main.body.ops
    convolutions = sum(op.kind == "core.conv" for op in ops)
    found = search.find(run, ViewState(stage=0), "kind:/conv$/ dtype:f32")
    assert found.ops == found.total == convolutions == len(found.hits)
    assert {hit["what"] for hit in found.hits} == {"op"}
    named = search.hits(run, ViewState(stage=0), "name:/^fold_.*s$/")
    assert {hit["what"] for hit in named} == {"pass"}
    for wrong in ("/(/", "kind:/[/"):
        with pytest.raises(UserError, match="invalid regular expression"):
            search.find(run, ViewState(stage=0), wrong)


def test_search_says_how_much_there_is(run, monkeypatch):
    monkeypatch.setattr(search, "MAX_HITS", 5)
    monkeypatch.setattr(search, "MAX_OTHERS", 2)
    found = search.find(run, ViewState(stage=0), "/./")
    stages, ops = len(run.stages()), len(flat_graph.flat(run, 0).nodes)
    assert [hit["what"] for hit in found.hits] == ["pass"] * 2 + ["kernel"] * 2 + ["op"]
    assert (found.total, found.ops) == (stages + len(run.kernels()) + ops, ops)


def test_an_expression_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(user_regex, "PATIENCE", 0.3)
    with pytest.raises(UserError, match="takes too long"):
        user_regex.matches("(a+)+$", ["a" * 60 + "b"])


def test_a_module_and_a_patch_are_sent_in_parts(run, file, monkeypatch):
    monkeypatch.setattr(diff, "PART", 700)
    stage = next(s.index for s in run.stages()[1:] if s.rewrites)

    def whole(what):
        parts = [
            diff.answer((run,), ViewState(stage=stage), {"kind": "text", "what": what, "from": 0})
        ]
        while (start := parts[-1]["next"]) is not None:
            request = {"kind": "text", "what": what, "from": start}
            parts.append(diff.answer((run,), ViewState(stage=stage), request))
        return parts, [line for part in parts for line in part["lines"]]

    for what, number in (("before", stage - 1), ("after", stage)):
        parts, lines = whole(what)
        assert len(parts) > 1 and "\n".join(lines) + "\n" == file.text(number)
        assert parts[0]["file"] == f"{number:02d}_{run.stages()[number].pass_name}.mlir"
    _, lines = whole("patch")
    assert lines[0].startswith(f"--- {stage - 1:02d}_") and lines[2].startswith("@@ -")


def test_limits_that_make_no_sense_are_unknown(recording, tmp_path):
    path = tmp_path / "changed.run"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE figure SET value = 'much' WHERE name LIKE '%limits'")
    database.close()
    shown = Run(path)
    assert kernels.data((shown,), ViewState())["roofs"] is None
    assert overview.data((shown,), ViewState())["kernels"]
    shown.close()


def test_a_selection_of_another_recording_is_nothing_here(run):
    state = ViewState(stage=10**6, op=10**9, kernel=10**9, buffer=10**9, rewrite=10**9)
    for view in (graph, diff, kernels, code, memory):
        view.data((run,), state)
        view.selection((run,), state)
    inspector.data((run,), state)


def test_every_figure_of_the_overview_is_in_the_glossary(run, trained):
    step = Run(trained[1])
    labels = {
        f["label"] for each in (run, step) for f in overview.data((each,), ViewState())["figures"]
    }
    step.close()
    assert {"kernels", "optimizer state"} <= labels <= set(GLOSSARY["overview"])
