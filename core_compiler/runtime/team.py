"""Teams of native threads that run launch lists together (the host side of the driver)."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import threading
from contextlib import suppress
from ctypes import c_int64, c_void_p

import llvmlite
import numpy as np

from core_compiler.runtime import driver, loader
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.support.errors import CANNOT_HERE, UserError

#: Built-in kernels by symbol: arguments (to, from, bytes), (to, bytes), none.
BUILTINS = ("cw_copy", "cw_zero", "cw_nothing")
_SYMBOLS = ("cw_call", "cw_worker", "cw_stop", "cw_set_state", *BUILTINS)

_REFUSALS = {
    driver.FLUSH_TO_ZERO: "this thread flushes subnormal numbers to zero",
    driver.ROUNDING: "this thread does not round to nearest even",
}


@functools.cache
def native() -> loader.LoadedCode:
    """Return the driver, compiled once per machine and kept in the cache folder."""
    text = driver.source()
    parts = (text, llvmlite.__version__, *loader.host())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    folder, name = CacheFolder(), "driver.o"
    data = folder.get("driver", key, name)
    if data is None:
        data = loader.compile_ir(text)
        with suppress(UserError):  # an unwritable cache costs only 0.1 s here
            folder.put("driver", key, {name: data, "driver.ll": text.encode()})
    return loader.load_object(data, _SYMBOLS, where="driver", allowed=loader.DRIVER_ALLOWED)


class Call:
    """The arguments of a run in memory, for calls of ``cw_call``."""

    def __init__(self, words: np.ndarray):
        self._words = words
        self.words = words.data
        self.address, self.count = words.ctypes.data, int(words[2])


#: The place of the claims' address among the arguments.
_CLAIMS = 7


class Team:
    """A team of ``threads - 1`` sleeping native threads, joined by the caller for each run.

    Runs of one team are serialised; a second caller waits.  A team of one thread has no state, and
    any number of callers run on it at once.
    """

    def __init__(self, threads: int):
        self.threads, self._lock = threads, threading.Lock()
        self._members: list[tuple[int, np.ndarray]] = []  # thread ids, and their arguments
        self._block = aligned(driver.TEAM_BYTES)
        self._claims_stride = driver.claims_bytes(threads)
        self._claims = aligned(0)
        self._claims_address = 0
        self._entry = native().function("cw_call", c_int64, c_void_p)
        self._block[:] = 0  # an all-zero mutex and condition are initialised ones
        if threads > 1:
            self._start(native()["cw_worker"])

    def run(self, program: int, count: int, scratch: int, stride: int, times: int = 0) -> None:
        """Run ``count`` launch records at address ``program``, without the GIL.

        ``times`` is 0 or the address of ``int64[count][threads][2]``, zeros, for each thread's
        first start and last end in nanoseconds.

        Raises UserError if this thread's floating-point state violates the numerics contract.
        """
        self.call(self.prepare(program, count, scratch, stride, times))

    def prepare(self, program: int, count: int, scratch: int, stride: int, times: int = 0) -> Call:
        """Return the arguments of :meth:`run` for calls of :meth:`call`, one at a time."""
        words = (self._block.ctypes.data, program, count, self.threads, scratch, stride, times, 0)
        return Call(np.array([*words, self._claims_stride], np.int64))

    def call(self, prepared: Call) -> None:
        """Do a prepared run, as :meth:`run`."""
        if self.threads == 1:
            status = self._entry(prepared.address)
        else:
            with self._lock:
                need = prepared.count * self._claims_stride
                if self._claims.size < need:
                    self._claims = aligned(2 * need)
                    self._claims_address = self._claims.ctypes.data
                prepared.words[_CLAIMS] = self._claims_address
                status = self._entry(prepared.address)
        if status != driver.OK:
            raise UserError(
                _REFUSALS[status],
                "floating-point control register",
                "call torch.set_flush_denormal(False), or run on another thread",
            )

    def stop(self) -> None:
        """End the team's threads; it cannot run afterwards."""
        if not self._members:
            return
        with self._lock:
            native().function("cw_stop", None, c_void_p)(self._block.ctypes.data)
            join = ctypes.CDLL(None).pthread_join
            join.argtypes = (c_void_p, c_void_p)
            for thread, _ in self._members:
                join(thread, None)
            self._members = []

    def _start(self, entry: int) -> None:
        create = ctypes.CDLL(None, use_errno=True).pthread_create
        create.argtypes = (c_void_p, c_void_p, c_void_p, c_void_p)
        for number in range(1, self.threads):
            thread = c_void_p()
            argument = np.array([self._block.ctypes.data, number], np.int64)
            if create(ctypes.byref(thread), None, entry, argument.ctypes.data):
                self.stop()
                raise UserError(
                    f"cannot start thread {number + 1} of {self.threads}",
                    "runtime",
                    "use fewer threads",
                    CANNOT_HERE,
                )
            self._members.append((thread.value or 0, argument))


_teams: dict[int, Team] = {}
_teams_lock = threading.Lock()


def team(threads: int) -> Team:
    """Return this process's team of ``threads`` threads."""
    with _teams_lock:
        if threads not in _teams:
            _teams[threads] = Team(threads)
        return _teams[threads]


def default_threads() -> int:
    """Return ``$COMPILER_WORKBENCH_THREADS``, else the processors this process may use."""
    text = os.environ.get("COMPILER_WORKBENCH_THREADS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise UserError(
                f"expected a number of threads, got {text!r}",
                "COMPILER_WORKBENCH_THREADS",
                "set it to an integer of 1 or more",
            )
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def aligned(size: int, alignment: int = 64) -> np.ndarray:
    """Return uninitialised ``uint8[size]`` whose address is a multiple of ``alignment``."""
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


@atexit.register
def _stop_teams() -> None:
    for one in _teams.values():
        one.stop()


def _forget_teams() -> None:
    """Forget the teams in a forked child, which has none of its parent's threads."""
    global _teams_lock
    _teams.clear()
    _teams_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_teams)
