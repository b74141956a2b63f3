"""Batches of other sizes than the example's: in one step, and at the end of an epoch."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.audit.receipts import FILE, Book
from core_compiler.training.audit.replay import Run, mismatch
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.optimisers import optimizers
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.stream import Stream
from tests.cuda.simulated_target import SimulatedCUDA
from workbench.commands.cli import main


class Rows(torch.nn.Module):
    """What depends on the batch: its statistics, a mean over it, random numbers."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8)
        self.drop, self.last = torch.nn.Dropout(dropout), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def _rows(dropout: float = 0.0) -> Rows:
    torch.manual_seed(1)
    return Rows(dropout)


def _batch(rows: int, number: int = 0):
    random = np.random.default_rng(number)
    return random.standard_normal((rows, 5)).astype(np.float32), random.integers(0, 3, rows)


def _data(rows: int = 20):
    return _batch(rows, 9)


HOW = Training(optimizer="adamw", clip_norm=1.0, seed=3)
SIZES = (8, 8, 3, 8, 3)


@pytest.fixture(scope="module")
def compiled():
    return cc.compile(_rows(0.3), _batch(8), training=HOW)


@pytest.fixture
def step(compiled):
    first = compiled.whole_state()
    yield compiled
    compiled.load_state_dict(first)


def _losses_of_separate_steps(sizes: Sequence[int], how: Training = HOW):
    """A step compiled for each size, the state carried from one to the next."""
    steps = {n: cc.compile(_rows(0.3), _batch(n), training=how) for n in dict.fromkeys(sizes)}
    losses, state = [], steps[sizes[0]].whole_state()
    for number, rows in enumerate(sizes):
        steps[rows].load_state_dict(state)
        losses.append(steps[rows](*_batch(rows, number)))
        state = steps[rows].whole_state()
    return losses, steps[sizes[-1]].digest


def test_each_size_has_the_bits_of_a_step_compiled_for_it(step):
    found = [step(*_batch(rows, number)) for number, rows in enumerate(SIZES)]
    assert (found, step.digest) == _losses_of_separate_steps(SIZES)
    assert step.iteration == len(SIZES)
    assert [each.shapes[0] for each in step.other_batches.rebinds] == [(3, 5)]


def test_all_sizes_share_the_state_without_copies(step):
    step(*_batch(8))
    step(*_batch(3))
    held = {a.ctypes.data for a in (*step.state, *step._spare.values())}
    for number, rows in enumerate((8, 3, 3, 8)):
        step(*_batch(rows, number))
        assert {a.ctypes.data for a in (*step.state, *step._spare.values())} == held


