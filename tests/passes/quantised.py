"""Small models to quantise, and their compiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import core_compiler as cc


class Residual(torch.nn.Module):
    """Convolutions with a residual sum, poolings, a concatenation, functions, a product."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate = torch.nn.Conv2d(8, 8, 1, bias=False)
        self.last = torch.nn.Linear(16, 5)

    def forward(self, x):
        a = torch.relu(self.first(x))
        b = torch.nn.functional.relu6(self.second(a) + a)
        c = torch.sigmoid(self.gate(b)) * b
        d = torch.nn.functional.max_pool2d(c, 2)
        e = torch.cat([d, torch.nn.functional.silu(d)], 1)
        return self.last(e.mean((2, 3)))


class Pair(torch.nn.Module):
    """A product of two activations, and a difference."""

    def forward(self, x):
        scores = x @ x.transpose(1, 2)
        return (scores - x.mean() * 0.5).tanh()


class Gate(torch.nn.Module):
    """An input with several readers, of which the last in the program is the first that reads."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.sigmoid(self.linear(x)) * x


class Norms(torch.nn.Module):
    """A softmax of what is normalised."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        return torch.softmax(self.norm(self.linear(x)), -1)


class Decoder(torch.nn.Module):
    """Attention that sees no later position, both norms, positions and factors of constants."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(6, 16))
        self.heads = torch.nn.Linear(16, 48)
        self.norm = torch.nn.LayerNorm(16)
        self.last = torch.nn.RMSNorm(16)
        for norm in (self.norm, self.last):
            torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(self.norm.bias)

    def forward(self, x):
        h = x + self.positions
        q, k, v = self.heads(self.norm(h)).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h * self.positions.sin() + a.transpose(1, 2).reshape(2, 6, 16)
        return self.last(h)


class Windows(torch.nn.Module):
    """Means of windows, with and without padding, transposed convolutions, a constant border."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.ConvTranspose2d(3, 4, 3, stride=2)
        self.groups = torch.nn.ConvTranspose2d(4, 4, 2, groups=2)
        self.token = torch.nn.Parameter(torch.randn(1, 4, 1, 18))

    def forward(self, x):
        h = self.groups(self.up(x))
        h = torch.nn.functional.avg_pool2d(h, 3, stride=1, padding=1, count_include_pad=False)
        h = torch.cat([self.token.expand(2, 4, 1, 18), h], 2)
        h = torch.nn.functional.avg_pool2d(h, (2, 3), stride=2, padding=1)
        return torch.maximum(h, h.flip(-1)).amax(1)


class Lookup(torch.nn.Module):
    """An embedding, masks that are added, and one that hides all of a row with a number."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(11, 8)

    def forward(self, ids):
        h = self.words(ids)
        scores = h @ h.transpose(1, 2)
        shown = (ids < 9)[:, None, :].float()
        scores = (scores * 0.5).masked_fill(torch.ones(6, 6).triu(1) > 0, -1e9)
        h = torch.softmax(scores + (1 - shown) * -1e4, -1) @ h
        scores = h @ h.transpose(1, 2)
        return torch.softmax(scores.masked_fill((ids > 4)[:, :, None], -1e9), -1) @ h


class Groups(torch.nn.Module):
    """Norms over channels of a group, over each channel of an image, and without factors."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.groups = torch.nn.GroupNorm(4, 8)
        self.second = torch.nn.Conv2d(8, 6, 1)
        self.image = torch.nn.InstanceNorm2d(6, affine=True)
        self.plain = torch.nn.InstanceNorm2d(6)
        for norm in (self.groups, self.image):
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)

    def forward(self, x):
        h = torch.relu(self.groups(self.first(x)))
        return self.plain(self.image(self.second(h)) + h[:, :6])


class Contractions(torch.nn.Module):
    """Products over other axes than the last ones: heads of weights, batches, images."""

    def __init__(self):
        super().__init__()
        self.heads, self.back = (torch.nn.Parameter(torch.randn(8, 2, 4)) for _ in range(2))
        self.channels = torch.nn.Parameter(torch.randn(8, 3))

    def forward(self, x):
        q = torch.einsum("btd,dhk->bthk", x, self.heads)
        scores = torch.einsum("bqhk,bthk->bhqt", q, q * 0.5)
        h = torch.einsum("bhqt,bthk->bqhk", torch.softmax(scores, -1), q)
        h = torch.einsum("bqhk,dhk->bqd", h, self.back)
        return torch.einsum("bqd,dc->bcq", h, self.channels)


MODELS = {
    "residual": (Residual, (2, 3, 8, 8)),
    "pair": (Pair, (2, 6, 7)),
    "gate": (Gate, (4, 8)),
    "norms": (Norms, (4, 8)),
    "decoder": (Decoder, (2, 6, 16)),
    "windows": (Windows, (2, 3, 8, 8)),
    "groups": (Groups, (2, 3, 8, 8)),
    "lookup": (Lookup, (2, 6)),
    "contractions": (Contractions, (2, 5, 8)),
}


#: Those that quick tests take: products over any axes are in the tests of JAX, too.
QUICK = [name for name in MODELS if name != "contractions"]


def compiled(name: str, check: bool = True, how: Mapping[str, Any] | None = None, **options):
    """Return a quantised model of :data:`MODELS`, the model in torch, and the samples.

    ``how``: arguments of the compile; ``options`` are those of the quantisation.
    """
    torch.manual_seed(0)
    made, shape = MODELS[name]
    draw = (lambda: torch.randint(11, shape)) if name == "lookup" else (lambda: torch.randn(shape))
    samples = [(draw().numpy(),) for _ in range(3)]
    model = made().eval()
    quantize = cc.Quantization(calibration=samples, **options)
    return (
        cc.compile(model, samples[0], quantize=quantize, check=check, **(how or {})),
        model,
        samples,
    )


def broken(made):
    """Return the rewrites of quantisation that are not within what they state."""
    return [
        (made.stages[i].name, r.verdict, r.note)
        for i, records in made.checks.items()
        for r in records
        if r.verdict not in ("bitwise", "within")
        and made.stages[i].name in ("insert_quantization", "integerize")
    ]
