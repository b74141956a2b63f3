"""A training run in a recording: what is written while it runs, at its end, when it goes on."""

from __future__ import annotations

import sqlite3

import pytest
import torch

import core_compiler as cc
from core_compiler.ir.events import IterationRecord, Observer
from core_compiler.record import Recorder, Recording
from core_compiler.record.resumed import ResumedTrainingRecorder
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.optimisers.optimizers import Adam
from core_compiler.training.optimisers.schedules import Cosine, Exponential, rates
from core_compiler.training.run import checkpoint
from core_compiler.training.run.reporting import KEY

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

RUN = {"batch": 5, "seed": 1, "every": 2, "receipts": "state"}


def _data():
    torch.manual_seed(3)
    return torch.randn(20, 4).numpy(), torch.randint(0, 3, (20,)).numpy()


def _compiled(rate=0.01, finish: bool = True):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    training = Training(optimizer=Adam(rate))
    return cc.compile(model, tuple(a[:5] for a in _data()), training=training, finish=finish)


@pytest.fixture(scope="module")
def step():
    return _compiled()


@pytest.fixture
def fresh(step):
    """The compiled step at its beginning, whoever used it before."""
    first = step.whole_state()
    yield step
    step.load_state_dict(first)


def rows_of(path) -> list[IterationRecord]:
    with Recording.open(path) as recording:
        return sorted(recording.iterations()[1], key=lambda row: row.number)


