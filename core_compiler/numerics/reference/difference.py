"""The difference of two arrays: the first differing element, and the distance of its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.numerics.reference.digest import canonical
from core_compiler.numerics.reference.dtypes import is_float, widen


def first_element(
    x: np.ndarray, y: np.ndarray, *, nan_payloads: bool = False
) -> tuple[tuple[int, ...], tuple[float, float], int, int]:
    """Return the first element in which two arrays of one shape and dtype differ in bits.

    The result has its index, both values, the number of representable numbers between them, and the
    number of differing elements. NaN is one value, as the contract specifies; with ``nan_payloads``
    its sign and payload count.
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
    """Return the number of representable numbers between two of one dtype."""
    one, other = (_key(np.asarray(x)) for x in (a, b))
    return abs(one - other)


def _key(x: np.ndarray) -> int:
    """Return an integer that grows by one from each number of the dtype to the next."""
    if not is_float(x.dtype):
        return int(x)
    bits = int(x.reshape(1).view(f"u{x.dtype.itemsize}")[0])
    top = 1 << (8 * x.dtype.itemsize - 1)
    return -(bits - top) if bits & top else bits


def _number(array: np.ndarray, index: tuple[int, ...]) -> float:
    return float(widen(np.asarray(array[index])))
