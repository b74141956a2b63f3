"""Shards: a batch in parts is the whole batch, and its bits are those of the tree."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import core_compiler as cc
from core_compiler.ir.text import print_module
from core_compiler.numerics.reference.collective import tree_sum
from core_compiler.numerics.reference.dtypes import DTYPES
from core_compiler.runtime.shards import join_locally
from core_compiler.support.errors import UserError
from core_compiler.targets.link import Linker
from core_compiler.training.config import Training
from core_compiler.training.graph import losses
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers import optimizers
from core_compiler.training.run.reference import walk
from core_compiler.training.run.step import shard_of
from tests.slow import slow_but
from tests.training.helpers import Reference, after_passes, joint_of
from tests.training.test_step import Pictures, Words, _made, _pictures, _words

#: What they look at takes long to make.
pytestmark = pytest.mark.slow


class Sharded:
    """A sharded step by the references."""

    def __init__(self, model, batch, training: Training):
        self.shards = training.shards
        # Copies: torch (2.13) does not export a scan of a part of another tensor.
        own = shard_of(batch, 0, self.shards)
        given = own if isinstance(training.loss, losses.Own) else own[:-1]
        inputs = [torch.as_tensor(t).clone() for t in given]
        joint = joint_of(model, inputs, training)
        self.module, self.state = after_passes(joint.module, training), list(joint.state)
        self.first = len(joint.roles.arguments) - len(self.state)
        self.names = [name for _, name, _ in joint.roles.arguments[self.first :]]

    def __call__(self, *batch) -> float:
        arrays = [np.asarray(a) for a in batch]
        every = [
            [*shard_of(arrays, i, self.shards), np.array(i), *self.state]
            for i in range(self.shards)
        ]
        body = self.module.main.body
        made = dict(zip(body.arguments, every[0], strict=True))
        for op, seen in walk(self.module, every):
            made.update(zip(op.results, seen[0][1], strict=True))
        rows = Roles.of(self.module.main).results
        for (role, of), value in zip(rows, body.outputs, strict=True):
            if role == "next":
                self.state[of - self.first] = made[value]
        return float(made[body.outputs[rows.index(("loss", -1))]])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.state[self.names.index(name)]


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from(["f32", "f16", "bf16"]))
def test_shards_that_arrive_one_after_another_are_added_by_the_tree(count, seed, dtype):
    random = np.random.default_rng(seed)
    held = [random.standard_normal(37).astype(DTYPES[dtype]) for _ in range(count)]
    wanted = [a.astype(np.float32) for a in held]  # rounded once, in the end
    while len(wanted) > 1:  # the definition: neighbours, the last one alone goes up
        pairs = [wanted[i] + wanted[i + 1] for i in range(0, len(wanted) - 1, 2)]
        wanted = pairs + wanted[len(wanted) - len(wanted) % 2 :]
    (made,) = join_locally([a] for a in held)
    for found in (tree_sum(held), made):
        assert found.dtype == DTYPES[dtype]
        np.testing.assert_array_equal(found, wanted[0].astype(DTYPES[dtype]))


@pytest.mark.parametrize("shards", [2, 4])
def test_statistics_loss_and_gradients_are_those_of_the_whole_batch(shards):
    """As torch trains on the whole batch: also the running statistics, and ignored targets that
    the shards hold unequal numbers of."""
    model = _made(Pictures)
    training = Training(
        losses.CrossEntropy(ignore_index=2), optimizers.SGD(0.1), clip_norm=1.0, shards=shards
    )
    step = Sharded(model, _pictures(0), training)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(3):
        x, y = _pictures(number)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y, ignore_index=2)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert step(x, y) == pytest.approx(loss.item(), rel=1e-5)
    for name, wanted in model.state_dict().items():
        np.testing.assert_allclose(step[name], wanted.numpy(), rtol=1e-4, atol=1e-5)


class OwnLoss(torch.nn.Module):
    """Returns its loss: a mean that is no division of two numbers, or one of two."""

    def __init__(self, division: bool):
        super().__init__()
        self.linear, self.division = torch.nn.Linear(5, 3), division

    def forward(self, x):
        squares = self.linear(x).square()
        return squares.sum() / len(x) if self.division else squares.mean()


@pytest.mark.parametrize("division", [False, True])
def test_a_loss_of_the_models_own_is_the_mean_over_shards(division):
    model = _made(lambda: OwnLoss(division))
    x = torch.randn(6, 5)
    step = Sharded(model, (x,), Training(None, optimizers.SGD(0.1), shards=3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        assert step(x) == pytest.approx(loss.item(), rel=1e-5)
    for name, wanted in model.state_dict().items():
        np.testing.assert_allclose(step[name], wanted.numpy(), rtol=1e-4, atol=1e-6)


class LanguageLoss(torch.nn.Module):
    """A loss as language models return it: unequal numbers of targets count in the shards, in one
    of them none; with a penalty, and a term that divides by another count."""

    def __init__(self, kind: str):
        super().__init__()
        self.linear, self.kind = torch.nn.Linear(5, 4), kind
        self.register_buffer("weight", torch.tensor([0.5, 1.0, 2.0, 1.5]))

    def forward(self, x, y):
        logits = self.linear(x)
        weight = self.weight if self.kind == "weights" else None
        loss = functional.cross_entropy(logits.reshape(-1, 4), y.reshape(-1), weight=weight)
        if self.kind == "several":
            seen = (y != -100).to(x.dtype)
            second = (logits.square().sum(-1) * seen).sum() / seen.sum()
            loss = loss / 0.5 - 0.1 * second + 0.01 * self.linear.weight.square().sum()
        return loss


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"),
    slow_but(
        (("several", torch.float32),),
        [
            ("plain", torch.float32),
            ("weights", torch.float32),
            ("several", torch.float32),
            ("plain", torch.bfloat16),
        ],
    ),
)
def test_each_mean_in_a_models_own_loss_divides_by_the_count_of_all_shards(kind, dtype):
    model = _made(lambda: LanguageLoss(kind)).to(dtype)
    x, y = torch.randn(6, 2, 5).to(dtype), torch.randint(0, 4, (6, 2))
    y[:2], y[3, 1] = -100, -100
    training = Training(None, optimizers.SGD(0.1), shards=3)
    step = cc.compile(copy.deepcopy(model), (x, y), training=training)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    near = 1e-5 if dtype is torch.float32 else 2e-2
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        assert step(x, y) == pytest.approx(loss.item(), rel=near)
    for name, array in step.state_dict().items():
        wanted = model.state_dict()[name].float().numpy()
        np.testing.assert_allclose(array.astype(np.float32), wanted, rtol=10 * near, atol=near)


def test_unsynchronised_statistics_are_each_shards_own():
    model = _made(Pictures)
    x, y = _pictures(0)
    step = Sharded(model, (x, y), Training(optimizer="sgd", shards=2, sync_batch_norm=False))
    found = step(x, y)
    halves = []
    for rows in (slice(0, 2), slice(2, 4)):
        held = _made(Pictures)
        halves.append((functional.cross_entropy(held(x[rows]), y[rows]).item(), held))
    assert found == pytest.approx(sum(loss for loss, _ in halves) / 2, rel=1e-5)
    for name in ("norm.running_mean", "norm.running_var"):
        mean = sum(held.state_dict()[name] for _, held in halves) / 2
        np.testing.assert_allclose(step[name], mean.numpy(), rtol=1e-5)
    assert step["norm.num_batches_tracked"] == 1


class Dropped(torch.nn.Module):
    """Masks whose rows begin inside a counter of Philox."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return functional.dropout(x * self.scale, 0.5)


