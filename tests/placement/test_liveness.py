"""Lifetimes from steps: first to last use, views and donations counted for their owner."""

from __future__ import annotations

import pytest

from core_compiler.placement.liveness import Storage, lifetimes
from core_compiler.placement.planner import plan
from core_compiler.support.errors import InternalError


def spans(*args, **kwargs):
    return {b.name: (b.start, b.end) for b in lifetimes(*args, **kwargs)}


def test_from_the_first_use_to_the_last():
    storages = {n: Storage(n, 64) for n in "abc"}
    assert spans(storages, [("x", "a"), ("a", "b"), ("b", "c"), ("a",)]) == {
        "a": (0, 4),
        "b": (1, 3),
        "c": (2, 3),
    }


def test_what_a_step_writes_never_takes_what_it_reads():
    """a dies in the step that makes b, yet they may not share bytes."""
    made = plan(lifetimes({n: Storage(n, 64) for n in "ab"}, [("a",), ("a", "b"), ("b",)]))
    assert made.peak == 128


def test_views_and_donations_keep_their_owner_alive():
    storages = {"a": Storage("a", 64)}
    assert spans(storages, [("a",), ("v",), ("w",)], {"v": "a", "w": "v"}) == {"a": (0, 3)}


def test_ends_that_are_held_by_the_caller():
    storages = {
        "s": Storage("s", 64, on_entry=True),
        "r": Storage("r", 64, on_exit=True),
        "both": Storage("both", 64, on_entry=True, on_exit=True),
        "none": Storage("none", 64),
    }
    assert spans(storages, [(), ("s", "r"), ()]) == {
        "s": (0, 2),
        "r": (1, 3),
        "both": (0, 3),
        "none": (0, 0),
    }


def test_contradictions_are_internal_errors():
    with pytest.raises(InternalError, match="both a storage and"):
        lifetimes({"a": Storage("a", 1), "b": Storage("b", 1)}, [], {"a": "b"})
    with pytest.raises(InternalError, match="views of each other"):
        lifetimes({}, [("a",)], {"a": "b", "b": "a"})