class Stop:
    """Ctrl-C after an iteration."""

    def __init__(self, iteration: int):
        self.iteration = iteration

    def __call__(self, progress) -> None:
        if progress.iteration == self.iteration:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_recording_has_the_compile_and_every_iteration(tmp_path):
    step = _compiled(Cosine(0.1, 8, 0.01), finish=False)
    with Recorder(tmp_path / "x.run") as recorder:
        history = fit(
            step, _data(), iterations=6, folder=tmp_path / "run", observer=recorder, **RUN
        )
    book = receipts.Book.read(tmp_path / "run" / receipts.FILE)
    with Recording.open(tmp_path / "x.run") as recording:
        assert recording.status == "finished"
        assert recording.stage_count() == len(step.compilation.stages)
        assert recording.kernels() and recording.buffers()
        assert recording.figures()["identity"] == step.identity
        assert recording.figures()["state_digest"] == step.digest
        plan = recording.meta()[KEY]
        assert plan["folder"] == str((tmp_path / "run").absolute())
        assert (plan["iterations"], plan["batch"], plan["receipts"]) == (6, 5, "state")
        last, rows = recording.iterations()
        assert recording.iterations(last) == (last, [])
        assert recording.iterations(2, 3) == (5, rows[2:5])
    assert [r.number for r in rows] == [1, 2, 3, 4, 5, 6]
    assert [(r.loss, r.seconds) for r in rows] == [(r.loss, r.seconds) for r in history.rows]
    assert [r.root for r in rows] == [book.receipts[n].root for n in range(1, 7)]
    assert all(r.loss_scale is None and r.skipped is None for r in rows)
    parameter = torch.nn.Parameter(torch.zeros(()))
    torchs = torch.optim.SGD([parameter], lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(torchs, 8, 0.01)
    for row in rows:
        assert row.rate == pytest.approx(scheduler.get_last_lr()[0], rel=1e-12)
        torchs.step()
        scheduler.step()


def test_a_rate_is_that_of_the_step():
    """By the graph that the step has: the constants beside it are no less part of it."""
    rate = rates(Exponential(0.5, 0.25))
    assert [rate(n) for n in range(4)] == [0.5, 0.125, 0.03125, 0.0078125]


@pytest.mark.slow
def test_others_read_it_while_it_grows(fresh, tmp_path):
    path, seen = tmp_path / "x.run", []

    def look(progress) -> None:
        with Recording.open(path) as recording:
            seen.append((recording.status, len(recording.iterations()[1])))

    fit(fresh, _data(), iterations=4, batch=5, watch=look, observer=Recorder(path))
    assert {status for status, _ in seen} == {"recording"}
    counts = [count for _, count in seen]
    assert counts[0] == 1 and counts == sorted(counts)
    assert len(rows_of(path)) == 4


def test_iterations_are_told_together(fresh):
    """Not one by one: some milliseconds each are soon more than half a second together."""
    told: list[int] = []

    class Counting(Observer):
        def iterations(self, rows):
            told.append(len(rows))

    fit(fresh, _data(), iterations=300, batch=5, observer=Counting())
    assert sum(told) == 300
    assert len(told) < 150


def test_ctrl_c_keeps_every_iteration(fresh, tmp_path):
    path = tmp_path / "x.run"
    with pytest.raises(KeyboardInterrupt):
        fit(fresh, _data(), iterations=9, batch=5, watch=Stop(5), observer=Recorder(path))
    assert [r.number for r in rows_of(path)] == [1, 2, 3, 4, 5]
    with Recording.open(path) as recording:
        assert (recording.status, recording.meta()["message"]) == (
            "cancelled",
            "stopped by the user",
        )
    assert [p.name for p in tmp_path.iterdir()] == ["x.run"]  # whole, nothing beside it


def test_a_loss_that_is_no_number_is_how_it_ended(tmp_path):
    path = tmp_path / "x.run"
    x, y = _data()
    x[7] = float("inf")  # in the first epoch: after some iterations, or in the first
    with pytest.raises(UserError) as raised:
        fit(_compiled(), (x, y), iterations=8, batch=5, seed=2, observer=Recorder(path))
    with Recording.open(path) as recording:
        assert recording.status == "failed"
        assert recording.meta()["message"] == str(raised.value)
        assert "is the first op to produce a non-finite value" in recording.meta()["message"]
        assert recording.kernels()


def test_a_resumed_run_appends_and_replaces(fresh, tmp_path):
    first = fresh.whole_state()
    fit(
        fresh,
        _data(),
        iterations=8,
        folder=tmp_path / "whole",
        observer=Recorder(tmp_path / "whole.run"),
        **RUN,
    )
    fresh.load_state_dict(first)
    path, folder = tmp_path / "x.run", tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        fit(
            fresh,
            _data(),
            iterations=8,
            folder=folder,
            watch=Stop(5),
            observer=Recorder(path),
            **RUN,
        )
    with Recording.open(path) as recording:
        before, rows = recording.iterations()
        stages = recording.stage_count()
    assert len(rows) == 5
    checkpoint.newest(folder).unlink()  # as if it had been killed: 5 is to be done again
    fresh.load_state_dict(first)
    history = fit(
        fresh,
        _data(),
        iterations=8,
        folder=folder,
        resume=True,
        observer=ResumedTrainingRecorder(path, fresh.identity),
        **RUN,
    )
    assert history.first == 4
    with Recording.open(path) as recording:
        assert (recording.status, recording.meta()["message"]) == ("finished", "")
        assert recording.stage_count() == stages
        _, again = recording.iterations(before)
        assert [r.number for r in again] == [5, 6, 7, 8], "what was done again is news"
    told = [(r.number, r.loss, r.root) for r in rows_of(path)]
    assert told == [(r.number, r.loss, r.root) for r in rows_of(tmp_path / "whole.run")]


def test_a_recording_that_cannot_go_on_stays_as_it_is(fresh, tmp_path):
    path = tmp_path / "x.run"
    recorder = Recorder(path)
    recorder.begin({})
    recorder.figures({"identity": fresh.identity})
    with pytest.raises(UserError, match="is being written"):
        ResumedTrainingRecorder(path, fresh.identity)
    recorder.end("finished")
    before = path.read_bytes()
    with pytest.raises(UserError, match="of a different training step"):
        ResumedTrainingRecorder(path, "another")
    assert path.read_bytes() == before
    with sqlite3.connect(path) as db:
        later = ("iteration", "framework_value", "quantised_value", "float_op")
        for table in later:  # which version 3 had not
            db.execute(f"DROP TABLE {table}")
        columns = "id, launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples"
        db.executescript(
            f"DROP VIEW timing; DROP TABLE launch_time; DROP TABLE execution;"
            f"CREATE TABLE timing ({columns});"
        )
        db.execute("PRAGMA user_version = 3")
    db.close()
    with Recording.open(path) as older:
        assert older.iterations() == (0, [])
    with pytest.raises(UserError, match="has an older schema"):
        ResumedTrainingRecorder(path, fresh.identity)
    with pytest.raises(UserError, match="file not found"):
        ResumedTrainingRecorder(tmp_path / "none.run", fresh.identity)
