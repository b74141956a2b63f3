"""The notebook's side in Python: selecting, stepping, editing; the browser has its own test."""

from __future__ import annotations

import json

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.errors import UserError
from core_compiler.passes.base import Pass
from tests.passes.programs import program

notebook = pytest.importorskip("workbench.notebook", reason="notebooks need ipywidgets")


def chain(b, x):
    return b.exp(b.neg(b.matmul(x, x)))


def compiled(**options) -> cc.Compilation:
    inputs = (np.ones((8, 8), np.float32),)
    return cc.compile(program(chain, "8x8xf32"), inputs, **options)


def test_the_selection_is_the_same_everywhere():
    c = compiled()
    w = notebook.show(c)
    assert notebook.show(c) is w
    graph, diff = notebook.show(c, "graph"), notebook.show(c, "diff")
    op = c.stages[0].module.main.body.ops[1]
    w.select(op=op, stage=0)
    assert w.op is op and w.stage == 0
    assert graph.view.selection == diff.view.selection == {"op": w.selection["op"]}
    graph.view.selection = {"op": w.selection["op"] + 1}  # as a click in the browser does
    assert w.op is c.stages[0].module.main.body.ops[2]
    assert diff.view.selection == graph.view.selection


def test_an_op_is_found_in_every_stage_and_as_a_kernel():
    c = compiled()
    w = notebook.show(c)
    w.select(op=c.stages[0].module.main.body.ops[0], stage=0)
    (name,) = [n for n, k in c.kernels.items() if not k.facts.get("core")]
    assert w.selection["kernel_name"] == name
    w.stage = len(c.stages) - 1
    assert w.op.kind == "target.launch" and w.op["kernel"] == name
    w.select(kernel=name)
    assert w.selection["kernel_name"] == name
    with pytest.raises(UserError, match="no kernel is called"):
        w.select(kernel="matnul")


def test_watchers_are_told():
    w = notebook.show(compiled())
    seen = []
    w.observe(lambda now: seen.append(now.stage))
    w.stage = 3
    w.select()
    assert seen == [3, 3]


def test_commands_of_views_move_and_nonsense_does_not():
    c = compiled()
    w = notebook.show(c)
    kernels = w.view("kernels")
    row = json.loads(kernels.view.data)["rows"][0]
    kernels.view.command = json.dumps({"name": "select", "kernel": row["id"], "n": 1})
    assert w.selection["kernel"] == row["id"]
    for nonsense in ("{", "[]", '{"name": "open", "what": "/etc/passwd"}', '{"name": "home"}'):
        kernels.view.command = nonsense
    assert w.selection["kernel"] == row["id"]


def test_a_compile_that_is_stepped_is_shown_as_it_goes():
    c = compiled(finish=False)
    w = notebook.show(c)
    rail = w.view("rail")
    first = c.step()
    second = c.step()
    shown = json.loads(rail.view.data)["stages"]
    assert [s["name"] for s in shown] == ["import", first.name, second.name]
    c.finish()
    assert len(json.loads(rail.view.data)["stages"]) == len(c.stages)
    kernels = w.view("kernels")
    assert json.loads(kernels.view.data)["measured"] is False
    c.profile(repeats=2)
    assert json.loads(kernels.view.data)["measured"] is True


def test_an_edited_pipeline_is_compiled_and_compared():
    c = compiled()
    w = notebook.show(c)
    view = w.view("pipeline")
    edit = cc.PipelineEdit(skip=("fuse_elementwise",))
    made = w.rerun(edit)
    assert w.compilation is made is not c
    assert "fuse_elementwise" not in [s.name for s in made.stages]
    assert w.other.meta()["edit"]["skip"] == [] and w.run.meta()["edit"]["skip"] == list(edit.skip)
    data = json.loads(view.view.data)
    assert data["other"]["made_with"] == "" and "fuse_elementwise" in data["made_with"]
    assert json.loads(w.view("compare").view.data)["b"] is not None


def test_an_edit_made_in_the_view_runs_here_and_a_bad_one_changes_nothing():
    c = compiled()
    w = notebook.show(c)
    view = w.view("pipeline")
    draft = json.loads(view.view.data)["shown"]["draft"]
    skipped = {**draft, "edit": {**draft["edit"], "skip": ["fuse_epilogues"]}}
    view.view.command = json.dumps({"name": "rerun", "draft": skipped, "n": 1})
    assert "fuse_epilogues" not in [s.name for s in w.compilation.stages]
    made = w.compilation
    wrong = {**draft, "edit": {**draft["edit"], "skip": ["bufferize"]}}
    view.view.command = json.dumps({"name": "rerun", "draft": wrong, "n": 2})
    told = json.loads(view.view.detail)
    assert told["state"] == "failed" and "cannot be skipped" in told["error"]["what"]
    assert w.compilation is made


class Breaks(Pass):
    """Raises."""

    def run(self, module, context):
        raise ValueError("no reason at all")


def test_a_pass_that_raises_leaves_what_was_shown():
    c = compiled()
    w = notebook.show(c)
    with pytest.raises(UserError, match="no reason at all"):
        w.rerun(cc.PipelineEdit(insert=(("after:decompose", Breaks()),)))
    assert w.compilation is c and w.run.version.stages == len(c.stages)


def test_without_widgets_there_is_the_table_of_passes():
    shown = notebook.show(compiled())._repr_mimebundle_()
    assert {"text/plain", "text/html"} < set(shown)
    assert "fuse_elementwise" in shown["text/html"] and "<script" not in shown["text/html"]


def test_a_recording_is_shown_too(tmp_path):
    c = compiled()
    w = notebook.show(c.record(tmp_path / "mine.run"))
    assert w.compilation is None
    w.stage = 0
    w.select(op=w.run.index(0).module.main.body.ops[0])
    assert w.op.kind == "core.matmul"
    assert "recording mine.run" in w._repr_mimebundle_()["text/html"]
    with pytest.raises(UserError, match="this is a recording"):
        w.rerun(cc.PipelineEdit())


def test_unknown_views_and_a_missing_part_are_told(monkeypatch):
    with pytest.raises(UserError, match="no view is called 'grahp'"):
        notebook.show(compiled(), "grahp")
    monkeypatch.setattr("core_compiler.session.entry_points", lambda **_: ())
    with pytest.raises(UserError, match=r"compiler-workbench\[ui\]"):
        compiled().show()
