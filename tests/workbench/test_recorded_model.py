"""A recording whose model is not at hand is one itself: compiled from Python, its file gone, a
training step."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.ir.core import structure_key
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.optimisers.optimizers import SGD, RMSprop
from tests.debug import planted
from workbench.app import rerun, worker
from workbench.app.workspace import UntrustedCode, Workspace
from workbench.model import first_bad_pass, models, recorded_model, user_pass
from workbench.model.spec import read_spec
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import bisect, pipeline

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="the networks are written in torch")

QUICK = PipelineEdit(insert=(("before:canonicalise", planted.QuickGelu()),))
#: What stands for the weights of the networks: two that are too large to be in a recording, of a
#: training step all six parameters.
STOOD_IN = "weights: 2 seeded stand-ins; inputs seeded"
OF_TRAINING = "weights: 6 seeded stand-ins; state and batch seeded"
#: A pass of a person's own that is wrong in the backward pass alone.
DOUBLES = """
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.training.graph.roles import Roles


class Doubles(Pass):
    def run(self, module, context):
        roles = Roles.of(module.main)
        place = roles.gradients()[roles.number("parameter", "0.bias")]
        body = module.main.body
        b = Builder(module.weights)
        twice = b.add(body.outputs[place], body.outputs[place])
        outputs = (*body.outputs[:place], twice, *body.outputs[place + 1 :])
        return module.with_main(body.with_(ops=(*body.ops, *b.ops), outputs=outputs))
"""


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.GELU(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 10)
    )


def batch():
    torch.manual_seed(2)
    return torch.randn(8, 12), torch.randint(0, 10, (8,))


def from_python(path: Path, edit: PipelineEdit = QUICK, finish: bool = False) -> Path:
    """A recording of a compile that nothing but Python says; its first stage is there."""
    return cc.compile(network(), batch()[:1], edit=edit, finish=finish).record(path)


def of_training(path: Path, edit: PipelineEdit = QUICK, optimizer="adam", **more) -> Path:
    training = Training(optimizer=optimizer, **more)
    step = cc.compile(network(), batch(), training=training, edit=edit, finish=False)
    return step.compilation.record(path)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return from_python(tmp_path_factory.mktemp("python") / "net.run")


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Path:
    return of_training(tmp_path_factory.mktemp("training") / "step.run")


@pytest.mark.slow
@pytest.mark.parametrize(("made", "told"), [("python", STOOD_IN), ("training", OF_TRAINING)])
def test_a_bad_pass_is_found_without_the_model(made, told, request, command):
    path = request.getfixturevalue(made)
    found = command.json("bisect", path, "--trust", "--no-execute", code=1)
    assert (found["first_bad_pass"], found["how"]) == ("quick_gelu", "check")
    assert found["first_bad_rewrite"]["rule"] == planted.QUICK_GELU.name
    assert (found["model"], found["stood_in"]) == ("Sequential", told)
    code, out, _ = command("bisect", path, "--trust", "--no-execute")
    assert code == 1 and out.endswith(f"{told}\n")


def test_a_wrong_gradient_is_found(tmp_path, command):
    doubles = user_pass.load({"code": DOUBLES})
    edit = PipelineEdit(insert=(("after:differentiate", doubles),))
    path = of_training(tmp_path / "step.run", edit)
    found = command.json("bisect", path, "--trust", "--no-execute", code=1)
    assert (found["first_bad_pass"], found["how"]) == ("doubles", "check")
    assert "no event explains it" in found["note"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"clip_norm": 0.1},
        pytest.param({"precision": "f16"}, marks=pytest.mark.slow),
        pytest.param({"shards": 2, "precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param(
            {"recompute": 0.5, "optimizer": RMSprop(centered=True)}, marks=pytest.mark.slow
        ),
    ],
    ids=["clipped", "narrow", "shards", "recomputed"],
)
def test_what_a_configuration_asks_for_is_no_fault(how, tmp_path, command):
    path = of_training(tmp_path / "step.run", PipelineEdit(), **how)
    found = command.json("bisect", path, "--no-execute")
    looked = found["looked"]
    assert found["first_bad_pass"] is None and looked["passes"] == looked["of"] > 30


@pytest.mark.slow
def test_the_page_keeps_what_was_found_and_a_program_that_runs_alone(training, tmp_path):
    workspace, run = Workspace(root=tmp_path), Run(training)
    assert (
        bisect.data((run,), ViewState())["problem"] is None
        and bisect.data((run,), ViewState())["itself"]
    )
    with pytest.raises(UntrustedCode, match="contains custom pass code: quick_gelu"):
        workspace.bisect(run, {})
    job = workspace.bisect(run, {"trust": True})
    assert job["model"] == str(training)
    worker._bisect(worker._read_job(json.dumps(job)))
    kept = bisect.data((run,), ViewState())["result"]
    assert (kept["first_bad_pass"], kept["stood_in"]) == ("quick_gelu", OF_TRAINING)
    reduced = kept["reduced"]
    assert (reduced["problem"], reduced["runs_alone"], reduced["ops_after"]) == ("", True, 1)
    assert reduced["download"] and not any("parameter" in line for line in reduced["lines"])
    first_bad_pass.RESULTS.path_of(training).unlink()
    run.close()


@pytest.mark.slow
def test_reduce_takes_the_same_numbers(python, command, tmp_path):
    words = ["reduce", python, "--trust", "--stage", "1"]
    said = command(*words, "-o", tmp_path / "none")[2]
    assert "eliminate_dead_code does not fail" in said
    failed = from_python(tmp_path / "net.run")
    made = cc.compile(network(), batch()[:1], edit=QUICK, finish=False, check=True)
    for _ in range(2):
        made.step()
    made.record(failed)
    found = command.json("reduce", failed, "--trust", "-o", tmp_path / "made", code=1)
    assert (found["pass"], found["notes"]) == ("quick_gelu", [STOOD_IN])
    assert found["runs_alone"] and found["ops_after"] == 1


@pytest.mark.parametrize("trained", [False, True])
def test_the_first_stage_is_what_was_compiled(trained, tmp_path):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))
    x, y = torch.randn(5, 4), torch.randint(0, 6, (5,))
    made = cc.compile(
        model, (x, y) if trained else (x,), finish=False, training=Training() if trained else None
    )
    made = made.compilation if trained else made
    path = made.record(tmp_path / "small.run")
    again = models.load(read_spec(str(path)))
    assert structure_key(again.imported.module) == structure_key(made.module)
    assert again.imported.inputs == tuple(made.about["inputs"])
    assert [(a.shape, a.dtype) for a in again.inputs] == [(a.shape, a.dtype) for a in made.inputs]
    assert dict(again.imported.sources) == made.about["sources"]


# -- which model it is -----------------------------------------------------------------------------


def compiled(path: Path, command, *words) -> dict:
    """A recording of the words' model for a target that is quick, and what it says of itself."""
    assert command("compile", *words, "-o", path)[0] == 0
    with Recording.open(path) as opened:
        return opened.meta()


