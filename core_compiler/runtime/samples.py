"""Raw times of profiled runs, and what follows from them without judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.runtime.program import Program

#: A timeline of more spans than this has one a launch.
MOST_SPANS = 200_000


def executed_on(threads: int | None) -> str:
    """What :attr:`Samples.threads` says, in words; None: it is not known."""
    if threads is None:
        return "an unknown number of threads"
    if threads == 0:
        return "the GPU"
    return "1 thread" if threads == 1 else f"{threads} threads"


def durations(times: np.ndarray) -> np.ndarray:
    """``int64[...]`` nanoseconds from the first start to the last end over the threads of
    ``int64[..., threads, 2]``; 0 where no thread had a part."""
    start, end = times[..., 0], times[..., 1]
    first = np.where(start == 0, np.iinfo(np.int64).max, start).min(axis=-1)
    return np.where(end.any(axis=-1), end.max(axis=-1) - first, 0)


#: Launches that ran one after another: the first one's number, ``int64[launches, threads, 2]``.
Part = tuple[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class Samples:
    """``times``: ``int64[repeats, launches, threads, 2]``, start and end in nanoseconds of a
    monotonic clock, zeros where a thread had no part in a launch.  ``threads``: of the processor
    that executed; 0 where a GPU did.

    Of a launch in a loop ``times`` are those of its last iteration; ``spent``, ``int64[repeats,
    launches]``, is what it took in all of them, and ``ran`` how many these were (both None of a
    program without loops).  ``parts``: of each repeat what ran, in order, every iteration.
    """

    program: Program
    times: np.ndarray
    threads: int
    spent: np.ndarray | None = None
    ran: np.ndarray | None = None
    parts: Sequence[Sequence[Part]] = ()

    @property
    def runs(self) -> np.ndarray:
        """``int64[launches]``: how often each ran in one execution (the median over the
        repeats)."""
        if self.ran is None:
            return np.ones(self.times.shape[1], np.int64)
        return np.median(self.ran, axis=0).astype(np.int64)

    @property
    def durations(self) -> np.ndarray:
        """``int64[repeats, launches]`` nanoseconds: first start to last end over the threads, of a
        launch in a loop the sum over its iterations."""
        return durations(self.times) if self.spent is None else self.spent

    @property
    def totals(self) -> np.ndarray:
        """``int64[repeats]`` nanoseconds from the first launch's start to the last one's end."""
        starts = np.where(self.times[..., 0] == 0, np.iinfo(np.int64).max, self.times[..., 0])
        flat = (self.times.shape[0], -1)
        if not self.times.any():
            return np.zeros(self.times.shape[0], np.int64)
        return self.times[..., 1].reshape(flat).max(axis=1) - starts.reshape(flat).min(axis=1)

    @property
    def imbalance(self) -> np.ndarray:
        """``float64[launches]``: 1 - mean busy time / longest busy time over the threads, median
        over the repeats; 0 is an even split."""
        busy = (self.times[..., 1] - self.times[..., 0]).astype(np.float64)
        longest = busy.max(axis=2)
        share = np.divide(busy.mean(axis=2), longest, out=np.ones_like(longest), where=longest > 0)
        return np.median(1 - share, axis=0)

    def timeline(self) -> dict[str, Any]:
        """One execution as it was: of each span its ``launch`` and ``thread``, its ``start`` (since
        the first) and ``duration`` in nanoseconds.

        It is the execution (``repeat`` of ``repeats``) whose time is nearest the median.  Of a
        program of more than ``MOST_SPANS`` launches times threads, a launch is one span, from its
        first start to its last end; of loops of more iterations than that the last one is there
        (``last_iterations``).
        """
        totals = self.totals
        repeat = int(np.argmin(np.abs(totals - np.median(totals))))
        parts: Sequence[Part] = self.parts[repeat] if self.parts else ()
        whole = 0 < sum(times[..., 0].size for _, times in parts) <= MOST_SPANS
        if not whole:
            parts = [(0, self.times[repeat])]
        numbers = np.concatenate([first + np.arange(len(times)) for first, times in parts])
        spans = np.concatenate([times for _, times in parts])
        start, end = spans[..., 0], spans[..., 1]
        if start.size > MOST_SPANS:
            start = np.where(end > 0, start, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
            end = end.max(axis=1, keepdims=True)
        launch, thread = np.nonzero(end > 0)
        starts, ends = start[launch, thread], end[launch, thread]
        origin = starts.min() if starts.size else 0
        return {
            "repeat": repeat, "repeats": len(totals), "threads": start.shape[1],
            "launch": numbers[launch].tolist(), "thread": thread.tolist(),
            "start": (starts - origin).tolist(), "duration": (ends - starts).tolist(),
            **({"last_iterations": True} if self.parts and not whole else {}),
        }  # fmt: skip
