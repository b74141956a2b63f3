"""Stable sorts: NaN greatest, -0 equal to +0, the lowest index first among equals."""

from __future__ import annotations

import numpy as np

from core_compiler.numerics.reference.keys import order_keys


def argsort(x: np.ndarray, axis: int = -1, descending: bool = False) -> np.ndarray:
    """Return i64 positions along ``axis`` in ascending (descending) order, stable in both."""
    keys = order_keys(np.asarray(x), zeros_equal=True)
    return np.argsort(~keys if descending else keys, axis=axis, kind="stable").astype(np.int64)


def sort(x: np.ndarray, axis: int = -1, descending: bool = False) -> np.ndarray:
    """Return x's elements, bits unchanged, in the order of ``argsort``."""
    return np.take_along_axis(np.asarray(x), argsort(x, axis, descending), axis)


def top_k(
    x: np.ndarray, k: int, axis: int = -1, largest: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return (values, i64 positions) of the first k elements of the descending (ascending) sort."""
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"top_k of {k} along an axis of {x.shape[axis]}")
    order = np.take(argsort(x, axis, descending=largest), np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order
