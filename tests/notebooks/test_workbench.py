"""The notebook's side in Python: selecting, stepping, editing; the browser has its own test."""

from __future__ import annotations

import gc
import json
import tempfile

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.passes.base import Pass
from core_compiler.support.errors import UserError
from tests.passes.programs import program

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

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
    shown = {"op": w.selection["op"], "n": 0}
    assert graph.view.selection == diff.view.selection == shown
    graph.view.selection = {"op": shown["op"] + 1, "n": 1}  # as a click in the browser does
    assert w.op is c.stages[0].module.main.body.ops[2]
    assert diff.view.selection == {"op": w.selection["op"], "n": 0}, "it chose nothing itself"
    w.select(op=op)
    assert graph.view.selection == {**shown, "n": 1}, "a later choice than the click"


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
    with pytest.raises(UserError, match="unknown kernel"):
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
    assert kernels.view.selection["n"] == 1, "the browser learns what this answers"
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


def test_only_the_recordings_that_are_shown_lie_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    c = compiled(finish=False)
    w = notebook.show(c)

    def kept() -> set[str]:
        return {str(path.parent) for path in tmp_path.glob("workbench-*/*.run")}

    for _ in range(3):
        c.step()
        assert kept() == {str(w.run.path.parent)} == set(map(str, tmp_path.glob("workbench-*")))
    for _ in range(2):
        w.compare(compiled(finish=False))
        assert kept() == {str(run.path.parent) for run in (w.run, w.other)}
    c.finish()
    for _ in range(2):
        w.rerun(cc.PipelineEdit(skip=("fuse_elementwise",)))
        assert kept() == {str(run.path.parent) for run in (w.run, w.other)}
        assert w.other.stages() and w.run.stages()
    w.compare(None)
    assert kept() == {str(w.run.path.parent)}


