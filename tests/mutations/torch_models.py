"""Torch modules of the corpus: a name, a function of tensors, its inputs, further words."""

from __future__ import annotations

import inspect
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.mutations.classes import AGAINST, CHECK


@dataclass
class Spec:
    name: str
    source: str
    module: nn.Module
    inputs: tuple
    extra: tuple[str, ...] = ()
    commands: tuple[str, ...] = (CHECK, AGAINST)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Joined(nn.Module):
    """Modules side by side: each takes its part of the inputs, ``counts`` of them in turn."""

    def __init__(self, parts: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.parts, self.counts = nn.ModuleList(parts), tuple(counts)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        given = iter(inputs)
        made = (
            part(*itertools.islice(given, count))
            for part, count in zip(self.parts, self.counts, strict=True)
        )
        return [value for each in made for value in torch.utils._pytree.tree_leaves(each)]


def models(names: Sequence[str] = ()) -> Iterator[Spec]:
    """Every model (``names``: these) in evaluation mode, weights and inputs of its own seed."""
    from tests.mutations import edges

    edges.enter()
    for name, make in _ALL.items():
        if names and name not in names:
            continue
        torch.manual_seed(zlib.crc32(name.encode()))
        made, inputs, *rest = make()
        module = made if isinstance(made, nn.Module) else _Function(made)
        for part in module.modules():  # statistics that a fold has to get right
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.01, 2.0)
        yield Spec(name, inspect.getsource(make), module.eval(), inputs, *rest)


_ALL: dict[str, Callable[[], tuple]] = {}


def corpus_model(make: Callable[[], tuple]) -> Callable[[], tuple]:
    _ALL[make.__name__.strip("_")] = make
    return make


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def signed(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(-high, high, shape)


# -- networks --------------------------------------------------------------------------------------


@corpus_model
def conv_bn_relu():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()), (
        drawn(2, 3, 7, 9),
    )


@corpus_model
def conv_strided():
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(6, 5, (1, 3), stride=(1, 2), padding=(0, 1)),
    ), (drawn(1, 4, 11, 9),)


@corpus_model
def conv_pointwise():
    return nn.Sequential(nn.Conv2d(40, 33, 1), nn.SiLU()), (drawn(1, 40, 5, 6),)


@corpus_model
def conv_depthwise():
    return nn.Sequential(
        nn.Conv2d(6, 6, 3, groups=6, padding=1), nn.Conv2d(6, 4, 3, groups=2, dilation=2, padding=2)
    ), (drawn(1, 6, 8, 7),)


@corpus_model
def conv_one_and_three():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv1d(3, 5, 4, stride=3), nn.Conv3d(2, 3, 2)

        def forward(self, x, y):
            return self.a(x), self.b(y)

    return M(), (drawn(2, 3, 14), drawn(1, 2, 3, 4, 5))


@corpus_model
def conv_transposed():
    return nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (drawn(1, 3, 5, 4),)


@corpus_model
def conv_residual():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(16, 16, 3, padding=1)
            self.b = nn.Conv2d(16, 16, 3, padding=1)
            self.n, self.m = nn.BatchNorm2d(16), nn.BatchNorm2d(16)

        def forward(self, x):
            return torch.relu(x + self.m(self.b(torch.relu(self.n(self.a(x))))))

    return M(), (drawn(1, 16, 6, 6),)


@corpus_model
def pools():
    def run(x):
        return (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, (2, 3), 1),
            F.adaptive_avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.adaptive_max_pool2d(x, (3, 2)),
        )

    return run, (drawn(2, 3, 8, 7),)


@corpus_model
def pool_ceil_and_indices():
    return lambda x: (
        *F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True),
        F.lp_pool2d(x, 2, 2),
        F.avg_pool1d(x[0], 3),
    ), (drawn(1, 2, 7, 5),)


@corpus_model
def upsample():
    return lambda x: (
        F.interpolate(x, scale_factor=2.0, mode="nearest"),
        F.interpolate(x, (7, 5), mode="bilinear", align_corners=False),
        F.interpolate(x, (5, 9), mode="bilinear", align_corners=True),
    ), (drawn(1, 2, 4, 3),)


@corpus_model
def mlp():
    return nn.Sequential(
        nn.Linear(20, 33), nn.GELU(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 5), nn.Softmax(-1)
    ), (drawn(6, 20),)


