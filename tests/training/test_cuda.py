"""Training steps compiled for GPUs: every kernel of a step, as PTX on an interpreter, has the CPU's
bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.audit.diverge import diverge
from core_compiler.training.audit.inject import Injection
from core_compiler.training.audit.replay import Run
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.optimisers.optimizers import SGD, Adagrad, Adam, Lion, RMSprop
from core_compiler.training.run.plan import Plan
from tests.cuda.helpers import CAPABILITIES
from tests.cuda.lint import complaints_about_all
from tests.cuda.simulated_driver import SimulatedDriver
from tests.cuda.simulated_target import SimulatedCUDA, simulated_only
from tests.slow import slow_but
from tests.training.test_loops import FEATURES, Recurrent


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)

    def forward(self, x):
        return self.last(functional.gelu(self.first(x)))


class Pictures(torch.nn.Module):
    """What the digits CNN is made of, with fewer channels."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.second = torch.nn.Conv2d(4, 6, 3, padding=1)
        self.last = torch.nn.Linear(6 * 4, 3)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 2)
        return self.last(functional.dropout(functional.relu(self.second(x)), 0.2).flatten(1))


class Words(torch.nn.Module):
    """A small transformer with tied embeddings."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(9, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 12, 0.1, batch_first=True)
        self.head = torch.nn.Linear(8, 9, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.layer(self.table(tokens)))


class Steps(Recurrent):
    """An LSTM as a loop."""

    def __init__(self):
        super().__init__("lstm")


def _batch(kind, number: int):
    random = np.random.default_rng(number)
    if kind is Words:
        return random.integers(0, 9, (2, 5)), random.integers(0, 9, (2, 5))
    shapes = {Linear: (4, 5), Digits: (2, 1, 8, 8), Steps: (2, 3, FEATURES)}
    shape = shapes.get(kind, (2, 1, 4, 4))
    return random.standard_normal(shape).astype(np.float32), random.integers(0, 3, shape[0])


def _step(kind, target, shards: int = 1, how: Training | None = None, **options):
    torch.manual_seed(5)
    how = how or Training(optimizer="adamw", clip_norm=1.0, shards=shards)
    return cc.compile(kind(), _batch(kind, 0), training=how, target=target, options=options)


def _trained(kind, target, shards: int = 1, how: Training | None = None, **options):
    return _results(kind, _step(kind, target, shards, how, **options))


def _results(kind, step):
    return [step(*_batch(kind, i)) for i in range(2)], step.digest, step.identity


class Digits:
    """The digits CNN of the catalogue, narrow, on small pictures."""

    def __new__(cls):
        from sample_models.catalogue import build

        return build("digits-cnn", width=0.25).module


CASES = {
    f"{kind.__name__.lower()}-sm_{major}{minor}": (kind, (major, minor))
    for kind in (Linear, Pictures, Words, Digits)
    for major, minor in CAPABILITIES
} | {"steps-sm_90": (Steps, (9, 0))}
QUICK = (next(iter(CASES)),)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_a_step_on_a_gpu_has_the_cpus_bits(name):
    kind, capability = CASES[name]
    target = SimulatedCUDA(capability)
    on_gpu = _trained(kind, target, architecture=target.driver.gpu.architecture)
    assert on_gpu == _trained(kind, "cpu")


#: Mixed precision: what products and activations are narrow in.
MIXED = {
    f"{precision}-{kind.__name__.lower()}-sm_{major}{minor}": (precision, kind, (major, minor))
    for precision, kind in (("bf16", Linear), ("bf16", Words), ("bf16", Pictures), ("f16", Linear))
    for major, minor in CAPABILITIES
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXED)
def test_a_mixed_precision_step_on_a_gpu_has_the_cpus_bits(name):
    precision, kind, capability = MIXED[name]
    target = SimulatedCUDA(capability)
    how = Training(optimizer="adamw", clip_norm=1.0, precision=precision)
    step = _step(kind, target, how=how, architecture=target.driver.gpu.architecture)
    on_cpu = _step(kind, "cpu", how=how)
    assert _results(kind, step) == _results(kind, on_cpu)
    ops = step.compilation.module.main.body.walk()
    kinds = {str(v.type.dtype) for op in ops for v in op.operands}
    assert precision in kinds


OPTIMIZERS = {
    "momentum": SGD(momentum=0.9, weight_decay=0.01),
    "nesterov": SGD(momentum=0.9, nesterov=True),
    "adam": Adam(),
    "lion": Lion(),
    "rmsprop": RMSprop(momentum=0.5, centered=True),
    "adagrad": Adagrad(),
}
STEPPED = {
    f"{name}-sm_{major}{minor}": (name, (major, minor))
    for name in OPTIMIZERS
    for major, minor in CAPABILITIES
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPPED)
def test_every_optimizer_on_a_gpu_has_the_cpus_bits(name):
    optimizer, capability = STEPPED[name]
    target, how = SimulatedCUDA(capability), Training(optimizer=OPTIMIZERS[optimizer])
    on_gpu = _trained(Linear, target, how=how, architecture=target.driver.gpu.architecture)
    assert on_gpu == _trained(Linear, "cpu", how=how)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_kernel_of_a_step_rounds_otherwise(name):
    """PTX and SASS, of the forward and the backward pass and of the optimiser."""
    kind, capability = CASES[name]
    target = SimulatedCUDA(capability)
    compiled = _step(kind, target, architecture=target.driver.gpu.architecture).compilation
    assert len(compiled.facts["compiled"]) > 5
    assert complaints_about_all(compiled.facts["compiled"]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(Linear, id="met-once"), pytest.param(Pictures, id="met-within")]
)
def test_shards_on_a_gpu_have_the_cpus_bits(kind):
    """The statistics of batch normalisation are those of all shards: they meet within the step."""
    target = SimulatedCUDA()
    on_gpu = _trained(kind, target, 2, architecture=target.driver.gpu.architecture)
    assert on_gpu == _trained(kind, "cpu", 2)


@pytest.mark.slow
def test_a_run_on_a_gpu_is_compared_with_one_on_a_cpu(tmp_path):
    """Receipts of all values are the same; a rounding that is flipped on the GPU is found."""
    target = SimulatedCUDA()
    batches = [_batch(Linear, i) for i in range(3)]
    data = tuple(np.concatenate([b[i] for b in batches]) for i in (0, 1))

    def opened(on):
        options = {} if on == "cpu" else {"architecture": target.driver.gpu.architecture}
        how = Training(optimizer="adamw", clip_norm=1.0, keep_gradients=True)
        return _step(Linear, on, how=how, **options), data

    def run(name: str, on, inject: str | None = None) -> Run:
        step, _ = opened(on)
        fit(
            step,
            data,
            iterations=3,
            batch=4,
            folder=tmp_path / name,
            every=1,
            receipts="gradients",
            ops_every=1,
            inject=inject,
        )
        flipped = None if inject is None else Injection.of(inject)
        plan = Plan(3, 4, 0, tmp_path / name, 1, inject=flipped)
        return Run(tmp_path / name, plan, lambda edit: opened(on))

    on_cpu, on_gpu = run("cpu", "cpu"), run("gpu", target)
    assert on_gpu.book.receipts == on_cpu.book.receipts
    assert len(on_cpu.book.receipts[1].ops) > 5
    assert diverge(on_cpu, on_gpu) is None
    op = on_cpu.step.names[on_cpu.step.probes.probes[3].number].op
    found = diverge(on_cpu, run("flipped", target, f"{op}:2"))
    assert found is not None
    assert (found.op, found.iteration, found.ulps, found.count) == (op, 2, 1, 1)
    assert found.kernels[0] and found.kernels[1]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_leaves_the_state_on_a_gpu():
    target = SimulatedCUDA()
    step = _step(Linear, target, architecture=target.driver.gpu.architecture)
    x, y = _batch(Linear, 0)
    step(x, y)
    digest = step.digest
    with pytest.raises(UserError, match="the loss of iteration 2 is nan"):
        step(np.full_like(x, np.nan), y)
    assert (step.digest, step.iteration) == (digest, 1)


@pytest.mark.slow
@simulated_only
def test_state_stays_on_a_gpu_until_it_is_asked_for(monkeypatch):
    """An iteration sends its batch alone; other calls of the program do not disturb the state."""
    target = SimulatedCUDA()
    options = {"architecture": target.driver.gpu.architecture}
    step, plain = _step(Linear, target, **options), _step(Linear, "cpu")
    sent: list[int] = []
    upload = SimulatedDriver.upload
    monkeypatch.setattr(
        SimulatedDriver,
        "upload",
        lambda self, address, array: (sent.append(array.nbytes), upload(self, address, array))[1],
    )
    batches = [_batch(Linear, i) for i in range(4)]
    step(*batches[0])
    sent.clear()
    step(*batches[1])
    assert sorted(sent) == sorted(a.nbytes for a in batches[1])
    held = step.whole_state()
    step.compilation.executable.profile(repeats=1, warmup=0)  # on numbers of its own
    step(*batches[2])
    for given in batches[:3]:
        plain(*given)
    assert step.digest == plain.digest
    for either in (step, plain):
        either.load_state_dict(held)
        either(*batches[3])
    assert step.digest == plain.digest
    assert step.iteration == plain.iteration == 3
