"""Training tasks for gradients at branches that ordinary tasks do not reach."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.mutations.training_tasks import floats, task


class _Held(nn.Module):
    """Parameters with given values; the loss is the weighted sum of what a function makes of
    them."""

    def __init__(self, function, **values) -> None:
        super().__init__()
        self.function, self.names = function, list(values)
        for name, value in values.items():
            value = value if isinstance(value, torch.Tensor) else torch.tensor(value)
            self.register_parameter(name, nn.Parameter(value))
        torch.manual_seed(0)
        sizes = [part.numel() for part in self._parts()]
        for i, size in enumerate(sizes):
            self.register_buffer(f"weight_{i}", torch.rand(size) + 0.5)

    def _parts(self):
        return self.function(*(getattr(self, name) for name in self.names))

    def forward(self, x, t):
        parts = [
            (getattr(self, f"weight_{i}") * part.reshape(-1).float()).sum()
            for i, part in enumerate(self._parts())
        ]
        return torch.stack(parts).sum() + (x.mean() - t.mean())


def _held(function, **values):
    data = floats(2)
    return _Held(function, **values), (data, data[:, :1].copy())


@task("--loss", "own")
def slopes_at_bounds():
    """Probabilities of 0 and 1, a sharper exponential, a deviation of a narrow dtype, rows that are
    cropped, and the gradients of some operands only."""

    def run(shares, targets, x, rows, scale, bias):
        return (
            F.binary_cross_entropy(shares, targets, reduction="none"),
            F.celu(x, 0.5),
            F.binary_cross_entropy(shares.detach(), targets, reduction="none"),
            F.pad(rows, (-1, 2, 1, -1)),
            F.pad(rows, (-1, 0)),
            F.pad(rows, (0, -1)),
            F.layer_norm(rows.detach(), (3,), scale, bias),
            F.layer_norm(rows, (3,), scale.detach(), bias),
            rows.to(torch.bfloat16).std(1, correction=0),
        )

    return _held(
        run,
        shares=[0.0, 1.0, 0.0, 1.0, 0.3],
        targets=[0.0, 1.0, 0.7, 0.2, 0.6],
        x=[-2.5, -0.5, 0.0, 0.25],
        rows=[[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]],
        scale=[1.5, 0.5, -1.0],
        bias=[0.25, 0.0, -0.5],
    )


@task("--loss", "own")
def losses_of_classes():
    """Class weights with smoothing, classes that are not the last axis, squares in the middle of a
    model of which both sides have gradients."""
    classes, weight = torch.tensor([1, 0, 3, 2]), torch.tensor([0.5, 1.5, 0.75, 1.0, 2.0])
    places = torch.tensor([[1, 0, 4], [3, -100, 2]])

    def run(x, y, image, target):
        return (
            F.cross_entropy(x, classes, weight.to(x.dtype), label_smoothing=0.2),
            F.cross_entropy(image, places),
            F.cross_entropy(image * image, places, weight.to(x.dtype)),
            F.mse_loss(y, target),
            ((y * y - target) ** 2).sum(),
            F.mse_loss(y.detach(), target),
        )

    torch.manual_seed(1)
    return _held(
        run,
        x=torch.randn(4, 5),
        y=torch.randn(2, 3),
        image=torch.randn(2, 5, 3),
        target=torch.randn(2, 3),
    )


@task("--loss", "own")
def scattered_ties():
    """Elements written to several times: equal ones, products with zeros, the last rows."""
    places = torch.tensor([4, 0, 4, 1, 0, 2])
    rows, columns = torch.tensor([2, 0]), torch.tensor([3, 1])

    def run(x, updates, table, few):
        return (
            x.scatter_reduce(0, places, updates, "amax"),
            x.scatter_reduce(0, places, updates, "amin", include_self=False),
            x.scatter_reduce(0, places, updates, "prod"),
            table[places[[0, 2, 4]] // 2 % 3],
            table.index_put((rows, columns), few),
            table[rows, columns],
        )

    torch.manual_seed(1)
    return _held(
        run,
        x=[1.0, 0.0, 2.0, -1.0, 0.5],
        updates=[0.5, 1.0, 0.5, 0.0, 3.0, -2.0],
        table=torch.randn(3, 4),
        few=[0.5, -1.5],
    )


@task("--loss", "own")
def pools_of_many_windows():
    """Elements that more windows than a chunk meet, windows with gaps, pools of other dtypes."""

    def run(wide, x):
        wide, narrow = wide[None, None], x[None].to(torch.bfloat16)
        return (
            F.avg_pool2d(wide, 17, 1),
            F.max_pool2d(x[None], 2, (2, 1), dilation=(1, 2)),
            F.max_pool2d(x[None], (2, 3), 1, (1, 1), dilation=(2, 1), ceil_mode=True),
            F.avg_pool2d(x[None], (3, 2), (2, 1), (1, 0), count_include_pad=False),
            F.avg_pool2d(narrow, 2, 1),
            F.max_pool2d(narrow, (2, 3), 1),
            F.avg_pool2d(x[None].double(), (2, 3)),
        )

    torch.manual_seed(2)
    return _held(run, wide=torch.randn(33, 34), x=torch.randn(2, 6, 7))