@corpus_model
def layer_norms():
    return nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.LayerNorm((3, 24))), (
        drawn(2, 3, 24),
    )


@corpus_model
def group_norms():
    return nn.Sequential(
        nn.GroupNorm(2, 6), nn.InstanceNorm2d(6, affine=True), nn.LocalResponseNorm(3)
    ), (drawn(2, 6, 4, 5),)


@corpus_model
def attention():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in self.qkv(x).split(16, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(2, 6, 16))

    return M(), (drawn(2, 6, 16),)


@corpus_model
def attention_by_hand():
    def run(q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / math.sqrt(8) + mask
        return torch.softmax(scores, -1) @ v

    return run, (drawn(2, 2, 5, 8), drawn(2, 2, 7, 8), drawn(2, 2, 7, 8), drawn(5, 7))


@corpus_model
def attention_of_queries():
    """Shares of the queries for each key, not of the keys for each query; as many of both."""
    return lambda q, k, v: (
        torch.softmax(k @ q.transpose(-1, -2), -1).transpose(-1, -2) @ v,
        torch.softmax(k @ q.transpose(-1, -2), -2).transpose(-1, -2) @ v,
        torch.softmax(q @ k.transpose(-1, -2), -2) @ v,
    ), (*(drawn(2, 2, 6, 6) for _ in range(3)),)


@corpus_model
def attention_masked():
    return lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3), (
        drawn(1, 2, 5, 4),
        drawn(1, 2, 6, 4),
        drawn(1, 2, 6, 3),
        torch.rand(5, 6) > 0.3,
    )


@corpus_model
def rotary():
    def run(x, cos, sin):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * cos + turned * sin

    return run, (drawn(1, 2, 5, 8), drawn(5, 8), drawn(5, 8))


@corpus_model
def written_out_norms():
    def run(x, w, b):
        mean = x.mean(-1, keepdim=True)
        var = ((x - mean) ** 2).mean(-1, keepdim=True)
        rms = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        return (x - mean) / torch.sqrt(var + 1e-5) * w + b, rms

    return run, (drawn(3, 4, 10), drawn(10), drawn(10))


@corpus_model
def written_out_softmax():
    def run(x):
        e = torch.exp(x - x.max(-1, keepdim=True).values)
        total = e.sum(-1, keepdim=True)
        return e / total, total / e, torch.log(torch.exp(x).sum(1, keepdim=True))

    return run, (drawn(3, 4, 9),)


@corpus_model
def written_out_activations():
    def run(x):
        gelu = 0.5 * x * (1 + torch.erf(x / math.sqrt(2.0)))
        tanh = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return (
            gelu,
            tanh,
            x * torch.sigmoid(x),
            torch.log(1 + torch.exp(x)),
            x * torch.tanh(F.softplus(x)),
            torch.where(x > 0, x, 0.1 * x),
            torch.clamp(x, 0.0, 6.0),
            torch.maximum(x, torch.zeros_like(x)),
            x * torch.clamp(x + 3, 0, 6) / 6,
            x / (1 + x.abs()),
        )

    return run, (drawn(4, 13),)


@corpus_model
def activations():
    return lambda x: (F.relu(x), F.relu6(x), F.elu(x, 0.7), F.selu(x), F.celu(x, 0.6), F.silu(x),
                      F.mish(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.hardtanh(x, -0.4, 0.6),
                      F.hardswish(x), F.hardsigmoid(x), F.leaky_relu(x, 0.2), F.softplus(x, 2.0),
                      F.logsigmoid(x), F.softsign(x), F.tanhshrink(x), F.softshrink(x, 0.3),
                      F.hardshrink(x, 0.4), F.threshold(x, 0.1, -1.0)), (
        2 * drawn(3, 9),)  # fmt: skip


@corpus_model
def gates():
    return lambda x, w: (
        F.glu(x),
        F.prelu(x, w),
        torch.softmax(x, 1),
        F.log_softmax(x, 0),
        F.softmin(x, -1),
        torch.logsumexp(x, 1),
        F.normalize(x, dim=1),
    ), (drawn(3, 8), torch.rand(8))


@corpus_model
def lstm():
    return nn.LSTM(5, 4, batch_first=True, bidirectional=True), (drawn(2, 3, 5),)


@corpus_model
def gru():
    return nn.GRU(5, 4, 2), (drawn(3, 2, 5),)


@corpus_model
def encoder():
    return nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, norm_first=True), (
        drawn(2, 4, 12),
    )