def test_a_file_that_is_gone_is_not_needed_and_its_cached_weights_are_found(command, tmp_path):
    from tests.frontends.test_text import BY_HAND

    model, path = tmp_path / "mine.mlir", tmp_path / "mine.run"
    model.write_text(BY_HAND)
    meta = compiled(path, command, model)
    assert recorded_model.spec_of(meta, path).text == str(model)
    model.unlink()
    assert recorded_model.spec_of(meta, path).kind == "recording"
    found = command.json("bisect", path)
    assert found["first_bad_pass"] is None and found["looked"]["launches"]
    assert found["stood_in"] == "weights: as recorded; inputs seeded"


def test_a_function_that_is_not_here_is_not_needed_and_never_called_unasked(python):
    meta = {"spec": "not_a_package.nets:make", "kind": "function", "frontend": "torch"}
    assert recorded_model.spec_of(meta, python).kind == "recording"
    here = {**meta, "spec": "tests.workbench.two_blocks:make"}
    assert recorded_model.spec_of(here, python).kind == "function"
    assert recorded_model.spec_of(here, python, code=False).kind == "recording"


def test_stage_0_of_a_recording_from_elsewhere_runs_nothing(tmp_path):
    path = from_python(tmp_path / "sent.run", PipelineEdit(skip=("recompose",)))
    workspace, run = Workspace(root=tmp_path / "store"), Run(path)
    assert workspace.bisect(run, {})["edit"]["skip"] == ["recompose"]
    assert rerun.job(workspace, run, {"draft": {}})["model"] == str(path)
    assert rerun.execution(workspace, run, {})["model"] == str(path)
    run.close()
    public = Workspace(root=tmp_path / "store", local=False)
    with pytest.raises(UserError, match="files outside the library"):
        public.bisect(run, {})


