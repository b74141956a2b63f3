"""State that is updated where it lies: what an independent check says of updates that may not."""

from __future__ import annotations

from contextlib import suppress

import pytest

pytest.importorskip("torch", reason="the models of these tests are torch modules")
import torch
from torch import nn

import core_compiler as cc
from core_compiler.driver.compilation import CheckFailed
from core_compiler.training.config import Training
from core_compiler.training.passes import update_in_place


class Neighbours(nn.Module):
    """The next history is made after the loss, of the old one at other places."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.rand(6))
        self.register_buffer("history", torch.rand(40))
        self.register_buffer("order", torch.arange(40).roll(1))
        self.register_buffer("mix", torch.rand(40, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = (x * self.row).square().mean()
        late = self.mix @ (x[0] * loss.detach())
        self.history.copy_(self.history[self.order] * 0.5 + late)
        return loss


OWN = Neighbours(), (torch.ones(4, 6),), "own"


def _failures(model: nn.Module, batch: tuple, loss: str) -> list[str]:
    """What a checked compile says of `update_in_place`."""
    made = cc.compile(
        model, batch, training=Training(loss=loss), check=True, finish=False
    ).compilation
    with suppress(CheckFailed):
        made.finish()
    return [
        r.note
        for at, records in made.checks.items()
        for r in records
        if r.verdict == "failed" and made.stages[at].name == "update_in_place"
    ]


def test_right_updates_have_no_finding():
    assert _failures(*OWN) == []


def test_a_kernel_that_reads_what_it_has_written_is_found(monkeypatch):
    monkeypatch.setattr(update_in_place, "may_share", lambda *given: True)
    assert any("in one buffer than in two" in said for said in _failures(*OWN))


def test_an_update_before_the_loss_is_known_is_found(monkeypatch):
    made = update_in_place._State.__init__

    def sure_at_once(state, module):
        made(state, module)
        state.commit_point = -1

    monkeypatch.setattr(update_in_place._State, "__init__", sure_at_once)
    batch = torch.ones(4, 2, 6), torch.zeros(4, dtype=torch.int64)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(12, 3))
    assert any(
        "before the loss is known" in said for said in _failures(model, batch, "cross_entropy")
    )