@corpus_model
def unet():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
            self.c, self.d = nn.Conv2d(6, 4, 3, padding=1), nn.Conv2d(8, 3, 1)

        def forward(self, x):
            a = F.relu(self.a(x))
            b = F.relu(self.b(F.max_pool2d(a, 2)))
            c = F.interpolate(F.relu(self.c(b)), scale_factor=2.0)
            return self.d(torch.cat((a, c), 1)), b.mean((2, 3))

    return M(), (drawn(1, 2, 8, 8),)


# -- elementwise -----------------------------------------------------------------------------------


@corpus_model
def unary_floats():
    return lambda x: (x.exp(), x.expm1(), x.exp2(), x.abs().log(), x.abs().log2(), x.abs().log10(),
                      x.abs().log1p(), x.abs().sqrt(), x.abs().rsqrt(), x.reciprocal(), -x, x.abs(),
                      x.sign(), x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), x.erf(),
                      x.erfc(), x.sigmoid(), x.square()), (1.7 * drawn(5, 7),)  # fmt: skip


@corpus_model
def trigonometry():
    def run(x):
        u = torch.tanh(x)
        return (
            x.sin(),
            x.cos(),
            x.tan(),
            u.asin(),
            u.acos(),
            x.atan(),
            x.sinh(),
            x.cosh(),
            u,
            x.asinh(),
            (x.abs() + 1).acosh(),
            u.atanh(),
            torch.atan2(x, u),
            torch.sinc(x),
        )

    return run, (drawn(4, 6),)


@corpus_model
def binary_floats():
    return lambda x, y: (
        x + y,
        x - y,
        x * y,
        x / y,
        x.abs() ** y,
        torch.maximum(x, y),
        torch.minimum(x, y),
        torch.fmod(x, y),
        torch.remainder(x, y),
        torch.floor_divide(x, y),
        torch.add(x, y, alpha=0.5),
        torch.addcmul(x, y, x, value=0.3),
        torch.lerp(x, y, 0.25),
        torch.copysign(x, y),
        torch.logaddexp(x, y),
        x.fmax(y),
    ), (drawn(3, 5), drawn(5))


@corpus_model
def floored_quotients():
    """Of f32 tenths some quotients round to just below an integer."""
    return torch.floor_divide, (
        torch.tensor([[4.6, 9.1, 16.7, 1.0], [-4.6, 18.2, -33.1, 0.0]]),
        torch.tensor(0.3),
    )


@corpus_model
def integers():
    return lambda x, y: (x + y, x - y, x * y, x // 3, x % 5, x & y, x | y, x ^ y, ~x, x << 2,
                         x >> 1, torch.maximum(x, y), x.abs(), x.sign(), x.clamp(-3, 4),
                         torch.div(x, 4, rounding_mode="trunc"), torch.bitwise_not(y),
                         x.sum(), x.prod(1), x.amax(0), x >> y.abs() * 20), (
        signed(9, 3, 5), signed(9, 3, 5))  # fmt: skip


@corpus_model
def comparisons():
    return lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, torch.isnan(x / x),
                         torch.isinf(x), torch.isfinite(x), torch.where(x > y, x, y),
                         torch.logical_and(x > 0, y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0),
                         ~(x > 0), x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clip(max=0.2),
                         torch.isclose(x, y), x.masked_fill(x > 0, 7.0)), (
        drawn(3, 4).round(), drawn(3, 4).round())  # fmt: skip


@corpus_model
def casts():
    return lambda x, i: (
        x.to(torch.int32),
        x.to(torch.float64) * 1.1,
        x.half() + 1,
        x.bfloat16(),
        i.float() / 3,
        (x > 0).float(),
        i.bool(),
        i.to(torch.uint8),
        x.long(),
        i.to(torch.int8),
    ), (5 * drawn(3, 6), signed(200, 3, 6))


@corpus_model
def narrow():
    return lambda a, b: (
        a @ b,
        a.sum(0),
        torch.softmax(a, -1),
        a.exp() * 2,
        F.layer_norm(a, (12,)),
        a.amax(1),
    ), (drawn(5, 12, dtype=torch.bfloat16), drawn(12, 7, dtype=torch.bfloat16))


