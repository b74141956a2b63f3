"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim() -> None:
    """Give back what glibc's ``malloc`` keeps for itself: after a recording of 100,000 ops was
    stepped through, a fifth of the process; after BERT was checked, 4.4 GB of 5.  Takes
    milliseconds (those 4.4 GB: 0.2 s), holds up no other thread; does nothing with other C
    libraries."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
