"""Masks that are added to scores: they become selections, or stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.driver.quantization_report import report
from tests.passes.quantised import broken
from tests.slow import slow_but

CAUSAL = torch.ones(6, 6).tril() > 0


class Masked(torch.nn.Module):
    """Self-attention of which ``mask`` makes the numbers that are added to the scores."""

    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, x, shown):
        scores = x @ x.transpose(1, 2) * 0.25 + self.mask(shown)
        return torch.softmax(scores, -1) @ x


def minus(number):
    return lambda shown: (1 - shown[:, None, :].float()) * number


def both(shown):
    causal = torch.where(CAUSAL, 0.0, -1e9)
    return torch.clamp_min(causal + (shown[:, None, :] == 0).float() * -1e9, -1e9)


MASKS = {
    "1 - mask, times a number": minus(-10000.0),
    "the least number": minus(torch.finfo(torch.float32).min),
    "a negated mask, times a number": lambda shown: (shown[:, None, :] == 0).float() * -1e9,
    "infinity where hidden": lambda shown: torch.where(shown[:, None, :] > 0, 0.0, float("-inf")),
    "a number where shown": lambda shown: torch.where(shown[:, None, :] == 0, -1e4, 0.0),
    "constants": lambda shown: torch.zeros(6, 6).masked_fill(~CAUSAL, -100.0),
    "constants with positions": lambda shown: (
        torch.arange(36.0).reshape(6, 6).masked_fill(~CAUSAL, -1e9) / 36
    ),
    "a sum of two": both,
    "positions, and a number where hidden": lambda shown: torch.where(
        shown[:, None, :] > 0, torch.arange(6.0) * 0.25, torch.finfo(torch.float32).min
    ),
    "two numbers": lambda shown: (
        torch.where(CAUSAL, 0.0, -1e9) + (1 - shown[:, None, :].float()) * -1e4
    ),
    "one number twice": lambda shown: (
        torch.where(CAUSAL, 0.0, -1e4) + (1 - shown[:, None, :].float()) * -1e4
    ),
    "the least number twice": lambda shown: (
        torch.where(CAUSAL, 0.0, torch.finfo(torch.float32).min)
        + (1 - shown[:, None, :].float()) * torch.finfo(torch.float32).min
    ),
    "positions and a mask": lambda shown: (
        (1 - shown[:, None, :].float()) * -1e9 + torch.arange(6.0) * 0.25
    ),
    "nested": lambda shown: torch.where(
        CAUSAL, torch.where(shown[:, None, :] > 0, 0.0, -1e9), -1e9
    ),
}


QUICK = (
    "the least number twice",
    "constants with positions",
    "1 - mask, times a number",
    "infinity where hidden",
    "two numbers",
    "positions and a mask",
)
#: Another mask, in which each row shows something.
OTHER = np.array([[1, 0, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1]])


def _compiled(mask, shown):
    torch.manual_seed(0)
    x = torch.randn(2, 6, 8)
    model = Masked(mask).eval()
    quantize = cc.Quantization(calibration=[(x.numpy(), shown), (x.numpy(), OTHER)])
    return cc.compile(model, (x.numpy(), shown), quantize=quantize, check=True), model, x


@pytest.mark.parametrize("name", slow_but(QUICK, MASKS))
def test_a_mask_that_is_added_selects(name):
    shown = np.array([[0, 1, 1, 1, 0, 0], [1] * 6])  # the first row may show nothing
    if "infinity" in name:
        shown[0, 0] = 1
    made, model, x = _compiled(MASKS[name], shown)
    hidden = next(s for s in made.stages if s.name == "hide_scores")
    assert next(iter(hidden.rewrites)).rule == "a mask that is added => a selection"
    assert not broken(made) and made.finding is None
    found = report(made)
    assert found["left_float"] == []
    assert found["sqnr_db"] > 25
    wanted = model(x, torch.from_numpy(OTHER)).numpy()
    np.testing.assert_allclose(np.array(made(x.numpy(), OTHER)[0]), wanted, atol=0.15)


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        (lambda shown: shown[:, None, :] * -1.5, [[1] * 6] * 2),
        (minus(-1.5), [[1, 1, 1, 1, 0, 0], [1] * 6]),
        (minus(-10000.0), [[1, 1, 1, 1, 1, 2], [1] * 6]),
        (
            lambda shown: torch.where(CAUSAL, 0.0, -1e4) + minus(-3e38)(shown),
            [[1, 1, 1, 1, 0, 0], [1] * 6],
        ),
    ],
    ids=["biases", "a small number", "integers that are not 0 or 1", "far apart"],
)
def test_what_is_no_mask_is_added(mask, shown):
    made, _, _ = _compiled(mask, np.array(shown))
    assert not next(s for s in made.stages if s.name == "hide_scores").rewrites