@corpus_model
def halves():
    return lambda a, b: (a @ b, a.mean(1), F.gelu(a), a / 3), (
        drawn(4, 9, dtype=torch.float16),
        drawn(9, 6, dtype=torch.float16),
    )


@corpus_model
def doubles():
    return lambda a, b: (
        a @ b,
        a.sum(1),
        a.exp(),
        a.sin(),
        a.tanh(),
        a.abs().log(),
        a.var(0),
        F.gelu(a),
        a.abs().pow(0.3),
    ), (drawn(4, 9, dtype=torch.float64), drawn(9, 6, dtype=torch.float64))


@corpus_model
def complex_numbers():
    return lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2), (drawn(2, 8),)


# -- reductions ------------------------------------------------------------------------------------


@corpus_model
def reductions():
    return lambda x: (
        x.sum(),
        x.sum(0),
        x.sum((0, 2)),
        x.mean(1, keepdim=True),
        x.amax(-1),
        x.amin((1, 2)),
        x.prod(2),
        x.var(1),
        x.std((0, 2), correction=0),
        x.argmax(1),
        x.argmin(),
        (x > 0).any(1),
        (x > -3).all(),
        x.norm(dim=1),
        torch.var_mean(x, 2),
        x.abs().sum(-1),
    ), (drawn(3, 5, 7),)


@corpus_model
def long_reductions():
    return lambda x, y: (x.sum(1), x.amax(1), y.sum(0), y.mean((0, 1)), x.logsumexp(1)), (
        drawn(2, 5000),
        drawn(300, 3),
    )


@corpus_model
def row_kernels():
    return lambda x: (torch.softmax(x, -1), F.layer_norm(x, (70,)), x.sum(-1), x.sum(0)), (
        drawn(37, 70),
    )


@corpus_model
def scans():
    return lambda x: (x.cumsum(1), x.cumsum(0), x.cumprod(1), x.flip(1).cumsum(1)), (drawn(4, 300),)


@corpus_model
def sorting():
    return lambda x: (
        *x.sort(1),
        *x.topk(3, 1),
        x.argsort(0, descending=True),
        torch.topk(x, 2, 0, largest=False)[0],
    ), (drawn(4, 9).round(decimals=1),)


def _positive(size: int) -> torch.Tensor:
    x = drawn(size, size)
    return x @ x.mT + torch.eye(size)


@corpus_model
def factors():
    return lambda a, s, b: (
        *torch.linalg.lu_factor_ex(a),
        torch.linalg.solve(a, b),
        torch.linalg.slogdet(a).logabsdet,
        *torch.linalg.cholesky_ex(s),
        torch.cholesky_solve(b, s.tril()),
        torch.linalg.solve_triangular(s, b, upper=True, unitriangular=True),
    ), (drawn(2, 5, 5), _positive(5), drawn(5, 3))


@corpus_model
def orthogonal_factors():
    return lambda x, s: (
        *torch.linalg.qr(x, mode="complete"),
        torch.linalg.svdvals(x),
        torch.linalg.pinv(x),
        *torch.linalg.eigh(s),
    ), (drawn(5, 3), _positive(5))


# -- products --------------------------------------------------------------------------------------


@corpus_model
def product_small():
    return lambda a, b, c: (a @ b, (a @ b).t() @ a, torch.relu(a @ b + c)), (
        drawn(3, 5),
        drawn(5, 4),
        drawn(4),
    )


@corpus_model
def product_tiles():
    return lambda a, b, c: torch.relu(a @ b + c), (drawn(65, 70), drawn(70, 83), drawn(83))


@corpus_model
def product_long():
    return lambda a, b: a @ b, (drawn(9, 600), drawn(600, 33))


@corpus_model
def products_of_whole_chunks():
    """Sums whose terms are a whole number of chunks, and one more or less."""

    def run(a, b, c, d):
        return a @ b, a[:, :256] @ b[:256], c @ d, c[:, 1:] @ d[1:]

    return run, (drawn(17, 512), drawn(512, 33), drawn(3, 608), drawn(608, 5))


