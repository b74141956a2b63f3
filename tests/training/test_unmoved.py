"""Parameters that the loss gives no gradient are told, with the op of the model that is in the
way; what a model holds back on purpose, or reads otherwise too, is not."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.ops.base import REGISTRY
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from workbench.commands.cli import main

#: What they look at takes long to make.
pytestmark = pytest.mark.slow


class Part(torch.nn.Module):
    """Scores, and ``of`` them."""

    def __init__(self, of):
        super().__init__()
        self.scores = torch.nn.Linear(4, 3)
        self.of = of

    def forward(self, x):
        return self.of(self.scores(x))


class Model(torch.nn.Module):
    """A linear layer beside a part that gradients may not get through."""

    def __init__(self, of, beside=True):
        super().__init__()
        self.part, self.beside = Part(of), torch.nn.Linear(4, 3) if beside else None

    def forward(self, x):
        found = self.part(x)
        return found if self.beside is None else self.beside(x) + found


def argmax(x):
    return x.argmax(-1, keepdim=True).float()


def bits(x):
    return x.view(torch.int32).to(torch.float32)


def places(x):
    return x.topk(2)[1].float().sum(-1, keepdim=True)


def floor(x):
    return torch.floor(x)


def mask(x):
    return (x > 0).float()


def condition(x):
    return torch.where(x.sum(-1, keepdim=True) > 0, 1.0, 2.0)


def coded(x):
    return torch.nn.functional.one_hot(x.argmax(-1), 3).float()


def detached(x):
    return x.detach()


def without_gradients(x):
    with torch.no_grad():
        return x * 2


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: torch.round(x), lambda x: torch.ceil(x), (x,))


#: What stands in the way -> the ops that are named, and why.
WHOLE, STEP = "its result is {}, which has no gradient", "its derivative is 0 wherever"
STOPS = {
    argmax: (["core.argmax"], WHOLE.format("i64")),
    bits: (["core.bitcast"], WHOLE.format("i32")),
    places: (["core.topk"], WHOLE.format("i64")),
    coded: (["core.argmax"], WHOLE.format("i64")),
    mask: (["core.gt"], WHOLE.format("i1")),
    condition: (["core.gt"], WHOLE.format("i1")),
    floor: (["core.floor"], STEP),
    branches: (["core.round", "core.ceil"], STEP),
}
STOP_GRADIENT = (detached, without_gradients)


def quick(every, *fast):
    return [of if of in fast else pytest.param(of, marks=pytest.mark.slow) for of in every]


def line() -> str:
    """``file:line`` of the model from which all of them are called."""
    lines, first = inspect.getsourcelines(Part.forward)
    return f"{__file__}:{first + len(lines) - 1}"


def step_of(model, targets=(5, 3), **options):
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    batch = x, np.zeros(targets, np.float32)
    return cc.compile(model, batch, training=Training(loss="mse", **options)), batch


def notes(step, severity: str = "warning"):
    return [d for s in step.compilation.stages for d in s.diagnostics if d.severity == severity]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("of", STOPS, ids=lambda of: of.__name__)
def test_nothing_that_moves_is_an_error_that_names_the_op_and_its_line(of):
    kinds, why = STOPS[of]
    shape = {argmax: (5, 1), places: (5, 1), condition: (5, 1)}.get(of, (5, 3))
    with pytest.raises(UserError) as found:
        step_of(Model(of, beside=False), shape)
    told = str(found.value)
    assert told.startswith(
        "training: no parameter gets a gradient: the gradient of the loss stops at "
    )
    for kind in kinds:
        assert f"{kind} ({why}" in told
    assert f"{line()}, in part" in told
    assert "replace it with a differentiable op" in found.value.fix


@pytest.mark.slow
@pytest.mark.parametrize("of", quick(STOPS, argmax, floor), ids=lambda of: of.__name__)
def test_some_that_do_not_move_are_a_warning_with_the_op(of):
    kinds, why = STOPS[of]
    step, batch = step_of(Model(of))
    (told,) = notes(step)
    assert told.message.startswith("part.scores.weight, part.scores.bias: no gradient passes ")
    assert told.message.endswith("; they do not change")
    assert all(f"{kind} ({why}" in told.message for kind in kinds)
    assert told.where == line()
    assert told.op in list(step.compilation.stages[told_at(step, told)].module.walk())
    before = step.state_dict()
    step(*batch)
    moved = {n for n, a in step.state_dict().items() if a.tobytes() != before[n].tobytes()}
    assert moved == {"beside.weight", "beside.bias"}


def told_at(step, told) -> int:
    return next(i for i, s in enumerate(step.compilation.stages) if told in s.diagnostics)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("of", STOP_GRADIENT, ids=lambda of: of.__name__)
def test_what_is_held_back_on_purpose_is_a_note(of):
    step, _ = step_of(Model(of))
    assert not notes(step)
    told = [d.message for d in notes(step, "note") if "stops gradients intentionally" in d.message]
    assert len(told) == 1
    assert "core.stop_gradient" in told[0]
    with pytest.raises(UserError, match=r"core\.stop_gradient .*; let gradients pass there"):
        step_of(Model(of, beside=False))


def straight_through(x):
    return x + (torch.round(x) - x).detach()


def chosen(x):
    return torch.gather(x, 1, x.argmax(-1, keepdim=True)) * (x > 0).float()


def masked(x):
    return torch.where(x > 0, x, 0.0) - torch.floor(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "of", quick((straight_through, chosen, masked), straight_through), ids=lambda of: of.__name__
)
def test_what_is_reached_another_way_is_not_told(of):
    step, _ = step_of(Model(of))
    assert not notes(step)
    step, _ = step_of(Model(of, beside=False))
    assert not notes(step)


def test_frozen_parameters_are_not_told():
    step, _ = step_of(Model(argmax), freeze=("part.*",))
    assert not notes(step)


def test_what_the_loss_does_not_depend_on_is_told_as_that():
    step, _ = step_of(Model(lambda x: 0.0))
    assert [d.message for d in notes(step)] == [
        "the loss does not depend on part.scores.weight, part.scores.bias: they do not change"
    ]
    with pytest.raises(UserError, match="the loss does not depend on any trained parameter"):
        step_of(Model(lambda x: 0.0), freeze=("beside.*",))


class Repeated(torch.nn.Module):
    """A loop whose body lets no gradient through to what it carries."""

    def __init__(self, step):
        super().__init__()
        self.first, self.rate, self.step = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3), step

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        rate = self.rate(x)
        many = rate.expand(4, *rate.shape).clone()
        final, _ = scan(lambda c, r: (self.step(c) + r, r.clone()), self.first(x), many)
        return final


@pytest.mark.slow
def test_a_loop_is_looked_into():
    step, _ = step_of(Repeated(torch.floor))
    (told,) = notes(step)
    assert re.match(r"first\.weight, first\.bias: .* core\.floor \(", told.message)
    step, _ = step_of(Repeated(torch.tanh))
    assert not notes(step)


@pytest.mark.slow
def test_mixed_precision_and_a_loss_scale_tell_the_same():
    step, _ = step_of(Model(argmax), precision="f16")
    (told,) = notes(step)
    assert "core.argmax" in told.message
    step, _ = step_of(Model(chosen), precision="f16")
    assert not notes(step)


def task():
    return Model(argmax), (torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64))


@pytest.mark.slow
def test_the_command_prints_it(capsys):
    line = ["train", f"{__name__}:task", "--iterations", "1"]
    assert main(line) == 0
    told = capsys.readouterr().err
    assert "warning: part.scores.weight, part.scores.bias: no gradient passes" in told
    assert told.count("warning") == 1


def test_the_op_of_the_loss_itself_can_be_what_is_in_the_way(monkeypatch):
    """A rule that gives nothing where something is asked for."""
    nothing = replace(REGISTRY["core.mse_loss"], gradient=lambda b, op, dys, wanted: (None, None))
    monkeypatch.setitem(REGISTRY, "core.mse_loss", nothing)
    with pytest.raises(UserError, match=r"the loss stops at core\.mse_loss"):
        step_of(Model(torch.tanh, beside=False), (5, 3))