def test_masks_are_those_of_the_whole_batch():
    x = torch.arange(1.0, 19.0).reshape(6, 3)
    training = {"loss": "mse", "optimizer": "sgd", "seed": 11}
    whole = Reference(Dropped(), (x,), Training(**training))
    parts = Sharded(Dropped(), (x, x), Training(**training, shards=3))
    for _ in range(3):
        assert parts(x, x) == pytest.approx(whole(x, x), rel=1e-6)


def test_the_passes_show_where_shards_meet():
    joint = joint_of(_made(Pictures), [_pictures(0)[0][:2]], Training(shards=2))
    text = print_module(after_passes(joint.module, Training(shards=2)))
    assert text.count("core.all_reduce") == 2 + 8 + 4  # the loss; parameters; mean, variance, back
    assert "shard" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pictures", "words"])
def test_the_compiled_shards_have_the_references_bits(kind):
    """Pictures meet in every normalisation, each shard with its memory; words once, in turn."""
    batch = _pictures(0) if kind == "pictures" else tuple(t[:3] for t in _words(0))
    model = _made(Pictures) if kind == "pictures" else Words(dropout=0.25)
    training = Training(optimizer="adamw", shards=2 if kind == "pictures" else 3, clip_norm=0.5)
    step = cc.compile(model, batch, training=training, threads=2)
    stages = [s for s in step.compilation.stages if s.step is None or s.step.half == "meaning"]
    module, rows = stages[-1].module, Roles.of(stages[-1].module.main).results
    for _ in range(2):
        every = step._arguments([np.asarray(b) for b in batch], range(step.shards))
        made = dict(zip(module.main.body.arguments, every[0], strict=True))
        for op, seen in walk(module, every):
            made.update(zip(op.results, seen[0][1], strict=True))
        wanted = [made[v] for v in module.main.body.outputs]
        loss = step(*batch)
        assert loss == float(wanted[rows.index(("loss", -1))])
        for (role, of), array in zip(rows, wanted, strict=True):
            if role == "next":
                np.testing.assert_array_equal(step.state[of - step._state_offset], array)