@corpus_model
def product_batched():
    return lambda a, b: (
        torch.bmm(a, b),
        torch.einsum("bij,bjk->bki", a, b),
        torch.einsum("bij,bkj->ik", a, a),
        a.transpose(1, 2) @ a,
    ), (drawn(3, 6, 10), drawn(3, 10, 9))


@corpus_model
def product_vectors():
    return lambda a, b, c: (
        a @ b,
        b @ b,
        torch.outer(b, c),
        torch.addmm(c, a, a.t()),
        torch.baddbmm(c, a[None], a.t()[None], alpha=2.0, beta=0.5),
    ), (drawn(6, 40), drawn(40), drawn(6))


@corpus_model
def product_integers():
    return lambda a, b: (a @ b, (a.to(torch.int32) @ b.to(torch.int32))), (
        signed(9, 4, 7),
        signed(9, 7, 3),
    )


@corpus_model
def product_epilogue():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(48, 64), nn.Linear(64, 48)

        def forward(self, x):
            return x + self.b(F.gelu(self.a(x)))

    return M(), (drawn(20, 48),)


# -- shapes ----------------------------------------------------------------------------------------


@corpus_model
def shapes():
    return lambda x: (
        x.reshape(6, 4),
        x.transpose(0, 2).reshape(-1),
        x.permute(2, 0, 1),
        x[1:, ::2],
        x.flip(0),
        x.unsqueeze(1).expand(2, 5, 3, 4),
        x.repeat(1, 2, 1),
        torch.cat((x, x * 2), 1),
        torch.stack((x, x)),
        x.roll(1, 2),
        F.pad(x, (1, 2, 0, 1), value=0.5),
        x.split(2, 1)[1],
        x.chunk(2, 2)[0],
        x.squeeze(),
        x.flatten(1),
        x.unbind(0)[1],
    ), (drawn(2, 3, 4),)


@corpus_model
def pads():
    return lambda x: (
        F.pad(x, (2, 1), mode="reflect"),
        F.pad(x, (1, 2), mode="replicate"),
        F.pad(x, (2, 2), mode="circular"),
        F.pad(x, (-1, 1)),
        x.tril(),
        x.triu(1),
        x.diagonal(),
        torch.diag_embed(x),
        x.unfold(1, 3, 2),
        F.unfold(x[None, :, None, :].expand(1, 4, 3, 6), 2),
    ), (drawn(4, 6),)


@corpus_model
def indexing():
    def run(x, i):
        y = x.clone()
        y[1] = x[0] * 2
        z = x.clone()
        z[:, 1:3] += 1
        return (
            x[i],
            x.index_select(1, i),
            x.gather(1, i[None, :].expand(4, 3)),
            y,
            z,
            x.scatter(1, i[None, :].expand(4, 3), 5.0),
            x.index_add(0, i, x[:3]),
            x.scatter_add(0, i[None, :].expand(2, 3), x[:2, :3]),
            F.one_hot(i, 5),
            torch.take_along_dim(x, i[:, None], 0),
            x[:, i],
            x.index_copy(0, i, x[:3] * 3),
            x.index_put((i, i), x[0, :3], accumulate=True),
        )

    return run, (drawn(4, 5), torch.tensor([2, 0, 3]))


@corpus_model
def embedding():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(11, 6, padding_idx=0), nn.Linear(6, 11)

        def forward(self, i):
            return self.last(self.table(i)), F.embedding_bag(i, self.table.weight, mode="mean")

    return M(), (torch.randint(0, 11, (2, 5)),)


@corpus_model
def creation():
    return lambda x: (
        torch.arange(5) + x[0, 0].long(),
        torch.full_like(x, 3) * x,
        x + torch.eye(4),
        torch.linspace(0, 1, 4) * x,
        torch.zeros(4, 4) + x,
        torch.ones_like(x) - x,
        torch.tril(torch.ones(4, 4)) * x,
        torch.arange(0, 8, 2) * x,
    ), (drawn(4, 4),)


@corpus_model
def meshes():
    return lambda x, y: (
        *torch.meshgrid(x, y, indexing="ij"),
        torch.cdist(x[:, None], y[:, None]),
        torch.cross(x[None], x[None], dim=1),
        torch.kron(x[None], y[None]),
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
    ), (drawn(3), drawn(4))


# -- rules -----------------------------------------------------------------------------------------


