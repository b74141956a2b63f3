"""Models with their data, for ``workbench train tests.training.torch_tasks:FUNCTION``."""

from __future__ import annotations

import numpy as np
import torch


def _rows(count: int = 32, width: int = 6) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)


def _classes(count: int = 32) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 5, count)


def linear():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 5))
    return model, (_rows(), _classes())


class Tied(torch.nn.Module):
    """One weight under two names, a frozen one, a buffer that counts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm, self.head = torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.norm(self.second(self.first(x).relu())))


class Centred(torch.nn.Module):
    """Biases that are 0 and stay so: the normalisation behind them takes every mean away."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(6, 1) for _ in range(10))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(1) for _ in range(10))
        self.head = torch.nn.Linear(10, 5)
        for part in self.parts:
            torch.nn.init.zeros_(part.bias)

    def forward(self, x):
        pairs = zip(self.parts, self.norms, strict=True)
        return self.head(torch.cat([norm(part(x)) for part, norm in pairs], 1).relu())


def normal():
    """A normalisation with a scale and a bias."""
    torch.manual_seed(0)
    parts = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 5)
    return torch.nn.Sequential(*parts), (_rows(), _classes())


def centred():
    return Centred(), (_rows(), _classes())


def tied():
    return Tied(), (_rows(), _classes())


def dropout():
    model, data = linear()
    return torch.nn.Sequential(model[0], torch.nn.Dropout(0.5), model[1], model[2]), data


class Noise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(6, 5)

    def forward(self, x):
        return self.head(x + torch.randn_like(x))


def noise():
    return Noise(), (_rows(), _classes())


def onnx():
    from onnx import helper, numpy_helper

    from tests.frontends.onnx_models import F, model_of

    weight = numpy_helper.from_array(_rows(6, 5), "weight")
    node = helper.make_node("MatMul", ["x", "weight"], ["y"])
    inputs, outputs = [("x", F, ("batch", 6))], [("y", F, ("batch", 5))]
    return model_of([node], inputs, outputs, [weight]), (_rows(), _classes())


class Narrow(torch.nn.Module):
    """One layer pools in bf16, the other is in f32 throughout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.pooled, self.wide = torch.nn.Linear(6, 12), torch.nn.Linear(6, 5)

    def forward(self, x):
        y = self.pooled(x).reshape(-1, 1, 3, 4).to(torch.bfloat16)
        y = torch.nn.functional.avg_pool2d(y, 2, 1).float()
        return self.wide(x) + y.reshape(-1, 6)[:, :5]


def narrow():
    return Narrow(), (_rows(), _classes())
