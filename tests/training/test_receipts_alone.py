"""Runs that this machine cannot do again, or of which nothing says how: what their receipts say all
the same, and what is missing for the rest.  Runs from Python that say it: by their task."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.audit.receipts import Book, begin
from core_compiler.training.audit.replay import Run
from core_compiler.training.fit import fit
from core_compiler.training.run import checkpoint, run_file
from tests.training import python_task
from tests.training.python_task import BATCH
from workbench.commands.cli import main
from workbench.training import runs
from workbench.views.divergence import code_of

TASK = "tests.training.python_task:make"
NO_GPU = "no NVIDIA GPU is found"


def told(capsys, *words: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def last_op(folder: Path) -> str:
    """The last difference that the optimiser takes: one that lies in memory."""
    names = Book.read(folder / "receipts.jsonl").names
    return [n.op for n in names if n.op.startswith("core.sub#")][-1]


def changed(folder: Path, copy: Path, **held) -> Path:
    """A copy of a run whose folder says something else of how it was made."""
    shutil.copytree(folder, copy)
    known = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**known, **held}))
    return copy


class Lab:
    """One compiled step, and runs of it: as it is, with a rounding flipped in iteration 2, the same
    with all values in the receipts; the last two as if a GPU had made them (the bits would be
    these), and the second also without saying how."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.step, self.data = python_task.make()
        self.first = self.step.whole_state()
        self.named = self.run("named", task=TASK)
        self.op = last_op(self.named)
        flip = {"inject": f"{self.op}:2"}
        self.flipped = self.run("flipped", task=TASK, **flip)
        self.silent = self.run("silent", **flip)
        self.values = self.run("values", task=TASK, ops_every=2, **flip)
        self.gpu = changed(self.flipped, folder / "gpu", target="cuda")
        self.gpu_values = changed(self.values, folder / "gpu with values", target="cuda")

    def run(self, name: str, step=None, **how) -> Path:
        step = step or self.step
        step.load_state_dict(self.first)
        how = {"iterations": 3, "every": 3, "receipts": "gradients", **how}
        fit(step, self.data, batch=BATCH, folder=self.folder / name, **how)
        return self.folder / name


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    return Lab(tmp_path_factory.mktemp("python"))


@pytest.fixture
def no_gpu(monkeypatch) -> None:
    monkeypatch.setattr("core_compiler.runtime.cuda_driver.missing", lambda: NO_GPU)


# -- a run of another machine ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["values", "flipped"])
def test_a_fault_that_does_not_come_again_is_told(lab, tmp_path, capsys, kept):
    struck = changed(getattr(lab, kept), tmp_path / "struck", inject="")
    code, found = told(capsys, "diverge", str(lab.named), str(struck))
    assert code == 1
    assert (found["iteration"], found["element"], found["ulps"]) == (2, None, None)
    assert found["missing"] == ["", ""] and found["passing"][0] == "" != found["passing"][1]
    assert main(["diverge", str(lab.named), str(struck)]) == 1
    said = capsys.readouterr().out
    assert f"the second  repeated, {found['passing'][1]} differs from the receipts" in said
    assert "a transient or machine fault" in said


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_receipts_of_the_other_machine_say_the_op(lab, no_gpu, capsys, turned):
    """The values of the run that can be done again are compared with the hashes of the other."""
    pair = [str(lab.named), str(lab.gpu_values)][:: -1 if turned else 1]
    code, found = told(capsys, "diverge", *pair)
    assert code == 1
    assert (found["iteration"], found["op"]) == (2, lab.op)
    assert found["origin"] and found["history"] and found["value"]
    assert (found["element"], found["ulps"], found["count"]) == (None, None, 0)
    assert [bool(why) for why in found["missing"]] == [turned, not turned]
    assert found["kernels"][not turned] == "" and found["kernels"][turned]
    command = shlex.join(["workbench", "diverge", *pair])
    assert found["remedy"] == [f"where both can be repeated: {command}"]
    assert main(["diverge", *pair]) == 1
    said = capsys.readouterr().out
    assert "is the first op that differs\n" in said
    assert "not known   element and ulps\n" in said
    assert f"cannot be repeated here: {NO_GPU}" in said


