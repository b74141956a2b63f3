"""Raw times of profiled runs, and what follows from them without judgement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core_compiler.runtime.program import Program


@dataclass(frozen=True, eq=False)
class Samples:
    """``times``: ``int64[repeats, launches, threads, 2]``, start and end in nanoseconds of a
    monotonic clock, zeros where a thread had no part in a launch."""

    program: Program
    times: np.ndarray
    threads: int

    @property
    def durations(self) -> np.ndarray:
        """``int64[repeats, launches]`` nanoseconds: first start to last end over the threads."""
        start, end = self.times[..., 0], self.times[..., 1]
        first = np.where(start == 0, np.iinfo(np.int64).max, start).min(axis=2)
        return np.where(end.any(axis=2), end.max(axis=2) - first, 0)

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