@pytest.mark.slow
def test_it_trains_as_torch_does():
    model = _rows()
    trained = copy.deepcopy(model)
    how = Training(optimizer=optimizers.SGD(0.1, momentum=0.9), clip_norm=1.0)
    step = cc.compile(model, _batch(8), training=how)
    optimizer = torch.optim.SGD(trained.parameters(), 0.1, momentum=0.9)
    for number, rows in enumerate(SIZES):
        x, y = (torch.from_numpy(a) for a in _batch(rows, number))
        optimizer.zero_grad()
        loss = functional.cross_entropy(trained(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimizer.step()
        assert step(x, y) == pytest.approx(loss.item(), rel=1e-5)
    for name, wanted in trained.state_dict().items():
        np.testing.assert_allclose(step.state_dict()[name], wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_shards_divide_each_batch():
    how = Training(optimizer="sgd", seed=3, shards=2)
    step, sizes = cc.compile(_rows(0.3), _batch(8), training=how), (8, 4, 8)
    found = [step(*_batch(rows, number)) for number, rows in enumerate(sizes)]
    assert (found, step.digest) == _losses_of_separate_steps(sizes, how)
    with pytest.raises(UserError, match="cannot split a batch of 3 into 2 equal shards"):
        step(*_batch(3))


@pytest.mark.slow
def test_the_state_on_a_gpu_is_that_of_all_sizes():
    target = SimulatedCUDA()
    options = {"architecture": target.driver.gpu.architecture}
    step = cc.compile(_rows(0.3), _batch(4), training=HOW, target=target, options=options)
    on_cpu = cc.compile(_rows(0.3), _batch(4), training=HOW)
    for number, rows in enumerate((4, 2, 4)):
        assert step(*_batch(rows, number)) == on_cpu(*_batch(rows, number))
    assert step.digest == on_cpu.digest


# -- what is refused --


def test_a_size_that_the_model_does_not_permit_changes_nothing(step):
    digest = step.digest
    x, y = _batch(8)
    for batch, said in (
        ((x[:, :4], y), "."),
        ((x, y[:5]), "expected targets to be tensor<8xi64>, got int64 5"),
        ((x[:5].astype(np.float64), y[:5]), "expected float32, got float64"),
        ((x[:1], y[:1]), "more than 1 value per channel"),
    ):
        with pytest.raises(UserError, match=said):
            step(*batch)
    assert step.digest == digest


def test_an_export_with_a_fixed_batch_says_how_to_vary_it():
    fixed = torch.export.export(_rows().eval(), (torch.zeros(8, 5),))
    step = cc.compile(fixed, _batch(8), training=Training())
    with pytest.raises(UserError, match=r"x to be .*8x5xf32.*got float32 3x5; .* may vary"):
        step(*_batch(3))


@pytest.mark.slow
def test_the_model_is_that_of_the_compile():
    """Its parts keep their modes; what is not trained must not have changed."""
    model = _rows().train()
    model.norm.eval()
    step = cc.compile(model, _batch(8), training=Training(freeze="last.weight"))
    model.eval()
    step(*_batch(3))
    separate = cc.compile(
        _partly(_rows().train()), _batch(3), training=Training(freeze="last.weight")
    )
    separate(*_batch(3))
    assert step.digest == separate.digest and not model.training
    with torch.no_grad():
        model.last.weight += 1
    with pytest.raises(UserError, match=r"last\.weight is not trained and has changed"):
        step(*_batch(4))


def _partly(model: Rows) -> Rows:
    model.norm.eval()
    return model


# -- epochs --


def test_an_epoch_ends_with_a_smaller_batch(step):
    data, start = Data.of(_data()), step.whole_state()
    history = fit(step, data, iterations=6, batch=8, seed=2)
    digest = step.digest
    assert history.left_out == ""
    batches = [data.batch(number, 8, 2, drop_last=False) for number in range(6)]
    assert [len(x) for x, _ in batches] == [8, 8, 4] * 2
    for epoch in (batches[:3], batches[3:]):
        rows = np.concatenate([x for x, _ in epoch])
        assert sorted(map(bytes, rows)) == sorted(map(bytes, _data()[0]))
    step.load_state_dict(start)
    assert [step(*batch) for batch in batches] == history.loss and step.digest == digest


def test_a_resumed_run_goes_on_as_it_began(step, tmp_path):
    start = step.whole_state()

    def run(iterations: int, folder, **how):
        return fit(step, _data(), iterations=iterations, batch=8, folder=folder, **how)

    run(7, tmp_path / "whole")
    whole, last = step.digest, tmp_path / "older" / checkpoint.name_of(2)
    step.load_state_dict(start)
    run(2, tmp_path / "parts")
    shutil.copytree(tmp_path / "parts", tmp_path / "older")
    run(7, tmp_path / "parts", resume=True)
    assert step.digest == whole
    with pytest.raises(UserError, match="expected the checkpoint's drop_last False, got True"):
        run(8, tmp_path / "parts", resume=True, drop_last=True)
    # A checkpoint of a version that left the rest out.
    state, receipt = checkpoint.read(last)
    del receipt["drop_last"]
    checkpoint.write(last, state, receipt)
    run(7, tmp_path / "older", resume=True)
    older = step.digest
    step.load_state_dict(start)
    run(7, None, drop_last=True)
    assert step.digest == older != whole


def test_what_cannot_be_a_smaller_batch_is_left_out(tmp_path):
    fixed = torch.export.export(_rows().eval(), (torch.zeros(8, 5),))
    step = cc.compile(fixed, _batch(8), training=Training())
    history = fit(step, _data(), iterations=4, batch=8)
    assert history.left_out.startswith("4 of 20 examples of each epoch: expected x to be ")
    with pytest.raises(UserError, match=r"last batch of an epoch has 4 examples: .*drop_last=True"):
        fit(step, _data(), iterations=6, batch=8, drop_last=False)


def test_shards_leave_out_what_they_cannot_divide():
    step = cc.compile(_rows(), _batch(8), training=Training(shards=2))
    history = fit(step, _data(21), iterations=3, batch=8)
    assert "cannot split a batch of 5 into 2 equal shards" in history.left_out


def test_the_rest_of_an_iterable_is_kept_if_asked_for():
    def sizes(**how):
        stream = Stream([(np.float32(i),) for i in range(10)], buffer=3)
        return [len(stream.batch(number, 4, 0, **how)[0]) for number in range(6)]

    assert sizes() == [4] * 6
    assert sizes(drop_last=False) == [4, 4, 2] * 2


@pytest.mark.slow
def test_receipts_of_a_smaller_batch_are_repeated(tmp_path):
    how = Training(optimizer="sgd", keep_gradients=True)

    def make():
        return cc.compile(_rows(0.3), _batch(8), training=how), _data()

    fit(*make(), iterations=4, batch=8, folder=tmp_path, receipts="gradients", ops_every=1)
    book, run = Book.read(tmp_path / FILE), Run.of(tmp_path, make)
    for number in (3, 4):
        receipt = book.receipts[number]
        assert receipt.ops and mismatch(receipt, run.receipt(number)) is None
    shapes = {p.shape for p in run.probes(3).probes} - {p.shape for p in run.probes(4).probes}
    assert (4, 8) in shapes


@pytest.mark.slow
def test_workers_end_epochs_as_one_process_does():
    found = []
    for workers in (1, 2):
        step = cc.compile(_rows(0.3), _batch(8), training=Training(shards=2, seed=1))
        history = fit(step, _data(), iterations=7, batch=8, workers=workers)
        found.append((history.loss, step.digest))
    assert found[0] == found[1]
    stream = Stream(list(zip(*_data(), strict=True)))
    with pytest.raises(UserError, match="the size of an iterable's last batch is unknown"):
        fit(step, stream, iterations=9, batch=8, workers=2, drop_last=False)


def task():
    return _rows(), _data()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--drop-last"], []])
def test_the_command_does_so_too(words, capsys):
    model = f"{__name__}:task"
    assert main(["train", model, "--iterations", "3", "--batch", "8", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    step = cc.compile(_rows(), _batch(8), training=Training())
    wanted = fit(step, _data(), iterations=3, batch=8, drop_last=bool(words))
    assert found["loss"] == wanted.loss
