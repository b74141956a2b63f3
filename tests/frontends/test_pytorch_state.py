"""Forward passes that write: parameters, buffers, constants and inputs, call by call as torch."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import core_compiler as cc
from core_compiler.support.errors import UserError

CALLS = (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, -5.0, 6.0]), torch.tensor([0.5, 0, -1]))


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(3))
        self.plain = torch.ones(3)


class UnderNoGrad(Held):
    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(0.5)
        return self.weight * x


class ThroughData(Held):
    def forward(self, x):
        before = self.weight * x
        self.weight.data.copy_(x * 2)
        return before + self.weight


class PartThroughData(Held):
    def forward(self, x):
        self.weight.data[1:].add_(x[1:])
        return self.weight * 2


class Tied(Held):
    def __init__(self):
        super().__init__()
        self.other = self.weight

    def forward(self, x):
        self.weight.data.mul_(2)
        return self.other * x


class Counter(Held):
    def forward(self, x):
        self.counter += 1
        return x * self.counter


class Replaced(Held):
    def forward(self, x):
        self.cache = self.cache + x
        return self.cache * 2


class ReplacedByAnInput(Held):
    def forward(self, x):
        before = self.cache * 3
        self.cache = x
        return before + x


class Constant(Held):
    def forward(self, x):
        self.plain.add_(x)
        return self.plain * 2


class Input(Held):
    def forward(self, x):
        x.add_(1)
        return x * 2


class PartOfAnInput(Held):
    def forward(self, x):
        x[0] = 5
        return x + self.weight


class ReturnsItsInput(Held):
    def forward(self, x):
        return x.mul_(3)


class InputAndState(Held):
    def forward(self, x):
        self.cache.add_(x)
        x.copy_(self.cache)
        return x * 2


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "kind",
    [
        UnderNoGrad,
        ThroughData,
        PartThroughData,
        Tied,
        Counter,
        Replaced,
        ReplacedByAnInput,
        Constant,
        Input,
        PartOfAnInput,
        ReturnsItsInput,
        InputAndState,
    ],
)
def test_each_call_computes_and_writes_what_torch_does(kind):
    model = kind().eval()
    made = cc.compile(copy.deepcopy(model), (CALLS[0].clone(),), check=True)
    for given in CALLS:
        theirs, ours = given.clone(), given.clone()
        with torch.no_grad():
            want = model(theirs).clone()
        (found,) = made(ours)
        np.testing.assert_array_equal(found, want.numpy())
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [UnderNoGrad, Constant, Input])
def test_an_exported_program_is_as_its_own_module(kind):
    with torch.no_grad():
        program = torch.export.export(kind().eval(), (CALLS[0].clone(),), strict=False)
    made = cc.compile(copy.deepcopy(program), (CALLS[0].clone(),))
    eager = kind().eval()
    for given in CALLS:
        ours, theirs = given.numpy().copy(), given.clone()
        with torch.no_grad():
            want = eager(theirs).clone()
        np.testing.assert_array_equal(made(ours)[0], want.numpy())
        np.testing.assert_array_equal(ours, theirs.numpy())


def test_an_array_that_may_not_be_written_stays():
    made = cc.compile(Input().eval(), (CALLS[0].clone(),))
    given = CALLS[1].numpy().copy()
    given.flags.writeable = False
    np.testing.assert_array_equal(made(given)[0], (given + 1) * 2)
    np.testing.assert_array_equal(given, CALLS[1].numpy())


class Assigns(Held):
    def forward(self, x):
        self.weight.data = self.weight.data * 2
        return self.weight * x


class Overlaps(Held):
    def __init__(self):
        super().__init__()
        whole = torch.zeros(4)
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[:3])

    def forward(self, x):
        self.part.add_(x)
        return self.whole.sum() * x


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Assigns, r"tensor\.data\.copy_"), (Overlaps, "part, which shares memory with whole")],
)
def test_what_cannot_be_said_is_refused_at_the_models_line(kind, says):
    with pytest.raises(UserError, match=says) as caught:
        cc.compile(kind().eval(), (CALLS[0].clone(),))
    assert caught.value.where.startswith(f"{__file__}:")


@pytest.mark.parametrize("kind", [UnderNoGrad, Input])
def test_training_refuses_such_writes_at_the_models_line(kind):
    training = cc.Training(loss="mse", optimizer="sgd")
    with pytest.raises(UserError, match="writes") as caught:
        cc.compile(kind(), (CALLS[0].clone(), CALLS[1]), training=training)
    assert caught.value.where.startswith(f"{__file__}:")


def test_a_tensor_that_forward_replaces_is_named():
    class Replaces(Held):
        def forward(self, x):
            self.plain = self.plain + x
            return self.plain

    with pytest.warns(UserWarning, match="forward changes plain"):
        cc.compile(Replaces().eval(), (CALLS[0],), finish=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cc.compile(Counter().eval(), (CALLS[0],), finish=False)