@corpus_model
def algebra():
    return lambda x, y: (x * 1.0 + 0.0, x / 1.0 - 0.0, x.neg().neg(), x**1, x**2, x / 4.0, x + (-y),
                         x - (-y), x.abs().abs(), (-x).abs(), torch.relu(torch.relu(x)),
                         torch.where(torch.ones_like(x, dtype=torch.bool), x, y),
                         torch.where(x > y, x, x), ~(~(x > y)), x.expand(3, 5).contiguous(),
                         1.0 * y, 0.0 + y, (x + 1) + 2), (drawn(3, 5), drawn(3, 5))  # fmt: skip


@corpus_model
def algebra_of_integers():
    return lambda x, y: (
        x * 1 + 0,
        x // 1,
        x.neg().neg(),
        torch.maximum(x, x),
        torch.minimum(y, y),
        torch.bitwise_and(x, x),
        torch.clamp(x, min=-(2**63)),
        x * 2 * 3,
        torch.bitwise_xor(x, y),
        x.sum(1, keepdim=True),
        x.to(torch.int64),
        torch.bitwise_and(x, y),
        torch.bitwise_or(x, y),
    ), (signed(9, 3, 4), signed(9, 3, 4))


@corpus_model
def shape_algebra():
    def run(x):
        a = x.transpose(0, 1).transpose(0, 1) + 1
        b = x.reshape(24).reshape(4, 6).t().t().reshape(2, 3, 4)
        c = x.permute(1, 2, 0).permute(2, 0, 1)
        d = torch.cat((x[:, :1], x[:, 1:]), 1)
        e = x.unsqueeze(0).squeeze(0).expand(2, 3, 4)
        f = x[:, 0:3][:, 1:2].reshape(2, 4)
        g = F.pad(x, (0, 0)) * F.pad(x, (1, 1))[..., 1:5]
        h = x.flip(1).flip(1).sum(1, keepdim=True).sum(2).reshape(2)
        i = torch.cat((torch.cat((x, x), 0), x), 0).permute(0, 2, 1).reshape(6, 12)
        return a, b, c, d, e, f, g, h, i, x.reshape(6, 4).sum(1), x.permute(2, 1, 0).amax(0)

    return run, (drawn(2, 3, 4),)


@corpus_model
def merged_axes():
    """Neighbouring axes of a turned tensor merged into one: a view only where their strides fit."""

    def run(x, rows):
        turned = (x.permute(order) for order in itertools.permutations(range(4)) if order[-1] == 3)
        behind = rows.permute(1, 2, 0).flatten(0, 1) * 2  # an axis as long as the last one merged
        return [y.flatten(axis, axis + 1) * 2 for y in turned for axis in range(3)] + [behind]

    return run, (drawn(3, 2, 2, 4), drawn(3, 2, 3))


@corpus_model
def shared_work():
    def run(x):
        a, b = torch.exp(x) + 1, torch.exp(x) + 1
        c = (x * torch.tensor([1.0, 2.0, 3.0])).sum(0) * torch.tensor(2.0).sqrt()
        unused = torch.sin(x) @ torch.ones(3, 3)  # noqa: F841
        return a * b, c, (x + x) * (x + x), torch.sum(x) - torch.sum(x)

    return run, (drawn(4, 3),)


@corpus_model
def fold_norms():
    return nn.Sequential(
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Conv2d(3, 4, 1),
        nn.BatchNorm2d(4),
        nn.ConvTranspose2d(4, 3, 2),
        nn.BatchNorm2d(3),
        nn.Flatten(1),
        nn.Linear(3 * 5 * 5, 6),
        nn.BatchNorm1d(6),
    ), (drawn(2, 3, 4, 4),)


@corpus_model
def fused_chain():
    def run(x, y, b):
        a = torch.sigmoid(x * y + b)
        s = (a * x).sum(-1, keepdim=True)
        m = (a - s).amax(-1, keepdim=True)
        return (a - m).exp() / s, (a * a).mean(0), a.t().contiguous() + x.t()

    return run, (drawn(17, 20), drawn(17, 20), drawn(20))


@corpus_model
def broadcasts():
    return lambda x, y, z: (
        x.t()[:, :, None] + y,
        (x * z).sum(0),
        y.expand(4, 3, 5) * z,
        x[:, :, None] * z.mean(),
        (x[..., None] - y).amax(1),
    ), (drawn(4, 3), drawn(1, 5), drawn(1))


