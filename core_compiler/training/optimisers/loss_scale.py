"""Loss scaling: small gradients of f16 are kept from becoming 0 by a factor on the loss.

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

#: State of the step by these names: the factor, the iterations since it changed, and how many
#: updates were left out in all.
SCALE, GROWTH, SKIPPED = "loss_scale", "growth_tracker", "skipped_updates"


class LossScale:
    """Base of all: ``state`` is what the step keeps, by name, with what it is at first."""

    @property
    def state(self) -> dict[str, np.generic]:
        return {SKIPPED: np.int64(0)}

    def factor(self, b: Builder, state: Mapping[str, Value]) -> Value:
        """The factor of this iteration: f32, rank 0."""
        raise NotImplementedError

    def advance(self, b: Builder, state: Mapping[str, Value], finite: Value) -> dict[str, Value]:
        """The next state; ``finite``: i1, whether all gradients of this iteration are."""
        skipped = state[SKIPPED]
        return {SKIPPED: b.add(skipped, b.cast(b.not_(finite), dtype=skipped.type.dtype))}


@dataclass(frozen=True)
class Static(LossScale):
    """The same factor in every iteration."""

    value: float

    def __post_init__(self) -> None:
        _need_factor("loss_scale", self.value)

    @override
    def factor(self, b, state):
        return b.constant(self.value, F32)


@dataclass(frozen=True)
class Dynamic(LossScale):
    """As large a factor as the gradients bear: times ``backoff`` when one of them is not finite,
    times ``growth`` after ``interval`` iterations in a row without that (a factor that would no
    longer be finite stays)."""

    initial: float = 65536.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        _need_factor("initial", self.initial)
        _need(1 < self.growth < math.inf, f"invalid value {self.growth} for growth",
              "pass a number above 1")  # fmt: skip
        _need(0 < self.backoff < 1, f"invalid value {self.backoff} for backoff",
              "pass a number between 0 and 1")  # fmt: skip
        _need(self.interval >= 1, f"invalid value {self.interval} for interval",
              "pass 1 or more iterations")  # fmt: skip

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
    """A loss scale by what says it: ``dynamic``, a number, or as it is.  UserError for others."""
    if isinstance(what, LossScale):
        return what
    if what == "dynamic":
        return Dynamic()
    try:
        return Static(float(what))
    except (TypeError, ValueError):
        raise UserError(f"invalid value {what!r} for loss_scale", "training",
                        "pass a number above 0, or dynamic") from None  # fmt: skip


def _need_factor(name: str, value: float) -> None:
    with np.errstate(all="ignore"):
        held = np.float32(value)
        holds = held > 0 and np.isfinite(held) and np.isfinite(1 / held)
    _need(bool(holds), f"invalid value {value} for {name}",
          "pass a number above 0 that f32 can represent, as well as its reciprocal")  # fmt: skip


def _need(holds: bool, what: str, fix: str) -> None:
    if not holds:
        raise UserError(what, "loss scale", fix)
