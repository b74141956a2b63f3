"""What a run may go on with, what an interrupted one keeps, and that a refusal changes nothing."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.record import Recorder, Recording
from core_compiler.support.arrays import to_torch
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.receipts import Book
from core_compiler.training.config import Training
from core_compiler.training.fit import Stopped, fit
from core_compiler.training.optimisers.optimizers import Adam
from core_compiler.training.run import checkpoint, files
from core_compiler.training.run.plan import History
from core_compiler.training.run.resume import restore
from tests.examples import examples
from tests.slow import slow_but
from workbench.commands.cli import main

MODEL = ["train", "digits-mlp", "--width", "0.1", "--depth", "1", "--batch", "8", "--seed", "3",
         "--iterations", "2", "--receipts", "state"]  # fmt: skip


def _data():
    torch.manual_seed(3)
    return torch.randn(20, 4).numpy(), torch.randint(0, 3, (20,)).numpy()


@pytest.fixture(scope="module")
def step():
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.2), torch.nn.Linear(6, 3))
    batch = tuple(a[:5] for a in _data())
    return cc.compile(model, batch, training=Training(optimizer="adam", seed=4))


@pytest.fixture
def fresh(step):
    """The compiled step at its beginning, whoever used it before."""
    first = step.whole_state()
    yield step
    step.load_state_dict(first)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def _full(descriptor) -> None:
    raise OSError(28, "No space left on device")


EPS = 2.0**-10  # torch's own is 0 in f16


def _narrow(dtype: torch.dtype):
    """A step whose parameters and optimiser state are narrow, the module and its data."""
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 3))
    model = model.to(dtype)
    x, y = map(torch.as_tensor, _data())
    data = x.to(dtype), y
    training = Training(optimizer=Adam(0.001, eps=EPS))
    return cc.compile(copy.deepcopy(model), (data[0][:8], y[:8]), training=training), model, data


@pytest.mark.slow
@pytest.mark.parametrize("dtype", slow_but((torch.bfloat16,), [torch.bfloat16, torch.float16]))
def test_a_run_of_narrow_parameters_is_gone_on_from(dtype, tmp_path):
    """NumPy has no bf16 of its own: files, torch's state and batches of tensors all keep it."""
    step, model, data = _narrow(dtype)
    first = step.whole_state()
    fit(step, data, iterations=4, batch=8)
    whole = step.digest
    step.load_state_dict(first)
    fit(step, data, iterations=2, batch=8, folder=tmp_path)
    state, held = step.state_dict(), step.optimizer_state_dict()
    step.load_state_dict(first)
    fit(step, data, iterations=4, batch=8, folder=tmp_path, resume=True)
    assert step.digest == whole

    optimizer = torch.optim.Adam(model.parameters(), eps=EPS)
    optimizer.load_state_dict(held)
    model.load_state_dict({name: to_torch(array) for name, array in state.items()})
    step.load_state_dict(model.state_dict())
    step.load_optimizer_state_dict(optimizer.state_dict())
    fit(step, data, iterations=4, batch=8)
    assert step.digest == whole


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", 9, "training seed 9, got 4; resume with the settings that the run was started"),
        ("data_seed", 9, "data seed 9, got 1"),
        ("shards", 2, "shards 2, got 1"),
        ("contract", 99, "made under version 99 of the numerics contract, this release"),
        (
            "contract",
            1,
            "version 1 of the numerics contract, this release uses version 2",
        ),
    ],
)
def test_a_run_begun_with_something_else_is_refused(key, value, message, fresh, tmp_path):
    fit(fresh, _data(), iterations=1, batch=5, seed=1, folder=tmp_path)
    path = tmp_path / checkpoint.name_of(1)
    state, receipt = checkpoint.read(path)
    assert receipt | {"seed": 4, "data_seed": 1, "shards": 1, "contract": 2} == receipt
    checkpoint.write(path, state, {**receipt, key: value})
    before, digest = _bytes(tmp_path), fresh.digest
    on_start = []
    with pytest.raises(UserError, match=message):
        fit(
            fresh,
            _data(),
            iterations=2,
            batch=5,
            seed=1,
            folder=tmp_path,
            resume=True,
            on_start=lambda: on_start.append(1),
        )
    assert (_bytes(tmp_path), fresh.digest, on_start) == (before, digest, [])