@corpus_model
def saturated():
    return (
        lambda x, y: (
            (x * y + x * 2).transpose(0, 1).reshape(-1),
            (x + y) - y,
            torch.exp(x) * torch.exp(y),
            (x @ y.t()).t(),
        ),
        (drawn(4, 5), drawn(4, 5)),
        ("--insert", "saturate"),
        (CHECK,),
    )


@corpus_model
def widened():
    return (
        lambda x, y: (x.sum(1), x.mean(), x @ y),
        (drawn(4, 70), drawn(70, 3)),
        ("--insert", "widen_sums", "--insert", "round_correctly"),
        (CHECK,),
    )


@corpus_model
def rematerialised():
    return (
        lambda x: (x.exp(), (x.exp().sin() @ x).tanh() * x.exp()),
        (drawn(12, 12),),
        ("--insert", "rematerialise@after:outline_kernels"),
        (CHECK,),
    )


@corpus_model
def narrow_vectors():
    return (
        nn.Sequential(nn.Conv2d(5, 9, 3), nn.ReLU(), nn.Flatten(1), nn.Linear(9 * 9, 7)),
        (drawn(2, 5, 5, 5),),
        ("--target-option", "vector_width=8", "--target-option", "tiles=small"),
        (CHECK,),
    )


# -- losses ----------------------------------------------------------------------------------------


@corpus_model
def losses():
    return lambda x, t, c: (
        F.mse_loss(x, t),
        F.l1_loss(x, t, reduction="sum"),
        F.huber_loss(x, t),
        F.smooth_l1_loss(x, t, beta=0.5),
        F.cross_entropy(x, c),
        F.cross_entropy(x, c, label_smoothing=0.1, reduction="none"),
        F.nll_loss(F.log_softmax(x, 1), c),
        F.kl_div(x, t.softmax(1)),
        F.binary_cross_entropy(x.sigmoid(), t.sigmoid()),
        F.binary_cross_entropy_with_logits(x, t.sigmoid()),
        F.cosine_similarity(x, t),
        F.soft_margin_loss(x, t.sign()),
        F.pairwise_distance(x, t),
        F.poisson_nll_loss(x, t.abs()),
    ), (drawn(4, 5), drawn(4, 5), torch.tensor([1, 0, 4, 2]))


@corpus_model
def losses_of_some():
    """Targets that count for nothing; a class that the others do not have."""
    return lambda x, c, y, e: (
        F.cross_entropy(x, c),
        F.cross_entropy(x, c, reduction="none"),
        F.cross_entropy(x, c.clamp(min=0), ignore_index=2, reduction="sum"),
        F.nll_loss(F.log_softmax(x, 1), c, reduction="none"),
        F.cross_entropy(x, c, reduction="none").sum(),
        F.cross_entropy(x, c).sum(),
        F.cross_entropy(y, e, reduction="none").sum(1),
        -F.log_softmax(x, 1).gather(1, (c % 5)[:, None]),
        -F.log_softmax(x, 1).gather(1, torch.stack([c % 5, c % 3], 1)),
    ), (
        drawn(6, 5),
        torch.tensor([1, -100, 4, 2, 0, -100]),
        drawn(2, 5, 3),
        torch.tensor([[1, 0, 4], [3, 3, 2]]),
    )


@corpus_model
def turned_results():
    """Results that are transposed, of products and of others."""
    return lambda x, y: (
        (x * 2).t(),
        (x @ y.t()).t(),
        torch.softmax(x, 1).t().contiguous(),
        (x @ y.t()).unsqueeze(0).permute(2, 0, 1),
        x.t(),
        (x - 1).t() * 2,
    ), (drawn(6, 40), drawn(5, 40))


@corpus_model
def norms_scaled_along_another_axis():
    """Norms by instance and by group, channels first and last, whose scale is one number for each
    channel, for each row, and for each sample; all of them are as many."""

    def by_group(x):  # channels last
        parts = x.reshape(2, 4, 4, 2, 2)
        spread, mean = torch.var_mean(parts, (1, 2, 4), correction=0, keepdim=True)
        return ((parts - mean) * torch.rsqrt(spread + 1e-5)).reshape(2, 4, 4, 4)

    return lambda u, v, x, y, z, s, t: (
        F.layer_norm(u, (4, 4)) * s[:, None] + t[:, None],
        F.layer_norm(v, (4, 4)) * s[:, None, None] + t[:, None, None],
        by_group(x) * s + t,
        by_group(y) * s[:, None, None] + t[:, None, None],
        F.layer_norm(z, (3, 3)) * s[:, None, None, None] + t[:, None, None, None],
    ), (*(drawn(2, 4, 4, 4) for _ in range(4)), drawn(4, 4, 3, 3), drawn(4), drawn(4))


