"""Exact packing into a given capacity by depth-first search, after MiniMalloc.

Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning"
(ASPLOS 2023, doi 10.1145/3623278.3624752).  Buffers are placed from the bottom up: offsets never
decrease along a branch (each plan is reached in one canonical order), every buffer rests on one
that it overlaps in time or on the floor, and a branch ends when some step's floor plus its unplaced
sizes exceeds the capacity. If placing a buffer leaves unplaced ones that no longer share a step,
the parts are searched separately. Beyond the paper: of buffers with equal live interval and size
only the first unplaced one is tried.

The search is compiled by Numba, which is imported when a search is first made.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from core_compiler.placement.problem import Arrays

INFEASIBLE, FOUND, UNDECIDED = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Sections:
    """Live intervals over *sections*: steps at which a maximal set of buffers is live at once."""

    size: np.ndarray
    alignment: np.ndarray
    low: np.ndarray  # first section of each buffer
    high: np.ndarray  # and one past the last
    members: np.ndarray  # buffers of each section, concatenated
    member_start: np.ndarray
    overlaps: np.ndarray  # buffers that are live at the same time as each, concatenated
    overlap_start: np.ndarray

    @property
    def count(self) -> int:
        return len(self.member_start) - 1


def sections(a: Arrays) -> Sections:
    """Compress time to maximal cliques: a step whose live set is part of a neighbour's is left out.

    Buffers that need no memory must have been removed.
    """
    steps = np.unique(np.concatenate((a.start, a.end)))
    first, last = np.searchsorted(steps, a.start), np.searchsorted(steps, a.end)
    # A step is maximal if a birth (at it) is followed by a death (at the next) with no birth in
    # between: sweep, and close a section at each death that follows a birth.
    born = np.zeros(len(steps), bool)
    dies = np.zeros(len(steps), bool)
    born[first], dies[last] = True, True
    closed, open_ = [], False
    for t in range(len(steps)):
        if dies[t] and open_:
            closed.append(t - 1)
            open_ = False
        open_ = open_ or bool(born[t])
    keep = np.array(closed, np.int64)
    low, high = np.searchsorted(keep, first), np.searchsorted(keep, last)
    members = [np.flatnonzero((low <= s) & (s < high)) for s in range(len(keep))]
    overlaps = [
        np.array([c for c in np.flatnonzero((low < high[b]) & (low[b] < high)) if c != b], np.int64)
        for b in range(a.count)
    ]
    return Sections(a.size, a.alignment, low, high, *_packed(members), *_packed(overlaps))


def _packed(lists) -> tuple[np.ndarray, np.ndarray]:
    starts = np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int64)
    return np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int64), starts


def search(
    s: Sections, sequence: np.ndarray, capacity: int, nodes: int, cancel: np.ndarray
) -> tuple[int, np.ndarray]:
    """Return ``(FOUND, offsets)``, ``(INFEASIBLE, _)`` (proven), or ``(UNDECIDED, _)``.

    The last is returned after ``nodes`` nodes, or once another thread sets ``cancel[0]``.
    ``sequence`` breaks ties among buffers.
    """
    total = np.array([s.size[_members(s, i)].sum() for i in range(s.count)], np.int64)
    if s.count and total.max() > capacity:
        return INFEASIBLE, np.zeros(0, np.int64)
    # cuts[i]: unplaced buffers that span sections i and i + 1
    cuts = np.array([((s.low <= i) & (i + 1 < s.high)).sum() for i in range(s.count)], np.int64)
    found, budget = np.zeros(len(s.size), np.int64), np.array([nodes], np.int64)
    from core_compiler.placement.search_core import descend  # imports Numba

    status = descend(
        s.size,
        s.alignment,
        s.low,
        s.high,
        s.members,
        s.member_start,
        s.overlaps,
        s.overlap_start,
        _twins(s, sequence),
        capacity,
        sequence.astype(np.int64),
        total,
        cuts,
        found,
        budget,
        cancel,
    )
    return int(status), found


def deadline(seconds: float) -> tuple[np.ndarray, threading.Timer]:
    """Return a cancel flag that a timer sets, and the timer (to be cancelled when done)."""
    flag = np.zeros(1, np.int64)
    timer = threading.Timer(seconds, flag.__setitem__, (0, 1))
    timer.daemon = True
    timer.start()
    return flag, timer


def _members(s: Sections, i: int) -> np.ndarray:
    return s.members[s.member_start[i] : s.member_start[i + 1]]


def _twins(s: Sections, sequence: np.ndarray) -> np.ndarray:
    """Return each buffer's predecessor in ``sequence`` of equal size, alignment and sections."""
    twins = np.full(len(s.size), -1, np.int64)
    seen: dict[tuple, int] = {}
    for b in map(int, sequence):
        what = (int(s.size[b]), int(s.alignment[b]), int(s.low[b]), int(s.high[b]))
        twins[b] = seen.get(what, -1)
        seen[what] = b
    return twins
