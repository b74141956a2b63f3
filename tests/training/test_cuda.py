"""Training steps compiled for GPUs: every kernel of a step, as PTX on an interpreter, has the CPU's
bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.training.config import Training
from tests.cuda.helpers import CAPABILITIES
from tests.cuda.simulated_target import SimulatedCUDA
from tests.slow import slow_but


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


def _batch(kind, number: int):
    random = np.random.default_rng(number)
    if kind is Words:
        return random.integers(0, 9, (2, 5)), random.integers(0, 9, (2, 5))
    shape = (3, 5) if kind is Linear else (2, 1, 4, 4)
    return random.standard_normal(shape).astype(np.float32), random.integers(0, 3, shape[0])


def _trained(kind, target, **options):
    torch.manual_seed(5)
    how = Training(optimizer="adamw", clip_norm=1.0)
    step = cc.compile(kind(), _batch(kind, 0), training=how, target=target, options=options)
    return [step(*_batch(kind, i)) for i in range(2)], step.digest, step.identity


CASES = {
    f"{kind.__name__.lower()}-sm_{major}{minor}": (kind, (major, minor))
    for kind in (Linear, Pictures, Words)
    for major, minor in CAPABILITIES
}
QUICK = (next(iter(CASES)),)


@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_a_step_on_a_gpu_has_the_cpus_bits(name):
    kind, capability = CASES[name]
    target = SimulatedCUDA(capability)
    on_gpu = _trained(kind, target, architecture=target.driver.gpu.architecture)
    assert on_gpu == _trained(kind, "cpu")
