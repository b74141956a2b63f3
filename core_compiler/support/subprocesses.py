"""Processes of their own for libraries that a damaged file brings down, hangs or fills.

A child imports from where this process does and is held to limits of memory and processor time.
This is no sandbox: it has the user's rights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO


def start(module: str, errors: int | IO = subprocess.DEVNULL) -> subprocess.Popen:
    """``python -m module``, with pipes to its standard input and output."""
    # What this process imports from, and never (-P) the folder that it happens to be in.
    places = (str(Path(__file__).resolve().parents[2]), *sys.path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in places if p)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
    )  # fmt: skip


def hold_to(memory: int, seconds: int) -> None:
    """Hold this process to so many bytes of address space and seconds of processor time more than
    it has taken.  Beyond the memory Python raises MemoryError, beyond the time it is killed
    (SIGXCPU)."""
    import psutil

    try:
        import resource
    except ImportError:  # not a Unix: there are no such limits
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    space = psutil.Process().memory_info().vms
    for what, most in (
        (resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + seconds),
        (resource.RLIMIT_AS, space + memory),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (soft, hard))
