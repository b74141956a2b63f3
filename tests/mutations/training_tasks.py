"""Training steps of the corpus: functions that return a torch model and its data."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

#: Task -> the function that makes it, and further words of ``workbench train``.
TASKS: dict[str, tuple[Callable, tuple[str, ...]]] = {}
BATCH = 4


def task(*extra: str) -> Callable:
    def enter(make: Callable) -> Callable:
        TASKS[make.__name__] = make, extra
        return make

    return enter


def every() -> dict[str, tuple[Callable, tuple[str, ...]]]:
    importlib.import_module("tests.mutations.edges.training")  # it enters its tasks
    return TASKS


_REGRESSION = ("--loss", "mse")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal((BATCH, *shape)).astype(np.float32)


def classes(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, count, BATCH)


class _Zoo(nn.Module):
    """A linear layer, several functions of its result, and the sum of all of them."""

    def __init__(self, width: int, function: Callable[..., Any], out: int = 0) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(width, out or width), function
        self.weight = nn.Parameter(torch.rand(out or width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.function(self.first(x), self.weight)
        return torch.cat([p.reshape(x.shape[0], -1) for p in parts], 1)


def zoo(function: Callable[..., Any], width: int = 6) -> tuple[nn.Module, tuple]:
    torch.manual_seed(0)
    module = _Zoo(width, function)
    with torch.no_grad():
        out = module(torch.zeros(BATCH, width)).shape[1]
    return module, (floats(width), floats(out))


@task("--optimizer", "adam")
def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)), (floats(5), classes(3))


@task()
def cnn():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 2, groups=2),
        nn.AvgPool2d(2, 1, 1),
        nn.Flatten(1),
        nn.Linear(36, 3),
    )
    return net, (floats(2, 13, 13)[:, :, :12, :12], classes(3))


@task("--shards", "2", "--clip-norm", "0.5")
def sharded():
    """Gradients and statistics of a norm that are added up over shards."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(1), nn.Linear(16, 3)
    )
    return net, (floats(2, 6), classes(3))


@task("--shards", "2", "--loss", "mse")
def sharded_dropout():
    """Random numbers of samples that lie on two shards."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.4), nn.Linear(6, 2)), (floats(4), floats(2))


@task(*_REGRESSION)
def unary():
    return zoo(lambda x, w: (x.exp(), x.expm1(), x.exp2(), (x.abs() + 0.1).log(), x.sin(), x.cos(),
                              x.tanh(), x.sigmoid(), x.erf(), x.erfc(), (x * x + 0.1).sqrt(),
                              (x * x + 0.1).rsqrt(), x.abs(), -x, x.relu(), x.square(),
                              (x * x + 0.2).log2(), (x * x).log1p(), x.atan(), x.sinh(), x.cosh(),
                              x.tan(), x.asinh(), x.tanh().mul(0.9).asin(),
                              x.tanh().mul(0.9).acos(), x.tanh().mul(0.9).atanh(),
                              (x * x + 1.2).acosh(), (x * x + 0.3).log10()))  # fmt: skip


@task(*_REGRESSION)
def binary():
    return zoo(
        lambda x, w: (
            x * w,
            x / w,
            x - w,
            x.abs() ** w,
            torch.maximum(x, w * 0.1),
            torch.minimum(x, w * 0.1),
            torch.atan2(x, w),
            torch.fmod(x, w),
            torch.remainder(x, w),
            torch.where(x > 0, x * w, w),
            x.clamp(-0.5, 0.5),
            torch.lerp(x, w * x, 0.3),
        )
    )


@task(*_REGRESSION)
def ties():
    """Operands that are equal, differences and norms that are 0: where the gradient goes then."""

    def run(x, w):
        same = x.detach()
        return (
            torch.fmax(same, x) * w,
            torch.fmax(x, same),
            torch.fmin(same, x),
            x.clamp(same, w),
            torch.fmin(x, same) * w,
            torch.maximum(x, same),
            torch.minimum(same, x),
            torch.stack((x, same), 1).amax(1),
            torch.where(x > same, x, same),
            torch.xlogy(x - same, w.abs() + 0.5),
            (x - same).norm(dim=1),
            (x - same).norm(3, dim=1),
        )

    return zoo(run)


@task()
def embeddings():
    """A row that is read and has no gradient."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Embedding(7, 5, padding_idx=2)
            self.out = nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(
                self.rows(x.abs().to(torch.int64) % 7 * 0 + 2).sum(1)
                + self.rows((x.abs() * 3).to(torch.int64) % 7).sum(1)
            )

    torch.manual_seed(0)
    return Net(), (floats(6), classes(3))


