"""``workbench reduce``: planted faults in real models become programs that run alone; passes of a
person's own that go wrong in a compile are told by their name and line."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from tests.debug import planted
from tests.sample_models.narrow import NARROW
from tests.workbench.conftest import MODEL

ROOT = Path(__file__).resolve().parents[2]
PLANTED = Path(planted.__file__)


def narrow(name: str) -> list[str]:
    """The words that name a narrow model."""
    words = [name]
    for key, value in NARROW[name].items():
        words += (
            [f"--{key}", str(value)] if key in ("width", "depth") else ["--size", f"{key}={value}"]
        )
    return words


def own(name: str, at: str = "") -> list[str]:
    return ["--insert", f"{PLANTED}:{name}" + (f"@{at}" if at else "")]


def run_alone(folder: Path) -> tuple[int, str]:
    """(exit code, output) of a reproducer in a fresh process."""
    done = subprocess.run(
        [sys.executable, "reproducer.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "pass_", "at", "ops", "how", "says"),
    [
        pytest.param(
            "resnet50",
            "ReluOfSum",
            "decompose",
            2,
            "check",
            "relu(x + y) => abs(x + y) is declared bit-exact but changed values",
            marks=pytest.mark.slow,
        ),
        ("resnet18", "StridesOfOne", "", 1, "raised", "raised ZeroDivisionError at planted.py:"),
        ("resnet18", "Widens", "canonicalise", 1, "invalid", "core.max_pool returns tensor<"),
        pytest.param(
            "bert-base",
            "QuickGelu",
            "canonicalise",
            1,
            "check",
            "gelu(x) => x * sigmoid(1.702 x)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "bert-base",
            "NeverEnds",
            "decompose",
            2,
            "never ends",
            "has not ended after 2 s",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_planted_fault_becomes_a_program_that_runs_alone(
    model, pass_, at, ops, how, says, command, tmp_path
):
    pytest.importorskip("transformers")
    words = [*narrow(model), *own(pass_, at), "--no-execute", "--pass-timeout", 2]
    if how != "never ends":
        words = words[:-2]
    made = command.json("reduce", *words, "-o", tmp_path / "out", code=1)
    assert (made["how"], made["ops_after"], made["stopped"]) == (how, ops, None)
    assert made["ops_before"] > 25
    assert says in made["note"]
    assert made["runs_alone"], made["says"]
    assert [Path(f).name for f in made["files"]] == ["reproducer.py", "planted.py"]
    folder = tmp_path / "out"
    code, out = run_alone(folder)
    assert code == 1 and out.startswith(f"FAILS: pass {made['pass']}, {how}: ")
    assert says in out and out.count("\n") == 1
    # mended, it is gone
    text = (folder / "planted.py").read_text()
    (folder / "planted.py").write_text(text.replace("WRONG = 1", "WRONG = 0"))
    assert run_alone(folder) == (0, f"gone: pass {made['pass']} runs without a failure\n")


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory):
    """A checked compile whose inserted pass changes numbers, recorded."""
    from workbench.commands.cli import main

    path = tmp_path_factory.mktemp("recordings") / "wrong.run"
    words = [*MODEL, *own("QuickGelu", "decompose"), "--check"]
    assert main(["compile", *words, "-o", str(path)]) == 1
    return path


@pytest.mark.slow
def test_a_recording_is_reduced_from_its_wrong_stage(failed_run, command, tmp_path):
    made = command.json("reduce", failed_run, *own("QuickGelu"), "-o", tmp_path / "a", code=1)
    assert (made["pass"], made["how"], made["ops_after"]) == ("quick_gelu", "check", 1)
    assert made["notes"] == [] and made["runs_alone"]
    named = command.json(
        "reduce",
        failed_run,
        *own("QuickGelu"),
        "--stage",
        "quick_gelu",
        "-o",
        tmp_path / "b",
        code=1,
    )
    assert named["stage"] == made["stage"]
    assert (tmp_path / "a/reproducer.py").read_text() == (tmp_path / "b/reproducer.py").read_text()


@pytest.mark.slow
def test_a_recording_brings_its_own_pass_where_it_is_trusted(failed_run, command, tmp_path):
    made = command.json("reduce", failed_run, "--trust", "-o", tmp_path / "out", code=1)
    assert (made["ops_after"], made["runs_alone"]) == (1, True)
    assert [Path(f).name for f in made["files"]] == ["reproducer.py", "planted.py"]


@pytest.mark.slow
def test_a_recording_of_another_machine_has_seeded_numbers(
    failed_run, command, tmp_path, monkeypatch
):
    """Weights are not in a recording; where the model is not here either, others stand for them."""
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path / "empty"))
    path = tmp_path / "sent.run"
    shutil.copyfile(failed_run, path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '\"/elsewhere/mlp.onnx\"' WHERE key = 'spec'")
    made = command.json("reduce", path, *own("QuickGelu"), "-o", tmp_path / "out", code=1)
    assert (made["ops_after"], made["runs_alone"]) == (1, True)
    assert made["notes"] == ["weights: 3 seeded stand-ins; inputs seeded"]


@pytest.mark.slow
def test_the_text_shows_the_module(failed_run, command, tmp_path):
    text = command.text("reduce", failed_run, *own("QuickGelu"), "-o", tmp_path / "out", code=1)
    assert text.startswith("quick_gelu fails (check): gelu(x) => x * sigmoid(1.702 x)")
    assert '"core.gelu"' in text and "ops became 1" in text
    assert str(tmp_path / "out/reproducer.py") in text


# -- bad input -------------------------------------------------------------------------------------


def refused(command, *words) -> str:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


def test_nothing_fails(command, tmp_path):
    err = refused(command, "reduce", *MODEL, "--no-execute", "-o", tmp_path / "out")
    assert "digits-mlp: none of the" in err and "--insert" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--time-limit", "soon"], "--time-limit: invalid duration 'soon'; write 90s or 5m"),
        (["--time-limit", "0"], "--time-limit: invalid duration '0'"),
        (["--stage", "3"], "--stage: a model has no stages yet"),
        (["--insert", "nowhere.py"], "nowhere.py: file not found"),
        (["--insert", f"{PLANTED}"], "planted.py defines 7 passes; write"),
        (["--insert", f"{PLANTED}:Widen"], "pass 'Widen' not found; did you mean Widens?"),
        (["--insert", f"{PLANTED}:made_by"], "made_by is not a pass"),
        (["--insert", f"{PLANTED}:Widens@decomposed"], "unknown pass 'decomposed'"),
        (["--pass-timeout", "-1"], "--pass-timeout: expected a time above 0, got -1 s"),
    ],
)
def test_arguments_that_cannot_be(words, says, command, tmp_path):
    assert says in refused(command, "reduce", *MODEL, "-o", tmp_path / "out", *words)


def test_a_file_with_a_mistake_is_told_by_its_line(command, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from core_compiler.passes.base import Pass\n\nclass Mine(Pas):\n    pass\n")
    err = refused(command, "compile", *MODEL, "--insert", file)
    assert f"NameError at {file}:3: name 'Pas' is not defined" in err


@pytest.mark.slow
def test_the_same_own_pass_is_needed_for_a_recording(failed_run, command, tmp_path):
    err = refused(command, "reduce", failed_run, "-o", tmp_path / "out")
    assert "the 1 inserted passes of the recorded compile (quick_gelu), got 0" in err


def test_a_recording_in_which_nothing_failed(recording, command, tmp_path):
    err = refused(command, "reduce", recording, "-o", tmp_path / "out")
    assert "no check failed in this recording" in err and "--stage" in err


# -- a pass of one's own in a compile --------------------------------------------------------------


def recorded(path: Path) -> tuple[str, list[str]]:
    """The recording's status and its stages."""
    with Recording.open(path) as opened:
        return opened.status, [stage.pass_name for stage in opened.stages()]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 // 0", "mine.py:8: integer division or modulo by zero"),
        ("while True: pass", "the pass did not finish in 0.5 s (stopped at {file}:8)"),
        ("module = None", "pass mine returned NoneType, expected a module"),
        (
            "module = module.with_main(module.main.body.with_(ops=()))",
            "the module after mine is invalid: ",
        ),
    ],
    ids=["raises", "never ends", "no module", "invalid"],
)
def test_an_own_pass_that_goes_wrong_is_named_and_what_was_before_is_kept(
    source, says, command, tmp_path
):
    file, path = tmp_path / "mine.py", tmp_path / "x.run"
    file.write_text(
        "from dataclasses import dataclass\n\nfrom core_compiler.passes.base import Pass\n\n"
        "@dataclass(frozen=True)\nclass Mine(Pass):\n    def run(self, module, context):\n"
        f"        {source}\n        return module\n"
    )
    words = [*MODEL, "--insert", f"{file}@simplify_shapes", "--pass-timeout", 0.5, "-o", path]
    err = refused(command, "compile", *words)
    assert says.format(file=file) in err and "mine" in err
    status, stages = recorded(path)
    assert status == "failed"
    assert stages[:4] == ["import", "eliminate_dead_code", "canonicalise", "fold_constants"]
    assert stages[4:] in ([], ["mine"])  # an invalid module is recorded, to be looked at
    assert "simplify_shapes" not in command.text("passes", path)


def test_bisect_names_a_pass_that_never_ends(command):
    made = command.json(
        "bisect",
        *MODEL,
        *own("NeverEnds"),
        "--set",
        "never_ends.first=core.matmul",
        "--set",
        "never_ends.second=core.gelu",
        "--pass-timeout",
        0.5,
        code=1,
    )
    assert (made["first_bad_pass"], made["how"]) == ("never_ends", "never ends")
    assert "stopped at" in made["note"] and "planted.py:" in made["note"]


def _has(path: Path, stage: str) -> bool:
    """Whether a recording that is being written has a stage (it may not be one yet)."""
    try:
        return path.exists() and stage in recorded(path)[1]
    except UserError:
        return False


@pytest.mark.slow
def test_ctrl_c_ends_a_pass_that_never_ends(tmp_path):
    path = tmp_path / "x.run"
    words = [*MODEL, *own("NeverEnds", "simplify_shapes#2")]
    words += ["--set", "never_ends.first=core.matmul"]
    words += ["--set", "never_ends.second=core.gelu", "-o", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench.commands.cli", "compile", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + 120
        while not _has(path, "fold_constants#2"):
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err == f"workbench: {path}: stopped; what was recorded is kept\n"
    assert recorded(path)[0] == "cancelled"