def test_what_cannot_be_cut():
    x, y = torch.zeros(6, 1, 8, 8), torch.zeros(6, dtype=torch.int64)
    with pytest.raises(UserError, match="cannot split a batch of 6 into 4 equal shards"):
        cc.compile(_made(Pictures), (x, y), training=Training(shards=4), finish=False)
    with pytest.raises(UserError, match="expected 6 rows in tensor 1 of the batch, got 5"):
        cc.compile(_made(Pictures), (x, y[:5]), training=Training(shards=2), finish=False)
    with pytest.raises(UserError, match="shards, got 0"):
        Training(shards=0)


class Counting(torch.nn.Module):
    """A buffer of integers that the examples decide."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += (x > 0).sum()
        return self.layer(x)


def test_a_counter_of_the_examples_is_named():
    batch = torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(UserError, match="buffer seen is computed from the examples"):
        cc.compile(Counting(), batch, training=Training(shards=2))


class Watching(torch.nn.Module):
    """A buffer that ``make`` moves by the examples."""

    def __init__(self, make):
        super().__init__()
        self.layer, self.make = torch.nn.Linear(3, 2), make
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            self.seen.copy_(self.make(self.seen, y))
        return y


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda seen, y: 0.9 * seen + 0.1 * y.mean(0), True),
        (lambda seen, y: seen - y.sum(0) / 5, False),
        pytest.param(lambda seen, y: seen + y.sum(0), False, marks=pytest.mark.slow),
        pytest.param(lambda seen, y: torch.maximum(seen, y.amax(0)), False, marks=pytest.mark.slow),
        pytest.param(lambda seen, y: seen + y.var(0), False, marks=pytest.mark.slow),
    ],
)
def test_a_buffer_that_is_no_mean_over_the_batch_is_told(make, same):
    torch.manual_seed(0)
    batch = torch.randn(8, 3), torch.zeros(8, dtype=torch.int64)
    model, held, told = Watching(make), [], []
    for shards in (1, 2):
        step = cc.compile(model, batch, training=Training(shards=shards))
        step(*batch)
        held.append(step.state_dict()["seen"])
        told = [n.message for s in step.compilation.stages for n in s.diagnostics]
    named = [text for text in told if "the buffer seen becomes the mean" in text]
    assert bool(named) is not same
    assert np.allclose(*held, rtol=1e-5) is same


def _checked():
    training = Training(optimizer="sgd", shards=2)
    step = cc.compile(_made(Pictures), _pictures(0), check=True, training=training)
    records = [r for rs in step.compilation.checks.values() for r in rs]
    failed = [r for r in records if r.verdict == "failed"]
    return [r for r in records if r.kind == "program"], failed


def test_the_program_of_one_shard_is_checked_among_equal_ones(monkeypatch):
    programs, failed = _checked()
    assert ([r.verdict for r in programs], failed) == (["bitwise"], [])
    right = Linker._exchange

    def wrong(self, op):
        right(self, op)
        self.exchanges[-1] = replace(self.exchanges[-1], source=self.exchanges[-1].target)

    monkeypatch.setattr(Linker, "_exchange", wrong)
    programs, failed = _checked()
    assert [r.verdict for r in programs] == ["failed"] and failed == programs
    assert "every launch is correct alone" in failed[0].note
