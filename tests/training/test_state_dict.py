"""The state of a step and that of its torch module: the same names, whatever is trained of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.support.arrays import to_torch
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.optimisers import optimizers
from tests.training.helpers import Reference, joint_of


class Odd(torch.nn.Module):
    """Something of all that a state dict can have: tied, frozen and unread weights, tables that
    are read and tables that are not, complex ones, statistics of two names, a buffer that is not
    stored."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = torch.nn.Parameter(torch.ones(3))
        self.first = torch.nn.Linear(16, 40)
        self.first.weight.requires_grad_(False)
        self.norm = self.norm_too = torch.nn.BatchNorm1d(40)
        self.middle = torch.nn.Linear(40, 40)
        self.again = torch.nn.Linear(40, 40)
        self.again.weight = self.middle.weight
        self.register_buffer("table", torch.randn(40))
        self.register_buffer("turns", torch.polar(torch.ones(20), torch.arange(20.0)))
        self.register_buffer("aside", torch.arange(4))
        self.register_buffer("passing", torch.randn(40), persistent=False)
        self.register_buffer("fading", torch.ones(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.fading.mul_(0.5)
        x = self.again(torch.tanh(self.middle(self.norm(self.first(x))))) + self.table
        pairs = torch.view_as_complex(x.reshape(-1, 20, 2)) * self.turns
        return torch.view_as_real(pairs).reshape(-1, 40) * self.passing * (1 + self.fading)


def _odd(**options):
    torch.manual_seed(3)
    model = Odd()
    batch = torch.randn(5, 16), torch.randint(0, 40, (5,))
    training = Training(**options)
    return model, cc.compile(copy.deepcopy(model), batch, training=training, finish=False)


def _torch(held):
    return {name: to_torch(array) for name, array in held.items()}


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [(), ("again.*", "norm.weight")])
def test_the_state_is_the_modules_whole_state(freeze):
    model, step = _odd(freeze=freeze)
    held, theirs = step.state_dict(), model.state_dict()
    assert held.keys() == theirs.keys()
    for name, array in held.items():
        assert array.tobytes() == theirs[name].numpy().tobytes(), name
    before = step.digest
    step.load_state_dict(theirs)
    assert step.digest == before
    fresh = Odd()
    fresh.load_state_dict(_torch(held))
    assert all(torch.equal(fresh.state_dict()[name], theirs[name]) for name in theirs)
    mean = np.arange(40, dtype=np.float32)
    step.load_state_dict({"norm_too.running_mean": mean})
    assert np.array_equal(step.state_dict()["norm.running_mean"], mean)
    assert np.array_equal(step.state_dict()["norm_too.running_mean"], mean)
    held["table"][0] = 7  # it is a copy
    assert step.state_dict()["table"][0] == theirs["table"][0].numpy()


def test_what_is_compiled_in_stays_and_what_nothing_reads_is_kept():
    model, step = _odd()
    before, other = step.digest, model.state_dict()
    other["middle.bias"] = other["middle.bias"] + 1
    for name in ("first.weight", "table", "turns"):
        with pytest.raises(UserError, match=f"{name} is not trained: it is compiled in with anoth"):
            step.load_state_dict(other | {name: other[name] + 1})
        with pytest.raises(UserError, match=rf"expected {name} to be .*, got .*\[1\]"):
            step.load_state_dict(other | {name: other[name].reshape(-1)[:1]})
    with pytest.raises(UserError, match=r"aside to be int64\[4\], got int64\[1\]"):
        step.load_state_dict(other | {"aside": torch.zeros(1, dtype=torch.int64)})
    assert step.digest == before
    step.load_state_dict(other | {"aside": torch.full((4,), 9)})
    held = step.state_dict()
    assert held["aside"].tolist() == [9] * 4
    assert np.array_equal(held["middle.bias"], other["middle.bias"].numpy())


def test_frozen_weights_that_are_written_as_they_were_are_no_change():
    """As torch does when a module loads a state."""
    torch.manual_seed(3)
    model = Odd()
    batch = torch.randn(5, 16), torch.randint(0, 40, (5,))
    step = cc.compile(model, batch, training=Training(), finish=False)
    for _ in range(2):
        model.load_state_dict(_torch(step.state_dict()))
        step.load_state_dict(model.state_dict())
    with torch.no_grad():
        model.first.weight[0, 0] += 1
    with pytest.raises(UserError, match=r"first\.weight was changed in place"):
        step.state_dict()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["again.weight", "middle.weight", "ag*.weight"])
