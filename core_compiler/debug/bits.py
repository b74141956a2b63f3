"""Bitwise comparison of two arrays."""

from __future__ import annotations

import numpy as np


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays are bitwise equal under the contract (any NaN equals any NaN)."""
    if a is b:
        return True
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return not np.any(differing(a, b))


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the elementwise mask of different bits (NaN payloads are ignored)."""
    bits = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.itemsize in (1, 2, 4, 8) else None
    if bits is None or a.dtype.kind == "c":
        return a != b
    # (ascontiguousarray adds an axis to rank-0 arrays; reshape removes it)
    a, b = (np.ascontiguousarray(x).reshape(x.shape) for x in (a, b))
    unequal = a.view(bits) != b.view(bits)
    if a.dtype.kind in "biu":
        return unequal
    return unequal & ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
