"""Return of freed memory to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim() -> None:
    """Return memory cached by glibc's ``malloc`` to the system.

    After stepping through a recording of 100,000 ops that is a fifth of the process; after checking
    BERT, 4.4 GB of 5.  Takes milliseconds (those 4.4 GB: 0.2 s) and blocks no other thread; does
    nothing with other C libraries.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
