"""The timeline of raw samples: which execution it is, and its spans."""

from __future__ import annotations

import numpy as np

from core_compiler.runtime import samples
from core_compiler.runtime.samples import Samples, executed_on

#: int64[repeats, launches, threads, 2]: three runs that take 1000, 100 and 110 ns.
TIMES = np.array([
    [[[5000, 5400], [5010, 5300]], [[5500, 6000], [0, 0]]],
    [[[7000, 7040], [7005, 7030]], [[7050, 7100], [0, 0]]],
    [[[9000, 9050], [9002, 9040]], [[9060, 9110], [0, 0]]],
])  # fmt: skip


def columns(found):
    names = "launch", "thread", "start", "duration"
    return [tuple(row) for row in zip(*(found[n] for n in names), strict=True)]


def test_the_execution_nearest_the_median_is_shown():
    found = Samples(None, TIMES, 2).timeline()
    assert (found["repeat"], found["repeats"], found["threads"]) == (2, 3, 2)
    assert columns(found) == [(0, 0, 0, 50), (0, 1, 2, 38), (1, 0, 60, 50)]


def test_of_too_many_spans_one_a_launch_is_left(monkeypatch):
    monkeypatch.setattr(samples, "MOST_SPANS", 3)
    found = Samples(None, TIMES, 2).timeline()
    assert found["threads"] == 1
    assert columns(found) == [(0, 0, 0, 50), (1, 0, 60, 50)]


def test_nothing_timed_is_an_empty_timeline():
    found = Samples(None, np.zeros((1, 0, 2, 2), np.int64), 2).timeline()
    assert columns(found) == []


def test_what_executed_in_words():
    assert [executed_on(n) for n in (0, 1, 2, None)] == [
        "the GPU", "1 thread", "2 threads", "an unknown number of threads",
    ]  # fmt: skip
