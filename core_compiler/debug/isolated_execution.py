"""Execution of machine code in a subprocess, where a crash or an endless loop is only a finding.

The subprocess is started when the first program is executed, is used for all that follow, and is
replaced if a program has ended it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.runtime.program import Program
from core_compiler.support import subprocesses

#: Time limit of a program in seconds; the programs tried here take milliseconds.
LIMIT = 60.0
_OK, _RAISED = "ok", "raised"


class ProcessDied(Exception):
    """The program ended its process or did not finish; the text says how."""


class CannotExecute(Exception):
    """The program could not be executed in the subprocess, through no fault of its own."""


class _Process:
    """The subprocess, if one is running; it answers one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def execute(self, *request: Any) -> list[np.ndarray]:
        with self._lock:
            child = self._child
            if child is None or child.poll() is not None:
                child = self._child = subprocesses.start(__name__)
            assert child.stdin is not None and child.stdout is not None
            timer, started = threading.Timer(LIMIT, child.kill), time.monotonic()
            timer.start()
            try:
                pickle.dump(request, child.stdin, 5)
                child.stdin.flush()
                verdict, found = pickle.load(child.stdout)
            except (OSError, EOFError, pickle.UnpicklingError):
                code = child.wait()
                self._child = None
                if time.monotonic() - started >= LIMIT:
                    raise ProcessDied(f"did not finish within {LIMIT:.0f} seconds") from None
                raise ProcessDied(f"crashed its process ({_describe_exit(code)})") from None
            except BaseException:  # Ctrl-C: a later request must not get this answer
                self.close()
                raise
            finally:
                timer.cancel()
        if verdict == _RAISED:
            raise CannotExecute(found)
        return found

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def forget(self) -> None:
        """Drop the subprocess in a forked child, which must not share its pipe."""
        self._lock, self._child = threading.Lock(), None


def _describe_exit(code: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"exit code {code}"


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.forget)


def execute(
    program: Program,
    constants: Mapping[str, np.ndarray],
    arrays: Sequence[np.ndarray],
    threads: int,
    cache: Path,
) -> list[np.ndarray]:
    """Return the outputs of a CPU program whose kernels are in the kernel cache at ``cache``.

    All ``threads`` take part, however little the program's work is.

    Raises :class:`ProcessDied` if it ends its process or does not finish, :class:`CannotExecute` if
    it cannot be executed in another process (a cache that cannot be written).
    """
    return _PROCESS.execute(program, dict(constants), list(arrays), threads, cache)


def main() -> None:
    """Run the subprocess: read programs from standard input, write results to standard output."""
    from core_compiler.runtime.cache_folder import CacheFolder
    from core_compiler.runtime.cpu import CpuDevice
    from core_compiler.runtime.kernel_cache import KernelCache

    requests, responses = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be written between the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    CpuDevice.spreads = True
    devices: dict[tuple[int, Path], CpuDevice] = {}
    while True:
        try:
            program, constants, arrays, *key = pickle.load(requests)
        except EOFError:
            return
        response: tuple[str, Any]
        try:
            threads, cache = key
            if (threads, cache) not in devices:
                devices[threads, cache] = CpuDevice(threads, KernelCache(CacheFolder(cache)))
            outputs = devices[threads, cache].load(program, constants)(*arrays)
            response = _OK, [np.array(a) for a in outputs]
        except Exception as error:
            response = _RAISED, f"{type(error).__name__}: {error}"
        pickle.dump(response, responses, 5)
        responses.flush()


if __name__ == "__main__":
    main()
