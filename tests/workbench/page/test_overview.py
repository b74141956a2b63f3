"""The overview's advice on the page: evidence, and an offer that is tried in a new run."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from core_compiler import compiler
from core_compiler.compiler import Options
from core_compiler.pipelines import PipelineEdit
from core_compiler.record import Recording
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from workbench import worker
from workbench.advice import advise
from workbench.views.reading import Run
from workbench.views.work import work

FINDING = "#cw-view-overview [data-hazard='unfused chain']"
EVIDENCE = "#cw-view-overview .evidence"


@pytest.mark.playwright
def test_a_button_makes_the_run_with_a_launch_less(own_server, tab, tmp_path):
    """The recording stands for its model: nothing but our own compiler is needed."""
    path = tmp_path / "chain.run"
    edit = PipelineEdit(skip=("fuse_elementwise",))
    module = program(lambda b, x: b.exp(b.tanh(x)), "256x256xf32")
    made = compiler.start(module, "cpu", Options(edit=edit))
    while made.next is not None and made.next.label != "generate_code":
        made.step()
    with Recorder(path) as recorder:
        made.tell(recorder, spec=str(tmp_path / "gone.onnx"), model="chain", kind="onnx",
                  target="cpu", edit={"skip": list(edit.skip)})  # fmt: skip
    server = own_server()
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.wait(FINDING)
    page.locate(f"{FINDING} [data-do=try]").first.click()
    page.wait_query("panes", "compare")
    assert page.query("other") and page.query("other") != page.query("run")
    (new,) = (found for found in server.root.rglob("*.run") if found != path)
    run, tried = Run(path), Run(new)
    assert tried.meta()["edit"]["skip"] == []
    assert [len(work(each)) for each in (run, tried)] == [2, 1]
    run.close()
    tried.close()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_an_offer_is_tried_in_a_new_run_that_is_compared(own_server, tab, tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    path = tmp_path / "unfused.run"
    edit = {"skip": ["fuse_elementwise", "fuse_epilogues"]}
    worker._run({"model": "digits-mlp", "sizes": {"width": 0.25, "batch": 1024}, "edit": edit,
                 "out": str(path)})  # fmt: skip
    run = Run(path)
    found = [each for each in advise(run) if each.hazard == "unfused chain"]
    run.close()
    assert found and found[0].tries[0].words == "no edits"
    server = own_server()
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.wait(FINDING)
    page.locate(f"{FINDING} .open").first.click()
    assert found[0].evidence[0].text in page.text(EVIDENCE)
    assert "workbench compile digits-mlp" in page.text(f"{EVIDENCE} pre")
    assert "--skip" not in page.text(f"{EVIDENCE} pre")
    page.locate(f"{FINDING} [data-do=try]").first.click()
    page.wait_query("panes", "compare")
    assert page.query("other") and page.query("other") != page.query("run")
    (made,) = server.root.rglob("digits-mlp*.run")
    with Recording.open(made) as opened:
        assert opened.meta()["edit"]["skip"] == []
        assert opened.meta()["sizes"]["batch"] == 1024
    assert page.errors == []
