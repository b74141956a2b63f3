"""What nearly is a composite that recompose rules look for."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.mutations.torch_models import corpus_model, drawn, signed


@corpus_model
def one_hot_of_others():
    """Floats, booleans, a scalar and narrow integers that are compared with 0, 1, 2..; integers
    compared with what counts along another axis, or not at all; an index that varies along the
    axis of the classes."""

    def run(i, x, b, j, s, e, u, p, k):
        row, narrow = torch.arange(5), torch.arange(129)
        wrapped = torch.arange(129, dtype=torch.int8), torch.arange(257, dtype=torch.uint8)
        return (
            (x[:, None] == row).float(),
            (b[:, None] == torch.tensor([False, True])).float(),
            (s == 0).float(),
            (i[:, None] == j.cumsum(0)).float(),
            (p == row[:4]).float(),
            (e[:, None] == wrapped[0]).float(),
            (u[:, None] == wrapped[1]).float(),
            (e[:, None] == torch.arange(128, dtype=torch.int8)).float(),
            (p[:, :3] == torch.arange(2)[:, None]).float(),
            (k[:, None].expand(129, 3) == narrow[:, None]).float(),
            (p[:, :, None] == row).int(),
            (i[:, None] == row).to(torch.float8_e4m3fn).float(),
        )

    return run, (
        torch.tensor([2, 0, 3]),
        torch.tensor([2.0, 0.5, 3.0]),
        torch.tensor([True, False, True]),
        torch.tensor([0, 1, 1, -1, 2]),
        torch.tensor(0, dtype=torch.int8),
        torch.tensor([-128, 7, 127]).to(torch.int8),
        torch.tensor([0, 200, 3], dtype=torch.uint8),
        torch.tensor([[0, 3, 1, 3], [2, 1, 2, 0]]),
        torch.arange(129) % 5,
    )


@corpus_model
def loss_of_picks():
    """Picked classes, 0 where a target is not counted: with one number that is not counted, with
    several, with another fill; picks of one class, along another axis; then their sums and means;
    losses of probabilities with weights."""
    several = torch.tensor([2, 1, 2, 2, 0, 2])
    some = torch.tensor([0.0, 1.0, 3.0, 0.0, 2.0, 0.0])

    def picked(x, t, ignored, fill=0.0, other=0):
        kept = t != ignored
        return torch.where(kept, -x.gather(1, torch.where(kept, t, other)[:, None])[:, 0], fill)

    def run(x, y, t, s, a, b, w, rows):
        kept, narrow = t != 2, s % 3
        of_rows = -rows.gather(0, torch.where(kept, t, 0)[:, None])[:, 0]
        of_last = -y[:, :1].gather(2, torch.where(narrow != 1, narrow, 0)[:, None])[:, 0]
        turned = F.log_softmax(y + 5, 1).reshape(2, 3, 4)

        def spread(y):
            return torch.where(s != 1, -y.gather(1, torch.where(s != 1, s, 0)[:, None])[:, 0], 0.0)

        return (
            picked(x, t, 2),
            picked(x, t, several),
            picked(x, t, 2, 1.0, 1),
            picked(x, t, 2, some, some.long()),
            spread(y),
            spread(y + 1).sum(1),
            spread(y + 2).mean(1),
            spread(y + 3).mean(),
            spread(y + 4).sum(),
            torch.where(kept, of_rows, 0.0),
            torch.where(narrow != 1, of_last, 0.0),
            F.nll_loss(turned, narrow.repeat(1, 2)[:, :4], reduction="sum"),
            -y.gather(2, s[:, None, :1].expand(2, 4, 1) % 3),
            F.binary_cross_entropy(a, b, w[:, :, None], reduction="none"),
            F.binary_cross_entropy(a, b, w[:, None]),
            F.binary_cross_entropy(a, b, w[0, :, None]),
            F.binary_cross_entropy(a, b, reduction="sum"),
            F.binary_cross_entropy(a, b, w[1, 2], reduction="sum"),
            F.binary_cross_entropy(a[0, 0], b[0, 0]),
        )

    return run, (
        drawn(6, 5),
        drawn(2, 4, 3),
        torch.tensor([0, 2, 1, 4, 2, 3]),
        torch.tensor([[1, 0, 3], [2, 3, 1]]),
        torch.rand(2, 3, 3),
        torch.rand(2, 3, 3),
        torch.rand(2, 3),
        drawn(6, 1),
    )


@corpus_model
def mean_losses_by_hand():
    """Sums of losses over counts of targets: of all, of others, of those of another number, in a
    dtype that is too narrow for the count, of one axis; sums of squares over other numbers."""

    def total(x, t, **more):
        return F.cross_entropy(x, t, reduction="sum", **more)

    def mixed(x, t, over=1, along=1, ignored=-100, **more):
        shares, gone = F.log_softmax(x, over), t == ignored
        uniform = torch.where(gone, 0.0, -shares.sum(along)).sum() / (~gone).sum(**more)
        return F.nll_loss(shares, t) * 0.8 + uniform * (0.2 / x.shape[1])

    def run(x, y, t, u, long, longer, z, w):
        square = x[:, :6]
        fives = t % 5
        sums = F.mse_loss(z, w, reduction="sum")
        return (
            total(x, t) / (t != -100).sum(),
            total(x + 1, t, ignore_index=2) / (t != 3).sum(),
            total(x * 2, t, ignore_index=2) / (t % 4 != 2).sum(),
            total(x * 3, t).reshape(1) / (t[None] != -100).sum(1),
            total(y[:128], long) / (long != -100).sum(dtype=torch.int8),
            total(y, longer) / (longer != -100).sum(dtype=torch.uint8),
            total(y[:127], long[:127]) / (long[:127] != -100).sum(dtype=torch.int8),
            total(z[:, :, None], u[:, None]) / (u[:, None] != -100).sum(),
            sums / 20,
            F.mse_loss(z + 1, w, reduction="sum") / 19,
            F.mse_loss(z + 2, w, reduction="sum") * (1 / 20),
            F.mse_loss(z + 3, w, reduction="sum") * 20,
            F.mse_loss(z + 4, w, reduction="sum") / (1 / 20),
            ((z - w) ** 2).mean(1),
            ((z - 2 * w) ** 2).sum(0),
            mixed(square, fives),
            mixed(square + 1, fives, 0),
            mixed(square * 2, fives, 1, 0),
            mixed(square * 3, fives, ignored=2),
            mixed(y[:128] + 1, long, dtype=torch.int8),
            mixed(x.reshape(2, 7, 3, 1), t.reshape(2, 3, 1)),
        )

    classes = torch.arange(256) % 2
    return run, (
        drawn(6, 7),
        drawn(256, 2),
        torch.tensor([0, 2, 1, 6, 2, 3]),
        torch.tensor([4, 0, 3, 1]),
        classes[:128].clone(),
        classes,
        drawn(4, 5),
        drawn(4, 5),
    )


@corpus_model
def weighted_losses_by_hand():
    """Losses of products with a number for each class, each row, each element; sums of weighted
    losses over the weights of the targets, and over what nearly are these."""
    some, others = torch.tensor([0.5, 1.5, 0.7, 2.0, 1.1]), torch.tensor([1.5, 0.5, 0.7, 2.0, 1.2])

    def counted(w, t, ignored):
        kept = t != ignored
        picked = w.gather(1, torch.where(kept, t, 0)[:, None])[:, 0]
        return torch.where(kept, picked, 0.0).sum()

    def total(x, w, t):
        return F.nll_loss(x, t, w, ignore_index=2, reduction="sum")

    def run(x, w, v, t, u, full):
        kept = t != 2
        classes = torch.where(kept, t, 0)
        along = w.expand(5, 5).gather(0, classes[None])[0]
        own = w.expand(5, 5).gather(1, classes[:, None])[:, 0]
        plain = F.nll_loss(x - 1, t, ignore_index=2, reduction="sum")
        return (
            F.nll_loss(x * w, t, reduction="none"),
            F.nll_loss(x * v, t),
            F.nll_loss(x * w[:, None], t),
            F.nll_loss(x * w[:, None], t, reduction="sum"),
            F.nll_loss(x * full, t, reduction="none"),
            F.nll_loss(x * 0.5, t, reduction="sum"),
            plain / counted(w.expand(5, 5), t, 2),
            total(x + 1, w, t) / counted(w.expand(5, 5), t, 2),
            total(x + 2, w, t) / counted(w.expand(5, 5), t, 3),
            total(x + 3, w, t) / counted(v.expand(5, 5), t, 2),
            total(x + 4, w, t) / counted(w.expand(5, 5), u, 2),
            total(x + 5, w, t) / counted(w[:, None].expand(5, 5), t, 2),
            total(x + 6, w, t) / torch.where(kept, along, 0.0).sum(),
            total(x + 7, some, t) / counted(others.expand(5, 5), t, 2),
            total(x + 8, some, t) / counted(w.expand(5, 5), t, 2),
            total(x + 9, some, t) / counted(some.clone().expand(5, 5), t, 2),
            total(x + 10, w, t) / counted(some.expand(5, 5), t, 2),
            total(x + 11, w, t) / counted(full, t, 2),
            total(x + 12, w, t).reshape(1) / torch.where(kept, own, 0.0)[None].sum(1),
        )

    return run, (
        drawn(5, 5),
        drawn(5).abs() + 0.5,
        drawn(5).abs() + 0.5,
        torch.tensor([0, 2, 1, 4, 3]),
        torch.tensor([0, 2, 1, 4, 1]),
        drawn(5, 5).abs() + 0.5,
    )


@corpus_model
def attention_of_others():
    """Scores that are repeated, turned, divided into other rows, scaled by what is not one number;
    a mask that is scaled with them; rows of several batches with the same values."""
    slopes = torch.tensor([0.5, 1.5, 0.7, 2.0, 1.1])

    def run(q, k, v, s, mask, flat, rows, keys, wide, parts):
        scores = q @ k.transpose(1, 2)  # 1 4 5
        many = wide @ parts.transpose(1, 2)  # 2 4 6
        shares = torch.softmax(many, 2)
        one, two = rows.reshape(6, 3, 4), keys.reshape(6, 5, 4)
        return (
            torch.softmax(scores.expand(3, 4, 5), 2) @ v,
            torch.softmax(scores * slopes, 2) @ v[:1],
            torch.softmax(scores * s, 2) @ v[:1],
            torch.softmax((scores + mask) * 0.5, 2) @ v[:1],
            torch.softmax(2.0 / scores, 2) @ v[:1],
            torch.softmax(many[0].reshape(3, 8), 1) @ flat[:8],
            shares.reshape(8, 6) @ flat[:6],
            torch.softmax(many.transpose(0, 1).reshape(4, 12), 1) @ flat,
            torch.softmax(one @ two.transpose(1, 2), 2) @ two,
            parts.transpose(1, 2) @ torch.softmax(parts @ wide.transpose(1, 2), 1),
            torch.softmax(q[..., :1] @ k[..., :1].transpose(1, 2), 2) @ v[:1, :, :1],
        )

    return run, (
        drawn(1, 4, 3),
        drawn(1, 5, 3),
        drawn(3, 5, 2),
        drawn(4, 1),
        drawn(4, 5),
        drawn(12, 2),
        drawn(2, 3, 3, 4),
        drawn(3, 2, 5, 4),
        drawn(2, 4, 3),
        drawn(2, 6, 3),
    )


@corpus_model
def attention_with_masks():
    """Masks that select and that hide, with a number of their own, one for each head; causal ones,
    nearly causal ones, two at once; keys that heads share."""
    seen, late = torch.ones(4, 6).tril() > 0, torch.ones(4, 6).tril(1) > 0

    def run(q, k, v, some, bias, heads, one, two):
        scores = q @ k.transpose(-1, -2) * 0.4  # 2 3 4 6
        hide = torch.where

        def of(x):
            return torch.softmax(x, -1) @ v

        shared, read = one.expand(2, 3, 6, 5), two.expand(2, 3, 6, 2)
        grouped = q @ shared.transpose(-1, -2)
        return (
            of(hide(some, scores, -1e4)),
            of(hide(some, -50.0, scores)),
            of(hide(seen, scores, -1e9)),
            of(hide(late, scores, -1e9)),
            of(hide(~seen, -1e9, scores)),
            of(hide(seen, scores + bias, -1e9)),
            of(hide(some, hide(seen, scores, -30.0), -20.0)),
            of(hide(some, hide(seen, scores, -30.0), -30.0)),
            of(hide(seen, hide(some, scores, -30.0), -30.0)),
            of(bias + (scores + bias[:, :1])),
            of(hide(some, scores, scores * 2)),
            of(hide(seen[:, :1], scores, -5.0)),
            torch.softmax(grouped, -1) @ read,
            torch.softmax(grouped + heads, -1) @ read,
            torch.softmax(grouped + bias, -1) @ read,
            torch.softmax(hide(seen, grouped + heads, -1e9), -1) @ read,
        )

    return run, (
        drawn(2, 3, 4, 5),
        drawn(2, 3, 6, 5),
        drawn(2, 3, 6, 2),
        torch.rand(4, 6) > 0.3,
        drawn(4, 6),
        drawn(3, 1, 6),
        drawn(2, 1, 6, 5),
        drawn(2, 1, 6, 2),
    )


@corpus_model
def norms_of_others():
    """Norms that are repeated or divided into other rows before their scale, normed over more or
    fewer axes than those behind the channels; with a factor that is the deviation and the scale
    in one; groups that are rows; statistics of what has one axis."""

    def run(x, y, z, w, b, s, one, wide, m, e):
        def statistics(x):
            mean = x.mean(-1, keepdim=True)
            return x, mean, torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)

        def centred(x, scale):
            x, mean, factor = statistics(x)
            return (x - mean) * (factor * scale)

        def apart(x, scale):
            x, mean, factor = statistics(x)
            factor = factor if scale is None else factor * scale
            return x * factor + (b - mean * factor)

        plain = F.layer_norm(one, (10,))

        def parts(a, b, c):
            return F.layer_norm((y + a).reshape(b, c), (c,))

        return (
            plain.expand(3, 4, 10) * w,
            (plain * w).expand(3, 4, 10) + b,
            F.layer_norm(z, (8,)).reshape(8, 6) * w[:6],
            F.layer_norm(x, (4, 10)) * s[:, None],
            F.layer_norm(wide, (5,)) * s[:, None, None],
            centred(x, w),
            centred(x + 1, s[:, None]),
            apart(x * 2, None),
            apart(x - 3, w),
            parts(0, 6, 10).reshape(3, 4, 5),
            parts(1, 6, 10).reshape(3, 20),
            parts(2, 6, 10).reshape(2, 5, 6),
            parts(3, 3, 20).reshape(3, 4, 5),
            parts(4, 12, 5).reshape(3, 4, 5),
            (w - m) * torch.rsqrt(e.abs() + 1e-3) * w + b,
        )

    return run, (
        drawn(3, 4, 10),
        drawn(3, 4, 5),
        drawn(6, 8),
        drawn(10),
        drawn(10),
        drawn(4),
        drawn(1, 4, 10),
        drawn(2, 4, 3, 5),
        drawn(10),
        drawn(10),
    )


@corpus_model
def rotary_of_parts():
    """Halves, neighbours and pairs of some rows, or of every other number of a half; of integers;
    all of them of whole rows too."""

    def rotated(u, v, cos, sin):
        return u * cos - v * sin, u * sin + v * cos

    def run(x, p, i, j, cos, sin):
        whole = x[..., :4], x[..., 4:]
        return (
            torch.cat(rotated(*whole, cos, sin), -1),
            torch.cat(rotated(x[:, 1:, :4], x[:, 1:, 4:], cos[1:], sin[1:]), -1),
            torch.cat(rotated(x[:, ::2, :4], x[:, ::2, 4:], cos[:2], sin[:2]), -1),
            torch.cat(rotated(x[..., :4:2], x[..., 4::2], cos[:, :2], sin[:, :2]), -1),
            torch.stack(rotated(x[..., ::2], x[..., 1::2], cos, sin), -1),
            torch.stack(rotated(x[:, 1:, ::2], x[:, 1:, 1::2], cos[1:], sin[1:]), -1),
            torch.stack(rotated(p[..., 0], p[..., 1], cos[0], sin[0]), -1),
            torch.stack(rotated(p[1:, :, 0], p[1:, :, 1], cos[0], sin[0]), -1),
            torch.cat(rotated(i[:, :3], i[:, 3:], j, j + 1), -1),
            torch.stack(rotated(i[:, ::2], i[:, 1::2], j, j + 1), -1),
            i * j.repeat(1, 2) + torch.cat((-i[:, 3:], i[:, :3]), -1) * j.repeat(1, 2),
        )

    return run, (
        drawn(2, 3, 8),
        drawn(3, 4, 2),
        signed(9, 5, 6),
        signed(9, 5, 3),
        drawn(3, 4),
        drawn(3, 4),
    )


@corpus_model
def rotary_of_others():
    """What is added to ``x * cos`` is not ``x`` turned: one half twice, nothing negated, the halves
    in the other order or of another tensor, along the axis before."""

    def run(x, z, cos, sin):
        first, second = x[..., :4], x[..., 4:]
        turned = (
            torch.cat((-second, second), -1),
            torch.cat((-first, first), -1),
            torch.cat((second, first), -1),
            torch.cat((first, -second), -1),
            torch.cat((-first, second), -1),
            torch.cat((-z[..., 4:], z[..., :4]), -1),
            torch.cat((-z[..., 4:], first), -1),
            torch.cat((-x[:, :, 4:], x[:, :, :4]), 2),
            torch.cat((-x[..., 5:], x[..., :5]), -1),
        )
        return tuple(x * cos + each * sin for each in turned)

    return run, (drawn(1, 2, 8, 8), drawn(1, 2, 8, 8), drawn(8, 8), drawn(8, 8))


@corpus_model
def slopes_of_others():
    """Slopes below 1 and above, elu without a factor, a maximum of another tensor."""

    def run(x, z):
        e = torch.exp(x - z.amax(1, keepdim=True))
        return (
            torch.maximum(x, 0.2 * x),
            torch.maximum(x, 1.5 * x),
            torch.where(x > 0, x, torch.expm1(x)),
            e / e.sum(1, keepdim=True),
        )

    return run, (drawn(3, 7), drawn(3, 5))
