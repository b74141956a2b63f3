"""Recurrent layers of torch: translated as they are, with torch's results."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.frontends.pytorch.importer import import_module

KINDS = {
    "LSTM": torch.nn.LSTM,
    "GRU": torch.nn.GRU,
    "RNN": torch.nn.RNN,
    "RNN, relu": lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k),
}
NAMES = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh", "RNN, relu": "rnn_relu"}
OPTIONS = {
    "plain": {},
    "no biases": {"bias": False},
    "both directions": {"bidirectional": True},
    "three layers, batch first": {"num_layers": 3, "batch_first": True},
    "two layers, both directions": {"num_layers": 2, "bidirectional": True, "bias": False},
}


class Given(torch.nn.Module):
    """A layer that starts from states of the caller."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, *states):
        return self.layer(x, states if len(states) > 1 else states[0])


def same(got, expected, tolerance=1e-5):
    flat = torch.utils._pytree.tree_leaves(expected)
    assert len(got) == len(flat)
    for a, e in zip(got, flat, strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float32), e.float().numpy(), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_have_torchs_results(kind, options):
    torch.manual_seed(0)
    layer = KINDS[kind](5, 6, **OPTIONS[options]).eval()
    x = torch.randn(4, 3, 5)
    with torch.no_grad():
        same(cc.compile(layer, (x,))(x), layer(x))


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_the_caller_are_the_first(kind):
    torch.manual_seed(1)
    layer = Given(KINDS[kind](5, 6, num_layers=2)).eval()
    states = [torch.randn(2, 3, 6) for _ in range(2 if kind == "LSTM" else 1)]
    x = torch.randn(4, 3, 5)
    with torch.no_grad():
        same(cc.compile(layer, (x, *states))(x, *states), layer(x, *states))


def test_a_sequence_without_a_batch():
    torch.manual_seed(2)
    layer, x = torch.nn.LSTM(5, 6).eval(), torch.randn(7, 5)
    with torch.no_grad():
        same(cc.compile(layer, (x,))(x), layer(x))


def test_bf16_rounds_as_torch_does():
    torch.manual_seed(3)
    layer = torch.nn.GRU(5, 6).bfloat16().eval()
    x = torch.randn(4, 3, 5).bfloat16()
    with torch.no_grad():
        same(cc.compile(layer, (x,))(x), layer(x), tolerance=2e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_layer_keeps_its_name(kind):
    """No decomposition of torch's: each op comes from the layer."""
    layer = KINDS[kind](5, 6).eval()
    module = import_module(layer, [torch.randn(2, 3, 5)]).module
    products = [op for op in module.main.body.ops if op.kind == "core.linear"]
    kinds = {n.kind for op in products for n in op.origin.nodes()}
    assert kinds == {f"aten.{NAMES[kind]}.input"}


def test_projected_results_are_decomposed_by_torch():
    torch.manual_seed(4)
    layer, x = torch.nn.LSTM(5, 6, proj_size=3).eval(), torch.randn(4, 2, 5)
    with torch.no_grad():
        same(cc.compile(layer, (x,))(x), layer(x))
