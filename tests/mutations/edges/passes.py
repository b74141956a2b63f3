"""What passes over graphs nearly rewrite, fuse or keep."""

from __future__ import annotations

import math

import torch

from tests.mutations.torch_models import corpus_model, drawn, signed


@corpus_model
def nearly_neutral():
    """Zeros of both signs and of either, the limit of the other side, quotients that have no exact
    reciprocal, operands that may be -0 or a NaN of any bits, and those that may not."""
    low, high = torch.full((5,), -math.inf), torch.full((5,), math.inf)
    zeros, ones = torch.tensor([0.0, -0.0, 0.0, 0.0, -0.0]), torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0])
    small = torch.full((5,), -128, dtype=torch.int8)
    most = torch.full((5,), 127, dtype=torch.int8)

    def twice(x):
        return x + x

    def run(x, y, i, j, p, one):
        return (x + -0.0, y - -0.0, x + zeros, y - zeros, x * ones, y / ones, x + 0.0,
                one.sum() + 0.0, torch.relu(y) + 0.0, x.sum(0) + 0.0, x.abs() + -0.0, x + -1.0,
                y - 1.0, i + 0, i - 0, torch.maximum(x, low), torch.minimum(y, high),
                torch.maximum(y, high),
                torch.minimum(x, low), torch.maximum(torch.minimum(x, y), low),
                torch.minimum(torch.maximum(x, y), high), torch.maximum(i, small),
                torch.minimum(i, most), torch.minimum(j, small), torch.maximum(j, most),
                torch.maximum(x, x), torch.maximum(i, i), x / 4.0, y / 3.0, x / 0.0, y / math.inf,
                x / 2.0**-130, y.double() / 3.0, y.double() / 2.0**-1030, y.half() / 2.0**-16,
                x / torch.tensor([2.0, 4, 2, 0.5, 1]), y / torch.tensor([2.0, 4, 3, 5, 1]),
                x**2, y**1, x ** torch.tensor([2.0, 2, 1, 2, 2]),
                y ** torch.tensor([1.0, 2, 1, 1, 1]),
                torch.where(p, x, x), torch.where(~p, x, y), i & 1, i & -1, j | 0,
                torch.where(torch.tensor([True, True, False, True, True]), x, y),
                torch.where(torch.tensor([False, False, True, False, False]), x, y),
                p & torch.tensor([True, True, False, True, True]), p | (torch.zeros(5) != 0),
                -x.neg().abs(), x.abs().neg(), x - y.neg(), x.neg() - y, x.neg() + y,
                twice(x.exp().neg()), x.sin() - x.cos().neg())  # fmt: skip

    return run, (
        drawn(3, 5),
        drawn(3, 5),
        signed(100, 3, 5).to(torch.int8),
        signed(100, 3, 5).to(torch.int8),
        drawn(3, 5) > 0,
        drawn(1)[0],
    )


@corpus_model
def slices_and_takes():
    """Slices of slices with steps that do not meet their ends, empty ones, and takes at places that
    are repeated, that go down, or are not in a row."""

    def run(x, y):
        at = torch.full((40,), 1)
        return (
            x[1:14:3][1:4:2],
            x[2:][:7:2][1:],
            x[::2, 1:][1:6, ::3],
            x[3:12:2, :5][::2, 1:4:2],
            x[1:14:3][2:2].sum(0),
            y.index_select(2, at),
            y[:, torch.tensor([0, 2])],
            y[:, torch.tensor([1])],
            y[:, :, torch.tensor([1, 2, 3])],
            y[:, :, torch.tensor([5, 3, 1])],
            y[:, :, torch.tensor([0, 1, 3])],
            y[:, :, torch.tensor([2, 2, 2])],
            y[:, :, torch.tensor([[0, 2], [4, 6]])],
            y[torch.tensor([1])],
            y[:, :, torch.tensor([6])],
        )

    return run, (drawn(15, 8), drawn(2, 3, 7))


@corpus_model
def nearly_restored():
    """Norms by hand of as many rows as columns, whose mean or variance goes back along the other
    axis, or in pieces that no axis has; whose parts have other variances or epsilons, as one number
    or as several."""
    same, other = torch.full((5, 1), 1e-5), torch.full((5, 1), 1e-3)

    def run(x, y, s, t):
        def apart(x, one, two):
            mean = x.mean(1, keepdim=True)
            square = ((x - mean) ** 2).mean(1, keepdim=True)
            given = mean * (torch.rsqrt(square + two) * s)
            return x * (torch.rsqrt(square + one) * s) + (t[:5] - given)

        def across(x):
            mean = x.mean(1, keepdim=True)
            rows, columns = (((x - mean) ** 2).mean(a, keepdim=True) for a in (1, 0))
            return x * torch.rsqrt(rows + 1e-5) + mean.neg() * torch.rsqrt(columns + 1e-5)

        mean, turned = x.mean(1, keepdim=True), x.mean(1)
        square = ((x - mean) ** 2).mean(1, keepdim=True)
        pieces = y.mean(0).expand(4, 6).reshape(8, 3).t().reshape(4, 6)
        return (
            (x - turned) * torch.rsqrt(((x - turned) ** 2).mean(1, keepdim=True) + 1e-5),
            (x - mean) / torch.sqrt(square.t() + 1e-5),
            (x - mean) * torch.rsqrt(square.t() + 1e-5) * s,
            x * torch.rsqrt((x * x).mean(1) + 1e-5),
            x * torch.rsqrt((x * x).mean(0) + 1e-5),
            apart(x.sin(), 1e-5, same),
            apart(x.cos(), 1e-5, other),
            apart(x.exp(), 1e-5, 1e-3),
            across(x.tanh()),
            (y - pieces) * torch.rsqrt(((y - pieces) ** 2).mean(0, keepdim=True) + 1e-5),
            torch.nn.functional.layer_norm(y, (6,)).reshape(3, 8) * t,
            torch.nn.functional.layer_norm(y, (6,)).reshape(3, 8) * t + t,
            torch.nn.functional.layer_norm(y.reshape(4, 3, 2), (3, 2)).reshape(4, 6)
            * s[:3].expand(2, 3).reshape(6),
        )

    return run, (drawn(5, 5), drawn(4, 6), drawn(5), drawn(8))


@corpus_model
def statistics_of_both_axes():
    """Batch norms by hand of as many rows as columns: one value is the mean of rows and the
    variance of columns, or both of one axis; given, and constant, and repeated constants."""
    torch.manual_seed(5)
    fixed, scale, bias = torch.rand(5), torch.rand(5), torch.rand(5)
    grid = fixed[:, None].expand(5, 5).contiguous()

    def run(x, v, s, t):
        def norm(mean, spread, a, b):
            return (x - mean) * torch.rsqrt(spread + 1e-3) * a + b

        v, place = v.abs(), (slice(None), None)
        return (
            norm(v[place], v, s[place], t[place]),
            norm(v, v[place], s, t),
            norm(v[place], v, s, t),
            norm(v[place], v[place], v[place], t[place]),
            norm(fixed[place], fixed, scale[place], t[place]),
            norm(fixed, v, scale, bias),
            norm(fixed[place], fixed[place], scale[place], bias[place]),
            norm(grid, grid, scale[place], bias[place]),
            norm(grid.t(), fixed, scale, bias),
            norm(grid, v[place], s[place], t[place]),
            norm(grid, grid.t(), s, t),
        )

    return run, (drawn(5, 5), drawn(5), drawn(5), drawn(5))
