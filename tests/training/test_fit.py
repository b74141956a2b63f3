"""Data in order, checkpoints, resuming: bits that do not depend on where a run was cut."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.receipts import Book
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.optimisers.optimizers import Adam
from core_compiler.training.run import checkpoint, files
from core_compiler.training.run.data import Data
from core_compiler.training.run.resume import restore
from core_compiler.training.run.step import NotFinite
from tests.examples import examples


def _model():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.2), torch.nn.Linear(6, 3))


def _data() -> Data:
    torch.manual_seed(3)
    return Data.of((torch.randn(20, 4), torch.randint(0, 3, (20,))))


@pytest.fixture(scope="module")
def step():
    held = _data().batch(0, 5, 0)
    return cc.compile(_model(), held, training=Training(optimizer=Adam(0.01), seed=4))


@pytest.fixture
def fresh(step):
    """The compiled step at its beginning, whoever used it before."""
    first = step.whole_state()
    yield step
    step.load_state_dict(first)


# -- data --


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**40), st.integers(0, 3))
def test_an_epoch_passes_every_example_once(count, size, seed, epoch):
    data = Data.of((np.arange(count),))
    each = count // size
    if not each:
        with pytest.raises(UserError, match=r"batch size .* exceeds the"):
            data.batch(0, size, seed)
        return
    rows = np.concatenate([data.batch(epoch * each + i, size, seed)[0] for i in range(each)])
    assert len(set(rows.tolist())) == each * size


def test_the_order_is_the_seeds():
    data = Data.of((np.arange(50),))
    assert np.array_equal(data.order(1, 0), data.order(1, 0))
    assert not np.array_equal(data.order(1, 0), data.order(1, 1))
    assert not np.array_equal(data.order(1, 0), data.order(2, 0))


def test_a_dataset_of_torch_and_rows_of_a_table_are_data():
    x, y = torch.randn(6, 2), torch.arange(6)
    rows = [{"x": x[i].numpy(), "y": int(y[i])} for i in range(6)]
    for what in (torch.utils.data.TensorDataset(x, y), rows):
        held = Data.of(what)
        assert np.array_equal(held.arrays[0], x.numpy())
        assert np.array_equal(held.arrays[1], y.numpy())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ((np.zeros((3, 2)), np.zeros(4)), "expected arrays of one length above 0, got .3, 4."),
        ((np.zeros((0, 2)),), "expected arrays of one length above 0, got .0."),
        ([(np.zeros(2),), (np.zeros(3),)], "cannot stack the examples"),
    ],
)
def test_data_that_do_not_fit_are_refused(what, message):
    with pytest.raises(UserError, match=message):
        Data.of(what)


# -- what goes wrong --


class Rooted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(torch.sqrt(x))


def test_a_loss_that_is_no_number_stops_at_the_op_that_made_it():
    x, y = np.ones((3, 2), np.float32), np.ones((3, 1), np.float32)
    step = cc.compile(Rooted(), (x, y), training=Training("mse"))
    step(x, y)
    before = step.digest
    with pytest.raises(UserError, match=r"the loss of iteration 2 is nan: core\.sqrt \(.*test_fit"):
        step(-x, y)
    assert step.digest == before and step.iteration == 1


def test_what_was_done_before_a_loss_that_is_no_number_is_kept(tmp_path):
    x, y = np.ones((9, 2), np.float32), np.ones((9, 1), np.float32)
    x[4] = -1  # in one batch of three
    step = cc.compile(Rooted(), (x[:3], y[:3]), training=Training("mse"))
    with pytest.raises(NotFinite) as told:
        fit(step, (x, y), iterations=9, batch=3, seed=3, folder=tmp_path)
    done = told.value.iteration - 1
    assert step.iteration == done > 0
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.name_of(done)]
    digest = step.digest
    restore(step, tmp_path / checkpoint.name_of(done), 3)
    assert step.digest == digest


# -- checkpoints --


@pytest.mark.slow
def test_two_runs_are_not_mixed_in_a_folder(fresh, tmp_path):
    folder = tmp_path / "run"

    def another(progress) -> None:
        with pytest.raises(UserError, match="another run is writing to the folder"):
            fit(fresh, _data(), iterations=9, batch=5, folder=folder, receipts="state")

    history = fit(
        fresh, _data(), iterations=2, batch=5, folder=folder, receipts="state", watch=another
    )
    assert len(history.loss) == 2
    assert list(Book.read(folder / receipts.FILE).receipts) == [1, 2]


@pytest.mark.slow
def test_receipts_of_another_step_are_not_added_to(fresh, tmp_path):
    receipts.begin(tmp_path / receipts.FILE, "another", ())
    fit(fresh, _data(), iterations=1, batch=5)
    with pytest.raises(UserError, match="the existing receipts belong to another training"):
        fit(fresh, _data(), iterations=2, batch=5, folder=tmp_path, receipts="state")
    assert Book.read(tmp_path / receipts.FILE).identity == "another"


def test_a_refused_run_leaves_no_folder(fresh, tmp_path):
    with pytest.raises(UserError, match="unknown op"):
        fit(fresh, _data(), iterations=2, batch=5, folder=tmp_path / "a" / "b", inject="x.y:1")
    assert not (tmp_path / "a" / "b").exists()


def test_what_a_killed_run_had_begun_to_write_is_taken_away(fresh, tmp_path, monkeypatch):
    def killed(descriptor) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", killed)
        patch.setattr(files.Path, "unlink", lambda *given, **more: None)
        with pytest.raises(SystemExit):
            fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for name in ("iteration-best.safetensors", "iteration-00000009.safetensors.bak", ".mine"):
        (tmp_path / name).write_bytes(b"of a person")
    fit(fresh, _data(), iterations=2, batch=5, folder=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".mine",
        checkpoint.name_of(2),
        "iteration-00000009.safetensors.bak",
        "iteration-best.safetensors",
    ]


def test_a_run_that_is_done_has_its_checkpoint(fresh, tmp_path):
    """As where a worker had done the last iteration and was lost before it wrote."""
    fit(fresh, _data(), iterations=2, batch=5)
    fit(fresh, _data(), iterations=2, batch=5, folder=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.name_of(2)]


def test_a_resumed_run_has_the_bits_of_a_whole_one(fresh, tmp_path):
    begun = fresh.whole_state()
    whole = fit(fresh, _data(), iterations=7, batch=5, seed=1)
    wanted = fresh.digest
    fresh.load_state_dict(begun)
    first = fit(fresh, _data(), iterations=4, batch=5, seed=1, folder=tmp_path, every=3)
    assert [p.name for p in sorted(tmp_path.iterdir())] == [
        checkpoint.name_of(3),
        checkpoint.name_of(4),
    ]
    (tmp_path / checkpoint.name_of(4)).unlink()  # the run was killed before it
    fresh.load_state_dict(begun)
    rest = fit(fresh, _data(), iterations=7, batch=5, seed=1, folder=tmp_path, resume=True)
    assert rest.first == 3
    assert fresh.digest == wanted
    assert first.loss[:3] + rest.loss == whole.loss


def test_a_checkpoint_is_a_plain_file_of_tensors_and_a_receipt(fresh, tmp_path):
    from safetensors.numpy import load_file

    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    held = load_file(path)
    assert np.array_equal(held["0.weight"], fresh.state_dict()["0.weight"])
    _, receipt = checkpoint.read(path)
    assert receipt["iteration"] == 1 and receipt["digest"] == fresh.digest


def _damaged(path, how: str) -> None:
    raw = bytearray(path.read_bytes())
    if how == "cut":
        raw = raw[: len(raw) // 2]
    elif how == "empty":
        raw = bytearray()
    elif how == "a flipped bit":
        raw[-3] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("how", "message"),
    [("cut", "is damaged"), ("empty", "is damaged"), ("a flipped bit", "do not match its receipt")],
)
def test_a_damaged_checkpoint_is_refused_and_the_step_stays(how, message, fresh, tmp_path):
    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    _damaged(path, how)
    before = fresh.digest
    with pytest.raises(UserError, match=message):
        restore(fresh, path)
    assert fresh.digest == before


def test_a_foreign_checkpoint_is_refused(fresh, tmp_path):
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="not a checkpoint of a training run"):
        restore(fresh, tmp_path / "other.safetensors")
    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    path = tmp_path / checkpoint.name_of(1)
    state, receipt = checkpoint.read(path)
    checkpoint.write(path, state, {**receipt, "identity": "0" * 64})
    with pytest.raises(UserError, match="belongs to another training step"):
        restore(fresh, path)


def test_a_full_disk_leaves_the_older_checkpoint(fresh, tmp_path, monkeypatch):
    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*: No space left.*previous version is int"):
        checkpoint.write(path, {"x": np.zeros(2)}, {})
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_two_runs_are_not_mixed_in_one_folder(fresh, tmp_path):
    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    with pytest.raises(UserError, match="the folder already contains checkpoints"):
        fit(fresh, _data(), iterations=2, batch=5, folder=tmp_path)


def test_progress_is_told_after_every_iteration(fresh):
    told = []
    fit(fresh, _data(), iterations=3, batch=5, watch=told.append)
    assert [(p.iteration, p.total) for p in told] == [(1, 3), (2, 3), (3, 3)]
    assert told[-1].seconds_left == 0


def test_what_fit_cannot_do_is_said(fresh):
    right = {"iterations": 1, "batch": 5}
    for name, wrong in {
        "iterations": -1,
        "batch": 5.0,
        "seed": 2**64,
        "workers": 0,
        "every": 1.5,
        "ops_every": -1,
    }.items():
        with pytest.raises(UserError, match=f"fit: invalid value {wrong} for {name}"):
            fit(fresh, _data(), **{**right, name: wrong})
    with pytest.raises(UserError, match="invalid value '1' for iterations"):
        fit(fresh, _data(), iterations="1", batch=5)
    with pytest.raises(UserError, match="missing folder to resume from"):
        fit(fresh, _data(), iterations=1, batch=5, resume=True)


@pytest.mark.slow
def test_the_command_gives_the_same_digest_on_any_threads_and_tiling(capsys):
    from workbench.commands.cli import main

    found = []
    for more in (["--threads", "1"], ["--threads", "2", "--tiling", "alternate"]):
        words = [
            "train",
            "digits-mlp",
            "--width",
            "0.1",
            "--depth",
            "1",
            "--iterations",
            "3",
            "--initialize",
            "*.weight=orthogonal",
            "--initialize",
            "*.bias=zeros",
        ]
        assert main([*words, "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["digest"] == found[1]["digest"]
    assert found[0]["loss"] == found[1]["loss"] and len(found[0]["loss"]) == 3
    assert found[0]["identity"] == found[1]["identity"]
    assert found[0]["peak_bytes"] > 0 and found[0]["seconds_per_iteration"] > 0


@pytest.mark.slow
def test_the_command_trains_in_f16(capsys, tmp_path):
    from workbench.commands.cli import main

    words = ["train", "digits-mlp", "--width", "0.1", "--depth", "1", "--iterations", "2"]
    path = str(tmp_path / "x.run")
    assert (
        main([*words, "--precision", "f16", "--loss-scale", "dynamic", "--json", "-o", path]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["loss_scale"] == 65536.0 and found["skipped_updates"] == 0
    with Recording.open(path) as recording:
        rows = recording.iterations()[1]
    assert [(r.loss_scale, r.skipped) for r in rows] == [(65536.0, 0)] * 2
    assert main([*words, "--precision", "f16", "--loss-scale", "1e38"]) == 0
    assert "2 updates in all, because of non-finite gradients" in capsys.readouterr().out


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits-mlp", "--precision", "fp16"], "unknown precision 'fp16'"),
        (["digits-mlp", "--loss-scale", "8"], "leave loss_scale out, or train with precision f16"),
        (["digits-mlp", "--precision", "f16", "--loss-scale", "-1"], "pass a number above 0"),
        (["digits-cmm"], "unknown sample model 'digits-cmm'"),
        (["model.onnx"], "file not found"),
        (["digits-mlp", "--resume"], "missing folder for checkpoints"),
        (["digits-mlp", "--initialize", "*.weight"], "cannot parse '*.weight'"),
        (["digits-mlp", "--initialize", "*.weight=xavier"], "unknown initializer 'xavier'"),
        (["digits-mlp", "--optimizer", "adm"], "unknown optimiser 'adm'"),
        (["gpt2-decode", "--depth", "1", "--width", "0.1"], "not trainable"),
    ],
)
def test_bad_commands_are_one_line(words, message, capsys):
    from workbench.commands.cli import main

    assert main(["train", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
