"""The packing problem: buffers with sizes and live intervals in; offsets, peak and bound out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from core_compiler.support.errors import UserError

#: Bytes: a cache line, and the alignment of the widest vector load.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of ``size`` bytes that is live at the steps ``start <= t < end``.

    Its offset is a multiple of ``alignment``.  Buffers without size or without steps need no memory
    and get offset 0.
    """

    name: str
    size: int
    start: int
    end: int
    alignment: int = ALIGNMENT


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets (bytes, one per live interval, in their order) in a block of ``peak`` bytes.

    ``lower_bound``: no plan is smaller (largest sum of live sizes, or a bound proven by a search).
    ``proven``: the plan is optimal.  ``seconds`` is planning time, ``planner`` the planner that
    found it.
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    peak: int
    lower_bound: int
    planner: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def gap(self) -> float:
        """``peak / lower_bound - 1``; 0 is proven optimal."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def proven(self) -> bool:
        return self.peak == self.lower_bound

    def offset(self, name: str) -> int:
        return next(o for b, o in zip(self.lifetimes, self.offsets, strict=True) if b.name == name)


@dataclass(frozen=True, eq=False)
class Arrays:
    """The live intervals as int64 arrays, with sizes rounded up to their alignment."""

    size: np.ndarray
    start: np.ndarray
    end: np.ndarray
    alignment: np.ndarray

    @property
    def count(self) -> int:
        return len(self.size)

    @property
    def duration(self) -> np.ndarray:
        return self.end - self.start


def arrays(lifetimes: Sequence[Lifetime]) -> Arrays:
    """Return the arrays; UserError for a negative size or duration, or an alignment below 1."""
    for b in lifetimes:
        if b.size < 0 or b.end < b.start or b.alignment < 1:
            raise UserError(
                f"invalid size {b.size}, steps {b.start} to {b.end} or alignment {b.alignment}",
                f"buffer {b.name}",
                "pass a size of 0 or more, an end not before the start, an alignment of 1 or more",
            )
    table = np.array([(b.size, b.start, b.end, b.alignment) for b in lifetimes], np.int64)
    size, start, end, alignment = table.reshape(-1, 4).T
    return Arrays(-(-size // alignment) * alignment, start.copy(), end.copy(), alignment.copy())


def live_bytes(lifetimes: Sequence[Lifetime]) -> tuple[np.ndarray, np.ndarray]:
    """Return the live-bytes curve: ascending steps where it changes, and the bytes from each."""
    a = arrays(lifetimes)
    if not a.count:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    steps, places = np.unique(np.concatenate((a.start, a.end)), return_inverse=True)
    change = np.zeros(len(steps), np.int64)
    np.add.at(change, places, np.concatenate((a.size, -a.size)))
    return steps, np.cumsum(change)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest sum of live (aligned) sizes: no plan has a smaller peak."""
    return int(live_bytes(lifetimes)[1].max())