def test_all_that_differs_is_said_at_once(fresh, tmp_path):
    fit(fresh, _data(), iterations=1, batch=5, seed=1, folder=tmp_path)
    path = tmp_path / checkpoint.name_of(1)
    state, receipt = checkpoint.read(path)
    checkpoint.write(path, state, {**receipt, "seed": 9})
    with pytest.raises(UserError, match="training seed 9, got 4; data seed 1, got 2"):
        restore(fresh, path, 2)


def test_checkpoints_of_before_say_less_and_are_gone_on_from(fresh, tmp_path):
    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    path = tmp_path / checkpoint.name_of(1)
    state, receipt = checkpoint.read(path)
    held = {k: v for k, v in receipt.items() if k not in ("seed", "shards")}
    checkpoint.write(path, state, held)
    assert restore(fresh, path, 0) == held


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
_KEYS = ("iteration", "digest", "seed", "data_seed", "shards", "identity", "contract")


@settings(max_examples=examples(80), deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=40),
        _JSON.map(json.dumps),
        st.just("[" * 100_000),
        st.fixed_dictionaries({}, optional=dict.fromkeys(_KEYS, _JSON)).map(json.dumps),
    )
)
def test_a_damaged_receipt_is_a_damaged_checkpoint(text, step, tmp_path_factory):
    from safetensors.numpy import save

    folder = tmp_path_factory.mktemp("damaged")
    older, path = (folder / checkpoint.name_of(n) for n in (1, 2))
    older.write_bytes(b"older")
    path.write_bytes(save(step.whole_state(), {checkpoint.RECEIPT: text}))
    before = step.digest
    with pytest.raises(UserError) as raised:
        fit(step, _data(), iterations=3, batch=5, folder=folder, resume=True)
    assert raised.value.where == str(path)
    assert step.digest == before
    assert older.read_bytes() == b"older"


