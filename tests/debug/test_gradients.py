"""Gradient rewrites of a checked compile are compared with numerical derivatives: wrong rules are
found and named, right ones are not, also at ties."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.debug import gradient_checks, gradients, torch_gradients
from core_compiler.debug.bisect import bisect
from core_compiler.driver.legality import levels
from core_compiler.ops.base import REGISTRY
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import CONSTANT, in_terms, rounded
from core_compiler.training.config import Training
from core_compiler.training.graph import autodiff
from core_compiler.training.optimisers import optimizers, schedules
from core_compiler.training.optimisers.optimizers import SGD, Adam, RMSprop
from core_compiler.training.passes import clip_gradients
from tests.debug.gradient_events import FAULTS, planted, records
from tests.passes.programs import program
from tests.slow import slow_but
from tests.training.test_gradient_rules import _as_f64, _chosen, _module
from tests.training.test_loops import CASES, numbers, simplified


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """Every gradient is looked at again, and nothing is written."""
    monkeypatch.setattr(gradient_checks, "kept", lambda key: None)
    monkeypatch.setattr(gradient_checks, "keep", lambda key, error, note: None)


SAMPLES = {str(sample): sample for sample in _chosen()}
_QUICK = ("relu", "abs", "max", "max_pool", "matmul", "conv", "softmax", "layer_norm", "clamp")
QUICK = [name for name in SAMPLES if name.split("-")[0] in _QUICK]


# -- right rules -----------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(QUICK, SAMPLES))
def test_right_rules_are_within(name):
    sample = SAMPLES[name]
    arrays = [np.asarray(a) for a in sample.operands]
    arrays = [a.astype(m.dtype) for a, m in zip(arrays, _as_f64(sample), strict=True)]
    for record in records(_module(sample, arrays), arrays):
        assert record.verdict == "within", record.note


@pytest.mark.parametrize("case", slow_but(("powers", "branching"), CASES))
def test_loops_and_branches_are_checked_as_a_whole(case):
    build, *types = CASES[case]
    module = simplified(program(build, *types))
    arrays = numbers(module.main.arguments, 0)
    for record in records(module, arrays):
        assert record.verdict == "within", record.note


def test_torch_takes_part_where_it_has_the_same_op():
    sample = next(s for s in SAMPLES.values() if s.kind == "core.sigmoid")
    arrays = _as_f64(sample)
    (record,) = records(_module(sample, arrays), arrays)
    assert "torch's autograd" in record.note
    assert "central differences in f64 at 3 points" in record.note


# -- wrong rules -----------------------------------------------------------------------------------

KINDS = sorted(
    {s.kind for s in SAMPLES.values() if REGISTRY[s.kind].gradient not in (None, CONSTANT)}
)


@pytest.mark.parametrize("kind", slow_but(("core.mul", "core.conv", "core.softmax"), KINDS))
def test_a_wrong_rule_is_named_with_its_operand_and_element(kind):
    sample = max(
        (s for s in SAMPLES.values() if s.kind == kind),
        key=lambda s: sum(np.size(a) for a in s.operands),
    )
    arrays = _as_f64(sample)
    module = _module(sample, arrays)
    places = [i for i, a in enumerate(arrays) if a.dtype == np.float64 and a.size]
    for name, fault in FAULTS.items():
        for place in places:
            with planted(kind, fault, place):
                made = records(module, arrays)
            if not _changes(module, kind, fault, place):
                continue
            failed = [r for r in made if r.verdict == "failed"]
            assert failed, (kind, name, place)
            assert kind in failed[0].note
            assert failed[0].value is not None and failed[0].old != failed[0].new


def _changes(module, kind: str, fault: Callable, place: int) -> bool:
    """Whether the fault meets a cotangent at all (a rule may give a part, or nothing)."""
    met = []

    def seen(b, value):
        made = fault(b, value)
        met.append(True)
        return made

    with planted(kind, seen, place):
        autodiff.pullback(module)
    return any(met)


@pytest.mark.parametrize("kind", ["core.tanh", "core.matmul"])
def test_a_wrong_rule_inside_a_loop_is_found_at_the_loop(kind):
    build, *types = CASES["recurrent"]
    module = simplified(program(build, *types))
    arrays = numbers(module.main.arguments, 0)
    with planted(kind, FAULTS["factor"]):
        failed = [r for r in records(module, arrays) if r.verdict == "failed"]
    assert [r.rewrite.rule for r in failed] == ["gradient of core.while"]


def _formula(name: str, formula: Callable) -> Callable:
    """A rule of one operand in terms of x, its result and the cotangent."""
    spelled = in_terms(formula)

    def rule(b, op, cotangents, wanted):
        (x,) = op.operands
        return (rounded(b, spelled(b, x, op.result, cotangents[0]), x),)

    return rule


def _last_of_equals(b, op, cotangents, wanted):
    """A sort's gradient with equals in the other order."""
    (x,) = op.operands
    back = b.reverse(x, axes=(op.axis,))
    order = b.argsort(back, axis=op.axis, descending=op.descending)
    last = x.type.shape[op.axis] - 1
    order = b.sub(b.scalar_like(last, order), order)
    return (b.scatter_along(b.scalar_like(0, x), order, cotangents[0], axis=op.axis, mode="set"),)


