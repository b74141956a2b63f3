"""Sizes and shapes at which steps of schedules take another branch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from tests.mutations.torch_models import corpus_model, drawn


@corpus_model
def convolutions_of_many_channels():
    """Constant weights of several blocks of channels in a chunk and of several chunks, and a chunk
    that is longer than packed rows are."""

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.chunks = nn.Conv1d(70, 5, 2), nn.Conv2d(40, 6, (3, 2))

        def forward(self, x, y, z, v):
            return self.blocks(x), self.chunks(y), F.conv2d(z, v, padding=1)

    return M(), (drawn(1, 70, 5), drawn(1, 40, 4, 5), drawn(1, 17, 4, 3), drawn(3, 17, 5, 4))
