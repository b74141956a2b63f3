"""Running statistics of normalisations that are no batch normalisation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import core_compiler as cc
from core_compiler.training.optimisers.optimizers import SGD

NORMS = {
    1: (nn.Conv1d, nn.InstanceNorm1d),
    2: (nn.Conv2d, nn.InstanceNorm2d),
    3: (nn.Conv3d, nn.InstanceNorm3d),
}


def _model(rank: int, affine: bool, momentum: float) -> nn.Module:
    torch.manual_seed(0)
    conv, norm = NORMS[rank]
    return nn.Sequential(
        conv(2, 4, 3),
        norm(4, affine=affine, momentum=momentum, track_running_stats=True),
        nn.Flatten(),
        nn.Linear(4 * 2**rank, 3),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "affine", "momentum", "shards"),
    [
        (2, True, 0.1, 1),
        *(
            pytest.param(*p, marks=pytest.mark.slow)
            for p in ((1, False, 0.3, 1), (3, True, 0.1, 1), (2, False, 0.2, 2))
        ),
    ],
)
def test_instance_norms_move_their_statistics(rank, affine, momentum, shards):
    model = _model(rank, affine, momentum)
    theirs = copy.deepcopy(model)
    x, y = torch.randn(4, 2, *(4,) * rank), torch.tensor([0, 1, 2, 1])
    step = cc.compile(model, (x, y), training=cc.Training(optimizer=SGD(0.1), shards=shards))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(4):
        step(x, y)
        optimizer.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        optimizer.step()
    held = step.state_dict()
    assert np.abs(held["1.running_mean"]).max() > 0.01
    for name, wanted in theirs.state_dict().items():
        if name != "0.bias":  # it has no effect before a normalisation: its gradient is a rounding
            np.testing.assert_allclose(held[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_program_in_training_mode_moves_them_at_every_call():
    model = _model(2, True, 0.1)
    x = torch.randn(4, 2, 4, 4)
    made = cc.compile(torch.export.export(copy.deepcopy(model), (x,), strict=False), [x])
    for _ in range(2):
        (found,) = made(x)
        wanted = model(x)
    np.testing.assert_allclose(found, wanted.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made.state[0], model[1].running_mean, rtol=1e-5)
    np.testing.assert_allclose(made.state[1], model[1].running_var, rtol=1e-5)