def test_tied_weights_are_frozen_by_any_of_their_names(name):
    _, step = _odd(freeze=(name,))
    trained = [step.roles.arguments[i][1] for i in step.roles.numbers("parameter")]
    assert {"middle.bias", "again.bias"} < set(trained)
    assert not {"middle.weight", "again.weight"} & set(trained)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["again.weight", "middle.weight"])
def test_tied_weights_are_initialized_by_any_of_their_names(name):
    _, step = _odd(initialize={name: "zeros"})
    assert not step.state_dict()["middle.weight"].any()
    with pytest.raises(UserError, match=r"no trained parameter matches 'agin\.weight'"):
        _odd(initialize={"agin.weight": "zeros"})


def test_a_norm_that_hangs_in_two_places_trains_as_in_torch():
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8))
    model.add_module("too", model[1])  # and is applied twice
    x, y = torch.randn(7, 6), torch.randint(0, 8, (7,))
    step = Reference(copy.deepcopy(model), (x,), Training(optimizer=optimizers.SGD(0.1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert step(x, y) == pytest.approx(loss.item(), rel=1e-5)
    held = {name: step[name] for name in step.places if "running" in name}
    assert len(held) == 2
    for name, array in held.items():
        np.testing.assert_allclose(array, model.state_dict()[name], rtol=1e-5, atol=1e-6)


class Two(torch.nn.Module):
    """``other`` makes a second tensor of the memory of the first."""

    def __init__(self, other, *, buffer: bool = False, trained: bool = True) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 8)[:, :4], requires_grad=trained)
        made = other(self.weight.data)
        if buffer:
            self.register_buffer("other", made, persistent=False)
        else:
            self.other = torch.nn.Parameter(made, requires_grad=trained)
        self.bias = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.other.sum() + self.bias


BATCH = (torch.ones(2, 4),)
SHARING = {
    "all": lambda w: w,
    "turned": lambda w: w.t(),
    "a part": lambda w: w[1:, 2],
    "an element": lambda w: w[3, 3],
}


@pytest.mark.parametrize("buffer", [False, True], ids=["parameter", "buffer"])
@pytest.mark.parametrize("other", SHARING.values(), ids=SHARING)
def test_two_tensors_in_one_memory_are_not_trained(other, buffer):
    with pytest.raises(UserError, match=r"weight and other are two tensors .*make them one"):
        joint_of(Two(other, buffer=buffer), BATCH, Training())


def test_tensors_that_only_lie_side_by_side_are_trained():
    def beside(weight):
        return weight.as_strided((4, 4), (8, 1), 4)  # the other half of the same rows

    joint = joint_of(Two(beside), BATCH, Training())
    assert len(joint.roles.numbers("parameter")) == 3


def test_frozen_tensors_may_share_their_memory():
    joint = joint_of(Two(SHARING["turned"], trained=False), BATCH, Training())
    assert len(joint.roles.numbers("parameter")) == 1


@pytest.mark.slow
def test_gradients_have_the_names_of_named_parameters():
    model, step = _odd(keep_gradients=True)
    step(torch.randn(5, 16), torch.arange(5))
    trained = [n for n, p in model.named_parameters() if p.requires_grad and n != "unread"]
    assert sorted(step.gradients) == sorted(trained)
    assert "norm.weight" in trained and "again.weight" not in trained


@pytest.mark.slow
def test_what_is_not_stored_is_state_all_the_same():
    _, step = _odd()
    step(torch.randn(5, 16), torch.arange(5))
    assert step.whole_state()["fading"] == 0.5
    assert "fading" not in step.state_dict()
    step.load_state_dict({"fading": np.float32(1)})
    assert step.whole_state()["fading"] == 1
    with pytest.raises(UserError, match="expected iteration to be 0 or more, got -5"):
        step.load_state_dict({"iteration": np.int64(-5)})
