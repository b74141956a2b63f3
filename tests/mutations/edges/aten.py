"""Arguments of torch's ops that ordinary models do not give."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.mutations.torch_models import corpus_model, drawn


@corpus_model
def diagonals_among_other_axes():
    """Of two of three axes, in either order, beside the main one; axes moved past others."""

    def run(x, u, v, w, y):
        return (x.diagonal(1, 0, 2), x.diagonal(-2, -1, 1), x.diagonal(0, 1, 0), x.diagonal(4, 2),
                torch.linalg.diagonal(x, offset=-1), torch.diagonal_scatter(x, u, -1, 2, 0),
                torch.diagonal_scatter(x, v, 2, 0, 2), torch.diagonal_scatter(x, w, 0, 1, 0),
                y.movedim((3, 1), (0, -2)), y.movedim(-1, 1), x.narrow(1, 0, 2), x.narrow(2, -3, 2),
                x.roll(-2, 1), x.roll((1, 2), (0, -1)), x.roll(5), x.flip((-1, 0)),
                y.repeat_interleave(2, 1), y.repeat_interleave(2, -1), y.tile((2, 1, 3)),
                x.tensor_split(4, 1)[1], x.tensor_split((1, -2), 1)[2],
                x.hsplit(3)[1], x.dsplit(2)[1], x[:, 0, 0].hsplit(3)[2],
                x.tensor_split((4, 2), 1)[1], x.split((1, 2, 3), -2)[1], x.split(4, 1)[1],
                torch.stack((x, x * 2), -2))  # fmt: skip

    given = drawn(3, 6, 4), drawn(6, 3), drawn(6, 2), drawn(4, 3), drawn(2, 3, 4, 5)
    return run, given


@corpus_model
def factors_of_sums():
    """Factors of 0, 1, 2 and -1 of what is added; powers that have a form of their own."""

    def run(x, y, i, j, v, a, b, c):
        return (
            torch.add(x, y, alpha=0),
            torch.add(x, y, alpha=2),
            torch.sub(x, y, alpha=-1),
            torch.rsub(x, y, alpha=2),
            torch.sub(i, j, alpha=2),
            torch.add(i, 3, alpha=0),
            torch.addcmul(x, y, y, value=0),
            torch.addcmul(x, y, y, value=2),
            torch.addcdiv(x, y, y.abs() + 1, value=2),
            torch.addmm(v, a, b, alpha=0),
            torch.addmm(v, a, b, beta=2),
            torch.addmm(x, a, b, beta=0),
            torch.addmm(v, a, b, beta=-1, alpha=2),
            torch.addmv(x[:, 0], a, c, beta=2, alpha=3),
            torch.baddbmm(v, a[None], b[None], beta=2, alpha=0),
            torch.addmm(j, i, j.T @ i),
            *(y**n for n in (0, 1, 2, 3, 0.5, -1)),
            *(i**n for n in (0, 1, 2, 3)),
        )

    x = drawn(3, 4)
    x[0, 2], x[1, 2] = math.inf, math.nan
    i, j = torch.tensor([[3, -4], [0, 2], [1, 5]]), torch.tensor([[2, 7], [-1, 3], [6, -2]])
    return run, (x, drawn(3, 4), i, j, drawn(4), drawn(3, 5), drawn(5, 4), drawn(5))


@corpus_model
def dtypes_that_few_have():
    """Floats of 8 bits beyond their range; unsigned numbers; functions near where doubles turn."""
    eights = torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz

    def run(x, d, i):
        return (*(x.to(kind).float() for kind in eights), F.softplus(d), F.softplus(d, 0.5),
                F.logsigmoid(d), i.sign(), -i,
                i.abs(), i.signbit(), i.floor(), i // 3, i % 3, F.glu(d), torch.sinc(d),
                torch.floor_divide(d, 0.3),
                torch.copysign(d, -d), torch.linalg.vector_norm(d, 3), d.round(decimals=1),
                d.frac(), i.bool(), torch.clamp(d, d * 0.99, torch.tensor(20.25)),
                torch.maximum(i, i.flip(0)), i.to(torch.uint16) * 3)  # fmt: skip

    x = torch.tensor([0.25, 1e6, -1e6, 300.0, 448.0, 470.0, -60000.0, 0.3, 240.0, math.inf])
    d = torch.tensor([19.5, 20.0, 20.25, 20.5, 21.0, -20.5, 25.0, 0.0], dtype=torch.float64)
    return run, (x, d, torch.tensor([0, 1, 7, 128, 255], dtype=torch.uint8))


@corpus_model
def windows_that_overhang():
    """Last windows that begin in the padding behind the image, or exactly where it begins; images
    without a batch; numbers of windows that fit in one axis only; positions, but no elements."""

    def run(x, row):
        return (
            F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
            F.avg_pool2d(x, 2, 3, 1, True),
            F.avg_pool2d(x, (2, 3), (3, 2), 1, True, False),
            F.max_pool1d(row, 2, 3, 1, 1, True),
            F.avg_pool2d(x, (3, 2), 2, (1, 0), True, divisor_override=5),
            *F.max_pool2d(x, (2, 3), (3, 2), 1, (1, 2), True, return_indices=True),
            F.avg_pool1d(row, 2, 3, 1, True),
            F.max_pool2d(x[0], (3, 2)),
            F.avg_pool2d(x[0], 2),
            F.adaptive_avg_pool2d(x, (1, 3)),
            F.adaptive_avg_pool2d(x, (2, 7)),
            F.adaptive_max_pool2d(x, (3, 2)),
            F.adaptive_max_pool2d(x, (2, 1)),
            *F.adaptive_max_pool2d(x, (2, 7), return_indices=True),
            *F.adaptive_max_pool2d(x[0], (3, 5), return_indices=True),
            F.max_pool2d(x, (2, 3), return_indices=True)[1],
            F.adaptive_max_pool2d(x, (3, 4), return_indices=True)[1],
            F.adaptive_avg_pool1d(row, 2),
            F.adaptive_avg_pool2d(x[0], 1),
        )

    return run, (drawn(2, 3, 4, 7), drawn(2, 3, 5))


@corpus_model
def images_resized():
    """With antialiasing and of bytes, to more and to less, by sizes and by factors that differ."""

    def run(x, y):
        made = []
        for image in (x, y):
            for mode in ("bilinear", "bicubic"):
                for smooth in (True, False):
                    made += [
                        F.interpolate(image, (3, 11), mode=mode, antialias=smooth),
                        F.interpolate(
                            image, (9, 4), mode=mode, align_corners=True, antialias=smooth
                        ),
                    ]
            made += [
                F.interpolate(image, scale_factor=(0.6, 1.7), mode="bilinear", antialias=True),
                F.interpolate(image, (1, 5), mode="bicubic", align_corners=True, antialias=True),
            ]
        return made

    return run, (drawn(1, 2, 6, 7), torch.randint(0, 256, (2, 1, 6, 7), dtype=torch.uint8))


@corpus_model
def positions_of_every_form():
    """Indices that are not adjacent or negative, updates that are larger than their indices."""

    def run(x, i, j, k, u, t):
        wide, one, two = j[:, None, None].expand(2, 3, 6), x.clone(), x.clone()
        one[:, i, j], two[i, :, j] = u[0, :, :2], u[:, 0, :4]
        return (
            x[i, :, j],
            x[:, i, -j],
            one,
            two,
            torch.take(x, k),
            x.scatter(0, wide, x * 2),
            x.scatter(-2, wide, 3.0, reduce="add"),
            x.gather(1, wide[:1, :, :4]),
            x.scatter_reduce(1, wide, x * 2, "mean", include_self=False),
            *(
                t.scatter_reduce(0, i, t * 2, how, include_self=own)
                for how, own in (("mean", True), ("amax", False), ("amin", False))
            ),
            x.select_scatter(u[:, 0], 1, -2),
            x.select_scatter(x[:, 1], -2, 0),
            x.slice_scatter(x[:, :3] * 2, 1, -3, None),
            x.slice_scatter(x[:, :2], 1, 0, 3, 2),
            x.as_strided((3, 2), (5, 2), 4),
            x.index_add(1, i, x[:, :2], alpha=2),
        )

    i, j, k = torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([[5, -1, -48]])
    return run, (drawn(2, 4, 6), i, j, k, drawn(2, 2, 6), torch.tensor([-3, 6]))


@corpus_model
def bags_and_histograms():
    """Bags that are empty, of one row, of rows that are left out; numbers on the bounds of a
    histogram, and outside them."""

    def run(bag, w, starts, t):
        return (
            *(
                F.embedding_bag(bag, w, starts[:-1], mode=mode, padding_idx=1)
                for mode in ("sum", "mean", "max")
            ),
            F.embedding_bag(bag, w, starts, mode="max", include_last_offset=True),
            F.embedding_bag(bag, w, starts, mode="sum", padding_idx=0, per_sample_weights=w[:, 0]),
            torch.histc(w, 3, -1.0, 0.5),
            torch.histc(t, 4, -3, 6),
        )

    bag, starts = torch.tensor([1, 3, 6, 1, 0, 2, 5]), torch.tensor([0, 2, 2, 3, 5, 7])
    return run, (bag, drawn(7, 3), starts, torch.tensor([-3.0, 6.0, 1.5, -0.75, 6.1, -3.1]))
