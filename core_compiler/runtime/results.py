"""Arrays for the results of calls."""

from __future__ import annotations

import sys

import numpy as np

from core_compiler.runtime.program import Argument
from core_compiler.support.arrays import data_address

#: Blocks of memory that are kept for each output: a result is often replaced by that of the next
#: call, which is made while the first one still exists.
KEPT = 2
#: References to a block that only this module has: a variable, and the argument of the count.
_ALONE = 2
_COUNTS = getattr(sys, "_is_gil_enabled", lambda: True)()


class NewArray:
    """Makes arrays of an output's shape and dtype whose memory begins at a cache line.

    The memory of a result that nothing refers to any more is used again: that of a new one has to
    be mapped page by page (2.8 of 3.0 ms for results of 4.7 MB).
    """

    def __init__(self, argument: Argument):
        self.size, self.shape, self.dtype = argument.bytes + 64, argument.shape, argument.numpy
        self._kept: list[np.ndarray] = []

    def array(self) -> np.ndarray:
        block = self._unused()
        if block is None:
            block = np.empty(self.size, np.uint8)
        made = np.ndarray(self.shape, self.dtype, block, -data_address(block) & 63)
        if _COUNTS:
            self._kept.append(block)  # from here on, the array refers to it as well
            if len(self._kept) > KEPT:
                self._kept.pop(0)
        return made

    def _unused(self) -> np.ndarray | None:
        """Take a block to which no array refers out of those that are kept."""
        for _ in range(len(self._kept)):
            try:
                block = self._kept.pop(0)  # another thread cannot take it, too
            except IndexError:
                break
            if sys.getrefcount(block) == _ALONE:
                return block
            self._kept.append(block)
        return None