@task(*_REGRESSION)
def reductions():
    return zoo(lambda x, w: (x.sum(1, keepdim=True), x.mean(1, keepdim=True), x.amax(1), x.amin(1),
                              x.prod(1), x.var(1), x.std(1, correction=0), x.logsumexp(1),
                              x.cumsum(1), torch.softmax(x * w, 1), F.log_softmax(x, 1),
                              x.norm(dim=1), x.cumprod(1), F.relu(x - 9).norm(dim=1)))  # fmt: skip


@task(*_REGRESSION)
def shapes():
    def run(x, w):
        y = x.reshape(-1, 2, 3)
        index = torch.tensor([1, 0, 3])
        return (y.transpose(1, 2), y.flip(1), F.pad(x, (1, 2)), x[:, 1:4], x[:, ::2],
                torch.cat((x, x * w), 1), torch.stack((x, w * x), 1), x.roll(1, 1), x.repeat(1, 2),
                x[:, index], x.gather(1, index.expand(x.shape[0], 3)), y.tril(), x.unfold(1, 3, 2),
                x.scatter(1, index.expand(x.shape[0], 3), 0.5 * x[:, :3]), x.expand(2, -1, -1)[0],
                x.index_add(1, index, x[:, :3]), x.sort(1).values, x.topk(2, 1).values,
                F.pad(x, (2, 1), mode="reflect"))  # fmt: skip

    return zoo(run)


@task(*_REGRESSION)
def norms():
    def run(x, w):
        y = x.reshape(-1, 2, 3)
        return (
            F.layer_norm(x, (6,), w),
            F.group_norm(y, 2),
            F.instance_norm(y),
            F.normalize(x, dim=1),
            x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w,
            F.layer_norm(y, (2, 3)),
            F.normalize(F.relu(x - 9), dim=1),
        )

    return zoo(run)


@task(*_REGRESSION)
def activations():
    return zoo(lambda x, w: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x),
                              F.elu(x, 0.7), F.selu(x), F.leaky_relu(x, 0.2), F.prelu(x, w[:1]),
                              F.hardswish(x), F.hardsigmoid(x), F.softplus(x), F.logsigmoid(x),
                              F.softsign(x), F.relu6(x), F.glu(x), F.hardtanh(x)))  # fmt: skip


@task(*_REGRESSION)
def products():
    def run(x, w):
        y, z = x.reshape(-1, 2, 3), (x * w).reshape(-1, 3, 2)
        return (
            y @ z,
            torch.einsum("bij,bjk->bki", y, z),
            x @ (w[:, None] * w),
            x @ w,
            F.scaled_dot_product_attention(y, y * 0.5, z.transpose(1, 2), is_causal=True),
            y.transpose(1, 2) @ y,
        )

    return zoo(run)


@task(*_REGRESSION)
def pooling():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(2, 3, 3, padding=1)
            self.b = nn.ConvTranspose2d(3, 2, 2, stride=2)
            self.c = nn.Conv1d(3, 2, 2, dilation=2)

        def forward(self, x):
            y = self.a(x)
            z = F.conv2d(y, y[:1, :, :2, :2].detach() + self.a.bias[None, :, None, None])
            parts = (
                F.max_pool2d(y, 3, 2, 1),
                F.avg_pool2d(y, 2),
                self.b(y),
                z,
                F.interpolate(y, scale_factor=2.0),
                F.adaptive_avg_pool2d(y, 1),
                self.c(y.flatten(2)),
                F.interpolate(y, (5, 7), mode="bilinear", align_corners=False),
            )
            return torch.cat([p.flatten(1) for p in parts], 1)

    torch.manual_seed(0)
    module = M()
    x = floats(2, 6, 6)
    with torch.no_grad():
        out = module(torch.tensor(x)).shape[1]
    return module, (x, floats(out))


