"""Memory of mapped files: pages that were read can be given back, and are read again if needed.

A process that reads each weight once (to check it, to pack it) then never holds all of them twice.
"""

from __future__ import annotations

import mmap

import numpy as np

#: The bytes that are read between two releases of a mapped file.
PIECE = 16 << 20


def release_mapping(mapping: mmap.mmap, start: int = 0, length: int | None = None) -> None:
    """Give back the pages of ``length`` bytes (default: to the end) from byte ``start``.

    Nothing happens where the system has no such request, or the mapping may be written.
    """
    if not hasattr(mmap, "MADV_DONTNEED") or not memoryview(mapping).readonly:
        return
    end = len(mapping) if length is None else start + length
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    if end > first:
        mapping.madvise(mmap.MADV_DONTNEED, first, end - first)


def release(array: np.ndarray) -> None:
    """Give back the pages of a contiguous array if it is part of a file mapped to be read."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, mmap.mmap) and array.nbytes:
        begin = np.frombuffer(owner, np.uint8).ctypes.data
        release_mapping(owner, array.ctypes.data - begin, array.nbytes)
