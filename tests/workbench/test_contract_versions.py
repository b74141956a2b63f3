"""What was made under another version of the numerics contract opens, and is not compared."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.run import checkpoint
from workbench.commands.cli import main
from workbench.commands.train_model import recorder_at
from workbench.queries import contracts
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, compare, divergence, numerics, overview, training

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parents[2] / "sample_models" / "recordings"
TRAIN = [
    "train",
    "digits-mlp",
    "--iterations",
    "2",
    "--batch",
    "8",
    "--receipts",
    "state",
    "--every",
    "1",
]
REASON = "version 1 of the numerics contract, this release uses version 2"


@pytest.fixture(scope="module")
def run_of_now(tmp_path_factory):
    """The folder of a training run, and its recording."""
    made = tmp_path_factory.mktemp("now")
    assert main([*TRAIN, "--folder", str(made / "run"), "-o", str(made / "run.run")]) == 0
    return made


@pytest.fixture
def older(run_of_now, tmp_path):
    """The same as version 1 has kept it."""
    shutil.copytree(run_of_now, tmp_path / "older")
    folder = tmp_path / "older" / "run"
    path = folder / receipts.FILE
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(head), "contract": 1}), *rows]) + "\n")
    for place in checkpoint.list_checkpoints(folder).values():
        state, receipt = checkpoint.read(place)
        checkpoint.write(place, state, {**receipt, "contract": 1})
    of_version(tmp_path / "older" / "run.run", 1)
    return tmp_path / "older"


def of_version(path: Path, version: int) -> None:
    """Let a recording say that it was made under ``version``."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'contract'", (json.dumps(version),))


def refused(capsys, *words) -> str:
    assert main([str(w) for w in words]) not in (0, 1)
    said = capsys.readouterr().err.strip()
    assert "\n" not in said and "Traceback" not in said
    return said


@pytest.mark.slow
def test_the_commands_refuse_the_comparison_with_its_reason(run_of_now, older, capsys):
    now, then = run_of_now / "run", older / "run"
    capsys.readouterr()
    for words in (
        ["verify", then],
        ["diverge", now, then],
        ["diverge", then, now],
        [*TRAIN[:2], "--iterations", "3", *TRAIN[4:], "--folder", then, "--resume"],
    ):
        said = refused(capsys, *words)
        assert REASON in said and str(then) in said and "with the release that made" in said


@pytest.mark.slow
def test_nothing_of_an_older_run_is_changed_by_refusing_it(older, capsys):
    before = {p: p.read_bytes() for p in sorted((older / "run").rglob("*")) if p.is_file()}
    refused(
        capsys, *TRAIN[:2], "--iterations", "3", *TRAIN[4:], "--folder", older / "run", "--resume"
    )
    assert {p: p.read_bytes() for p in sorted((older / "run").rglob("*")) if p.is_file()} == before


def test_receipts_alone_and_recordings_are_refused_too(older):
    path = older / "run" / receipts.FILE
    identity = json.loads(path.read_text().splitlines()[0])["identity"]
    with pytest.raises(UserError, match=re.escape(REASON)):
        receipts.Book.read(path)
    with pytest.raises(UserError, match=re.escape(REASON)):
        receipts.check_header(path, identity, "fast")
    with pytest.raises(UserError, match=re.escape(REASON)):
        recorder_at(older / "run.run", SimpleNamespace(identity=identity), True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        ["train", "digits-mlp", "--iterations", "1"],
        ["run", "digits-mlp"],
        ["compile", "digits-mlp"],
    ],
)
def test_digests_are_printed_with_their_version(words, capsys):
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["contract"] == CONTRACT_VERSION


# -- the page --------------------------------------------------------------------------------------


@pytest.fixture
def pair(run_of_now, older):
    runs = [Run(run_of_now / "run.run"), Run(older / "run.run")]
    yield runs
    for run in runs:
        run.close()


def test_training_runs_of_two_versions_on_the_page(pair):
    now, then = pair
    reason = "A was recorded under version 2 of the numerics contract, B under version 1"
    assert training.together(now, now)["by"] == "receipts"
    together = training.together(now, then)
    assert together["by"] == "" and together["why"].startswith(reason)
    problem = divergence.data((now, then), ViewState())["problem"]
    assert problem["what"].startswith(reason) and "Record B again" in problem["fix"]
    with pytest.raises(UserError, match=reason):
        divergence.job(now, then)


def test_a_recording_of_version_1_opens_and_its_bits_are_not_compared(tmp_path, capsys):
    older = Run(SAMPLES / "digits-mlp.run")
    assert main(["run", "digits-mlp", "-o", str(tmp_path / "now.run")]) == 0
    capsys.readouterr()
    now = Run(tmp_path / "now.run")
    try:
        assert (contracts.version(older), contracts.version(now)) == (1, CONTRACT_VERSION)
        assert contracts.refusal(older, older) == contracts.refusal(now, now) == ""
        assert len(older.stages()) > 3
        hints = {
            row["label"]: row["hint"] for row in overview.data((older,), ViewState())["figures"]
        }
        assert hints["identity"].endswith("numerics contract 1")
        rows = {row["name"]: row for row in compare.data((older, now), ViewState())["facts"]}
        assert rows["numerics contract"]["a"] == "1" and not rows["numerics contract"]["equal"]
        for name in ("identity", "output digest"):
            assert "A was recorded under version 1" in rows[name]["why"]
        assert rows["model"]["why"] == ""
        same = {row["name"]: row for row in compare.data((older, older), ViewState())["facts"]}
        assert same["output digest"]["equal"] and same["output digest"]["why"] == ""
        with pytest.raises(Empty, match=r"their bits differ by the contract.*Record A again"):
            numerics.data((older, now), ViewState())
    finally:
        older.close()
        now.close()


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.run")), ids=lambda p: p.stem)
def test_the_recordings_of_the_repository_are_known_to_be_of_version_1(path):
    run = Run(path)
    try:
        assert contracts.version(run) == 1
    finally:
        run.close()


def test_a_version_that_makes_no_sense_is_the_first(pair):
    _, then = pair
    of_version(then.path, "2")  # a text
    other = Run(then.path)
    try:
        assert contracts.version(other) == contracts.FIRST
    finally:
        other.close()