@pytest.mark.slow
def test_without_hashes_of_its_values_the_iteration_is_known(lab, no_gpu, capsys):
    code, found = told(capsys, "diverge", str(lab.named), str(lab.gpu))
    assert code == 1
    assert (found["iteration"], found["op"], found["element"], found["ulps"]) == (2, "", None, None)
    assert found["value"].startswith("gradient of ") or found["value"].startswith("state ")
    assert "there: fit(..., iterations=2, ops_every=2), then compare" in found["remedy"][1]
    main(["diverge", str(lab.named), str(lab.gpu)])
    said = capsys.readouterr().out
    assert "is the first that differs by the receipts\n" in said
    assert "not known   op, element and ulps\n" in said


def test_the_command_that_hashes_the_values_there(tmp_path):
    """That of the run, in another folder, up to the iteration, and into no recording."""
    words = [
        "train",
        "digits-mlp",
        "--folder",
        "a/run",
        "-o",
        "x.run",
        "--resume",
        "--inject",
        "core.conv#1:2",
        "--output=y.run",
        "--iterations",
        "9",
    ]
    (tmp_path / "run.json").write_text(json.dumps({"model": "digits-mlp", "command": words}))
    assert runs.command_for_values(tmp_path, 4) == shlex.join(
        [
            "workbench",
            "train",
            "digits-mlp",
            "--inject",
            "core.conv#1:2",
            "--iterations",
            "9",
            "--folder",
            f"{tmp_path.name}-values",
            "--iterations",
            "4",
            "--ops-every",
            "4",
        ]
    )


@pytest.mark.slow
def test_a_run_that_cannot_be_done_again_is_verified_by_its_checkpoint(lab, no_gpu, capsys):
    code, found = told(capsys, "verify", str(lab.gpu))
    (row,) = found["iterations"]
    assert (code, row["iteration"], row["mismatch"]) == (3, 3, None)
    assert row["compared"]["state"] > 4 and row["compared"]["gradients"] == 0
    assert NO_GPU in row["not_done_again"]
    assert main(["verify", str(lab.gpu), "--iteration", "1"]) == 3
    assert "its receipt is intact, its checkpoint is missing: " in capsys.readouterr().out