def _extremes_each(b, op, cotangents, wanted):
    """A scatter's gradient in which each of equal extremes gets all of the cotangent."""
    x, places, updates = op.operands
    (dy,), axis = cotangents, op.axis

    def kept(of, there, dy):
        return b.select(b.eq(of, there), dy, b.scalar_like(0, of))

    there = [b.take_along(v, places, axis=axis) for v in (op.result, dy)]
    return kept(x, op.result, dy), None, kept(updates, *there)


def _twice_at_0(b, op, cotangents, wanted):
    """A cross entropy's gradient with another bound where the probability is 0 or 1."""
    x, y = op.operands
    below = b.max(b.mul(b.sub(b.scalar_like(1, x), x), x), b.scalar_like(2e-12, x))
    return b.div(b.mul(cotangents[0], b.sub(x, y)), below), None


#: Rules that are right but for ties.
AT_TIES = {
    "core.scatter_along": _extremes_each,
    "core.binary_cross_entropy": _twice_at_0,
    "core.relu": _formula("relu", lambda x, y, dy: dy.where(x >= 0)),
    "core.abs": _formula("abs", lambda x, y, dy: dy.where(x >= 0, -dy)),
    "core.sort": _last_of_equals,
}


#: One op alone; all its operands are differentiated.
ALONE = {
    "core.relu": lambda b, x: b.relu(x),
    "core.abs": lambda b, x: b.abs(x),
    "core.sort": lambda b, x: b.sort(x, axis=1, descending=False),
    "core.scatter_along": lambda b, x: b.scatter_along(
        x,
        b.constant(np.array([[2, 0, 5], [1, 1, 3], [4, 0, 0]])),
        b.constant(np.linspace(-2, 2, 9).reshape(3, 3)),
        axis=1,
        mode="max",
    ),
    "core.binary_cross_entropy": lambda b, x: b.binary_cross_entropy(
        b.sigmoid(x), b.constant(np.linspace(0, 1, 18).reshape(3, 6))
    ),
}


@pytest.mark.parametrize("with_torch", [True, False])
@pytest.mark.parametrize("kind", AT_TIES)
def test_another_subgradient_than_the_declared_one_is_found(kind, with_torch, monkeypatch):
    if not with_torch:
        monkeypatch.setattr(torch_gradients, "version", lambda: "")
    module, arrays = program(ALONE[kind], "3x6xf64"), numbers_of(3, 6)
    assert {r.verdict for r in records(module, arrays)} == {"within"}
    monkeypatch.setitem(REGISTRY, kind, replace(REGISTRY[kind], gradient=AT_TIES[kind]))
    (record,) = (r for r in records(module, arrays) if r.verdict == "failed")
    assert "ties" in record.note


def test_a_bound_that_its_dtype_does_not_hold_is_the_dtypes():
    """In f32 -0.4 is a little below, 0.3 a little above."""
    module = program(
        lambda b, x: b.add(b.clamp(x, low=-0.4, high=0.5, open=True), b.clamp(x, low=0.3)), "15xf32"
    )
    arrays = [a.astype(np.float32) for a in numbers_of(15)]
    assert {r.verdict for r in records(module, arrays)} == {"within"}


