"""Subprocesses for libraries that a damaged file may crash, hang or fill with memory.

A child imports from the same folders as this process and has limits on memory and processor time.
It is no sandbox: it has the user's rights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO


def start(module: str, errors: int | IO = subprocess.DEVNULL) -> subprocess.Popen:
    """Start ``python -m module``, with pipes to its standard input and output."""
    # The import path of this process, and never (-P) the current folder.
    search_path = (str(Path(__file__).resolve().parents[2]), *sys.path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in search_path if p)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
    )


def hold_to(memory: int, seconds: int) -> None:
    """Limit this process to additional bytes of address space and seconds of processor time.

    Beyond the memory limit Python raises MemoryError, beyond the time limit the process is killed
    (SIGXCPU).
    """
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