@corpus_model
def convolutions_of_chunks():
    """Convolutions of more channels than a chunk of them, at 9, 6 and 3 taps."""
    return lambda x, a, b, c, d: (
        F.conv2d(x, a, padding=1),
        F.conv_transpose2d(x, b),
        F.conv2d(x, c),
        F.conv_transpose2d(x, d, stride=2),
        F.conv_transpose2d(x, b, stride=1, padding=1),
    ), (
        drawn(1, 140, 3, 4),
        drawn(2, 140, 3, 3),
        drawn(140, 2, 3, 3),
        drawn(2, 140, 2, 3),
        drawn(140, 2, 1, 3),
    )


@corpus_model
def bits_of_integers():
    """Beside what rules of booleans and zeros are about."""
    return lambda x: (x & 1, x | 1, x & -1, x | 0, x ^ 0, x ^ 1, x & 0), (signed(9, 3, 5),)


@corpus_model
def conv_transposed_wide():
    """More channels than a chunk of them."""
    return nn.ConvTranspose2d(70, 2, 2, stride=2), (drawn(1, 70, 3, 4),)


@corpus_model
def conv_transposed_whole():
    return (
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        (drawn(1, 3, 5, 4),),
        ("--skip", "split_strided_convolutions"),
    )


@corpus_model
def batch_norms_by_hand():
    """With statistics that are given: three forms, and one whose scale is of each element."""

    def run(x, y, mean, spread, scale, bias):
        mean, spread, scale, bias = (v[:, None, None] for v in (mean, spread.abs(), scale, bias))
        return (
            (x - mean) / torch.sqrt(spread + 1e-3) * scale + bias,
            (x - mean) * torch.rsqrt(spread + 1e-3) * scale + bias,
            (x - mean) * (torch.rsqrt(spread + 1e-3) * scale) + bias,
            (x - mean) / torch.sqrt(spread + 1e-3) * y + bias,
        )

    return run, (drawn(2, 3, 4, 5), drawn(2, 3, 4, 5), *(drawn(3) for _ in range(4)))


@corpus_model
def attention_of_what_is_repeated():
    """Shares, queries, and exponentials that a broadcast repeats before a product or a sum."""

    def run(q, k, v, queries, keys):
        shares = torch.softmax(q @ k.transpose(1, 2), 2).expand(3, 4, 5)
        others = torch.softmax(queries.expand(3, 4, 6) @ keys.transpose(1, 2), 2)
        x = torch.exp(q - q.amax(2, keepdim=True))
        return shares @ v, others @ v, x.expand(3, 4, 6) / x.sum(2, keepdim=True).expand(3, 4, 6)

    return run, (drawn(1, 4, 6), drawn(1, 5, 6), drawn(3, 5, 2), drawn(1, 4, 6), drawn(3, 5, 6))


@corpus_model
def attention_over_a_batch():
    """A softmax over the batch of its scores, which the second product sums up."""

    def run(q, k, v):
        shares = torch.softmax(q @ k.transpose(1, 2), 0)
        return torch.einsum("bqk,bv->qkv", shares, v), torch.einsum("bqk,bkv->qkv", shares, q)

    return run, (drawn(3, 4, 6), drawn(3, 4, 6), drawn(3, 2))


@corpus_model
def conv_transposed_beyond_its_end():
    """One tap, so that no position lies before the image, and padding of the result behind it."""
    return nn.ConvTranspose1d(2, 3, 1, dilation=4, output_padding=3), (drawn(2, 2, 5),)


@corpus_model
def acos_in_f64():
    """Functions that only what is judged in f64 calls otherwise."""
    return lambda x: (torch.acos(x), torch.asinh(x), torch.erf(x), torch.expm1(x), torch.atan(x)), (
        torch.linspace(-0.99, 0.99, 40, dtype=torch.float64),
    )
