"""Greedy offset assignment: buffers in a fixed order, each into a gap left by earlier ones.

Orders by size after Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
(arXiv 2001.03288); TVM's and XLA's planners are of this family.
"""

from __future__ import annotations

import numpy as np

from core_compiler.placement.problem import Arrays

#: The choice of a gap for a buffer; see :func:`place`.
FITS = ("first", "ends", "best")

#: Placement orders by name: sort keys, the first decides; a negative key sorts larger first.
ORDERS = {
    "size": lambda a: (-a.size, -a.duration, a.start),
    "area": lambda a: (-a.size * a.duration, -a.size, a.start),
    "duration": lambda a: (-a.duration, -a.size, a.start),
    "start": lambda a: (a.start, -a.size, -a.duration),
    "pressure": lambda a: (-pressure(a), -a.size, -a.duration, a.start),
}


def order(a: Arrays, name: str) -> np.ndarray:
    """Return buffer numbers in placement order; ties by number, so the result is deterministic."""
    keys = (*ORDERS[name](a), np.arange(a.count))
    return np.lexsort(keys[::-1])


def pressure(a: Arrays) -> np.ndarray:
    """Return, for each buffer, the largest sum of live sizes during its live interval."""
    steps, places = np.unique(np.concatenate((a.start, a.end)), return_inverse=True)
    change = np.zeros(len(steps) + 1, np.int64)
    np.add.at(change, places, np.concatenate((a.size, -a.size)))
    load = np.cumsum(change)
    first, last = places[: a.count], places[a.count :]
    # reduceat takes [first, last) pairs; the odd results between pairs are dropped
    pairs = np.stack((first, np.maximum(last, first + 1)), axis=1).reshape(-1)
    return np.maximum.reduceat(load, pairs)[::2]


def place(a: Arrays, sequence: np.ndarray, fit: str = "first", ceiling: int = 0) -> np.ndarray:
    """Return offsets of buffers placed in the order ``sequence``.

    Each buffer is placed in a gap between the placed buffers that are live at the same time, else
    above them.  ``fit`` selects the gap: the lowest (``first``), the tightest (``best``), or
    ``ends``: at the bottom, else directly below ``ceiling`` (bytes, such as the lower bound) if
    that is free, else the lowest.
    """
    offsets = np.zeros(a.count, np.int64)
    # The placed buffers, in order of placement, contiguous for fast masks.
    start, end, low, high = (np.empty(a.count, np.int64) for _ in range(4))
    done = 0
    for b in sequence:
        if a.size[b] == 0 or a.start[b] >= a.end[b]:
            continue
        together = np.flatnonzero((start[:done] < a.end[b]) & (end[:done] > a.start[b]))
        offsets[b] = _gap(low[together], high[together], a.size[b], a.alignment[b], fit, ceiling)
        start[done], end[done] = a.start[b], a.end[b]
        low[done], high[done] = offsets[b], offsets[b] + a.size[b]
        done += 1
    return offsets


def _gap(low, high, size, alignment, fit, ceiling) -> int:
    """Return an offset for ``size`` bytes outside the occupied ranges ``[low, high)``."""
    if not len(low):
        return 0
    by_low = np.argsort(low, kind="stable")
    tops = np.maximum.accumulate(high[by_low])
    floor = np.concatenate(([0], tops))
    floor = -(-floor // alignment) * alignment
    room = low[by_low] - floor[:-1]
    fits = np.flatnonzero(room >= size)
    if fit == "ends" and not (len(fits) and fits[0] == 0):
        hanging = (ceiling - size) // alignment * alignment
        if hanging >= floor[-1]:
            return int(hanging)
    if not len(fits):
        return int(floor[-1])
    return int(floor[fits[np.argmin(room[fits])] if fit == "best" else fits[0]])


def peak(a: Arrays, offsets: np.ndarray) -> int:
    """Return the first byte above all buffers that need memory."""
    used = (a.size > 0) & (a.start < a.end)
    return int((offsets + a.size)[used].max(initial=0))
