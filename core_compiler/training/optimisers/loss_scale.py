"""Loss scaling: a factor on the loss prevents small f16 gradients from underflowing to 0.

Micikevicius et al., "Mixed precision training" (ICLR 2018), section 3.2; the constants and the
order of events are those of ``torch.amp.GradScaler`` (2.13).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import Term
from core_compiler.ops.rules import F32
from core_compiler.support.errors import UserError

#: Names of the step's state: the factor, the iterations since it changed, and the total number of
#: skipped updates.
SCALE, GROWTH, SKIPPED = "loss_scale", "growth_tracker", "skipped_updates"


class LossScale:
    """The base class of loss scales; ``state`` has the step's initial state by name."""

    @property
    def state(self) -> dict[str, np.generic]:
        return {SKIPPED: np.int64(0)}

    def factor(self, b: Builder, state: Mapping[str, Value]) -> Value:
        """Return the factor of this iteration: f32, rank 0."""
        raise NotImplementedError

    def advance(self, b: Builder, state: Mapping[str, Value], finite: Value) -> dict[str, Value]:
        """Return the next state; ``finite`` (i1) is true if all gradients are finite."""
        skipped = state[SKIPPED]
        return {SKIPPED: b.add(skipped, b.cast(b.not_(finite), dtype=skipped.type.dtype))}


@dataclass(frozen=True)
class Static(LossScale):
    """The same factor in every iteration."""

    value: float

    def __post_init__(self) -> None:
        _check_factor("loss_scale", self.value)

    @override
    def factor(self, b, state):
        return b.constant(self.value, F32)


@dataclass(frozen=True)
class Dynamic(LossScale):
    """The largest factor for which the gradients stay finite.

    It is multiplied by ``backoff`` when a gradient is not finite, and by ``growth`` after
    ``interval`` successive iterations with finite gradients (unless the factor itself would
    overflow).
    """

    initial: float = 65536.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        _check_factor("initial", self.initial)
        _require(
            1 < self.growth < math.inf,
            f"invalid value {self.growth} for growth",
            "pass a number above 1",
        )
        _require(
            0 < self.backoff < 1,
            f"invalid value {self.backoff} for backoff",
            "pass a number between 0 and 1",
        )
        _require(
            self.interval >= 1,
            f"invalid value {self.interval} for interval",
            "pass 1 or more iterations",
        )

    @property
    @override
    def state(self) -> dict[str, np.generic]:
        return {SCALE: np.float32(self.initial), GROWTH: np.int64(0), **super().state}

    @override
    def factor(self, b, state):
        return state[SCALE]

    @override
    def advance(self, b, state, finite):
        scale, count, good = (Term(b, v) for v in (state[SCALE], state[GROWTH], finite))
        done = count + 1
        full = done.same(self.interval)
        grown = scale * self.growth
        larger = grown.where(full.call("and", grown.call("is_finite")), scale)
        return {
            SCALE: larger.where(good, scale * self.backoff).value,
            GROWTH: done.unless(full).where(good).value,
            **super().advance(b, state, finite),
        }


def loss_scale(what: Any) -> LossScale:
    """Return a loss scale, given as itself, a number or ``dynamic``; raise UserError otherwise."""
    if isinstance(what, LossScale):
        return what
    if what == "dynamic":
        return Dynamic()
    try:
        return Static(float(what))
    except (TypeError, ValueError):
        raise UserError(
            f"invalid value {what!r} for loss_scale",
            "training",
            "pass a number above 0, or dynamic",
        ) from None


def _check_factor(name: str, value: float) -> None:
    with np.errstate(all="ignore"):
        held = np.float32(value)
        holds = held > 0 and np.isfinite(held) and np.isfinite(1 / held)
    _require(
        bool(holds),
        f"invalid value {value} for {name}",
        "pass a number above 0 that f32 can represent, as well as its reciprocal",
    )


def _require(holds: bool, what: str, fix: str) -> None:
    if not holds:
        raise UserError(what, "loss scale", fix)
