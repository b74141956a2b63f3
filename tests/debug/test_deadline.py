"""Code that is not ours is stopped when its time is up, whatever it does."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from core_compiler.debug.deadline import Expired, deadline


def forever() -> None:
    while True:
        time.sleep(0.001)


def hides_its_errors() -> None:
    while True:
        with suppress(Exception):
            time.sleep(100)


def limited(seconds: float, work) -> None:
    with deadline(seconds):
        work()


@pytest.mark.parametrize("work", [forever, hides_its_errors])
def test_what_never_ends_is_ended(work):
    started = time.monotonic()
    with pytest.raises(Expired):
        limited(0.1, work)
    assert time.monotonic() - started < 50


@pytest.mark.parametrize("seconds", [1e30, float("inf")])
def test_a_limit_may_be_longer_than_any_clock(seconds):
    done = []
    other = threading.Thread(target=limited, args=(seconds, lambda: done.append("thread")))
    other.start()
    limited(seconds, lambda: done.append("main"))
    other.join()
    assert sorted(done) == ["main", "thread"]


def test_a_limit_holds_in_any_thread():
    ended = []

    def work():
        with suppress(Expired):
            limited(0.1, forever)
        ended.append(True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert ended == [True]


@pytest.mark.parametrize(("outer", "inner"), [(60, 0.1), (0.1, 60)])
def test_limits_nest_and_the_shorter_one_ends_first(outer, inner):
    with pytest.raises(Expired):
        limited(outer, lambda: limited(inner, forever))


def test_a_limit_is_gone_with_its_block():
    limited(0.2, lambda: None)
    limited(60, lambda: limited(0.2, lambda: None))
    time.sleep(0.5)


def test_no_limit_is_none():
    limited(None, lambda: None)
