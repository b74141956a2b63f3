"""The optimiser's state from torch and to torch: a run goes on in the other as if nothing was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.optimisers import optimizers, schedules
from tests.slow import slow_but
from tests.training.test_optimizers import OURS_AND_THEIRS, _batch, _model

QUICK = ("adagrad decay", "rmsprop centered")


def compiled(model: torch.nn.Module, ours, **how):
    return cc.compile(model, _batch(0), training=Training("mse", ours, **how))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, numbers) -> None:
    for number in numbers:
        x, y = _batch(number)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def assert_same(step, model: torch.nn.Module) -> None:
    """Within what the optimisers' own tests allow."""
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(
            step.state_dict()[name], value.numpy(), rtol=2e-5, atol=2e-6, err_msg=name
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(QUICK, OURS_AND_THEIRS))
def test_five_iterations_in_torch_and_five_here_are_ten_in_torch(name):
    ours, make = OURS_AND_THEIRS[name]
    model = _model()
    step = compiled(copy.deepcopy(model), ours)
    optimizer = make(model.parameters())
    train(model, optimizer, range(5))
    step.load_state_dict({n: t.numpy() for n, t in model.state_dict().items()})
    step.load_optimizer_state_dict(optimizer.state_dict(), iteration=5)
    assert step.iteration == 5
    for number in range(5, 10):
        step(*(part.numpy() for part in _batch(number)))
    train(model, optimizer, range(5, 10))
    assert_same(step, model)

    back = _model()  # and on in torch
    back.load_state_dict({n: torch.from_numpy(a) for n, a in step.state_dict().items()})
    again = make(back.parameters())
    held = step.optimizer_state_dict()
    theirs = optimizer.state_dict()
    assert held["param_groups"][0].keys() == theirs["param_groups"][0].keys()
    assert {i: row.keys() for i, row in held["state"].items()} == {
        i: row.keys() for i, row in theirs["state"].items() if row
    }
    again.load_state_dict(held)
    train(back, again, range(10, 13))
    train(model, optimizer, range(10, 13))
    for number in range(10, 13):
        step(*(part.numpy() for part in _batch(number)))
    assert_same(step, back)
    assert_same(step, model)