def test_a_remainder_of_many_wraps_within_a_step_is_no_slope(monkeypatch):
    """Steps of h and h/2 both seem smooth where the divisor is much smaller than the step."""
    monkeypatch.setattr(torch_gradients, "version", lambda: "")
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 4, 50)) * 9
    y[0] = 0.00128 * (1 + random.random(50))
    module = program(lambda b, x, y: b.mod(x, y), "4x50xf64", "4x50xf64")
    assert {r.verdict for r in records(module, [x, y])} == {"within"}


def _scatter(places):
    return lambda b, x, updates: b.scatter_along(
        x, b.constant(np.array(places)), updates, axis=1, mode="set"
    )


def _scatter_slices(places):
    return lambda b, x, updates: b.scatter_nd(x, b.constant(np.array(places)), updates, mode="set")


@pytest.mark.parametrize("with_torch", [True, False])
@pytest.mark.parametrize(
    ("build", "updates"),
    [
        (_scatter([[2, 2, 0], [1, 1, 1]]), (2, 3)),
        (_scatter([[2, 9, 0], [1, -1, 4]]), (2, 3)),
        (_scatter_slices([[1], [0], [1]]), (3, 5)),
        (_scatter_slices([[1, 2], [1, 2]]), (2,)),
    ],
)
def test_updates_that_meet_one_element_get_its_cotangent_each(
    build, updates, with_torch, monkeypatch
):
    """Though the last one alone counts, as in torch; a rule that gives the others something else is
    found."""
    if not with_torch:
        monkeypatch.setattr(torch_gradients, "version", lambda: "")
    shape = "x".join(map(str, updates))
    module = program(build, "2x5xf64", f"{shape}xf64")
    arrays = [*numbers_of(2, 5), *numbers_of(*updates)]
    assert {r.verdict for r in records(module, arrays)} == {"within"}
    kind = next(op.kind for op in module.walk() if "scatter" in op.kind)
    right = REGISTRY[kind].gradient

    def twice(b, op, cotangents, wanted):
        of_x, _, of_updates = right(b, op, cotangents, wanted)
        return of_x, None, b.add(of_updates, of_updates)

    monkeypatch.setitem(REGISTRY, kind, replace(REGISTRY[kind], gradient=twice))
    (record,) = records(module, arrays)
    assert record.verdict == "failed"


def test_a_rule_that_is_wrong_only_beside_a_zero_is_found(monkeypatch):
    """Numbers of a model have no zeros; a running product of one is smooth all the same."""
    monkeypatch.setattr(torch_gradients, "version", lambda: "")
    right = REGISTRY["core.cumprod"].gradient

    class Confused:
        """A builder whose first comparison of whole numbers, for "the first zero", is wrong."""

        def __init__(self, b):
            self.b, self.met = b, False

        def __getattr__(self, name: str):
            return getattr(self.b, name)

        def eq(self, x, y):
            if self.met or not x.type.dtype.is_integer:
                return self.b.eq(x, y)
            self.met = True
            return self.b.ne(x, y)

    module = program(lambda b, x: b.cumprod(x, axis=1), "3x6xf64")
    arrays = numbers_of(3, 6)
    assert {r.verdict for r in records(module, arrays)} == {"within"}
    wrong = replace(REGISTRY["core.cumprod"], gradient=lambda b, *rest: right(Confused(b), *rest))
    monkeypatch.setitem(REGISTRY, "core.cumprod", wrong)
    (record,) = records(module, arrays)
    assert record.verdict == "failed"
    monkeypatch.setattr(gradients, "ZEROS", 0.0)
    assert [r.verdict for r in records(module, arrays)] == ["within"]  # nothing else shows it


def numbers_of(*shape: int) -> list[np.ndarray]:
    return [np.random.default_rng(0).standard_normal(shape)]


# -- compiles --------------------------------------------------------------------------------------


