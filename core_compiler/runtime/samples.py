"""Raw times of profiled runs, and figures derived from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core_compiler.runtime.program import Program

#: A timeline with more spans than this has one per launch.
MOST_SPANS = 200_000
_NEVER = np.iinfo(np.int64).max


def executed_on(threads: int | None) -> str:
    """Return :attr:`Samples.threads` as text; None: unknown."""
    if threads is None:
        return "an unknown number of threads"
    if threads == 0:
        return "the GPU"
    return "1 thread" if threads == 1 else f"{threads} threads"


def durations(times: np.ndarray) -> np.ndarray:
    """Return ``int64[...]`` nanoseconds from first start to last end over the threads.

    The argument is ``int64[..., threads, 2]``; the result is 0 if no thread had a part.
    """
    start, end = times[..., 0], times[..., 1]
    first = np.where(start == 0, _NEVER, start).min(axis=-1)
    return np.where(end.any(axis=-1), end.max(axis=-1) - first, 0)


class Iterations:
    """The runs in each timed execution of a program with loops.

    ``spent`` and ``ran``, ``int64[repeats, launches]``, are the nanoseconds and the number of all
    runs of a launch, ``first_start``, ``int64[repeats]``, is the start of the first.  ``parts`` has
    all runs of each repeat, in order: the number of a first launch, and ``int64[launches, threads,
    2]`` for it and the following ones; empty if there are more than ``MOST_SPANS``.
    """

    def __init__(self, repeats: int, launches: int):
        self.spent, self.ran = np.zeros((2, repeats, launches), np.int64)
        self.first_start = np.full(repeats, _NEVER)
        self.parts: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(repeats)]
        self._spans = [0] * repeats

    def first(self, repeats: int) -> Iterations:
        """Return those of the first ``repeats`` executions."""
        made = Iterations(repeats, self.spent.shape[1])
        made.spent, made.ran = self.spent[:repeats], self.ran[:repeats]
        made.first_start, made.parts = self.first_start[:repeats], self.parts[:repeats]
        made._spans = self._spans[:repeats]
        return made

    def add(self, repeat: int, start: int, times: np.ndarray) -> None:
        """Add the ``times`` of launches from ``start`` on."""
        own = slice(start, start + len(times))
        self.spent[repeat, own] += durations(times)
        self.ran[repeat, own] += 1
        starts = times[..., 0]
        self.first_start[repeat] = min(
            self.first_start[repeat], starts[starts > 0].min(initial=_NEVER)
        )
        self._spans[repeat] += starts.size
        if self._spans[repeat] > MOST_SPANS:
            self.parts[repeat].clear()
        else:
            self.parts[repeat].append((start, times.copy()))


@dataclass(frozen=True, eq=False)
class Samples:
    """The raw times of a profile.

    ``times``: ``int64[repeats, launches, threads, 2]``, start and end in nanoseconds of a monotonic
    clock, zeros if a thread had no part in a launch.  ``threads``: of the processor that executed;
    0 for a GPU.  For a launch in a loop ``times`` are those of its last iteration; ``loops`` has
    all of them (None for a program without loops).
    """

    program: Program
    times: np.ndarray
    threads: int
    loops: Iterations | None = None
    #: The number of repeats requested, if the time budget ended them; 0: all were done.
    wanted: int = 0

    def first(self, repeats: int) -> Samples:
        """Return the first ``repeats``, which are all that were done of those requested."""
        if repeats == len(self.times):
            return self
        loops = None if self.loops is None else self.loops.first(repeats)
        return replace(self, times=self.times[:repeats], loops=loops, wanted=len(self.times))

    @property
    def runs(self) -> np.ndarray:
        """Return ``int64[launches]``: the runs of each in one execution (median over repeats)."""
        if self.loops is None:
            return np.ones(self.times.shape[1], np.int64)
        return np.median(self.loops.ran, axis=0).astype(np.int64)

    @property
    def durations(self) -> np.ndarray:
        """Return ``int64[repeats, launches]`` nanoseconds: first start to last end over threads.

        For a launch in a loop it is the sum over its iterations.
        """
        return durations(self.times) if self.loops is None else self.loops.spent

    @property
    def totals(self) -> np.ndarray:
        """Return ``int64[repeats]`` nanoseconds from the first launch's start to the last end."""
        starts = np.where(self.times[..., 0] == 0, _NEVER, self.times[..., 0])
        flat = (self.times.shape[0], -1)
        if not self.times.any():
            return np.zeros(self.times.shape[0], np.int64)
        first_start = (
            starts.reshape(flat).min(axis=1) if self.loops is None else self.loops.first_start
        )
        return self.times[..., 1].reshape(flat).max(axis=1) - first_start

    @property
    def imbalance(self) -> np.ndarray:
        """Return ``float64[launches]``: 1 - mean / longest busy time over the threads.

        It is the median over the repeats; 0 is an even split.
        """
        busy = (self.times[..., 1] - self.times[..., 0]).astype(np.float64)
        longest = busy.max(axis=2)
        share = np.divide(busy.mean(axis=2), longest, out=np.ones_like(longest), where=longest > 0)
        return np.median(1 - share, axis=0)

    def timeline(self) -> dict[str, Any]:
        """Return one execution span by span.

        Each span has its ``launch`` and ``thread``, its ``start`` (since the first) and
        ``duration`` in nanoseconds. It is the execution (``repeat`` of ``repeats``) whose time is
        closest to the median.  For a program with more than ``MOST_SPANS`` launches times threads,
        a launch is one span, from its first start to its last end; for loops with more iterations
        than that only the last one is included (``last_iterations``).
        """
        totals = self.totals
        repeat = int(np.argmin(np.abs(totals - np.median(totals))))
        every = None if self.loops is None else self.loops.parts[repeat]
        parts = every or [(0, self.times[repeat])]
        numbers = np.concatenate([first + np.arange(len(times)) for first, times in parts])
        spans = np.concatenate([times for _, times in parts])
        start, end = spans[..., 0], spans[..., 1]
        if start.size > MOST_SPANS:
            start = np.where(end > 0, start, _NEVER).min(axis=1, keepdims=True)
            end = end.max(axis=1, keepdims=True)
        launch, thread = np.nonzero(end > 0)
        starts, ends = start[launch, thread], end[launch, thread]
        origin = starts.min() if starts.size else 0
        return {
            "repeat": repeat,
            "repeats": len(totals),
            "threads": start.shape[1],
            "launch": numbers[launch].tolist(),
            "thread": thread.tolist(),
            "start": (starts - origin).tolist(),
            "duration": (ends - starts).tolist(),
            **({"last_iterations": True} if every == [] else {}),
        }
