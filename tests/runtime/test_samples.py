"""The timeline of raw samples: which execution it is, and its spans."""

from __future__ import annotations

import numpy as np

from core_compiler.runtime import samples
from core_compiler.runtime.samples import Iterations, Samples, executed_on

#: int64[repeats, launches, threads, 2]: three runs that take 1000, 100 and 110 ns.
TIMES = np.array(
    [
        [[[5000, 5400], [5010, 5300]], [[5500, 6000], [0, 0]]],
        [[[7000, 7040], [7005, 7030]], [[7050, 7100], [0, 0]]],
        [[[9000, 9050], [9002, 9040]], [[9060, 9110], [0, 0]]],
    ]
)


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
        "the GPU",
        "1 thread",
        "2 threads",
        "an unknown number of threads",
    ]


def _loop() -> Samples:
    """Two iterations of one launch on one thread, and nothing else."""
    loops = Iterations(1, 1)
    for start, end in ((10, 20), (90, 100)):
        loops.add(0, 0, np.array([[[start, end]]], np.int64))
    return Samples(None, np.array([[[[90, 100]]]], np.int64), 1, loops)


def test_a_loop_takes_what_all_its_iterations_take():
    found = _loop()
    assert found.totals.tolist() == [90]
    assert found.durations.tolist() == [[20]] and found.runs.tolist() == [2]
    shown = found.timeline()
    assert (shown["start"], shown["duration"]) == ([0, 80], [10, 10])
    assert "last_iterations" not in shown


def test_of_too_many_iterations_the_last_is_shown(monkeypatch):
    monkeypatch.setattr(samples, "MOST_SPANS", 1)
    shown = _loop().timeline()
    assert shown["duration"] == [10] and shown["last_iterations"]
