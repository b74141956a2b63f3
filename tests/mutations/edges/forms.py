"""Torch modules that nearly have the form that a rule or a branch of ours is for, and those whose
sizes or numbers reach a case that ordinary ones do not."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.mutations.torch_models import corpus_model, drawn, signed


@corpus_model
def nearly_activations():
    def run(x):
        return (
            x * torch.clamp(x + 3, 0, 5) / 6,
            torch.clamp(x + 3, 0, 6) / 5,
            x * torch.clamp(x + 3, 0, 6) / 5,
            torch.clamp(0.2 * x + 0.5, 0, 2),
            torch.clamp(0.2 * x + 0.5, -1, 1),
            x * torch.sigmoid(1.5 * x),
            0.5 * x * (1 + torch.erf(x / 1.3)),
            0.25 * x * (1 + torch.erf(x / math.sqrt(2.0))),
            0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.05 * x**3))),
            x / (2 + x.abs()),
            x / (1 + (2 * x).abs()),
            torch.where(x > 0, x, 1.5 * x),
            torch.where(x > 0.1, x, 0.2 * x),
            torch.maximum(x, torch.full_like(x, 0.1)),
            torch.maximum(x, -0.5 * x),
            torch.where(x > 0, x, 0.3 * torch.expm1(2 * x)),
            x * torch.tanh(F.softplus(x, beta=2.0)),
            torch.log(2 + torch.exp(x)),
            torch.where(x > 1, x, torch.log1p(torch.exp(x))),
            1 / (1 + torch.exp(-2 * x)),
            torch.clamp(torch.clamp(x, max=0.2), min=0.4),
        )

    return run, (drawn(4, 13),)


@corpus_model
def losses_over_another_axis():
    """The softmax over rows, or over what lies behind the classes, of as many as classes; over
    columns that a reshape deals to other rows."""
    return lambda x, t, y, s, z, u: (
        F.nll_loss(F.log_softmax(x, 0), t),
        F.nll_loss(F.log_softmax(x, 1), t),
        F.nll_loss(F.log_softmax(x.t(), 0), t, reduction="sum"),
        F.nll_loss(F.log_softmax(y, 2), s),
        F.nll_loss(F.log_softmax(y, 1), s),
        F.nll_loss(F.log_softmax(z, 1).reshape(1, 3, 2), u),
    ), (
        drawn(5, 5),
        torch.tensor([1, 4, 2, 0, 3]),
        drawn(2, 5, 5),
        torch.tensor([[1, 4, 2, 0, 3], [0, 0, 1, 2, 4]]),
        drawn(2, 3),
        torch.tensor([[0, 2]]),
    )


@corpus_model
def attention_of_shifted():
    """Queries, keys and values that are made by what is no factor."""

    def run(q, k, v):
        def attended(a, b, c):
            return torch.softmax(a @ b.transpose(-1, -2), -1) @ c

        return (
            attended(q + 0.5, k, v),
            attended(q, torch.maximum(k, torch.full_like(k, 0.25)), v),
            attended(q, k, v - 2.0),
            attended(q.tanh(), k.neg(), v.exp()),
            attended(q * 2.0, k / 4.0, v * 0.5),
        )

    return run, (drawn(2, 5, 8), drawn(2, 7, 8), drawn(2, 7, 6))


@corpus_model
def many_parts():
    """More parts than one kernel puts together; some are empty, some all alike."""

    def run(x, y):
        cuts = [x[i : i + i % 3] for i in range(70)]
        return torch.cat(cuts), torch.stack([y[:, i] * 2 for i in range(66)][::-1], 1)

    return run, (drawn(72, 3), drawn(3, 66))


@corpus_model
def norms_of_flattened():
    """Means of a reshaped tensor, taken from the one as it was."""

    def run(x, w):
        flat = x.reshape(x.shape[0], -1)
        mean = flat.mean(1).reshape(-1, 1, 1, 1)
        square = ((x - mean) ** 2).reshape(x.shape[0], -1).mean(1).reshape(-1, 1, 1, 1)
        rows = x.reshape(x.shape[0], x.shape[1], -1).mean(2)[:, :, None, None]
        spread = ((x - rows) ** 2).flatten(2).mean(2)[:, :, None, None]
        return (
            (x - mean) / torch.sqrt(square + 1e-5) * w,
            (x - rows) * torch.rsqrt(spread + 1e-5),
            x * torch.rsqrt((x * x).flatten(1).mean(1)[:, None, None, None] + 1e-5) * w,
        )

    return run, (drawn(3, 4, 4, 4), drawn(4))


@corpus_model
def floats_of_several_sizes():
    """Normalisations whose statistics have more digits than what they normalise, and fewer."""

    def run(x, y, w):
        def normed(a, b):
            middle = a - b.mean(-1, keepdim=True)
            return middle * torch.rsqrt((b * b).mean(-1, keepdim=True) + 1e-5)

        wide = x.float()
        return (
            normed(wide, wide).to(x.dtype) * w,
            normed(x, x) * w,
            normed(y, y.double()),
            normed(y.double(), y),
            normed(x, wide),
            torch.softmax(wide, -1).to(x.dtype) * w,
            x * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6).to(x.dtype),
        )

    return run, (drawn(4, 12).bfloat16(), drawn(4, 12), drawn(12).bfloat16())


@corpus_model
def nearly_norms():
    """Other axes, other counts, no epsilon."""

    def run(x, w):
        middle = x - x.mean(1, keepdim=True)
        several = x - x.mean((1, 2), keepdim=True)
        mean = x.mean(-1, keepdim=True)
        spread = ((x - mean) ** 2).sum(-1, keepdim=True) / 9
        e = torch.exp(x - x.amax(1, keepdim=True))
        return (
            (x - mean) / torch.sqrt(spread + 1e-5) * w,
            (x - x.mean(1, keepdim=True)) / torch.sqrt(spread + 1e-5),
            x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * w,
            x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6),
            e / e.sum(2, keepdim=True),
            e / e.amax(1, keepdim=True),
            torch.log(e.sum(1, keepdim=True)),
            middle / torch.sqrt((middle**2).mean(1, keepdim=True) + 1e-5) * w,
            several / torch.sqrt((several**2).mean((1, 2), keepdim=True) + 1e-5),
            several / torch.sqrt((several**2).mean((0, 1), keepdim=True) + 1e-5),
            torch.exp(middle) / torch.exp(middle).sum((1, 2), keepdim=True),
        )

    return run, (drawn(3, 4, 10), drawn(10))


@corpus_model
def nearly_rotary():
    """Halves of another axis, put together along another one, in another order, of other sizes."""

    def run(x, cos, sin):
        half = x.shape[-1] // 2
        low, high = x[..., :half], x[..., half:]
        first, second = x[..., :4, :], x[..., 4:, :]
        turned = (
            torch.cat((-second, first), -2),
            torch.cat((high, -low), -1),
            torch.cat((-low, high), -1),
            torch.cat((-x[..., 3:], x[..., :3]), -1),
            torch.cat((-high, low), -2).reshape(x.shape),
        )
        return [x * cos + each * sin for each in turned]

    return run, (drawn(1, 2, 8, 8), drawn(8, 8), drawn(8, 8))


@corpus_model
def rotary_of_the_first_two():
    """Pairs that are the first two of several elements; the axis before has two."""

    def run(x, cos, sin):
        a, b, c = x[..., 0], x[..., 1], x[..., -1]
        return (
            torch.stack((a * cos - b * sin, a * sin + b * cos), -1),
            torch.stack((a * cos - c * sin, a * sin + c * cos), -1),
        )

    return run, (drawn(4, 2, 6), drawn(4, 2), drawn(4, 2))


@corpus_model
def nearly_one_hot():
    def run(i, x):
        row, column = torch.arange(5), torch.arange(3)
        return (
            (i[:, None] == row + 1).float(),
            (i[:, None] == 2 * row).float(),
            (i[None, :] == column[:, None]).float(),
            (i[:, None] != row).float(),
            torch.where(i[:, None] == row, x, 2 * x).sum(1),
            (i[:, None, None].expand(3, 4, 4) == row[None, :4, None]).float(),
        )

    return run, (torch.tensor([2, 0, 3]), drawn(3, 5))


@corpus_model
def distances():
    """Of every order that has a form of its own, and of one that has none."""
    orders = (0.0, 1.0, 2.0, 3.0, math.inf)

    def run(x, y):
        return (
            *(torch.cdist(x, y, p=p) for p in orders),
            *(F.pdist(x, p) for p in orders),
            *(torch.linalg.vector_norm(x, p, dim=1) for p in (*orders, -math.inf, 0.5)),
            torch.linalg.matrix_norm(x),
            torch.linalg.matrix_norm(x, 1),
            torch.linalg.matrix_norm(x, math.inf),
        )

    return run, (drawn(4, 3), drawn(5, 3))


@corpus_model
def powers_of_doubles():
    """Every pair of numbers that pow has a case for."""
    bases = (1.0, 0.0, -0.0, -1.0, 2.0, -2.0, 0.5, -1.7, math.inf, -math.inf, math.nan)
    exponents = (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.3, math.inf, -math.inf, math.nan)
    given = (torch.tensor(bases, dtype=torch.float64), torch.tensor(exponents, dtype=torch.float64))
    return lambda x, y: (x[:, None] ** y[None, :], torch.atan2(x[:, None], y[None, :])), given


@corpus_model
def many_hits():
    """More updates of one row than a chunk of a sum has, and more rows than are hit."""

    def run(x, i, y):
        return (
            x.index_add(0, i, y),
            x.scatter_add(0, i[:, None].expand(700, 2), y),
            x.index_put((i,), y, accumulate=True),
        )

    return run, (drawn(5, 2), torch.randint(1, 3, (700,)), drawn(700, 2))


@corpus_model
def slices_written_in_steps():
    """Slices that are written in steps, and in one piece."""

    def run(x, y):
        return (
            torch.slice_scatter(x, y, 1, 1, 9, 2),
            torch.slice_scatter(x, y, 1, 2, 6),
            torch.slice_scatter(x.t(), y.t(), 0, 0, 10, 3),
        )

    return run, (drawn(3, 10), drawn(3, 4))


@corpus_model
def scans_of_zeros():
    """A running sum of -0 is -0."""
    return lambda x: ((-0.0 * x).cumsum(1), (0.0 * x.abs()).neg().cumsum(0), x.cumsum(0)), (
        drawn(3, 20).abs(),
    )


@corpus_model
def activations_on_edges():
    """On every number at which they change their form, and on those that are none."""
    values = (0.0, -0.0, 0.1, -0.1, 0.3, -0.3, 0.4, -0.4, 0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 2.5, -2.5,
              10.0, 20.0, -20.0, 100.0, -100.0, math.inf, -math.inf, math.nan)  # fmt: skip

    def run(x):
        return (F.relu(x), F.relu6(x), F.elu(x, 0.7), F.selu(x), F.celu(x, 0.6), F.silu(x),
                F.hardtanh(x, -0.4, 0.5), F.hardswish(x), F.hardsigmoid(x), F.leaky_relu(x, 0.2),
                F.softplus(x), F.softplus(x, 2.0, 20.0), F.logsigmoid(x), F.softshrink(x, 0.3),
                F.hardshrink(x, 0.4), F.threshold(x, 0.1, -1.0), F.threshold(x, 1.0, 5.0),
                x.clamp(-0.1, 0.3), x.clamp(min=0.5), x.clamp(max=-0.1), x.sign(), x.round(),
                x.trunc(), x.frac(), x.heaviside(x), x.copysign(-x.abs()), x.nan_to_num(1.0),
                x.isfinite(), x.isinf(), x.isnan(), torch.where(x >= 0.1, x, -x),
                torch.where(x < -2.5, 1.0, x), x.sigmoid(), x.tanh(), x.erf(), x.exp(), x.log1p(),
                x.sqrt(), x.square(), x.reciprocal())  # fmt: skip

    return run, (torch.tensor(values).reshape(4, 6),)


@corpus_model
def odd_lengths():
    """Sums that end a number or two before a whole vector, or behind one."""
    lengths = (1, 7, 8, 9, 15, 17, 30, 31, 33, 62, 63, 65, 93, 95)
    return lambda x: [f for n in lengths for f in (x[:, :n].sum(1), x[:, :n].amax(1))], (
        drawn(3, 95),
    )


@corpus_model
def odd_rows():
    lengths = (1, 3, 31, 62, 63)
    return lambda x: [
        f
        for n in lengths
        for f in (
            torch.softmax(x[:, :n], 1),
            F.layer_norm(x[:, :n], (n,)),
            x[:, :n].argmax(1),
            x[:, :n].cumsum(1),
        )
    ], (drawn(3, 63),)


@corpus_model
def views_of_pairs():
    """Reshapes of what a convolution lays out with its channels last, with axes of 2 and of 1."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = torch.nn.Conv2d(3, 4, 1)

        def forward(self, x, one):
            y, z = self.mix(x), self.mix(one)
            return (
                z.reshape(4, 4, 2),
                z.unsqueeze(2),
                z[0],
                z.reshape(2, 2, 4, 2),
                z.reshape(16, 2),
                z.reshape(1, 4, 2, 2, 2),
                z.permute(0, 2, 3, 1).reshape(4, 2, 4),
                y.reshape(2, 2, 2, 4, 2),
                y.flatten(2),
                y.flatten(1),
                y.unsqueeze(2),
                y[:, :, 0],
                y.reshape(2, 4, 2, 2, 2),
                y.reshape(2, 4, 4, 1, 2),
                y.reshape(2, 2, 2, 8),
                y.permute(0, 2, 3, 1).reshape(16, 4),
                y.permute(0, 3, 1, 2).flatten(2),
                y.transpose(2, 3).reshape(2, 4, 2, 2, 2),
                y.reshape(4, 2, 4, 2),
            )

    return Net(), (drawn(2, 3, 4, 2), drawn(1, 3, 4, 2))