@pytest.mark.slow
def test_a_checkpoint_that_is_not_its_receipts_is_told(lab, no_gpu, tmp_path, capsys):
    """Where the iteration cannot be done again."""
    folder = changed(lab.gpu, tmp_path / "run")
    name = "iteration-00000003.safetensors"
    shutil.copy(lab.named / name, folder / name)
    assert main(["verify", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "iteration 3: differs first in state " in said and "of its checkpoint (" in said


# -- receipts that do not match -------------------------------------------------------------------


@pytest.mark.slow
def test_a_receipt_that_does_not_match_is_told(lab, tmp_path, capsys):
    """The folder says nothing of the rounding that was flipped when its receipts were made."""
    folder = changed(lab.values, tmp_path / "run", inject="")
    code, found = told(capsys, "verify", str(folder), "--iteration", "1", "--iteration", "2")
    assert code == 1
    good, bad = found["iterations"]
    assert good["mismatch"] is None and good["not_done_again"] == ""
    assert bad["mismatch"].startswith(lab.op)
    assert bad["root"] == Book.read(folder / "receipts.jsonl").receipts[2].root
    assert main(["verify", str(folder), "--iteration", "2"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"iteration 2: differs first in {lab.op}")


# -- runs from Python -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_with_a_task_is_verified_and_diverged_by_the_commands(lab, capsys):
    code, found = told(capsys, "verify", str(lab.named), "--iteration", "1", "--iteration", "3")
    assert code == 0
    assert [row["mismatch"] for row in found["iterations"]] == [None, None]
    assert found["iterations"][0]["compared"]["gradients"] == 4
    code, found = told(capsys, "diverge", str(lab.named), str(lab.flipped))
    assert code == 1
    assert (found["iteration"], found["op"], found["ulps"]) == (2, lab.op, 1)
    assert found["missing"] == ["", ""] and found["remedy"] == []
    assert runs.is_run(lab.named)


@pytest.mark.slow
def test_of_two_pipelines_the_pass_is_named(lab, capsys):
    step, _ = python_task.make(cc.PipelineEdit(skip=("recompose",)))
    other = lab.run("skipped", step, task=TASK)
    code, found = told(capsys, "diverge", str(lab.named), str(other))
    assert (code, found["pass"]) == (1, "recompose")
    plain = lab.run("one pipeline", step, task="tests.training.python_task:make_as_it_is")
    assert main(["diverge", str(lab.named), str(plain)]) == 2
    assert "the runs have different configurations: task" in capsys.readouterr().err


@pytest.mark.slow
def test_of_two_pipelines_without_a_task_the_receipts_speak(lab, capsys):
    step, _ = python_task.make(cc.PipelineEdit(skip=("recompose",)))
    silent = lab.run("skipped silently", step)
    code, found = told(capsys, "diverge", str(lab.named), str(silent))
    assert (code, found["iteration"], found["op"]) == (1, 1, "")
    assert "Python started it without a task" in " ".join(found["missing"])


@pytest.mark.slow
def test_without_a_task_the_receipts_speak(lab, capsys):
    code, found = told(capsys, "verify", str(lab.silent))
    (row,) = found["iterations"]
    assert (code, row["mismatch"], row["compared"]["gradients"]) == (3, None, 0)
    assert row["compared"]["state"] > 4
    assert "Python started it without a task; train with fit(..., task=" in row["not_done_again"]
    code, found = told(capsys, "diverge", str(lab.named), str(lab.silent))
    assert (code, found["iteration"], found["op"]) == (1, 2, "")
    assert found["value"].startswith("state ")
    assert "replay.Run.of(FOLDER, make)" in found["remedy"][0]
    assert not runs.is_run(lab.silent)
    found = diverged = Run.of(lab.silent, python_task.make_as_it_is)  # as that line says
    assert diverged.plan.inject is not None and diverged.plan.batch == BATCH
    assert found.receipt(2).root != ""


@pytest.mark.slow
def test_a_folder_of_before_has_its_receipts(lab, tmp_path, capsys):
    """Runs from Python left nothing but those."""
    old = tmp_path / "old"
    shutil.copytree(lab.silent, old)
    (old / "run.json").unlink()
    code, found = told(capsys, "diverge", str(old), str(lab.silent))
    assert (code, found["compared"]) == (0, 3)
    code, found = told(capsys, "diverge", str(lab.named), str(old))
    assert (code, found["iteration"]) == (1, 2)
    assert "its folder has no run.json" in found["missing"][1]
    assert main(["verify", str(tmp_path)]) == 2
    assert "training run not found (no receipts)" in capsys.readouterr().err


def test_a_run_that_goes_on_keeps_its_task(lab, tmp_path):
    lab.step.load_state_dict(lab.first)
    how = {"batch": BATCH, "folder": tmp_path, "receipts": "state"}
    fit(lab.step, lab.data, iterations=1, task=TASK, **how)
    fit(lab.step, lab.data, iterations=2, resume=True, **how)
    assert runs.arguments_of(tmp_path)["task"] == TASK


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("python_task", "expected package.module:function, got 'python_task'"),
        ("__main__:make", "a later process cannot import functions from __main__"),
        ("tests.training.nowhere:make", "module 'tests.training.nowhere' not found"),
        ("tests.training.python_task:mak", "has no function 'mak'"),
    ],
)
def test_a_task_that_is_not_found_is_refused_before_anything_runs(lab, tmp_path, task, said):
    with pytest.raises(UserError, match=said):
        fit(
            lab.step,
            lab.data,
            iterations=9,
            batch=BATCH,
            folder=tmp_path / "x",
            receipts="state",
            task=task,
        )
    assert not (tmp_path / "x").exists()


def test_what_is_no_task_and_what_is_damaged_are_told(lab, tmp_path, capsys):
    for name, change, said in (
        ("a", {"task": "tests.training.python_task:model_alone"}, "did not return (step, data)"),
        ("b", {"plan": None, "batch": None}, "run.json is damaged"),
        ("c", {"pipeline": {"limits": 3}}, "invalid value for limits"),
    ):
        changed(lab.named, tmp_path / name, **change)
        assert main(["verify", str(tmp_path / name)]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1
    assert main(["verify", str(lab.named), "-t", "cuda"]) == 2
    assert "the run's task chooses the target" in capsys.readouterr().err


def test_the_page_asks_before_it_runs_a_foreign_task(lab, monkeypatch):
    monkeypatch.setattr("workbench.views.divergence._folder", lambda run: lab.named)
    assert code_of(None) == [TASK]  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ["[]", "3", '{"iteration": 1, "loss": "0x1p0", "state": []}'])
def test_a_line_that_is_no_receipt_is_told_as_damage(row, tmp_path):
    path = tmp_path / "receipts.jsonl"
    begin(path, "an identity", [])
    path.write_text(path.read_text() + row + "\n")
    with pytest.raises(UserError, match="a receipt is damaged"):
        Book.read(path)


def test_what_is_nested_too_deeply_is_told_as_damage(tmp_path):
    for name in ("receipts.jsonl", "run.json"):
        (tmp_path / name).write_text("[" * 100_000 + "\n")
    with pytest.raises(UserError, match="cannot read the receipts"):
        Book.read(tmp_path / "receipts.jsonl")
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        run_file.read(tmp_path)


def test_receipts_that_do_not_go_on_from_each_other_are_told_as_damage(lab, tmp_path):
    """Each root covers all before it: what is left out or put in between is found."""
    head, first, second, third = (lab.named / "receipts.jsonl").read_text().splitlines()
    path = tmp_path / "receipts.jsonl"
    other = replace(Book.read(lab.named / "receipts.jsonl").receipts[2], loss=0.5).to_json()
    for rows, at in (((first, third), 3), ((second, third), 2), ((first, other, third), 3)):
        path.write_text("\n".join([head, *rows, ""]))
        with pytest.raises(UserError, match=f"of iteration {at} does not continue the one before"):
            Book.read(path)
    path.write_text("\n".join([head, first, second, third, ""]))
    assert list(Book.read(path).receipts) == [1, 2, 3]


@pytest.mark.slow
def test_an_iteration_is_not_done_again_from_a_damaged_checkpoint(lab, tmp_path, capsys):
    """A receipt must not be blamed for what the checkpoint before it has become."""
    folder = tmp_path / "run"
    shutil.copytree(lab.run("every", task=TASK, every=1), folder)
    path = folder / checkpoint.name_of(1)
    state, receipt = checkpoint.read(path)
    name = next(name for name, array in state.items() if array.size > 1)
    flipped = np.array(state[name])
    flipped.view(np.uint8).reshape(-1)[0] ^= 1
    for held, said in (
        ({**state, name: flipped}, "the checkpoint's tensors do not match its receipt"),
        ({n: a for n, a in state.items() if n != name}, f"lacks {name}"),
    ):
        checkpoint.write(path, held, receipt)
        assert main(["verify", str(folder), "--iteration", "2"]) == 2
        assert said in capsys.readouterr().err
