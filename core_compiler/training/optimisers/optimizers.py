"""Optimisers as ops: from parameters, gradients and their state to the next ones.

Formulas and constants are those of ``torch.optim`` (2.13, the single-tensor forms); every op rounds
once in the parameter's dtype. Rates and corrections are f64 scalars, rounded once when they are
combined with a tensor. Powers of the betas are kept in the state, by repeated multiplication.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from core_compiler.ir import Block, Value, WeightStore, tensor
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array, evaluate_block
from core_compiler.ops.gradients.table import Term
from core_compiler.ops.rules import F64
from core_compiler.support.errors import UserError, nearest
from core_compiler.training.optimisers.schedules import Schedule, is_schedule, schedule
from core_compiler.training.options import flag, is_below_one, is_non_negative, number


@dataclass(frozen=True)
class IterationScalars:
    """The values that all parameters of an iteration share: f64, rank 0.

    ``rate`` is the learning rate. ``before`` and ``after`` are the scalars of the optimiser before
    and after this iteration. ``first`` (i1) is true if no update was made before.
    """

    rate: Term
    first: Value
    before: Mapping[str, Term] = field(default_factory=dict)
    after: Mapping[str, Term] = field(default_factory=dict)


class Optimizer:
    """The base class of optimisers.

    ``slots`` are the states of each parameter with their initial values, ``scalars`` those of the
    optimiser as a whole. ``squares`` are slots that hold means or sums of squares, which are never
    negative. ``counts`` are options that are numbers of 0 or more; ``switches`` are Boolean
    options.
    """

    rate: float | Schedule
    squares: ClassVar[frozenset[str]] = frozenset()
    counts: ClassVar[tuple[str, ...]] = ()
    switches: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not is_schedule(self.rate):
            fix = "pass a finite number of 0 or more, or a schedule"
            self._set("rate", number("optimizer", "rate", self.rate, is_non_negative, fix))
        for name in self.counts:
            fix = "pass a finite number of 0 or more"
            self._set(name, number("optimizer", name, getattr(self, name), is_non_negative, fix))
        for name in self.switches:
            self._set(name, flag("optimizer", name, getattr(self, name)))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _set_betas(self, given: Any) -> None:
        fix = "pass two numbers of 0 or more and below 1"
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UserError(f"invalid value {given!r} for betas", "optimizer", fix)
        names = ("betas[0]", "betas[1]")
        self._set(
            "betas",
            tuple(
                number("optimizer", name, beta, is_below_one, fix)
                for name, beta in zip(names, given, strict=True)
            ),
        )

    @property
    def slots(self) -> dict[str, float]:
        return {}

    @property
    def scalars(self) -> dict[str, float]:
        return {}

    @property
    def schedule(self) -> Schedule:
        return schedule(self.rate)

    def advance(self, b: Builder, before: Mapping[str, Term]) -> dict[str, Term]:
        """Return the scalars of this iteration from those of the previous one."""
        return dict(before)

    def update(
        self, p: Term, g: Term, slots: Mapping[str, Term], numbers: IterationScalars
    ) -> tuple[Term, dict[str, Term]]:
        """Return the next parameter and its next slots."""
        raise NotImplementedError


def _cast_like(number: Term, like: Term) -> Term:
    """Return an f64 scalar in the dtype and shape of a tensor."""
    b, kind = number.b, like.value.type
    value = number.value if kind.dtype is F64 else b.cast(number.value, dtype=kind.dtype)
    return Term(b, b.expand(value, kind.shape))


def _lerp(old: Term, new: Term, share: float) -> Term:
    """Interpolate from ``old`` to ``new`` by ``share`` (torch.lerp)."""
    if share < 0.5:
        return old + (new - old) * share
    return new - (new - old) * (1 - share)


def _add_weight_decay(p: Term, g: Term, decay: float) -> Term:
    """Return the gradient plus that of the weight decay, half the squared norm."""
    return g + p * decay if decay else g


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with Polyak or Nesterov momentum."""

    rate: float | Schedule = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    counts = ("momentum", "weight_decay")
    switches = ("nesterov",)

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(
            "dampening",
            number("optimizer", "dampening", self.dampening, math.isfinite, "pass a finite number"),
        )
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise UserError(
                "nesterov needs momentum and no dampening",
                "optimizer",
                "pass a momentum above 0 and no dampening",
            )

    @property
    @override
    def slots(self) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if self.momentum else {}

    @override
    def update(self, p, g, slots, numbers):
        g = _add_weight_decay(p, g, self.weight_decay)
        rate, after = _cast_like(numbers.rate, p), {}
        if self.momentum:
            held = slots["momentum_buffer"] * self.momentum + g * (1 - self.dampening)
            if self.dampening:  # dampening does not apply to the first gradient
                first = Term(p.b, p.b.expand(numbers.first, p.value.type.shape))
                held = g.where(first, held)
            after["momentum_buffer"] = held
            g = g + held * self.momentum if self.nesterov else held
        return p - rate * g, after


