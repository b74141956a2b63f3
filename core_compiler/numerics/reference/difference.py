"""Where two arrays part: the first element that differs, and how far apart the numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.numerics.reference.digest import canonical
from core_compiler.numerics.reference.dtypes import is_float, widen


def first_element(
    x: np.ndarray, y: np.ndarray, *, nan_payloads: bool = False
) -> tuple[tuple[int, ...], tuple[float, float], int, int]:  # fmt: skip
    """The first element in which two arrays differ that have one shape, one dtype and not the same
    bits: its index, what they have there, how many representable numbers lie between; and how many
    elements differ.

    NaN is one value, as the contract says; with ``nan_payloads`` its sign and payload count.
    """
    bits = f"u{x.dtype.itemsize}"
    one, other = (
        (np.ascontiguousarray(a) if nan_payloads else canonical(a)).reshape(a.shape).view(bits)
        for a in (x, y)
    )
    places = np.argwhere(one != other)
    index = tuple(map(int, places[0])) if len(places) else ()
    numbers = _number(x, index), _number(y, index)
    return index, numbers, ulps(x[index], y[index]), len(places)


def ulps(a: Any, b: Any) -> int:
    """How many representable numbers lie between two of one dtype."""
    one, other = (_key(np.asarray(x)) for x in (a, b))
    return abs(one - other)


def _key(x: np.ndarray) -> int:
    """An integer that grows by one from each number of the dtype to the next."""
    if not is_float(x.dtype):
        return int(x)
    bits = int(x.reshape(1).view(f"u{x.dtype.itemsize}")[0])
    top = 1 << (8 * x.dtype.itemsize - 1)
    return -(bits - top) if bits & top else bits


def _number(array: np.ndarray, index: tuple[int, ...]) -> float:
    return float(widen(np.asarray(array[index])))
