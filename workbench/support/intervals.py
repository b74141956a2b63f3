"""Confidence intervals (95 %) of measured medians, without assumptions about the distribution.

They cover the variation while the samples were taken. Differences between executions (another
load, another clock) show only when the program is executed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from workbench.support import units

Interval = tuple[float, float]

CONFIDENCE = 0.95
#: Resamples of the bootstrap; its generator is seeded, so that a recording always shows the same
#: figure.
RESAMPLES = 2_000


def median(samples: Sequence[float] | np.ndarray) -> Interval | None:
    """Return the interval of the median between two order statistics.

    None for five samples or fewer.

    Source: David and Nagaraja, "Order Statistics", 7.1.
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    count = ordered.size
    # The interval from the k-th smallest to the k-th largest misses the median with twice the
    # probability that fewer than k of the samples lie below it.
    below, rank = 0.0, 0
    while rank < count // 2:
        below += math.comb(count, rank) * 0.5**count
        if 2 * below > 1 - CONFIDENCE:
            break
        rank += 1
    return (float(ordered[rank - 1]), float(ordered[count - rank])) if rank else None


def describe(low_us: float | None, high_us: float | None) -> str:
    """Return a text such as ``33.1 ms to 33.9 ms (95 % interval)``; "" if there is no interval."""
    if low_us is None or high_us is None:
        return ""
    return f"{units.duration(low_us)} to {units.duration(high_us)} (95 % interval)"


def ratio(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> Interval | None:
    """Return the interval of median(``a``) / median(``b``) (percentile bootstrap).

    None if either has too few samples for an interval of its own, or is not positive.
    """
    first, second = (np.asarray(samples, np.float64) for samples in (a, b))
    if median(first) is None or median(second) is None or min(first.min(), second.min()) <= 0:
        return None
    generator = np.random.Generator(np.random.PCG64(0))
    tops, bottoms = (
        np.median(generator.choice(samples, (RESAMPLES, samples.size)), axis=1)
        for samples in (first, second)
    )
    low, high = np.quantile(tops / bottoms, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
