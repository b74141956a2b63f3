"""Code that a recording or a link brings runs only when the person says so."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from core_compiler.driver import compilation
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from workbench.app import rerun
from workbench.app.workspace import UntrustedCode, Workspace
from workbench.model import user_pass
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import missing, pipeline

OWN = {"insert": [{"place": "after:recompose", "code": user_pass.TEMPLATE}]}


def compiled(path: Path, **meta) -> Path:
    """A recording of a small program that says where its model comes from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(path)
    recorder.begin({"model": "x", "spec": "digits-mlp", "kind": "sample", "target": "cpu", **meta})
    module = program(lambda b, x: b.relu(x), "4xf32")
    compilation.start(module, observer=recorder).finish()
    recorder.end("finished")
    return path


@pytest.fixture
def workspace(tmp_path):
    return Workspace(root=tmp_path / "store")


@pytest.fixture
def sent(tmp_path):
    """From elsewhere: it names a function of Python's own as its model."""
    run = Run(compiled(tmp_path / "sent.run", spec="os:system", sizes={"command": "true"}))
    yield run
    run.close()


@pytest.fixture
def made_here(workspace):
    run = Run(compiled(workspace.library.folder / "mine.run"))
    yield run
    run.close()


def test_the_function_that_a_recording_from_elsewhere_names_is_not_called_unasked(workspace, sent):
    for ask in (rerun.execution, rerun.job):
        with pytest.raises(UntrustedCode, match="names code to run: os:system"):
            ask(workspace, sent, {"draft": {}})
        assert ask(workspace, sent, {"draft": {}, "trust": True})["model"] == "os:system"
    with pytest.raises(UntrustedCode, match="names code to run: os:system"):
        workspace.bisect(sent, {})


def test_execute_compiles_as_the_recording_was(workspace):
    """Its edit too, which asks first where it brings code; so does the command beside it."""
    as_it_was = {
        "edit": {"skip": ["recompose"]},
        "target_options": {"tiles": "small"},
        "pass_timeout": 2.5,
        "sizes": {"width": 0.25},
        "frontend": "onnx",
    }
    run = Run(compiled(workspace.library.folder / "mine.run", **as_it_was))
    job = rerun.execution(workspace, run, {})
    assert job["append"] == str(run.path) and not job["check"]
    assert {**job, "edit": {"skip": job["edit"]["skip"]}} == {**job, **as_it_was}
    assert (
        "workbench compile digits-mlp --frontend onnx --width 0.25 --target-option tiles=small "
        "--skip recompose --pass-timeout 2.5 --execute -o FILE.run"
    ) in missing.execution(run).message["fix"]
    run.close()


def test_execute_asks_before_it_runs_the_pass_of_a_recording_from_elsewhere(workspace, tmp_path):
    run = Run(compiled(tmp_path / "sent.run", edit=OWN))
    with pytest.raises(UntrustedCode, match="contains custom pass code"):
        rerun.execution(workspace, run, {})
    assert rerun.execution(workspace, run, {"trust": True})["edit"]["insert"]
    run.close()


def test_what_kind_of_model_it_is_a_recording_does_not_decide(workspace, sent):
    with sqlite3.connect(sent.path) as db:
        db.execute("UPDATE meta SET value = '\"sample\"' WHERE key = 'kind'")
    with pytest.raises(UntrustedCode):
        rerun.execution(workspace, Run(sent.path), {})


def test_an_upload_does_not_become_a_recording_that_was_made_here(workspace, sent):
    upload = workspace.library.uploads.new_path("a.run")
    upload.write_bytes(sent.path.read_bytes())
    with pytest.raises(UntrustedCode):
        rerun.execution(workspace, Run(workspace.library.import_upload(upload)), {})


def test_the_code_of_a_link_is_asked_about_that_of_ones_own_hand_is_not(workspace, made_here):
    def does(draft: dict, **done: str) -> dict:
        """What ann's page does with a draft; the draft then."""
        request = {"draft": draft, "done": done}
        answer = pipeline.answer((made_here,), ViewState(), request)
        workspace.typed.remember_code("ann", request, answer)
        return answer["draft"]

    linked = does({"edit": OWN}, do="show")
    with pytest.raises(UntrustedCode, match="this link contains custom pass code"):
        rerun.job(workspace, made_here, {"draft": linked}, "ann")
    assert rerun.job(workspace, made_here, {"draft": linked, "trust": True}, "ann")
    typed = user_pass.TEMPLATE.replace("core.relu", "core.neg")
    made = does(linked, do="code", label="own_pass", code=typed)
    assert rerun.job(workspace, made_here, {"draft": made}, "ann")["edit"]["insert"]
    with pytest.raises(UntrustedCode):
        rerun.job(workspace, made_here, {"draft": made}, "ben")
    inserted = does({}, do="insert", label="recompose")
    assert rerun.job(workspace, made_here, {"draft": inserted}, "ann")["edit"]["insert"]


def test_code_that_was_run_here_runs_again(workspace):
    run = Run(compiled(workspace.library.folder / "own.run", edit=OWN))
    draft = pipeline.data((run,), ViewState())["shown"]["draft"]
    assert rerun.job(workspace, run, {"draft": draft})["edit"]["insert"]
    run.close()