@corpus_model
def truths():
    """What any and all take for true, of floats and of integers."""
    return lambda x, i: (
        x.any(1),
        x.all(1),
        i.any(0),
        i.all(1),
        x.any(),
        i.all(),
        (x > 0).all(0),
        torch.logical_and(x, i),
        torch.logical_not(x),
        x.bool(),
        i.bool(),
        torch.count_nonzero(x, 1),
        x.nonzero_static(size=4),
    ), (drawn(3, 5) * (torch.rand(3, 5) > 0.4), signed(2, 3, 5))


@corpus_model
def functions_on_edges():
    """Numbers at which a formula has a case of its own: 0 / 0, powers and logarithms of 0."""
    x = (-2.0, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
    one, two = (
        a.reshape(-1).contiguous()
        for a in torch.meshgrid(torch.tensor(x), torch.tensor(x), indexing="ij")
    )

    def run(x, y):
        z = x.abs().clamp(max=1.0)
        return (torch.sinc(x), torch.xlogy(z, y.abs()), torch.special.entr(z), torch.logit(z),
                torch.logit(z, 0.3),
                torch.special.xlog1py(z, y.abs()), torch.floor_divide(x, y), torch.fmod(x, y),
                torch.remainder(x, y), torch.atan2(x, y), torch.logaddexp(x, y),
                torch.copysign(x, y), torch.heaviside(x, y), torch.sgn(x),
                torch.trunc(x), torch.frac(x), torch.round(x), torch.nan_to_num(x / y),
                torch.logaddexp2(x, y), torch.float_power(z, y), torch.rsqrt(z), x / y,
                torch.div(x, y, rounding_mode="trunc"), torch.signbit(x), torch.positive(x),
                torch.ldexp(x, y.int()), torch.isneginf(x / y), torch.isposinf(x / y))  # fmt: skip

    return run, (one, two)


@corpus_model
def written_out_in_narrow():
    """Forms that are recognised in f32, in dtypes that round each step of theirs."""

    def of(x, w):
        mean = x.mean(-1, keepdim=True)
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return (
            (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5) * w,
            x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
            e / e.sum(-1, True),
            0.5 * x * (1 + torch.erf(x * 0.70710678)),
            x * torch.sigmoid(x),
            x * x * w * w,
            torch.log(1 + torch.exp(x)),
            x / w / w,
            (x + w) - w,
            x * 2 * 3,
        )

    def run(x, w):
        return (*of(x, w), *of(x.bfloat16(), w.bfloat16()))

    return run, (drawn(3, 4, 10).half(), drawn(10).half())


@corpus_model
def scaled_twice():
    """Norms that have their scale and bias, and another one behind them."""

    def run(x, w, b):
        once, plain = F.layer_norm(x, (10,), w), F.layer_norm(x, (10,))
        rms = F.rms_norm(x, (10,), w)
        return (
            once * b,
            once * w + b,
            plain * w * b,
            plain * w + b + w,
            rms * b,
            rms + b,
            F.layer_norm(x, (10,), w, b) + b,
            F.group_norm(x, 2, w[:4]) * b,
            F.rms_norm(x, (10,)) * w * b,
        )

    return run, (drawn(3, 4, 10), drawn(10), drawn(10))


@corpus_model
def broadcasts_of_reshapes():
    """Reshapes under a broadcast that do more than insert or drop axes of size 1, and others."""

    def run(x, y):
        z = torch.sin(x)
        return (
            z.reshape(2, 3).expand(4, 2, 3) + y,
            z.reshape(6, 1).expand(6, 5) * 2,
            z.reshape(1, 2, 1, 3).expand(4, 2, 5, 3).sum(2) * y,
            z.reshape(3, 2).T.expand(4, 2, 3) - y,
            y.transpose(0, 1).reshape(2, 1, 12).expand(2, 3, 12) + 1,
        )

    return run, (drawn(6), drawn(4, 2, 3))


@corpus_model
def truth_of_every_dtype():
    """Whether numbers are not 0: zeros of both signs, numbers that are 0 in a narrower dtype."""
    doubles = torch.tensor([0.0, -0.0, 1e-300, -5e-324, float("nan"), 2.0], dtype=torch.float64)
    singles = torch.tensor([0.0, -0.0, 1e-40, -1e-45, float("inf"), 0.5])
    whole = torch.tensor([0, 1 << 40, -1, 256, 65536, 1 << 32])

    def run(x, y, z):
        return (
            x.bool(),
            y.bool(),
            z.bool(),
            y.half().bool(),
            y.bfloat16().bool(),
            x.half().logical_not(),
            z.to(torch.int8).bool(),
            z.to(torch.uint8).bool(),
            z.to(torch.int16).bool(),
            z.int().bool(),
            x.logical_and(y),
            y.logical_xor(z),
            (x > 0).double(),
            (y < 1).half(),
            (z > 0).bfloat16(),
            (z > 0).to(torch.int8),
        )

    return run, (doubles, singles, whole)


@corpus_model
def norms_of_every_form():
    """A norm with a bias and no scale, over several axes, of one axis among others."""

    def run(x, b, w):
        return (
            F.layer_norm(x, (10,), None, b),
            F.layer_norm(x, (4, 10), None, None),
            F.layer_norm(x, (4, 10), w),
            F.group_norm(x, 2, None, b[:4]),
            F.group_norm(x, 4, b[:4]),
            F.instance_norm(x, None, None, None, b[:4]),
            F.batch_norm(x, b[:4], b[4:8].abs()),
            F.batch_norm(x, b[:4], b[4:8].abs(), b[:4]),
            F.rms_norm(x, (4, 10)),
            F.normalize(x, dim=1),
        )

    return run, (drawn(3, 4, 10), drawn(10), drawn(4, 10))


@corpus_model
def divided_by_powers_of_two():
    """Reciprocals that a dtype holds, that only denormals are, and that are beyond its range."""

    def run(x, y, z):
        return (x / 2.0**-149, x / 2.0**-128, x / 2.0**-127, x / 2.0**-126, x / 2.0**127, x / -0.25,
                x / 3.0, x / torch.tensor([1.0, 2.0**-149, 0.5, 2.0**126]),
                x / torch.tensor([1.0, 4.0, -0.5, 6.0]), y / 2.0**-24, y / 2.0**-16, y / 2.0**-15,
                y / 2.0**15, y / 2.0**-14, z / 2.0**-1074, z / 2.0**-1022, z / 2.0**1023,
                x * 2.0**-149 / 2.0**-149, x / math.inf)  # fmt: skip

    wide = torch.tensor([[0.0, -0.0, 1.0, 2.0**-149], [3e38, -1e-40, math.inf, 0.7]])
    narrow = torch.tensor([0.0, 2.0**-24, 65504.0, -0.3]).half()
    return run, (wide, narrow, torch.tensor([0.0, 5e-324, 1.7e308, -2.0], dtype=torch.float64))


@corpus_model
def shifts_before_a_norm():
    """What is added between a convolution and its batch norm, along each of axes of one size."""
    weights = [drawn(4, 3, 1, 1) for _ in range(6)]
    mean, variance, scale, bias = drawn(4), drawn(4).abs() + 0.5, drawn(4), drawn(4)

    def run(x, b):
        shifts = b[:, None, None], b[:, None], b, b[0], b[:2, None, None, None], b[:, None] * b
        return tuple(
            F.batch_norm(F.conv2d(x, w) + s, mean, variance, scale, bias)
            for w, s in zip(weights, shifts, strict=True)
        )

    return run, (drawn(2, 3, 4, 4), drawn(4))


@corpus_model
def loss_over_the_count_of_others():
    """A sum of losses, divided by how many targets are not ignored: its own, and others."""

    def total(x, t):
        return F.cross_entropy(x, t, ignore_index=2, reduction="sum")

    def run(x, y, t, u):
        return total(x, t) / (t != 2).sum(), total(y, t) / (u != 2).sum()

    targets, others = torch.tensor([0, 2, 1, 4, 2, 3]), torch.tensor([2, 2, 2, 4, 2, 3])
    return run, (drawn(6, 5), drawn(6, 5), targets, others)


@corpus_model
def loss_over_the_weights_of_others():
    """A weighted sum of losses, divided by the weights of its targets, and of others."""

    def counted(w, t, ignored):
        kept = t != ignored
        picked = w.expand(6, 5).gather(1, torch.where(kept, t, 0)[:, None])[:, 0]
        return torch.where(kept, picked, 0.0).sum()

    def total(x, w, t):
        return F.nll_loss(F.log_softmax(x, 1), t, w, ignore_index=2, reduction="sum")

    def run(x, y, w, t):
        return total(x, w, t) / counted(w, t, 2), total(y, w, t) / counted(w, t, 4)

    targets = torch.tensor([0, 2, 1, 4, 2, 3])
    return run, (drawn(6, 5), drawn(6, 5), drawn(5).abs() + 0.5, targets)


@corpus_model
def written_into_nothing():
    """Slices that are replaced in tensors of which another axis is empty."""

    def run(x, y):
        return (
            torch.slice_scatter(x, y, 1, 1, 3),
            torch.slice_scatter(x.T, y.T, 0, 0, 2),
            torch.slice_scatter(x, y * 2, 1, 3, 5).sum(0),
        )

    return run, (torch.zeros(0, 5), torch.zeros(0, 2))


@corpus_model
def loss_mixed_in_other_parts():
    """A loss and its mean over the classes, in parts that sum to 1 and in others."""

    def mixed(x, t, kept, share):
        shares, ignored = F.log_softmax(x, 1), t == -100
        uniform = torch.where(ignored, 0.0, -shares.sum(1)).sum() / (~ignored).sum()
        return F.nll_loss(shares, t) * kept + uniform * share

    def run(x, y, z, t):
        return mixed(x, t, 0.8, 0.05), mixed(y, t, -3.5, 0.5), mixed(z, t, 0.8, 0.2)

    return run, (drawn(6, 4), drawn(6, 4), drawn(6, 4), torch.tensor([0, 2, 1, -100, 2, 3]))


@corpus_model
def positions_of_scalars():
    """A scalar that is not zero has a row of no positions; one that is has none."""

    def run(x, y, z):
        return torch.nonzero(x), torch.nonzero(y), torch.nonzero(z)

    return run, (torch.tensor(3.0), torch.tensor(0.0), torch.tensor(True))


@corpus_model
def norms_of_samples():
    """Norms by hand whose variance is that of a sample: no layer norm; and one that is."""

    def norm(x, correction):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(x.var(-1, correction=correction, keepdim=True) + 1e-5)

    return lambda x, y: (norm(x, 1), norm(y, 0), norm(x * y, 2)), (drawn(3, 6), drawn(3, 6))