class _Moments(Optimizer):
    """The common base of Adam and AdamW: Kingma and Ba, "Adam" (2015)."""

    betas: tuple[float, float]
    eps: float
    amsgrad: bool
    squares = frozenset({"exp_avg_sq", "max_exp_avg_sq"})
    counts = ("eps", "weight_decay")
    switches = ("amsgrad",)

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._set_betas(self.betas)

    @property
    @override
    def slots(self) -> dict[str, float]:
        largest = {"max_exp_avg_sq": 0.0} if self.amsgrad else {}
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0, **largest}

    @property
    @override
    def scalars(self) -> dict[str, float]:
        return {"beta1_power": 1.0, "beta2_power": 1.0}

    @override
    def advance(self, b, before):
        return {f"beta{i}_power": before[f"beta{i}_power"] * self.betas[i - 1] for i in (1, 2)}

    def _adam_update(self, p: Term, g: Term, slots: Mapping[str, Term], numbers: IterationScalars):
        mean = _lerp(slots["exp_avg"], g, 1 - self.betas[0])
        square = slots["exp_avg_sq"] * self.betas[1] + g * g * (1 - self.betas[1])
        after = {"exp_avg": mean, "exp_avg_sq": square}
        if self.amsgrad:
            square = after["max_exp_avg_sq"] = slots["max_exp_avg_sq"].call("max", square)
        rate = numbers.rate / (1 - numbers.after["beta1_power"])
        root = (1 - numbers.after["beta2_power"]).call("sqrt")
        denominator = square.call("sqrt") / _cast_like(root, p) + self.eps
        return p - _cast_like(rate, p) * (mean / denominator), after


@dataclass(frozen=True)
class Adam(_Moments):
    """Adam; ``weight_decay`` is added to the gradient."""

    rate: float | Schedule = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    @override
    def update(self, p, g, slots, numbers):
        return self._adam_update(p, _add_weight_decay(p, g, self.weight_decay), slots, numbers)


