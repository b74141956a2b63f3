"""Optimisers and schedules against torch.optim, step by step."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from core_compiler.ir import Block, Value, tensor
from core_compiler.ops import Builder, evaluate_block
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph import losses
from core_compiler.training.graph.losses import MeanSquaredError
from core_compiler.training.optimisers import optimizers, schedules
from tests.training.helpers import Reference

OURS_AND_THEIRS = {
    "sgd": (optimizers.SGD(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "sgd decay": (
        optimizers.SGD(0.05, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.1),
    ),
    "momentum": (optimizers.SGD(0.05, momentum=0.9), lambda p: torch.optim.SGD(p, 0.05, 0.9)),
    "dampening": (
        optimizers.SGD(0.05, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, 0.5),
    ),
    "nesterov": (
        optimizers.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": (optimizers.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam decay": (
        optimizers.Adam(0.01, (0.8, 0.99), 1e-6, 0.1),
        lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.99), 1e-6, 0.1),
    ),
    "amsgrad": (
        optimizers.Adam(0.01, amsgrad=True),
        lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    ),
    "adamw": (optimizers.AdamW(0.01), lambda p: torch.optim.AdamW(p, 0.01)),
    "adagrad": (optimizers.Adagrad(0.05), lambda p: torch.optim.Adagrad(p, 0.05)),
    "adagrad decay": (
        optimizers.Adagrad(0.05, 0.1, 0.01, 0.1),
        lambda p: torch.optim.Adagrad(p, 0.05, 0.1, 0.01, 0.1),
    ),
    "rmsprop": (optimizers.RMSprop(0.01), lambda p: torch.optim.RMSprop(p, 0.01)),
    "rmsprop centered": (
        optimizers.RMSprop(0.01, 0.9, 1e-6, 0.01, 0.9, True),
        lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-6, 0.01, 0.9, True),
    ),
}


def _model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4))


def _batch(number: int):
    torch.manual_seed(100 + number)
    return torch.randn(5, 6), torch.randn(5, 4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OURS_AND_THEIRS)
def test_parameters_move_as_torchs(name):
    ours, make = OURS_AND_THEIRS[name]
    model = _model()
    step = Reference(model, _batch(0)[:1], Training(MeanSquaredError(), ours))
    theirs = copy.deepcopy(model)
    optimizer = make(theirs.parameters())
    for number in range(6):
        x, y = _batch(number)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(theirs(x), y)
        loss.backward()
        optimizer.step()
        assert step(x.numpy(), y.numpy()) == pytest.approx(loss.item(), rel=1e-5)
        for key, value in theirs.state_dict().items():
            np.testing.assert_allclose(
                step[key],
                value.numpy(),
                rtol=2e-5,
                atol=2e-6,
                err_msg=f"{key} after iteration {number}",
            )


def test_lion_is_the_papers():
    """Chen et al. (2023), algorithm 2: torch 2.13 has none."""
    model = _model()
    step = Reference(
        model, _batch(0)[:1], Training(MeanSquaredError(), optimizers.Lion(0.01, weight_decay=0.1))
    )
    theirs = copy.deepcopy(model)
    means = {k: torch.zeros_like(p) for k, p in theirs.named_parameters()}
    for number in range(4):
        x, y = _batch(number)
        theirs.zero_grad()
        torch.nn.functional.mse_loss(theirs(x), y).backward()
        with torch.no_grad():
            for key, p in theirs.named_parameters():
                direction = torch.sign(0.9 * means[key] + (1 - 0.9) * p.grad)
                p.sub_(0.01 * (direction + 0.1 * p))
                means[key] = 0.99 * means[key] + (1 - 0.99) * p.grad
        step(x.numpy(), y.numpy())
        for key, value in theirs.state_dict().items():
            np.testing.assert_allclose(step[key], value.numpy(), rtol=2e-5, atol=2e-6)


def _rates(schedule, iterations: int) -> list[float]:
    iteration = Value(tensor((), "i64"), "iteration")
    b = Builder()
    rate = schedule.rate(b, iteration)
    block = Block((iteration,), tuple(b.ops), (rate,))
    return [float(evaluate_block(block, [np.int64(i)])[0]) for i in range(iterations)]


def _torch_rates(make, iterations: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1)], 0.5)
    scheduler = make(optimizer)
    rates = []
    for _ in range(iterations):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (schedules.Constant(0.5), lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0)),
        (schedules.Step(0.5, 4, 0.3), lambda o: torch.optim.lr_scheduler.StepLR(o, 4, 0.3)),
        (schedules.Exponential(0.5, 0.9), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)),
        (
            schedules.Linear(0.5, 8, 0.25),
            lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.25, 8),
        ),
        (
            schedules.Cosine(0.5, 12, 0.05),
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 12, 0.05),
        ),
    ],
    ids=lambda v: type(v).__name__,
)
def test_rates_are_torchs(ours, theirs):
    assert _rates(ours, 12) == pytest.approx(_torch_rates(theirs, 12), rel=1e-12)


def test_a_rate_warms_up_and_then_begins():
    after = schedules.Cosine(0.5, 10)
    rates = _rates(schedules.Warmup(5, after), 12)
    assert rates[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert rates[5:] == pytest.approx(_rates(after, 7))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Training(optimizer="adamm"), "unknown optimiser 'adamm'.*adam"),
        (lambda: Training(loss="cross"), "unknown loss 'cross'"),
        (lambda: Training(clip_norm=0.0), "invalid value 0.0 for clip_norm"),
        (lambda: Training(clip_norm="1"), "training: invalid value '1' for clip_norm; pass a"),
        (lambda: Training(recompute="a"), "value 'a' for recompute; pass the fraction"),
        (lambda: Training(seed=2**64), r"value 18446744073709551616 for seed; .* to 2\^63 - 1"),
        (lambda: Training(seed=-(2**63) - 1), "value -9223372036854775809 for seed"),
        (lambda: Training(seed=1.5), "value 1.5 for seed"),
        (lambda: Training(shards="2"), "expected 1 to .* shards, got '2'; pass"),
        (lambda: optimizers.SGD("0.1"), "optimizer: invalid value '0.1' for rate"),
        (lambda: optimizers.SGD(schedules.Cosine), "value <class .*Cosine.* for rate"),
        (lambda: schedules.Cosine("0.1", 5), "learning rate: invalid value '0.1' for value"),
        (lambda: schedules.Warmup(5, 0.1), "expected after to be a schedule, got 0.1; pass a"),
        (lambda: optimizers.SGD(nesterov=True), "nesterov needs momentum"),
        (lambda: schedules.Cosine(0.1, 0), "invalid value 0 for iterations"),
        (
            lambda: optimizers.SGD(momentum=0.9, nesterov="False"),
            "value 'False' for nesterov; pass True or",
        ),
        (lambda: optimizers.Adam(amsgrad=1), "value 1 for amsgrad"),
        (lambda: Training(sync_batch_norm="no"), "value 'no' for sync_batch_norm"),
        (lambda: losses.KLDivergence(batch="x"), "loss: invalid value 'x' for batch"),
        (lambda: losses.CrossEntropy(ignore_index=1.5), "1.5 for ignore_index; pass a whole"),
        (lambda: losses.CrossEntropy(axis=1.0), "value 1.0 for axis"),
    ],
)
def test_bad_configurations_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimizers.SGD(-0.1), "optimizer: invalid value -0.1 for rate; .*0 or more"),
        (lambda: optimizers.SGD(float("nan")), "value nan for rate"),
        (lambda: optimizers.SGD(float("inf")), "value inf for rate"),
        (lambda: optimizers.SGD(momentum=-0.5), "value -0.5 for momentum"),
        (lambda: optimizers.SGD(dampening=float("nan")), "value nan for dampening"),
        (lambda: optimizers.Adam(eps=-1), "value -1 for eps"),
        (lambda: optimizers.AdamW(weight_decay=-1), "value -1 for weight_decay"),
        (lambda: optimizers.Adam(betas=(1.0, 0.999)), r"value 1.0 for betas\[0\]; .*below 1"),
        (lambda: optimizers.AdamW(betas=(0.9, -0.1)), r"value -0.1 for betas\[1\]"),
        (lambda: optimizers.Lion(betas=(0.9, 1.0)), r"value 1.0 for betas\[1\]"),
        (lambda: optimizers.Adam(betas=0.9), "value 0.9 for betas; pass two numbers"),
        (lambda: optimizers.Lion(weight_decay=-1), "value -1 for weight_decay"),
        (lambda: optimizers.Adagrad(rate_decay=-1), "value -1 for rate_decay"),
        (lambda: optimizers.Adagrad(initial=-1), "value -1 for initial"),
        (lambda: optimizers.RMSprop(alpha=-1), "value -1 for alpha"),
        (lambda: optimizers.SGD(schedules.Constant(-0.1)), "rate: invalid value -0.1 for value"),
        (lambda: schedules.Exponential(0.1, float("nan")), "value nan for gamma"),
        (lambda: schedules.Linear(0.1, 5, -1), "value -1 for last"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_options_at_the_ends_of_their_ranges_are_taken():
    made = optimizers.AdamW(0, (0, 0.999), 0, 0)
    assert repr(made) == "AdamW(rate=0, betas=(0, 0.999), eps=0, weight_decay=0, amsgrad=False)"
    assert optimizers.SGD(dampening=-1).dampening == -1


def test_numbers_of_numpy_are_taken():
    made = Training(
        optimizer=optimizers.AdamW(np.float32(0.5), (np.float64(0.5), 0.75), np.float64(1e-8)),
        loss=losses.CrossEntropy(label_smoothing=np.float32(0.5)),
        clip_norm=np.float32(1),
        seed=np.int64(3),
        shards=np.int32(2),
    )
    same = Training(
        optimizer=optimizers.AdamW(0.5, (0.5, 0.75), 1e-8),
        loss=losses.CrossEntropy(label_smoothing=0.5),
        clip_norm=1.0,
        seed=3,
        shards=2,
    )
    assert dict(made.facts()) == dict(same.facts())
    assert _rates(optimizers.SGD(np.float32(0.5)).schedule, 1) == [0.5]