class Pictures(torch.nn.Module):
    """Convolution, normalisation, relu, pooling with ties (zeros of the relu), a linear layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(36, 5)

    def forward(self, x):
        return self.head(functional.max_pool2d(self.norm(self.conv(x)).relu(), 2).flatten(1))


class Kinks(torch.nn.Module):
    """Values at kinks: zeros under relu and abs, equals under max, sort and a maximum."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.zeros(6))

    def forward(self, x):
        y = x * self.weight
        y = y.relu() + y.abs() + torch.maximum(y, 2 * y) + y.sort(dim=1)[0] + y.amax(1, True)
        return (y + functional.hardtanh(y + 1) * torch.linspace(1, 2, 6)).sum()


class Stopped(torch.nn.Module):
    """A straight-through estimator: the loss is no smooth function of the parameter."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))

    def forward(self, x):
        y = x * self.weight
        return (y + (y.round() - y).detach()).square().sum()


class Aware(torch.nn.Module):
    """Quantisation-aware training: the loss is a staircase, the gradient goes straight through."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1.6, 1.4, 24).reshape(4, 6))

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.02, 5, -128, 127)
        scales, zeros = torch.tensor([0.01, 0.02, 0.01, 0.01]), torch.zeros(4, dtype=torch.int32)
        weight = torch.fake_quantize_per_channel_affine(self.weight, scales, zeros, 0, -127, 127)
        return (x @ weight.T).square().sum()


IMAGES = torch.linspace(-1, 1, 4 * 64).reshape(4, 1, 8, 8)
CLASSES = torch.tensor([0, 1, 2, 4])
ROWS = torch.linspace(-2, 2, 24).reshape(4, 6)


def compiled(model, batch, **training):
    """A checked compile up to the updates."""
    step = cc.compile(
        model, batch, training=Training(**training), threads=1, check=True, finish=False
    )
    made = step.compilation
    while made.next is not None and not made.next.label.startswith("fold_batch_norm"):
        made.step()
    return made


def found(made, name: str):
    """The records of a stage."""
    return [r for s in made.stages if s.name == name for r in made.checks[s.index]]


MODELS = {
    "pictures": (
        Pictures,
        (IMAGES, CLASSES),
        {"loss": "cross_entropy", "optimizer": "adamw", "clip_norm": 1.0},
    ),
    "kinks": (Kinks, (ROWS,), {"loss": None}),
    "stopped": (Stopped, (ROWS,), {"loss": None}),
    "aware": (Aware, (ROWS,), {"loss": None}),
    "shards": (Pictures, (IMAGES, CLASSES), {"loss": "cross_entropy", "shards": 2}),
    "half": (Pictures, (IMAGES, CLASSES), {"loss": "cross_entropy", "precision": "f16"}),
}


@pytest.mark.parametrize("name", slow_but(("kinks", "aware"), MODELS))
def test_right_steps_are_checked_whole_without_a_complaint(name):
    model, batch, training = MODELS[name]
    made = compiled(model(), batch, **training)
    assert made.finding is None
    for stage in made.stages[1:]:
        for record in made.checks[stage.index]:
            assert record.verdict != "failed", (stage.name, record.note)
    for name in (
        "scale_loss",
        "differentiate",
        "unscale_gradients",
        "clip_gradients",
        "apply_optimizer",
        "guard_update",
    ):
        assert {r.verdict for r in found(made, name)} <= {"bitwise", "within"}, name
    whole = [r for r in found(made, "differentiate") if r.kind == "results"]
    assert len(whole) == 1 and "slope of the loss" in whole[0].note


class _Averaged(torch.nn.Module):
    """A buffer that shards compute from their own rows, and random numbers."""

    def __init__(self):
        super().__init__()
        self.inner = _linear()
        self.register_buffer("average", torch.zeros(5))

    def forward(self, x):
        y = self.inner(functional.dropout(x, 0.4, self.training))
        self.average.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return y


PROBABILITIES = torch.softmax(torch.linspace(-1, 2, 20).reshape(4, 5).sin(), 1)


