"""A time limit for foreign code: a pass that never ends is stopped and named."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds after which code that caught the first :class:`Expired` gets another one.
AGAIN = 0.5


class Expired(BaseException):
    """The time limit was exceeded.

    It is not an ``Exception``, so that a pass which catches those is stopped as well.
    """


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise :class:`Expired` inside the block once it has run for ``seconds`` (None: no limit).

    In the main thread a timer signal does this, which also interrupts a blocking system call; in
    another thread (or if the timer is in use) the exception is raised between two lines of Python.
    """
    if seconds is None:
        yield
        return
    in_main = threading.current_thread() is threading.main_thread()
    way = _by_signal if in_main and _timer_is_free() else _by_thread
    with way(min(seconds, threading.TIMEOUT_MAX)):
        yield


def _timer_is_free() -> bool:
    return hasattr(signal, "setitimer") and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    armed = True

    def ring(*_: object) -> None:
        if armed:
            raise Expired

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    ident = ctypes.c_ulong(threading.get_ident())
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    lock, done = threading.Lock(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            with lock:
                if not done.is_set():
                    throw(ident, ctypes.py_object(Expired))
            wait = AGAIN

    threading.Thread(target=watch, daemon=True, name="deadline").start()
    try:
        yield
    finally:
        with lock:
            done.set()
            throw(ident, None)  # an exception that was thrown and has not arrived