@pytest.mark.parametrize("text", ["{", "[1]", "3", "[" * 100_000])
def test_a_receipt_that_is_no_table_is_told_as_damage(text, step):
    from safetensors.numpy import save

    data = save({"x": np.zeros(2)}, {checkpoint.RECEIPT: text})
    with pytest.raises(UserError, match=r"the checkpoint is damaged: .*uses the one before"):
        checkpoint.decode(data, "x")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    assert main([*MODEL, "--folder", str(folder)]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--optimizer", "adam"], "the checkpoint belongs to another training step"),
        (["--seed", "7"], "training seed 3, got 7; data seed 3, got 7; resume with the settings "),
        pytest.param(
            ["--inject", "core.nothing:3"], "unknown op core.nothing#1", marks=pytest.mark.slow
        ),
        pytest.param(
            ["--leaves", "sha256"],
            "the run's receipts are hashed with fast, not sha256",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_refused_command_leaves_the_folder_as_it_was(words, message, run, capsys):
    before = _bytes(run)
    assert main([*MODEL, "--folder", str(run), "--iterations", "4", "--resume", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert _bytes(run) == before
    assert main(["verify", str(run)]) == 0


# -- full disks ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_the_identity_does_not_name_is_compared_too(run, capsys):
    """An injection in an iteration that is done, and what parameters were at first: `verify` would
    do the run again with them."""
    before = _bytes(run)
    words = [*MODEL, "--iterations", "4", "--folder", str(run), "--resume"]
    op = [n.op for n in Book.read(run / receipts.FILE).names if n.op.startswith("core.sub#")][-1]
    for more, said in (
        (["--inject", f"{op}:2"], f"have the injection none, got {op}:2"),
        (["--initialize", "*=zeros"], "expected the run's --initialize none, got *=zeros"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
        assert _bytes(run) == before
    folder = run.parent / "flipped"
    shutil.copytree(run, folder)
    words[-2] = str(folder)
    assert main([*words, "--inject", f"{op}:3"]) == 0  # one that is still to come
    capsys.readouterr()
    assert main([*words, "--iterations", "5"]) == 2
    assert f"have the injection {op}:3, got none" in capsys.readouterr().err


@pytest.mark.slow
def test_a_full_disk_leaves_how_the_run_is_done_again(run, monkeypatch, capsys):
    before = _bytes(run)
    monkeypatch.setattr(files.os, "fsync", _full)
    again = [*MODEL, "--folder", str(run), "--iterations", "4", "--resume", "--every", "1"]
    assert main(again) == 2
    said = capsys.readouterr().err
    assert "run.json: cannot write the run's description: No space left" in said
    assert _bytes(run) == before


def test_a_full_disk_leaves_the_receipts(fresh, tmp_path, monkeypatch):
    how = {"batch": 5, "folder": tmp_path, "receipts": "state"}
    fit(fresh, _data(), iterations=3, every=2, **how)
    checkpoint.newest(tmp_path).unlink()
    before = _bytes(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", _full)
        with pytest.raises(UserError, match="cannot write the receipts: No space"):
            fit(fresh, _data(), iterations=3, resume=True, **how)
    assert _bytes(tmp_path) == before
    book = Book.read(tmp_path / receipts.FILE)
    fit(fresh, _data(), iterations=3, resume=True, **how)
    assert Book.read(tmp_path / receipts.FILE) == book


def test_the_history_of_receipts_is_not_written_again(fresh, tmp_path, monkeypatch):
    """What is kept only grows: iterations append to the one file."""
    how = {"batch": 5, "folder": tmp_path, "receipts": "state"}
    fit(fresh, _data(), iterations=2, **how)
    path = tmp_path / receipts.FILE
    before, file = path.read_bytes(), path.stat().st_ino
    fit(fresh, _data(), iterations=4, resume=True, **how)
    assert path.read_bytes().startswith(before)
    assert path.stat().st_ino == file


def test_a_receipt_that_was_cut_off_is_dropped(fresh, tmp_path):
    how = {"batch": 5, "folder": tmp_path, "receipts": "state"}
    fit(fresh, _data(), iterations=2, **how)
    path = tmp_path / receipts.FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"iteration": 3, "lo')
    fit(fresh, _data(), iterations=4, resume=True, **how)
    assert path.read_bytes().startswith(whole)
    assert list(Book.read(path).receipts) == [1, 2, 3, 4]


# -- Ctrl-C ----------------------------------------------------------------------------------------


def test_an_interrupted_run_keeps_what_was_done_and_ends_in_the_same_bits(fresh, tmp_path):
    first = fresh.whole_state()
    how = {"batch": 5, "iterations": 6, "every": 4, "receipts": "state"}
    fit(fresh, _data(), folder=tmp_path / "whole", **how)
    wanted = fresh.digest
    fresh.load_state_dict(first)

    def stop(progress) -> None:
        if progress.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(Stopped) as stopped:
        fit(
            fresh,
            _data(),
            folder=tmp_path / "x",
            watch=stop,
            observer=Recorder(tmp_path / "x.run"),
            **how,
        )
    assert (stopped.value.iteration, stopped.value.checkpoint_iteration, stopped.value.problem) == (
        3,
        3,
        "",
    )
    with Recording.open(tmp_path / "x.run") as recording:
        assert recording.status == "cancelled"
    fresh.load_state_dict(first)
    history = fit(fresh, _data(), folder=tmp_path / "x", resume=True, **how)
    assert (history.first, fresh.digest) == (3, wanted)
    books = [Book.read(tmp_path / name / receipts.FILE) for name in ("whole", "x")]
    assert books[0].receipts == books[1].receipts


def test_an_interrupt_in_an_iteration_is_heard_after_its_receipt(fresh, tmp_path, monkeypatch):
    real = receipts.Recorder.receipt

    def pressed(self, iteration, loss, state):
        if iteration == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, iteration, loss, state)

    monkeypatch.setattr(receipts.Recorder, "receipt", pressed)
    with pytest.raises(Stopped) as stopped:
        fit(fresh, _data(), iterations=4, batch=5, folder=tmp_path, receipts="state")
    assert (stopped.value.iteration, stopped.value.checkpoint_iteration) == (2, 2)
    assert list(Book.read(tmp_path / receipts.FILE).receipts) == [1, 2]


def test_a_full_disk_at_an_interrupt_is_said(fresh, tmp_path, monkeypatch):
    fit(fresh, _data(), iterations=1, batch=5, folder=tmp_path)
    monkeypatch.setattr(files.os, "fsync", _full)

    def stop(progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(
        Stopped, match=r"after iteration 2, kept up to iteration 1: .*No space left"
    ):
        fit(fresh, _data(), iterations=4, batch=5, folder=tmp_path, resume=True, watch=stop)
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.name_of(1)]


OWN = """
import os, signal
import numpy as np, torch

class Rows:
    def __iter__(self):
        for i in range(9):
            if i == int(os.environ.get("STOP_AT", -1)):
                os.kill(os.getpid(), signal.SIGINT)
            yield {"label": i % 3, "input": [i / 9.0] * 4}

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3)), Rows()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "rows_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["train", "rows_of_mine:make", "--batch", "2", "--iterations", "11", "--folder", "a b"]
    before = signal.getsignal(signal.SIGINT)
    yield words, monkeypatch
    signal.signal(signal.SIGINT, before)  # a command that was stopped hears no more of it


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [False, True])
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(recorded, own, capsys):
    """Data of a person's own, an iterable of mappings; the second epoch is interrupted."""
    words, monkeypatch = own
    words = [*words, *(["-o", "x.run"] if recorded else [])]
    assert main([*words[:-1], "whole.run" if recorded else "whole", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    seen = []

    def stop(self, total, batch):
        if self.rows[-1].number == 6 and not seen:
            seen.append(1)
            os.kill(os.getpid(), signal.SIGINT)
        return progress(self, total, batch)

    progress = History.progress
    monkeypatch.setattr(History, "progress", stop)
    folder = ["--folder", "c d"]
    assert main([*words, *folder]) == 130
    said = capsys.readouterr().err
    told = ", its recording is x.run" if recorded else ""
    head = f"workbench: c d: stopped; the run is kept up to iteration 6{told}; resume with: "
    assert said.startswith(head)
    assert checkpoint.newest(Path("c d")).name == checkpoint.name_of(6)
    if recorded:
        with Recording.open("x.run") as recording:
            assert recording.status == "cancelled"
    program, *again = shlex.split(said.removeprefix(head))
    assert program == "workbench"
    assert again == [*words, *folder, "--resume"]
    assert main([*again, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["digest"]) == (6, whole["digest"])
    assert found["loss"] == whole["loss"][6:]


@pytest.mark.slow
def test_a_run_goes_on_with_the_files_that_it_was_begun_with(own, tmp_path, capsys):
    """Also where its own data or a file take each other's place."""
    words = [*own[0][:-1], "run", "--iterations", "2"]
    random = np.random.default_rng(0)
    np.savez(
        tmp_path / "x.npz",
        input=random.standard_normal((8, 4)).astype(np.float32),
        label=np.arange(8) % 3,
    )
    assert main(words) == 0
    assert main([*words, "--resume", "--data", "x.npz"]) == 2
    assert "the run was started with another file" in capsys.readouterr().err
    words[words.index("run")] = "another run"
    assert main([*words, "--data", "x.npz"]) == 0
    capsys.readouterr()
    assert main([*words, "--resume"]) == 2
    assert "the run was started with this file" in capsys.readouterr().err
    assert main([*words, "--resume", "--data", "x.npz", "--iterations", "3"]) == 0


def test_ctrl_c_before_anything_is_kept_says_so(own, capsys):
    words, monkeypatch = own
    monkeypatch.setenv("STOP_AT", "1")  # while the model is compiled
    assert main(words) == 130
    assert capsys.readouterr().err == "workbench: stopped; nothing was recorded\n"
    assert not Path("a b").exists()
