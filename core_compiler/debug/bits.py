"""Whether two arrays have the same bits, and where they do not."""

from __future__ import annotations

import numpy as np


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are bitwise equal under the contract (any NaN equals any NaN)."""
    if a is b:
        return True
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return not np.any(differing(a, b))


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elementwise: whether the bits differ (NaN payloads aside)."""
    bits = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.itemsize in (1, 2, 4, 8) else None
    if bits is None or a.dtype.kind == "c":
        return a != b
    # (ascontiguousarray gives rank-0 arrays an axis; reshape takes it away again)
    a, b = (np.ascontiguousarray(x).reshape(x.shape) for x in (a, b))
    unequal = a.view(bits) != b.view(bits)
    if a.dtype.kind in "biu":
        return unequal
    return unequal & ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
