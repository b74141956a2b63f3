"""A training run of a person's own, as their module has it: ``fit(..., task=...)`` names these."""

from __future__ import annotations

import numpy as np
import torch

import core_compiler as cc

BATCH = 4


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((12, 6)).astype(np.float32), rng.integers(0, 3, 12)


class Network(torch.nn.Module):
    """A norm written out, which the pipeline makes one op of again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.gelu(self.first(x))
        return self.last(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5))


AS_IT_IS = cc.PipelineEdit()


def make(edit=AS_IT_IS):
    """The compiled step, with an edit of the pipeline, and its data."""
    torch.manual_seed(0)
    training = cc.Training(optimizer="adam", keep_gradients=True)
    batch = tuple(part[:BATCH] for part in data())
    return cc.compile(Network(), batch, edit=edit, training=training), data()


def make_as_it_is():
    """One that compiles one pipeline only."""
    return make()


def model_alone():
    """What is no task."""
    return Network(), data()