@pytest.mark.parametrize("name", ["{folder}/victim", "net/v1", "..", "a b\0c", "x" * 300])
def test_what_a_model_is_called_is_no_path(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    victim = tmp_path / "victim.run"
    victim.write_text("precious")
    c = compiled()
    c.about["model"] = name.format(folder=tmp_path)
    w = notebook.show(c)
    assert w.run.path.parent.parent == tmp_path and w.run.meta()["model"] == c.about["model"]
    assert victim.read_text() == "precious"


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
    # The views stay with the new compile until both are asked for.
    kernels = w.view("kernels")
    assert "two" not in json.loads(kernels.view.data)
    kernels.view.command = json.dumps({"name": "two", "view": "kernels", "on": True, "n": 1})
    assert json.loads(kernels.view.data)["two"]
    (switch,) = [each for each in w.widget.children[0].children if each.description == "A | B"]
    assert switch.layout.display == ""
    for on in (True, False):
        switch.value = on
        title = json.loads(w.view("diff").view.data)["left"]["title"]
        assert title.startswith("A ") == on
    assert json.loads(kernels.view.data)["two"], "the switch is for what stands below it"


@pytest.mark.slow
def test_a_compile_with_an_edit_takes_and_gives_what_the_model_does():
    onnx = pytest.importorskip("onnx", reason="the model is ONNX")
    from tests.frontends.onnx_models import F, I, model_of

    nodes = [onnx.helper.make_node("NonZero", ["x"], ["y"])]
    x = np.array([0, 1, 0, 2], np.float32)
    c = cc.compile(model_of(nodes, [("x", F, (4,))], [("y", I, (1, "n"))]), [x])
    made = notebook.show(c).rerun(cc.PipelineEdit(skip=("fuse_elementwise",)))
    assert [y.tolist() for y in made(x)] == [y.tolist() for y in c(x)] == [[[1, 3]]]


def test_a_compile_with_an_edit_goes_on_with_the_state_of_the_model():
    counts = program(lambda b, x, s: (b.mul(x, s), b.add(s, x)), "f32", "f32")
    c = cc.compile(counts, (np.float32(1), np.float32(0)))
    c.keep([np.float32(5)])
    one = np.ones((), np.float32)
    assert [y.tolist() for y in c(one)] == [5]
    made = notebook.show(c).rerun(cc.PipelineEdit(skip=("fuse_elementwise",)))
    assert [y.tolist() for y in made(one)] == [6]
    assert [y.tolist() for y in c(one)] == [6]


@pytest.mark.slow
def test_a_compilation_that_has_gone_after_an_edit_leaves_its_place_to_others():
    """Objects are known by their ids, and a new compilation may get that of one that has gone."""
    c = compiled()
    w, gone = notebook.show(c), id(c)
    w.rerun(cc.PipelineEdit(skip=("fuse_elementwise",)))
    assert notebook.show(c) is w and gone in notebook.SHOWN
    del c
    gc.collect()
    assert gone not in notebook.SHOWN and id(w.compilation) in notebook.SHOWN


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
    details = []
    view.view.observe(lambda change: details.append(json.loads(change["new"])), "detail")
    view.view.command = json.dumps({"name": "rerun", "draft": wrong, "n": 2})
    running, told = details
    assert running["state"] == "running", "said at once: the view takes silence for a no"
    assert told["state"] == "failed" and "cannot be skipped" in told["error"]["what"]
    assert running["run"] == told["run"] == json.loads(view.view.data)["name"]
    assert w.compilation is made
    view.view.command = json.dumps({"name": "rerun", "draft": wrong, "n": 3})
    assert view.view.detail != json.dumps(told), "the view waits for an answer"


def test_the_list_of_passes_is_that_of_the_last_compile():
    w = notebook.show(compiled())
    bar, *_ = w.widget.children
    (passes,) = [each for each in bar.children if getattr(each, "description", "") == "Pass"]
    count = len(passes.options)
    w.rerun(cc.PipelineEdit(skip=("fuse_epilogues",), repeat=("fuse_elementwise",)))
    assert len(passes.options) == count, "as many, and others"
    for (title, _), stage in zip(passes.options, w.compilation.stages, strict=True):
        assert stage.name in title


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
    with pytest.raises(UserError, match="a recording cannot be rerun"):
        w.rerun(cc.PipelineEdit())


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The folder of an empty library."""
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path / "store"))
    (tmp_path / "store" / "recordings").mkdir(parents=True)
    return tmp_path / "store" / "recordings"


@pytest.fixture(scope="module")
def pair():
    """A compile, and one of the same model that fuses nothing."""
    edit = cc.PipelineEdit(skip=("fuse_elementwise", "fuse_epilogues"))
    return compiled(check=True), compiled(check=True, edit=edit)


def test_another_compile_is_compared_with_in_any_view(pair):
    c, other = pair
    numbers = c.show("numerics", other=other)
    data = json.loads(numbers.view.data)
    assert data["two"] and data["total"] > 0 and data["first"] is None, "the same numbers"
    w = notebook.show(c)
    assert w.other.meta()["edit"]["skip"] == ["fuse_elementwise", "fuse_epilogues"]
    assert "two" not in json.loads(w.view("kernels").view.data), "only what was asked for"
    assert c.show("kernels", other=other) is w.view("kernels")
    assert json.loads(w.view("kernels").view.data)["two"]
    assert json.loads(c.show("compare", other=other).view.data)["b"] is not None
    c.show(other=other)
    assert json.loads(w.view("diff").view.data)["left"]["title"].startswith("A ")
    w.compare(None)
    assert w.other is None and "two" not in json.loads(numbers.view.data)


def test_a_recording_is_compared_with_by_path_and_by_its_name_in_the_library(pair, library):
    c, other = pair
    path = other.record(library / "unfused.run")
    for name in (path, str(path), "unfused.run", "unfused"):
        c.show("memory", other=name)
        assert notebook.show(c).other.path == path
    shown = cc.show(path, "diff", other=c)
    assert json.loads(shown.view.data)["right"]["title"].startswith("B ")


@pytest.mark.parametrize(
    ("view", "other", "says"),
    [
        ("numerics", "unfusd", "did you mean unfused"),
        ("numerics", "/no/such/file.run", "workbench runs"),
        ("numerics", "bad.run", "bad.run"),
        ("numerics", "a\0b", "check the path"),
        ("numerics", 5, "got int"),
        ("grahp", "unfused", "unknown view 'grahp'"),
    ],
)
def test_what_cannot_be_compared_with_is_said_and_changes_nothing(pair, library, view, other, says):
    c, unfused = pair
    unfused.record(library / "unfused.run")
    (library / "bad.run").write_bytes(b"no recording")
    w = notebook.show(c)
    w.compare("unfused")
    before = w.other
    with pytest.raises(UserError) as refused:
        c.show(view, other=other)
    assert says in str(refused.value)
    assert w.other is before


def test_unknown_views_and_a_missing_part_are_told(monkeypatch):
    with pytest.raises(UserError, match="unknown view 'grahp'"):
        notebook.show(compiled(), "grahp")
    monkeypatch.setattr("core_compiler.driver.show.entry_points", lambda **_: ())
    with pytest.raises(UserError, match=r"compiler-workbench\[ui\]"):
        compiled().show()
