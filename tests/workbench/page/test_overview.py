"""The overview's advice on the page: evidence, and an offer that is tried in a new run."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record import Recording
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from workbench.advice import advise
from workbench.app import worker
from workbench.queries.run import Run
from workbench.queries.work import work

FINDING = "#cw-view-overview [data-hazard='unfused chain']"
EVIDENCE = "#cw-view-overview .evidence"


def _chain(folder: Path) -> Path:
    """Two launches where one would do."""
    path = folder / "chain.run"
    edit = PipelineEdit(skip=("fuse_elementwise",))
    module = program(lambda b, x: b.exp(b.tanh(x)), "256x256xf32")
    made = compilation.start(module, "cpu", Options(edit=edit))
    while made.next is not None and made.next.label != "generate_code":
        made.step()
    with Recorder(path) as recorder:
        made.report(
            recorder,
            spec=str(folder / "gone.onnx"),
            model="chain",
            kind="onnx",
            target="cpu",
            edit={"skip": list(edit.skip)},
        )
    return path


@pytest.mark.slow
@pytest.mark.playwright
def test_a_button_makes_the_run_with_a_launch_less(own_server, tab, tmp_path):
    """The recording stands for its model: nothing but our own compiler is needed."""
    path = _chain(tmp_path)
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


REFUSE = """
from core_compiler.support.errors import UserError
from workbench.app import rerun
def refuse(*_):
    raise UserError("not today", "the test", "look at another run")
rerun.job = refuse
"""


@pytest.mark.slow
@pytest.mark.playwright
def test_what_became_of_an_offer_is_said_where_it_was_made(own_server, tab, tmp_path):
    path = _chain(tmp_path)
    other = tmp_path / "other.run"
    shutil.copy(path, other)
    server = own_server(before=REFUSE)
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.wait(FINDING)
    page.locate(f"{FINDING} [data-do=try]").first.click()
    alert = "#cw-view-overview .trying[role=alert]"
    page.wait(f"{alert}:has-text('not today')")
    page.page.evaluate(
        "(query) => { history.pushState(null, '', query); dispatchEvent(new Event('popstate')); }",
        f"?run={quote(str(other))}",
    )
    page.wait("#cw-bar :has-text('other.run')")
    page.wait(alert, state="detached")
    page.page.go_back()
    page.wait(alert)
    assert page.errors == []


LATE = """
import os, time
from workbench.views import overview
found = overview.advise
def advise(run):
    while not os.path.exists({path!r}):
        time.sleep(0.05)
    return found(run)
overview.advise = advise
"""


@pytest.mark.slow
@pytest.mark.playwright
def test_advice_does_not_move_what_is_under_the_hand(own_server, tab, tmp_path):
    """It comes when the page is drawn: what is below it stays where the pointer is, and what is
    pressed is not taken away before it is a click."""
    path, now = _chain(tmp_path), tmp_path / "now"
    server = own_server(before=LATE.format(path=str(now)))
    page = tab(f"{server.url}?run={quote(str(path))}&panes=overview")
    page.page.set_viewport_size({"width": 1000, "height": 420})
    bar = page.locate("#cw-view-overview [data-pass='2']")
    bar.hover()
    before = bar.bounding_box()
    assert page.locate(FINDING).count() == 0
    now.touch()
    page.wait(FINDING, state="attached")
    assert abs(bar.bounding_box()["y"] - before["y"]) <= 1
    page.page.mouse.down()
    page.page.set_viewport_size({"width": 994, "height": 420})  # it is drawn anew
    page.page.wait_for_timeout(200)
    page.page.mouse.up()
    page.wait_query("stage", "2")
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_an_offer_is_tried_in_a_new_run_that_is_compared(own_server, tab, tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    path = tmp_path / "unfused.run"
    edit = {"skip": ["fuse_elementwise", "fuse_epilogues"]}
    worker._run(
        {
            "model": "digits-mlp",
            "sizes": {"width": 0.25, "batch": 1024},
            "edit": edit,
            "out": str(path),
        }
    )
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