@pytest.mark.parametrize(
    "loss", slow_but(("mse",), ("mse", "l1", "huber", "bce_with_logits", "kl", "cross_entropy"))
)
def test_shards_of_every_loss_are_checked_without_a_complaint(loss):
    targets = CLASSES if loss == "cross_entropy" else PROBABILITIES
    made = compiled(_Averaged(), (ROWS, targets), loss=loss, shards=2)
    assert made.finding is None
    records = found(made, "shard_batch")
    assert records and "failed" not in {r.verdict for r in records}


def test_a_wrong_mean_over_shards_is_found(monkeypatch):
    """The event that makes it the loss has no ops, only the two values."""
    right = Builder.scalar_like
    monkeypatch.setattr(
        Builder, "scalar_like", lambda b, number, like: right(b, 3 if number == 2 else number, like)
    )
    made = compiled(_Averaged(), (ROWS, PROBABILITIES), loss="l1", shards=2)
    assert made.finding.pass_label == "shard_batch"


class _Meeting(torch.nn.Module):
    """Two of the numbers that a scatter puts at places meet in one."""

    def __init__(self):
        super().__init__()
        self.inner = _linear()

    def forward(self, x):
        places = torch.tensor([0, 3, 3, 1, 2]).expand(len(x), 5)
        return torch.zeros(len(x), 5).scatter(1, places, self.inner(x))


def test_the_slope_of_a_loss_with_updates_that_meet_is_the_declared_one():
    made = compiled(_Meeting(), (ROWS, CLASSES), loss="cross_entropy")
    assert made.finding is None
    whole = [r for r in found(made, "differentiate") if r.kind == "results"]
    assert [r.verdict for r in whole] == ["within"]
    with planted("core.scatter_along", FAULTS["factor"], 2):
        made = compiled(_Meeting(), (ROWS, CLASSES), loss="cross_entropy")
    assert made.finding is not None
    assert made.finding.rewrite.rule == "gradient of core.scatter_along"


@pytest.mark.parametrize(("kind", "place"), [("core.conv", 1), ("core.max_pool", 0)])
def test_a_wrong_rule_fails_the_compile_and_bisect_names_it(kind, place):
    with planted(kind, FAULTS["weights"], place):
        made = compiled(Pictures(), (IMAGES, CLASSES), loss="cross_entropy")
        step = cc.compile(
            Pictures(),
            (IMAGES, CLASSES),
            training=Training(loss="cross_entropy"),
            threads=1,
            finish=False,
        )
        begun = step.compilation
        searched = bisect(begun, begun.inputs, levels=levels(), execute=False)
    for finding in (made.finding, searched):
        assert finding is not None
        assert finding.pass_label == "differentiate"
        assert finding.rewrite.rule == f"gradient of {kind}"
        assert kind in finding.note and finding.numbers is not None


def test_an_op_that_is_wrongly_held_to_be_constant_shows_in_the_slope_of_the_loss(monkeypatch):
    held = replace(REGISTRY["core.tanh"], gradient=CONSTANT)
    monkeypatch.setitem(REGISTRY, "core.tanh", held)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
    made = compiled(model, (ROWS, CLASSES), loss="cross_entropy")
    assert made.finding.pass_label == "differentiate"
    assert "the slope of the loss along a direction of 0." in made.finding.note


# -- updates ---------------------------------------------------------------------------------------


def _linear():
    torch.manual_seed(0)
    return torch.nn.Linear(6, 5)


