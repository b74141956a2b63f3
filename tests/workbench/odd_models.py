"""Models that are loops, or nothing: for ``workbench compile tests.workbench.odd_models:NAME``."""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

TRIPS, SIZE = 20, 64


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE, generator=generator) / 8)

    def forward(self, x):
        def body(i, x):
            return i + 1, torch.tanh(x @ self.weight)

        return while_loop(lambda i, x: i < TRIPS, body, (torch.tensor(0), x))[1]


class Flat(Loop):
    def forward(self, x):
        for _ in range(TRIPS):
            x = torch.tanh(x @ self.weight)
        return x


class Passing(nn.Module):
    def forward(self, x):
        return x


def _input():
    return (torch.linspace(-1, 1, SIZE * SIZE).reshape(SIZE, SIZE),)


def loop():
    return Loop().eval(), _input()


def flat():
    return Flat().eval(), _input()


def passing():
    return Passing().eval(), _input()
