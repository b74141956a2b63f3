"""Ops at which lowering, index arithmetic and placement take another branch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.mutations.classes import CHECK
from tests.mutations.torch_models import Joined, corpus_model, drawn


@corpus_model
def extremes_of_numbers():
    """Reductions and windows over nothing but the number that they start from."""

    def run(i, j, u, p, q, x):
        return (i.amax(1), j.amin(1), i.argmax(1), j.argmin(0), u.amin(1), u.amax(1), p.amax(1),
                q.amax(1), p.amin(0), q.amin(0), x.amax(1), x.neg().amin(1), x.argmax(1),
                x.neg().argmin(1), F.max_pool2d(i[None], 2, 1, 1),
                *F.max_pool2d(x[None], 2, 1, 1, return_indices=True))  # fmt: skip

    least, most = torch.iinfo(torch.int32).min, torch.iinfo(torch.int64).max
    i = torch.full((3, 5), least, dtype=torch.int32)
    j = torch.full((2, 4), most)
    u = torch.tensor([[255] * 4, [0] * 4, [0, 255, 7, 255]], dtype=torch.uint8)
    p = torch.tensor([[False, False, False], [False, True, True]])
    q = torch.tensor([[True, True, True], [False, False, True]])
    x = torch.full((3, 4), float("-inf"))
    x[1, 2], x[2, 3] = 1.5, float("nan")
    return run, (i, j, u, p, q, x)


@corpus_model
def convolutions_transposed_whole():
    """One tap with a stride, groups of several channels, axes of one element and of no overhang."""
    parts = (
        nn.ConvTranspose2d(3, 5, 1, stride=(2, 3)),
        nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), groups=2, dilation=(2, 1)),
        nn.ConvTranspose1d(3, 4, 4, stride=3, padding=2, output_padding=1),
        nn.ConvTranspose1d(70, 2, 9, stride=2, padding=3),
    )
    return (
        Joined(parts, (1, 1, 1, 1)),
        (
            drawn(1, 3, 4, 3),
            drawn(2, 4, 3, 5),
            drawn(2, 3, 1),
            drawn(1, 70, 6),
        ),
        ("--skip", "split_strided_convolutions"),
    )


@corpus_model
def positions_beside_the_ends():
    """Windows that see only padding, axes of one element, indices that run backwards through
    reshapes, padding and strides."""

    def run(x, y, w, one, v, a, b):
        return (
            F.conv1d(one, w, stride=3, padding=1),
            F.max_pool1d(one, 3, 1, 1),
            F.avg_pool1d(one, 3, 2, 1, count_include_pad=False),
            F.conv2d(y, v, stride=2, padding=1),
            torch.flip(x.reshape(-1), (0,)) * 2,
            torch.flip(x, (0, 1)).reshape(3, 5, 2).exp(),
            F.pad(x, (1, 2)).flip(1)[:, ::2] * 3,
            F.pad(x, (2, 0))[:, 1::2].flip(1) + 1,
            F.pad(x, (0, 3), value=0.5).flip(1)[:, ::3].abs(),
            torch.cat((a.flip(1), b, a[:, 1:]), 1) * 2,
            torch.roll(x, 2, 1) + x,
            torch.cat((a, b, a), 1)[:, :4] * 2,
            torch.cat((a, b, a), 1)[:, 6:] * 2,
            F.pad(x, (3, 0))[:, :4] + 1,
            F.pad(x, (0, 3), value=2.0)[:, 5:] + 1,
            F.pad(w, (1, 2)) * 2,
            a.exp(),
            a.exp()[:1] * 2,
        )

    return run, (
        drawn(5, 6),
        drawn(1, 3, 4, 6),
        drawn(4, 2, 1),
        drawn(3, 2, 1),
        drawn(2, 3, 3, 3),
        drawn(2, 3),
        drawn(2, 4),
    )


@corpus_model
def rows_read_elsewhere():
    """Values of a row that what follows reads from another row, backwards, shifted, repeated."""

    def run(x, w):
        e = torch.exp(torch.tanh(x) * 2 + 1)
        s = e.sum(-1, keepdim=True)
        f = torch.sigmoid(x).exp()
        t = f.sum(-1, keepdim=True)
        g = torch.cos(x).exp()
        h = torch.exp(torch.tanh(w))[:, None].expand(4, 6)
        return (
            e / s,
            e.flip(0) / s,
            e.flip(1) * s,
            f / t,
            torch.roll(f, 2, 1) / t,
            g[:, :3].reshape(4, 3) / g.sum(-1, keepdim=True),
            g.reshape(4, 2, 3).transpose(1, 2).reshape(4, 6) / g.amax(-1, keepdim=True),
            (h * x).sum(1, keepdim=True) / h,
        )

    return run, (drawn(4, 6), drawn(4))


@corpus_model
def sums_of_other_numbers():
    """Products that vanish below zero, long integers, doubles whose last digits count, windows
    of doubles and of half floats."""

    def run(x, y, k, m, d, h, t):
        tiny, less = d[:3] * 1e-12 + 1.0, h * 1e-3
        return (
            x @ y,
            F.conv1d(x.t()[None], y.t()[:, :, None]),
            k @ m,
            tiny.argmax(1),
            tiny.argmin(0),
            tiny.amax(1),
            F.max_pool1d(d[None] * 1e-12 + 1.0, 3, 2),
            F.avg_pool1d(d[None], 3, 2),
            d @ d.t(),
            F.max_pool1d(less, 3, 2),
            F.avg_pool1d(h, 4, 2, 1),
            h.argmax(2),
            h.argmin(1),
            F.max_pool2d(t.double(), 2).int(),
            h.cumsum(2),
            h.cumprod(1),
        )

    x = torch.tensor([[-1e-30, 1e-31, 1e-32], [1e-30, 2e-30, -1e-32]])
    y = torch.tensor([[1e-30, 1e-31], [-1e-30, 2e-30], [-1e-30, 1e-30]])
    k = torch.tensor([[3_000_000_019, -7, 5], [11, 2_500_000_003, -2]])
    m = torch.tensor([[3, -5_000_000_021], [1_000_003, 13], [-9, 4_000_000_007]])
    return run, (
        x,
        y,
        k,
        m,
        drawn(4, 9).double(),
        drawn(2, 3, 9).bfloat16(),
        torch.arange(24, dtype=torch.int32).reshape(1, 4, 6),
    )


@corpus_model
def numbers_drawn():
    """Random numbers of several kinds, as many as no whole number of counters, in streams."""
    return (
        lambda x: (
            torch.rand_like(x) + x,
            torch.rand(3, 7),
            torch.randn(5, 3, 2) * 2,
            torch.randperm(11),
            torch.rand_like(x),
        ),
        (drawn(2, 5, 3),),
        (),
        (CHECK,),
    )