OPTIMIZERS = [
    SGD(0.1, 0.9, weight_decay=0.01, nesterov=True),
    SGD(schedules.Warmup(3, schedules.Cosine(0.1, 50, 1e-4)), 0.9, dampening=0.1),
    Adam(schedules.Step(1e-3, 5), weight_decay=0.01, amsgrad=True),
    optimizers.AdamW(schedules.Exponential(1e-3, 0.9), betas=(0.3, 0.6)),
    optimizers.Adagrad(schedules.Linear(0.1, 9), rate_decay=0.1, initial=0.1, weight_decay=0.1),
    RMSprop(centered=True, momentum=0.9, weight_decay=0.1),
    optimizers.Lion(weight_decay=0.1),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
def test_right_updates_are_within(optimizer):
    made = compiled(
        _linear(), (ROWS, CLASSES), loss="cross_entropy", optimizer=optimizer, clip_norm=0.3
    )
    records = found(made, "clip_gradients") + found(made, "apply_optimizer")
    assert {r.verdict for r in records} <= {"bitwise", "within"}, [r.note for r in records]


class _Masked(torch.nn.Module):
    """Some weights are infinite: what they let through is 0."""

    def __init__(self):
        super().__init__()
        self.inner = _linear()
        self.mask = torch.nn.Parameter(torch.zeros(5))
        self.mask.data[2] = -math.inf

    def forward(self, x):
        return self.inner(x).sigmoid() * self.mask.sigmoid()


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1, 0.9), optimizers.AdamW(), Adam()], ids=lambda o: type(o).__name__
)
def test_infinite_weights_are_updated_without_a_finding(optimizer):
    made = compiled(_Masked(), (ROWS, CLASSES), loss="cross_entropy", optimizer=optimizer)
    records = found(made, "apply_optimizer")
    assert {r.verdict for r in records} <= {"bitwise", "within"}, [r.note for r in records]


def _patched(kind: type, wrong: Callable) -> Callable:
    def plant(monkeypatch):
        right = kind.update
        monkeypatch.setattr(kind, "update", lambda o, p, g, s, n: wrong(right, o, p, g, s, n))

    return plant


def _swapped(right, o, p, g, s, n):
    made, after = right(o, p, g, s, n)
    return made, dict(zip(after, reversed(after.values()), strict=True))


#: What is wrong -> (optimiser, plant, the rule that is blamed).
WRONG = {
    "sign": (SGD(0.1), _patched(SGD, lambda f, o, p, g, s, n: f(o, p, -g, s, n)), "update by SGD"),
    "decay": (
        SGD(0.1, weight_decay=0.5),
        _patched(SGD, lambda f, o, p, g, s, n: f(replace(o, weight_decay=0.0), p, g, s, n)),
        "update by SGD",
    ),
    "momentum": (
        SGD(0.1, 0.9),
        _patched(SGD, lambda f, o, p, g, s, n: f(replace(o, momentum=0.5), p, g, s, n)),
        "update by SGD",
    ),
    "epsilon": (
        RMSprop(),
        _patched(RMSprop, lambda f, o, p, g, s, n: f(replace(o, eps=1e-6), p, g, s, n)),
        "update by RMSprop",
    ),
    "slots": (Adam(), _patched(Adam, _swapped), "update by Adam"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_update_is_found(name, monkeypatch):
    optimizer, plant, rule = WRONG[name]
    plant(monkeypatch)
    made = compiled(_linear(), (ROWS, CLASSES), loss="cross_entropy", optimizer=optimizer)
    assert made.finding.pass_label == "apply_optimizer"
    assert made.finding.rewrite.rule == rule
    assert "its formula in f64 gives" in made.finding.note


def test_a_wrong_rate_is_found(monkeypatch):
    right = schedules.Cosine.rate

    def longer(schedule, b, iteration):
        return right(replace(schedule, iterations=schedule.iterations + 1), b, iteration)

    monkeypatch.setattr(schedules.Cosine, "rate", longer)
    made = compiled(
        _linear(), (ROWS, CLASSES), loss="cross_entropy", optimizer=SGD(schedules.Cosine(0.1, 50))
    )
    assert made.finding.rewrite.rule == "numbers of the iteration"


def test_wrongly_clipped_gradients_are_found(monkeypatch):
    monkeypatch.setattr(clip_gradients, "rounded", lambda b, made, like: b.neg(made))
    made = compiled(_linear(), (ROWS, CLASSES), loss="cross_entropy", clip_norm=0.1)
    assert made.finding.pass_label == "clip_gradients"
    assert made.finding.rewrite.rule == "clip a gradient"


def test_a_user_s_optimiser_is_not_held_to_a_formula():
    class Halves(SGD):
        def update(self, p, g, slots, numbers):
            return p - g * 0.5, {}

    made = compiled(_linear(), (ROWS, CLASSES), loss="cross_entropy", optimizer=Halves())
    records = [r for r in found(made, "apply_optimizer") if r.rewrite.claim is not None]
    assert records and {r.verdict for r in records} == {"unchecked"}
    assert "Halves" in records[0].note