class Odd(torch.nn.Module):
    """Parameters in another order than they are used in; a tied one, a frozen one, and one that
    the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(9, 4)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.first = torch.nn.Linear(6, 9)
        self.middle = torch.nn.Linear(9, 9)
        self.again = torch.nn.Linear(9, 9)
        self.again.weight = self.middle.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.again(torch.tanh(self.middle(self.first(x))))))


@pytest.mark.slow
def test_parameters_are_counted_as_torch_counts_them():
    torch.manual_seed(2)
    model = Odd()
    model.first.bias.requires_grad_(False)
    step = compiled(copy.deepcopy(model), optimizers.AdamW(0.01))
    assert step.order == [name for name, _ in model.named_parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    train(model, optimizer, range(3))
    step.load_state_dict(
        {n: t.numpy() for n, t in model.state_dict().items() if n not in ("first.bias", "unused")}
    )
    step.load_optimizer_state_dict(optimizer.state_dict())
    assert step.iteration == 3
    for number in range(3, 6):
        step(*(part.numpy() for part in _batch(number)))
    train(model, optimizer, range(3, 6))
    held, theirs = step.optimizer_state_dict(), optimizer.state_dict()
    assert held["param_groups"][0]["params"] == theirs["param_groups"][0]["params"]
    assert held["state"].keys() == theirs["state"].keys()
    for number, row in theirs["state"].items():
        assert held["state"][number]["step"] == row["step"] == 6
        np.testing.assert_allclose(
            held["state"][number]["exp_avg"], row["exp_avg"], rtol=2e-5, atol=2e-6
        )
    assert 0 not in held["state"]  # a parameter of the module itself comes first: the unused one
    assert held["state"][1]["exp_avg"].shape == model.last.weight.shape


@pytest.fixture(scope="module")
def adam():
    """A step, and what torch has after two iterations."""
    model = _model()
    step = compiled(copy.deepcopy(model), optimizers.Adam(schedules.Step(0.01, 2, 0.5)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    train(model, optimizer, range(2))
    optimizer.param_groups[0]["lr"] = 0.005  # as torch's StepLR sets it
    return step, model, optimizer


def test_a_schedule_stands_where_the_iteration_does(adam):
    step, _, optimizer = adam
    step.load_optimizer_state_dict(optimizer.state_dict())
    assert step.optimizer_state_dict()["param_groups"][0]["lr"] == pytest.approx(0.005)
    fresh = torch.optim.Adam(_model().parameters(), 0.01).state_dict()
    step.load_optimizer_state_dict(fresh, iteration=0)
    assert step.optimizer_state_dict()["state"] == {}


def _changed(held: dict, change) -> dict:
    held = copy.deepcopy(held)
    change(held["state"], held["param_groups"][0])
    return held


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s, g: g.update(betas=(0.8, 0.99)), r"the step's betas .*, got \(0.8, 0.99\)"),
        (lambda s, g: g.update(maximize=True), "maximize False, got True"),
        (lambda s, g: g.update(lr=0.3), "the step's rate 0.005 in iteration 3, got lr 0.3"),
        (lambda s, g: g.pop("amsgrad"), "missing amsgrad; pass the state of a torch.optim.Adam"),
        (lambda s, g: s[1].pop("exp_avg_sq"), "missing exp_avg_sq in the state of 0.bias"),
        (lambda s, g: s[1].update(step=torch.tensor(7.0)), "were not updated together"),
        (lambda s, g: s[0].update(exp_avg=torch.zeros(2)), "0.weight.exp_avg to be float32"),
        (lambda s, g: g["params"].pop(), "expected 4 parameters, got 3"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(adam, change, said):
    step, _, optimizer = adam
    before = step.digest
    with pytest.raises(UserError, match=said):
        step.load_optimizer_state_dict(_changed(optimizer.state_dict(), change))
    assert step.digest == before


def test_a_state_with_names_says_its_order_itself():
    model = _model()
    x, y = _batch(0)
    first, *others = model.named_parameters()
    optimizer = torch.optim.Adam([*others, first], 0.01)
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    held = optimizer.state_dict()
    assert held["param_groups"][0]["param_names"][-1] == first[0]
    step = compiled(model, optimizers.Adam(0.01))
    step.load_optimizer_state_dict(held)
    for name, parameter in model.named_parameters():
        wanted = optimizer.state[parameter]["exp_avg"]
        np.testing.assert_array_equal(step.whole_state()[f"{name}.exp_avg"], wanted)
    held["param_groups"][0]["param_names"][0] = "another"
    with pytest.raises(UserError, match="in the names of the parameters"):
        step.load_optimizer_state_dict(held)


@pytest.mark.slow
def test_what_else_is_no_state_is_named(adam):
    step, *_ = adam
    with pytest.raises(UserError, match="expected a mapping with state and param_groups"):
        step.load_optimizer_state_dict({})
    with pytest.raises(UserError, match=r"missing 0\.weight in the names"):
        step.optimizer_state_dict(names=["0.bias", "2.weight", "2.bias"])
    lion = compiled(_model(), "lion")
    with pytest.raises(UserError, match="torch has no optimiser Lion"):
        lion.optimizer_state_dict()
    with pytest.raises(UserError, match="torch has no optimiser Lion"):
        lion.load_optimizer_state_dict({"state": {}, "param_groups": []})


@pytest.mark.slow
def test_the_first_iteration_of_sgd_with_dampening_is_another():
    ours, make = OURS_AND_THEIRS["dampening"]
    model = _model()
    step = compiled(copy.deepcopy(model), ours)
    optimizer = make(model.parameters())
    train(model, optimizer, range(2))
    with pytest.raises(UserError, match="does not store how many iterations were done"):
        step.load_optimizer_state_dict(optimizer.state_dict())
