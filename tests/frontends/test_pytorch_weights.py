"""The weights of a PyTorch model: shared with it, never copied, and never silently stale."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.frontends.pytorch import import_module
from core_compiler.support.errors import UserError


def _model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))


def _inputs():
    return (torch.linspace(-1, 1, 128).reshape(2, 64),)


def test_large_weights_lie_in_the_models_own_memory():
    model = _model()
    weights = import_module(model, _inputs()).module.weights
    own = [p.detach().numpy() for p in model.parameters() if p.numel() > 1000]
    held = [a for a in map(weights.__getitem__, weights) if a.size > 1000]
    assert len(held) == len(own) == 2
    assert all(any(np.shares_memory(a, p) for p in own) for a in held)
    assert not any(a.flags.writeable for a in held)


def _trained(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(*_inputs()).sum().backward()
    optimizer.step()


def _loaded(model):
    model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})


def _filled(model):
    with torch.no_grad():
        model[0].weight[3].zero_()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [pytest.param(_trained, marks=pytest.mark.slow), _loaded, _filled]
)
def test_a_model_that_changed_is_not_executed_with_either_weights(change):
    model = _model()
    compiled = cc.compile(model, _inputs())
    compiled(*_inputs())
    change(model)
    with pytest.raises(UserError, match=r"0\.weight was changed in place.*compile the model again"):
        compiled(*_inputs())
    again = cc.compile(model, _inputs())
    assert torch.allclose(torch.from_numpy(again(*_inputs())[0]), model(*_inputs()), atol=1e-5)


@pytest.mark.slow
def test_a_copy_goes_on_while_the_model_trains():
    model = _model()
    compiled = cc.compile(copy.deepcopy(model), _inputs())
    before = compiled(*_inputs())
    _trained(model)
    assert np.array_equal(before[0], compiled(*_inputs())[0])


def test_a_parameter_given_other_memory_leaves_us_the_old():
    model = _model()
    compiled = cc.compile(model, _inputs())
    before = compiled(*_inputs())
    model.double()
    assert np.array_equal(before[0], compiled(*_inputs())[0])


def test_what_torch_does_not_watch_is_copied():
    with torch.inference_mode():
        model = _model()
        compiled = cc.compile(model, _inputs())
        before = compiled(*_inputs())
        model[0].weight.zero_()
        assert np.array_equal(before[0], compiled(*_inputs())[0])


def test_a_transposed_parameter_is_a_copy_of_its_own():
    class Transposed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(64, 32).T)

        def forward(self, x):
            return x @ self.weight

    model = Transposed()
    inputs = (torch.ones(2, 32),)
    compiled = cc.compile(model, inputs)
    before = compiled(*inputs)
    assert np.allclose(before[0], model(*inputs).detach().numpy(), atol=1e-5)
    with torch.no_grad():
        model.weight.zero_()
    assert np.array_equal(before[0], compiled(*inputs)[0])