@task()
def words():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.last = nn.Linear(8, 3)

        def forward(self, i):
            x = self.table(i)
            x = x + self.attention(self.norm(x), x, x, need_weights=False)[0]
            return self.last(x.mean(1))

    torch.manual_seed(0)
    return M(), (np.random.default_rng(1).integers(0, 9, (BATCH, 5)), classes(3))


@task()
def recurrent():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.last = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, x):
            return self.last(self.cell(x)[0][:, -1])

    torch.manual_seed(0)
    return M(), (floats(3, 4), classes(3))


@task(*_REGRESSION)
def losses():
    """Losses in the middle of a model, with weights, smoothing, targets that are left out."""

    def run(x, w):
        classes, some = torch.tensor([1, 0, 3, 5]), torch.tensor([2, -100, 4, 0])
        weight, target = w.detach(), torch.linspace(0.1, 0.9, 24).reshape(BATCH, 6)
        means = (
            F.cross_entropy(x, some, weight, label_smoothing=0.2),
            F.cross_entropy(x, some),
            F.nll_loss(F.log_softmax(x, 1), some, weight),
            F.cross_entropy(x, target),
            F.kl_div(F.log_softmax(x, 1), target, reduction="batchmean"),
            F.multi_margin_loss(x, classes),
            F.poisson_nll_loss(x, target),
        )
        return (
            *(m.expand(BATCH) for m in means),
            F.cross_entropy(x, classes, reduction="none"),
            F.cross_entropy(x, classes, weight, label_smoothing=0.3, reduction="none"),
            F.smooth_l1_loss(x, target, beta=0.3, reduction="none"),
            F.huber_loss(x, target, delta=0.4, reduction="none"),
            F.binary_cross_entropy(x.sigmoid(), target, reduction="none"),
            F.binary_cross_entropy_with_logits(x, target, weight, reduction="none"),
            F.soft_margin_loss(x, target, reduction="none"),
        )

    return zoo(run)


@task("--loss", "own")
def smoothed_loss():
    """A smoothed cross entropy that is recognised as a whole, and the mean of one without."""

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(5, 7)

        def forward(self, x, t):
            y = self.first(x)
            return F.cross_entropy(y, t, label_smoothing=0.15) + F.cross_entropy(y * y, t)

    torch.manual_seed(0)
    return M(), (floats(5), classes(7))


@task("--loss", "own")
def weighted_loss():
    """Losses with a weight for each class and a class that is left out."""

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(5, 7)
            self.register_buffer("weight", torch.rand(7) + 0.5)

        def forward(self, x, t):
            y = self.first(x)
            return F.cross_entropy(y, t, self.weight) + F.nll_loss(
                F.log_softmax(y * y, 1), t, self.weight, ignore_index=4
            )

    torch.manual_seed(0)
    return M(), (floats(5), np.array([4, 2, 6, 0]))


@task("--loss", "own")
def neighbours():
    """State whose next value, made of the loss, reads the old one at other places."""

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row = nn.Parameter(torch.rand(6))
            self.register_buffer("history", torch.rand(40))
            self.register_buffer("order", torch.randperm(40))
            self.register_buffer("mix", torch.rand(40, 6))

        def forward(self, x):
            loss = (x * self.row).square().mean() + (self.row * self.row.roll(1)).sum()
            late = self.mix @ (x[0] * loss.detach())  # a kernel after the loss
            self.history.copy_(self.history[self.order] * 0.5 + late)
            return loss

    torch.manual_seed(0)
    return M(), (floats(6),)
