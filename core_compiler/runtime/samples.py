"""Raw times of profiled runs, and what follows from them without judgement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core_compiler.runtime.program import Program

#: A timeline of more spans than this has one a launch.
MOST_SPANS = 200_000
_NEVER = np.iinfo(np.int64).max


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
    first = np.where(start == 0, _NEVER, start).min(axis=-1)
    return np.where(end.any(axis=-1), end.max(axis=-1) - first, 0)


class Iterations:
    """What ran in each timed execution of a program with loops: ``spent`` and ``ran``,
    ``int64[repeats, launches]``, are the nanoseconds and the number of all runs of a launch,
    ``begun``, ``int64[repeats]``, when the first of all began.

    ``parts`` has of each repeat all that ran, in order: the number of a first launch,
    ``int64[launches, threads, 2]`` of it and those after it; nothing where that is more than
    ``MOST_SPANS``.
    """

    def __init__(self, repeats: int, launches: int):
        self.spent, self.ran = np.zeros((2, repeats, launches), np.int64)
        self.begun = np.full(repeats, _NEVER)
        self.parts: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(repeats)]
        self._spans = [0] * repeats

    def first(self, repeats: int) -> Iterations:
        """Those of the first ``repeats`` executions."""
        made = Iterations(repeats, self.spent.shape[1])
        made.spent, made.ran = self.spent[:repeats], self.ran[:repeats]
        made.begun, made.parts = self.begun[:repeats], self.parts[:repeats]
        made._spans = self._spans[:repeats]
        return made

    def add(self, repeat: int, start: int, times: np.ndarray) -> None:
        """Launches from ``start`` on ran, with these ``times``."""
        own = slice(start, start + len(times))
        self.spent[repeat, own] += durations(times)
        self.ran[repeat, own] += 1
        starts = times[..., 0]
        self.begun[repeat] = min(self.begun[repeat], starts[starts > 0].min(initial=_NEVER))
        self._spans[repeat] += starts.size
        if self._spans[repeat] > MOST_SPANS:
            self.parts[repeat].clear()
        else:
            self.parts[repeat].append((start, times.copy()))


@dataclass(frozen=True, eq=False)
class Samples:
    """``times``: ``int64[repeats, launches, threads, 2]``, start and end in nanoseconds of a
    monotonic clock, zeros where a thread had no part in a launch.  ``threads``: of the processor
    that executed; 0 where a GPU did.

    Of a launch in a loop ``times`` are those of its last iteration; ``loops`` has all of them (None
    of a program without loops).
    """

    program: Program
    times: np.ndarray
    threads: int
    loops: Iterations | None = None
    #: How many repeats were asked for, where their time ended them; 0: all of them are there.
    wanted: int = 0

    def first(self, repeats: int) -> Samples:
        """The first ``repeats``, which are all that were done of those that were wanted."""
        if repeats == len(self.times):
            return self
        loops = None if self.loops is None else self.loops.first(repeats)
        return replace(self, times=self.times[:repeats], loops=loops, wanted=len(self.times))

    @property
    def runs(self) -> np.ndarray:
        """``int64[launches]``: how often each ran in one execution (the median over the
        repeats)."""
        if self.loops is None:
            return np.ones(self.times.shape[1], np.int64)
        return np.median(self.loops.ran, axis=0).astype(np.int64)

    @property
    def durations(self) -> np.ndarray:
        """``int64[repeats, launches]`` nanoseconds: first start to last end over the threads, of a
        launch in a loop the sum over its iterations."""
        return durations(self.times) if self.loops is None else self.loops.spent

    @property
    def totals(self) -> np.ndarray:
        """``int64[repeats]`` nanoseconds from the first launch's start to the last one's end."""
        starts = np.where(self.times[..., 0] == 0, _NEVER, self.times[..., 0])
        flat = (self.times.shape[0], -1)
        if not self.times.any():
            return np.zeros(self.times.shape[0], np.int64)
        begun = starts.reshape(flat).min(axis=1) if self.loops is None else self.loops.begun
        return self.times[..., 1].reshape(flat).max(axis=1) - begun

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
            "repeat": repeat, "repeats": len(totals), "threads": start.shape[1],
            "launch": numbers[launch].tolist(), "thread": thread.tolist(),
            "start": (starts - origin).tolist(), "duration": (ends - starts).tolist(),
            **({"last_iterations": True} if every == [] else {}),
        }  # fmt: skip