def test_an_edit_that_the_recording_does_not_tell_is_not_guessed(tmp_path, command):
    path = from_python(tmp_path / "old.run", PipelineEdit(skip=("eliminate_dead_code",)))
    made = cc.compile(
        network(), batch()[:1], edit=PipelineEdit(skip=("eliminate_dead_code",)), finish=False
    )
    made.step()
    made.record(path)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM meta WHERE key = 'edit'")
    code, _, err = command("bisect", path)
    assert code == 2 and "made with another pipeline" in err


def test_an_optimiser_of_ones_own_is_told(tmp_path, command):
    path = of_training(tmp_path / "own.run", PipelineEdit(), OwnOptimizer())
    code, _, err = command("bisect", path)
    assert code == 2 and "unknown optimiser 'OwnOptimizer'" in err
    run = Run(path)
    assert "unknown optimiser" in bisect.data((run,), ViewState())["problem"]["what"]
    assert "unknown optimiser" in pipeline.data((run,), ViewState())["fixed"]
    run.close()


def test_what_says_that_it_is_a_training_step_and_is_none_is_refused(tmp_path, command):
    path = from_python(tmp_path / "wrong.run", PipelineEdit())
    facts = json.dumps(Training().facts())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '\"training\"' WHERE key = 'mode'")
        db.execute("INSERT INTO meta VALUES ('training', ?)", (facts,))
    code, _, err = command("bisect", path)
    assert code == 2 and "stage 0 is not a training step" in err


@dataclass(frozen=True)
class OwnOptimizer(SGD):
    """A person's own."""

    rate: float = 0.5


def test_a_batch_is_enough_for_a_training_step(training, tmp_path):
    model = models.load(read_spec(str(training)))
    x, y = (t.numpy() for t in batch())
    np.savez(tmp_path / "batch.npz", x, y)
    given = first_bad_pass.read_inputs(tmp_path / "batch.npz", model)
    assert given[0].tobytes() == x.tobytes() and given[1].tobytes() == y.tobytes()
    assert all(a is b for a, b in zip(given[2:], model.inputs[2:], strict=True))
    np.savez(tmp_path / "half.npz", x)
    with pytest.raises(UserError, match="missing array targets or arr_1"):
        first_bad_pass.read_inputs(tmp_path / "half.npz", model)


# -- editing its pipeline --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("made", ["python", pytest.param("training", marks=pytest.mark.slow)])
def test_an_edited_pipeline_is_compiled_again(made, request, tmp_path):
    path = request.getfixturevalue(made)
    workspace, run = Workspace(root=tmp_path), Run(path)
    shown = pipeline.data((run,), ViewState())
    assert shown["fixed"] == ""
    labels = [row["label"] for row in shown["shown"]["rows"]]
    assert labels.count("quick_gelu") == 1 and ("differentiate" in labels) == (made == "training")
    draft = shown["shown"]["draft"]
    for done in (
        {"do": "remove", "label": "quick_gelu"},
        {"do": "skip", "label": "recompose", "on": True},
    ):
        answer = pipeline.answer((run,), ViewState(), {"draft": draft, "done": done})
        draft = answer["draft"]
    assert f"workbench compile {path}" in answer["command"]
    job = rerun.job(workspace, run, {"draft": draft})
    worker._run(worker._read_job(json.dumps(job)))
    with Recording.open(job["out"]) as opened, Recording.open(path) as before:
        meta, names = opened.meta(), [stage.pass_name for stage in opened.stages()]
        assert opened.text(0).count("core.") == before.text(0).count("core.")
        assert opened.status == "finished"
    assert names[1:] == [n for n in labels if n not in ("quick_gelu", "recompose")]
    assert (meta["model"], meta["mode"]) == ("Sequential", run.meta()["mode"])
    assert meta.get("training") == run.meta().get("training")
    again = recorded_model.spec_of(meta, job["out"])
    assert again.kind == "recording"
    run.close()


def test_a_recording_is_compiled_by_its_name(python, tmp_path, command):
    path = tmp_path / "again.run"
    meta = compiled(path, command, python, "--skip", "recompose")
    assert meta["edit"]["skip"] == ["recompose"] and meta["facts"]["stand_ins"] == 2
    assert recorded_model.spec_of(meta, path).text == str(python)


def test_what_an_option_of_training_is_cannot_be_set_as_text(training):
    run = Run(training)
    done = {"do": "option", "label": "apply_optimizer", "option": "optimizer", "text": "SGD()"}
    answer = pipeline.answer((run,), ViewState(), {"draft": {}, "done": done})
    assert "an option of type Adam cannot be set from text" in answer["refused"]["what"]
    run.close()