@dataclass(frozen=True)
class AdamW(_Moments):
    """AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization" (2019)."""

    rate: float | Schedule = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    amsgrad: bool = False

    @override
    def update(self, p, g, slots, numbers):
        if self.weight_decay:
            p = p * _cast_like(1 - numbers.rate * self.weight_decay, p)
        return self._adam_update(p, g, slots, numbers)


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad: Duchi, Hazan and Singer (2011)."""

    rate: float | Schedule = 1e-2
    rate_decay: float = 0.0
    weight_decay: float = 0.0
    initial: float = 0.0
    eps: float = 1e-10
    squares = frozenset({"sum"})
    counts = ("rate_decay", "weight_decay", "initial", "eps")

    @property
    @override
    def slots(self) -> dict[str, float]:
        return {"sum": self.initial}

    @property
    @override
    def scalars(self) -> dict[str, float]:
        return {"steps": 0.0} if self.rate_decay else {}

    @override
    def advance(self, b, before):
        return {"steps": before["steps"] + 1} if self.rate_decay else {}

    @override
    def update(self, p, g, slots, numbers):
        g = _add_weight_decay(p, g, self.weight_decay)
        rate = numbers.rate
        if self.rate_decay:
            rate = rate / (numbers.before["steps"] * self.rate_decay + 1)
        total = slots["sum"] + g * g
        return p - _cast_like(rate, p) * (g / (total.call("sqrt") + self.eps)), {"sum": total}


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop: Hinton's lecture 6e (2012); centered: Graves, "Generating sequences" (2013)."""

    rate: float | Schedule = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    squares = frozenset({"square_avg"})
    counts = ("alpha", "eps", "weight_decay", "momentum")
    switches = ("centered",)

    @property
    @override
    def slots(self) -> dict[str, float]:
        made = {"square_avg": 0.0}
        if self.centered:
            made["grad_avg"] = 0.0
        if self.momentum:
            made["momentum_buffer"] = 0.0
        return made

    @override
    def update(self, p, g, slots, numbers):
        g = _add_weight_decay(p, g, self.weight_decay)
        rate = _cast_like(numbers.rate, p)
        square = slots["square_avg"] * self.alpha + g * g * (1 - self.alpha)
        after, denominator = {"square_avg": square}, square
        if self.centered:
            mean = after["grad_avg"] = _lerp(slots["grad_avg"], g, 1 - self.alpha)
            denominator = square - mean * mean
        step = g / (denominator.call("sqrt") + self.eps)
        if self.momentum:
            step = after["momentum_buffer"] = slots["momentum_buffer"] * self.momentum + step
        return p - rate * step, after


@dataclass(frozen=True)
class Lion(Optimizer):
    """Lion: Chen et al., "Symbolic discovery of optimization algorithms" (2023)."""

    rate: float | Schedule = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    counts = ("weight_decay",)

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._set_betas(self.betas)

    @property
    @override
    def slots(self) -> dict[str, float]:
        return {"exp_avg": 0.0}

    @override
    def update(self, p, g, slots, numbers):
        mean = slots["exp_avg"]
        if self.weight_decay:
            p = p * _cast_like(1 - numbers.rate * self.weight_decay, p)
        direction = (mean * self.betas[0] + g * (1 - self.betas[0])).call("sign")
        after = mean * self.betas[1] + g * (1 - self.betas[1])
        return p - _cast_like(numbers.rate, p) * direction, {"exp_avg": after}


def scalars_after(what: Optimizer, iterations: int) -> dict[str, float]:
    """Return the scalars of an optimiser after ``iterations`` iterations, outside a step."""
    numbers = dict(what.scalars)
    if not numbers:
        return numbers
    b = Builder(WeightStore())
    before = {name: Value(tensor((), F64), name) for name in numbers}
    after = what.advance(b, {name: Term(b, value) for name, value in before.items()})
    constants = [op for op in b.ops if op.kind == "core.constant"]
    known = {op.result: constant_array(op, b.weights) for op in constants}
    ops = tuple(op for op in b.ops if op.result not in known)
    block = Block(tuple(before.values()), ops, tuple(after[name].value for name in numbers))
    for _ in range(iterations):
        made = evaluate_block(block, [np.array(n) for n in numbers.values()], outer=known)
        numbers = dict(zip(numbers, map(float, made), strict=True))
    return numbers


#: The optimisers by the names that the command line and :class:`Training` accept.
OPTIMIZERS = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "lion": Lion,
}


def optimizer(what: str | Optimizer) -> Optimizer:
    """Return an optimiser, given as itself or by name with its defaults."""
    if isinstance(what, Optimizer):
        return what
    if what not in OPTIMIZERS:
        fix = nearest(str(what), OPTIMIZERS, f"choose {', '.join(OPTIMIZERS)}")
        raise UserError(f"unknown optimiser {what!r}", "optimizer", fix)
    return OPTIMIZERS[what]()
