"""Compile… fills the form with the recording's model and options, and the new recording opens where
the old one was left; recordings beside the opened one are offered everywhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core_compiler.record import Recording
from tests.workbench.page.conftest import Server, Tab
from workbench.app.neighbours import Neighbours
from workbench.app.rerun import origin
from workbench.app.workspace import Workspace
from workbench.queries.run import Run
from workbench.state.view_state import ViewState

COMPILE = '#cw-bar button:text-is("Compile…")'
MODEL = "#cw-start input[aria-label='Model or recording']"


@pytest.mark.slow
def test_the_form_is_filled_in_and_the_place_is_kept(server: Server, recording: Path, tab):
    folder = server.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    path = Path(shutil.copy(recording, folder / "compiled-again.run"))
    with Recording.open(path) as file:
        fold = next(s.index for s in file.stages() if s.pass_name == "fold_batch_norm")
    page: Tab = tab(f"{server.url}?run={path.name}&panes=graph,diff&stage={fold}&fold=inspector")
    page.drawn("graph")
    page.locate(COMPILE).click()
    page.wait(MODEL)
    assert page.locate(MODEL).input_value() == "digits-cnn"
    values = {
        name: page.locate(f"#cw-start [aria-label='{name}']").input_value()
        for name in ("Target", "Frontend", "Width of a sample model")
    }
    assert values == {"Target": "cpu", "Frontend": "torch", "Width of a sample model": "0.25"}
    assert page.locate("#cw-start label:has-text('check every rewrite') input").is_checked()
    assert "compiled-again.run" in page.text("#cw-start .origin")
    page.locate('#cw-start button:text-is("Open")').click()
    page.page.wait_for_function(
        "() => { const q = new URLSearchParams(location.search);"
        " return q.get('run') && q.get('run') !== 'compiled-again.run' && q.get('stage'); }",
        timeout=120_000,
    )
    assert page.query("panes") == "graph,diff" and page.query("fold") == "inspector"
    assert page.query("stage") == str(fold) and page.query("other") == "compiled-again.run"
    with Recording.open(folder / str(page.query("run"))) as made:
        assert made.meta()["checked"] and made.meta()["sizes"] == {"width": 0.25}


@pytest.mark.slow
def test_from_the_form_one_comes_back_to_where_one_was(library: Server, two_targets, tab):
    name = two_targets.cpu.name
    page: Tab = tab(f"{library.url}?run={name}&panes=kernels,code")
    page.wait("#cw-view-kernels tbody tr")
    page.locate(COMPILE).click()
    page.wait("#cw-start .origin:visible")
    page.locate("#cw-start [data-do=back]").click()
    page.wait("#cw-view-kernels tbody tr")
    assert page.query("run") == name and page.query("panes") == "kernels,code"


def test_what_the_form_does_not_show_is_kept(recording: Path, tmp_path):
    path = Path(shutil.copy(recording, tmp_path / "x.run"))
    run = Run(path)
    edit = {
        "skip": ["fold_batch_norm"],
        "order": [],
        "repeat": [],
        "limits": {},
        "cuts": {},
        "options": {},
        "insert": [],
    }
    meta = {**run.meta(), "sizes": {"width": 0.25, "batch": 3}, "edit": edit}
    run._meta = run._meta[0], meta
    found = origin(Workspace(root=tmp_path), run, ViewState(run="x.run", stage=2))
    assert found.form["shape"] == "batch=3" and found.form["width"] == 0.25
    assert found.options["edit"] == edit
    assert found.words == "skip fold_batch_norm"
    assert found.view_state.find == run.stages()[2].pass_name


def test_code_of_a_recording_from_elsewhere_is_not_compiled_again_unasked(recording, tmp_path):
    run = Run(Path(shutil.copy(recording, tmp_path / "x.run")))
    item = {"place": 0, "code": "class P: ...", "source": "p.py", "name": "P"}
    edit = {
        "skip": [],
        "order": [],
        "repeat": [],
        "limits": {},
        "cuts": {},
        "options": {},
        "insert": [item],
    }
    run._meta = run._meta[0], {**run.meta(), "edit": edit}
    assert origin(Workspace(root=tmp_path), run, ViewState()).options["edit"] is None


# -- beside the opened recording ------------------------------------------------------------------


@pytest.mark.slow
def test_recordings_beside_the_opened_one_are_offered(own_server, two_targets, tmp_path, tab):
    folder = tmp_path / "mine"
    folder.mkdir()
    a = Path(shutil.copy(two_targets.cpu, folder / "a.run"))
    b = Path(shutil.copy(two_targets.cuda, folder / "b.run"))
    server: Server = own_server()
    page: Tab = tab(f"{server.url}?run={a}&panes=compare")
    page.wait(f'#cw-view-compare tr[data-name="{b}"]')
    listed = page.locate("#cw-view-compare tr[data-name] .name").all_inner_texts()
    assert listed == ["b.run"], "neither itself nor a folder that is its own"
    page.show("kernels")
    page.wait("#cw-view-kernels tbody tr")
    offered = page.locate(f'.cw-tabs .two option[value="{b}"]')
    offered.first.wait_for(state="attached")
    page.show("compare")
    page.locate(f'#cw-view-compare tr[data-name="{b}"]').click()
    page.wait("#cw-view-compare [data-table=figures]")
    assert page.query("other") == str(b)
    page.locate("#cw-bar .brand").click()
    page.wait("#cw-start [data-table='Beside the opened recording'] tbody tr")
    texts = page.locate("#cw-start [data-table='Beside the opened recording'] tbody tr")
    assert {t.split()[1] for t in texts.all_inner_texts()} == {"a.run", "b.run"}
    texts.filter(has_text="b.run").click()
    page.wait("#cw-view-overview .figure")
    assert page.query("run") == str(b) and not page.errors


def test_what_may_not_be_opened_is_not_listed(two_targets, tmp_path):
    for name in ("a.run", "b.run"):
        shutil.copy(two_targets.cpu, tmp_path / name)
    neighbours = Neighbours(lambda path: path.name == "a.run")
    neighbours.opened(tmp_path / "a.run")
    assert [Path(e.path).name for e in neighbours.entries()] == ["a.run"]
    assert neighbours.entries("another model") == []


def test_a_recording_that_is_written_meanwhile_is_listed_as_it_is_then(two_targets, tmp_path):
    shutil.copy(two_targets.cpu, tmp_path / "a.run")
    neighbours = Neighbours(lambda _: True)
    neighbours.opened(tmp_path / "a.run")
    assert len(neighbours.entries()) == 1
    (tmp_path / "b.run").write_bytes(b"no recording")
    (tmp_path / "gone").mkdir()
    listed = {Path(e.path).name: e.status for e in neighbours.entries()}
    assert listed["b.run"] == "unreadable" and listed["a.run"] == "finished"
