"""Whole models of several dtypes, checked pass by pass: under torch.autocast, half with f32 norms.

The metric is max |ours - torch's| / max |torch's|, torch run eagerly.  Both round each stored value
to the narrow dtype, at times in other places: up to four of its roundings lie between the results.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import core_compiler as cc
from tests.slow import slow_but

ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


class Autocast(nn.Module):
    def __init__(self, inner, narrow):
        super().__init__()
        self.inner, self.narrow = inner, narrow

    def forward(self, *given):
        with torch.autocast("cpu", dtype=self.narrow):
            return self.inner(*given)


class ResNet(nn.Module):
    """A stem and a residual block, their batch norms with statistics of their own."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.first, self.first_norm = nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.short, self.short_norm = nn.Conv2d(4, 8, 1, 2, bias=False), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 5)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, 0, 0.3)
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)

    def forward(self, x):
        x = torch.relu(self.stem_norm(self.stem(x)))
        x = torch.relu(self.first_norm(self.first(x)) + self.short_norm(self.short(x)))
        return self.last(x.mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.cells(x)[0][:, -1])


def _half_with_f32_norms(narrow):
    model = ResNet().to(narrow)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    return model


#: name -> (model in a narrow dtype, shape of its input, whether that is narrow too)
MODELS = {
    "resnet": (lambda d: Autocast(ResNet(), d), (2, 3, 9, 9), False),
    "encoder": (
        lambda d: Autocast(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), d),
        (2, 4, 8),
        False,
    ),
    "lstm": (lambda d: Autocast(Recurrent(), d), (2, 3, 6), False),
    "half resnet": (_half_with_f32_norms, (2, 3, 9, 9), True),
    "half resnet, half norms": (lambda d: ResNet().to(d), (2, 3, 9, 9), True),
}


def _made(name: str, narrow):
    torch.manual_seed(0)
    make, shape, halved = MODELS[name]
    x = torch.randn(shape)
    return make(narrow).eval(), x.to(narrow) if halved else x


@pytest.mark.slow
def test_what_torch_converts_under_autocast_is_no_wrong_translation():
    model, x = Autocast(nn.Linear(3, 2), torch.bfloat16), torch.randn(4, 3)
    compiled = cc.compile(model, (x,), check=True)
    assert 0 not in compiled.checks  # checks of the import are of its translations
    assert compiled.module.main.outputs[0].type.dtype.name == "bf16"


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_checked_and_computes_what_torch_does(name, narrow):
    model, x = _made(name, narrow)
    compiled = cc.compile(model, (x,), check=True)
    verdicts = {r.verdict for found in compiled.checks.values() for r in found}
    assert verdicts and "failed" not in verdicts
    found = np.asarray(compiled(x)).astype(np.float64)
    # oneDNN has no narrow LSTM for processors without the instructions, and torch none other then.
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        wanted = model(x).to(torch.float64).numpy()
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert error <= 4 * ROUNDING[narrow]


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("resnet",), MODELS))
def test_it_compiles_for_a_gpu(name):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed (extra: cuda)")
    model, x = _made(name, torch.bfloat16)
    compiled = cc.compile(model, (x,), target="cuda", options={"architecture": "sm_80"})
    assert any(op.kind == "target.launch" for op in compiled.module.main.body.ops)
