"""Torch modules of the corpus that are quantised to bytes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.mutations.torch_models import corpus_model, drawn

INT8 = ("--quantize", "int8")


def _with_norms(module: nn.Module) -> nn.Module:
    """The module, the factors and biases of its norms drawn: a lost bias of zeros is not seen."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            for parameter in part.parameters():
                nn.init.normal_(parameter)
    return module


@corpus_model
def int8_images():
    """Convolutions of all kinds, batch norms, activations of products, windows, a residual sum."""

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6())
            self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
            self.point = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
            self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.last = nn.Linear(12, 5)

        def forward(self, x):
            x = self.first(x)
            y = F.relu(x + self.point(F.hardswish(self.depth(x))))
            up = F.max_pool2d(self.up(y), 2)
            y = torch.cat([y, up], 1)
            return self.last(F.avg_pool2d(y, 2).mean((2, 3)))

    return Images(), (drawn(2, 3, 8, 8),), INT8


@corpus_model
def int8_words():
    """A block of a transformer: lookups, norms, attention with a mask, gelu, a gate."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 8)
            self.places = nn.Parameter(torch.randn(5, 8))
            self.norm, self.after = nn.LayerNorm(8), nn.RMSNorm(8)
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.wide, self.gate, self.back = (nn.Linear(*n) for n in ((8, 16), (8, 16), (16, 8)))

        def forward(self, words):
            x = self.words(words) + self.places
            q, k, v = self.qkv(self.norm(x)).reshape(-1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
            x = x + self.out(
                F.scaled_dot_product_attention(q, k, v, is_causal=True)
                .transpose(1, 2)
                .reshape(-1, 5, 8)
            )
            y = self.after(x)
            return x + self.back(F.gelu(self.wide(y)) * torch.sigmoid(self.gate(y)))

    return _with_norms(Words()), (torch.tensor([[1, 4, 2, 10, 0], [3, 3, 9, 7, 5]]),), INT8


@corpus_model
def int8_masks():
    """Scores with masks of constants and of booleans, that are added and chosen."""

    def run(q, k, v, seen):
        scores = q @ k.transpose(1, 2) / 2 + torch.triu(torch.full((5, 5), -1e9), 1)
        shares = torch.softmax(scores, 2)
        wanted = torch.softmax(torch.where(seen, q @ k.transpose(1, 2), -1e4), 2)
        added = torch.softmax(q @ k.transpose(1, 2) + (1 - seen.float()) * -1e9, 2)
        return shares @ v, wanted @ v, added @ v

    seen = torch.tensor([True, True, False, True, False])
    return run, (drawn(2, 5, 4), drawn(2, 5, 4), drawn(2, 5, 3), seen), INT8


@corpus_model
def int8_elements():
    """Sums, differences and products of two and with constants, functions, moved and chosen."""

    class Elements(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)
            self.scale, self.shift = (nn.Parameter(torch.randn(6)) for _ in range(2))

        def forward(self, x, y):
            x, y = self.first(x), self.first(y)
            z = (x - y) * self.scale + self.shift
            z = torch.maximum(z * torch.tanh(y), x[:, [5, 0, 1, 3, 2, 4]])
            z = F.pad(z, (1, 1), value=0.5)[:, 1:7] + torch.exp(-y.abs())
            return self.last(z), z.clamp(-1, 1), F.group_norm(z[:, :, None], 2)

    return Elements(), (drawn(4, 6), drawn(4, 6)), INT8


@corpus_model
def int8_options():
    """Weights that are rounded together, channels that are scaled, biases that are corrected."""
    images = nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU()
    rows = nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8), nn.Linear(8, 3)
    module = nn.Sequential(*images, *rows)
    options = ("method=mse", "rounding=gptq", "equalise=true", "smooth=0.5", "correct_bias=true")
    words = (word for option in options for word in ("--quantize-option", option))
    return _with_norms(module), (drawn(2, 3, 6, 6),), (*INT8, *words, "--keep-float", "1")


@corpus_model
def int8_histograms():
    """Ranges that leave numbers out, activations without a zero point."""
    module = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8), nn.Softmax(1))
    words = ("--quantize-option", "method=entropy", "--quantize-option", "symmetric=true")
    return module, (drawn(16, 8),), (*INT8, *words)
