"""Learning rates as functions of the iteration, computed in f64 by ops of the contract.

A schedule is part of the training step's graph, so that the rate is the same everywhere and a
resumed run continues it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from math import pi
from typing import Any, Protocol

import numpy as np

from core_compiler.ir import Block, Value, WeightStore, tensor
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array, evaluate_block
from core_compiler.ops.gradients.table import Term
from core_compiler.ops.rules import F64, I64
from core_compiler.support.errors import UserError, nearest
from core_compiler.training.options import is_non_negative, number


class Schedule(Protocol):
    """A function ``rate(b, iteration)`` from an iteration (i64, rank 0, from 0 on) to an f64 rate.

    The rate has rank 0.
    """

    def rate(self, b: Builder, iteration: Value) -> Value: ...


def _constant(b: Builder, value: float) -> Value:
    return b.constant(value, F64)


def _iteration_term(b: Builder, iteration: Value) -> Term:
    return Term(b, b.cast(iteration, dtype=F64))


@dataclass(frozen=True)
class Constant:
    """The same rate in every iteration."""

    value: float

    def __post_init__(self) -> None:
        _check_fields(self)

    def rate(self, b: Builder, iteration: Value) -> Value:
        return _constant(b, self.value)


@dataclass(frozen=True)
class Step:
    """``value * gamma ** (iteration // every)`` (torch.optim.lr_scheduler.StepLR)."""

    value: float
    every: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _check_fields(self)

    def rate(self, b: Builder, iteration: Value) -> Value:
        steps = (_iteration_term(b, iteration) / self.every).call("floor")
        return (Term(b, _constant(b, self.gamma)).call("pow", steps) * self.value).value


@dataclass(frozen=True)
class Exponential:
    """``value * gamma ** iteration`` (ExponentialLR)."""

    value: float
    gamma: float

    def __post_init__(self) -> None:
        _check_fields(self)

    def rate(self, b: Builder, iteration: Value) -> Value:
        grown = Term(b, _constant(b, self.gamma)).call("pow", _iteration_term(b, iteration))
        return (grown * self.value).value


@dataclass(frozen=True)
class Linear:
    """Linear change from ``value`` to ``value * last`` over ``iterations``, then constant.

    This is LinearLR with a first factor of 1.
    """

    value: float
    iterations: int
    last: float = 0.0

    def __post_init__(self) -> None:
        _check_fields(self)

    def rate(self, b: Builder, iteration: Value) -> Value:
        share = _iteration_term(b, iteration).call("min", self.iterations) / self.iterations
        return ((share * (self.last - 1) + 1) * self.value).value


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from ``value`` to ``least`` over ``iterations``, then constant.

    Loshchilov and Hutter, "SGDR" (2017), without restarts; CosineAnnealingLR.
    """

    value: float
    iterations: int
    least: float = 0.0

    def __post_init__(self) -> None:
        _check_fields(self)

    def rate(self, b: Builder, iteration: Value) -> Value:
        share = _iteration_term(b, iteration).call("min", self.iterations) / self.iterations
        cosine = (share * pi).call("cos")
        return ((cosine + 1) * ((self.value - self.least) / 2) + self.least).value


@dataclass(frozen=True)
class Warmup:
    """Linear growth from 0 to the rate of ``after`` over ``iterations``.

    ``after`` starts to count when the warmup ends.
    """

    iterations: int
    after: Schedule

    def __post_init__(self) -> None:
        _check_fields(self)
        if not is_schedule(self.after):
            raise UserError(
                f"expected after to be a schedule, got {self.after!r}",
                "learning rate",
                "pass a schedule, such as Constant(0.1)",
            )

    def rate(self, b: Builder, iteration: Value) -> Value:
        count = _iteration_term(b, iteration)
        later = b.max(
            b.sub(iteration, b.scalar_like(self.iterations, iteration)), b.scalar_like(0, iteration)
        )
        rate = Term(b, self.after.rate(b, later))
        growing = rate * ((count + 1) / self.iterations)
        return growing.where(count < self.iterations, rate).value


def is_schedule(what: Any) -> bool:
    return not isinstance(what, type) and callable(getattr(what, "rate", None))


def rates(schedule: Schedule) -> Callable[[int], float]:
    """Return a function from an iteration (from 0 on) to its rate, for use outside a step.

    It evaluates the schedule's ops by their references, so the rate is the same; a call takes about
    0.1 ms.
    """
    b, iteration = Builder(WeightStore()), Value(tensor((), I64))
    rate = schedule.rate(b, iteration)
    constants = [op for op in b.ops if op.kind == "core.constant"]
    known = {op.result: constant_array(op, b.weights) for op in constants}
    block = Block((iteration,), tuple(op for op in b.ops if op.result not in known), (rate,))
    return lambda number: float(evaluate_block(block, [np.array(number)], outer=known)[0])


def schedule(rate: float | Schedule) -> Schedule:
    """Return a schedule, given as itself or as a constant rate."""
    return Constant(float(rate)) if isinstance(rate, int | float) else rate


#: The schedules by the names that the command line accepts, without the warmup.
SCHEDULES: dict[str, Any] = {
    "step": Step,
    "exponential": Exponential,
    "linear": Linear,
    "cosine": Cosine,
}


def read(texts: Sequence[str], value: float) -> Schedule:
    """Parse the schedule ``NAME:FIELD=NUMBER,FIELD=NUMBER`` for the initial rate ``value``.

    An example is ``cosine:iterations=5000``; ``warmup:iterations=100`` may come before it. Raise a
    UserError that names invalid text.
    """
    after: Schedule | None = None
    warmup: dict[str, Any] | None = None
    for text in texts:
        name, _, fields_text = text.partition(":")
        if name == "warmup" and warmup is None:
            warmup = _read_fields(Warmup, text, fields_text)
        elif name in SCHEDULES and after is None:
            after = SCHEDULES[name](value, **_read_fields(SCHEDULES[name], text, fields_text))
        elif name == "warmup" or name in SCHEDULES:
            raise UserError(
                f"too many schedules: {text!r}",
                "--schedule",
                "pass one, and at most one warmup before it",
            )
        else:
            known = ["warmup", *SCHEDULES]
            raise UserError(
                f"unknown schedule {name!r}",
                "--schedule",
                nearest(name, known, f"choose {', '.join(known)}"),
            )
    after = after or Constant(value)
    return after if warmup is None else Warmup(after=after, **warmup)


def _read_fields(kind: Any, text: str, fields_text: str) -> dict[str, Any]:
    """Parse the fields of a schedule other than its value."""
    taken = {f.name: f for f in fields(kind) if f.name not in ("value", "after")}
    hint = f"write {text.partition(':')[0]}:{','.join(f'{name}=NUMBER' for name in taken)}"
    found: dict[str, Any] = {}
    for part in filter(None, fields_text.split(",")):
        name, _, number = part.partition("=")
        try:
            found[name] = (int if taken[name].type == "int" else float)(number)
        except (KeyError, ValueError):
            raise UserError(f"cannot parse {part!r} in {text!r}", "--schedule", hint) from None
    missing = [name for name, f in taken.items() if f.default is MISSING and name not in found]
    if missing:
        raise UserError(f"missing {' and '.join(missing)} in {text!r}", "--schedule", hint)
    return found


def _check_fields(made: Any) -> None:
    """Raise UserError for an invalid number of a schedule, or one that makes a rate negative."""
    for f in fields(made):
        holds: Callable[[float], bool] = math.isfinite
        fix = "pass a finite number"
        if f.type == "int":
            holds, fix = _is_at_least_one, "pass 1 or more iterations"
        elif f.name in ("value", "last"):
            holds, fix = is_non_negative, "pass a finite number of 0 or more"
        elif f.type != "float":
            continue
        value = number("learning rate", f.name, getattr(made, f.name), holds, fix)
        object.__setattr__(made, f.name, value)


def _is_at_least_one(value: float) -> bool:
    return 1 <= value < math.inf
