"""The memory of results: used again once nothing refers to them, and never before."""

from __future__ import annotations

import threading

import numpy as np

from core_compiler.runtime.program import Argument
from core_compiler.runtime.results import NewArray


def _new() -> NewArray:
    return NewArray(Argument("y", "f32", (5, 7)))


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_results_begin_at_a_cache_line_and_are_writable():
    made = _new().array()
    assert made.shape == (5, 7) and made.dtype == np.float32
    assert made.flags.c_contiguous and made.flags.writeable and _address(made) % 64 == 0


def test_memory_of_a_dropped_result_is_used_again():
    new = _new()
    places = {_address(new.array()) for _ in range(50)}
    assert len(places) == 1
    y, places = None, set()
    for _ in range(50):
        y = new.array()  # the one before exists until here
        places.add(_address(y))
    assert len(places) == 2


def test_whatever_refers_to_a_result_keeps_its_memory():
    new = _new()
    held = {
        "the array": lambda a: a,
        "a row": lambda a: a[2],
        "a view of a view": lambda a: a.T[1:].view(np.int32),
        "a memory view": memoryview,
        "what NumPy reads": lambda a: np.asarray(memoryview(a)),
    }
    kept = []
    for number, (_, refer) in enumerate(held.items()):
        made = new.array()
        made[:] = number
        kept.append(refer(made))
        del made
    for _ in range(20):
        new.array()[:] = -1
    for number, found in enumerate(kept):
        values = np.asarray(found)
        values = values.view(np.float32) if values.dtype == np.int32 else values
        assert (values == number).all(), list(held)[number]


def test_threads_never_share_the_memory_of_results():
    new, wrong = _new(), []

    def work(number: int) -> None:
        for _ in range(300):
            mine = new.array()
            mine[:] = number
            if not (mine == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
