"""Search for two neighbouring float arrays between which an answer changes.

A truth value computed from a large sum says nothing about the sum unless the sum is close to what
it is compared with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

#: Factors of the array that are tried first (for a scalar: the values themselves).
_LADDER = (-2048.0, -32.0, -1.0, 0.0, 0.5, 1.0, 32.0, 2048.0)
#: Maximum number of bisection steps between two of them.
_STEPS = 72


def flip(predicate: Callable[[np.ndarray], Any], array: np.ndarray) -> list[np.ndarray] | None:
    """Return the last array before ``predicate`` changes and the first after it, or None.

    They are found by bisection over ``array`` times a factor of its dtype; for a scalar, over its
    value. None if no change is seen.
    """

    def scaled(number: np.generic) -> np.ndarray:
        return np.full_like(array, number) if array.size == 1 else array * number

    ladder = [array.dtype.type(number) for number in _LADDER]
    outcomes = [predicate(scaled(number)) for number in ladder]
    for (low, high), (before, after) in zip(
        itertools.pairwise(ladder), itertools.pairwise(outcomes), strict=True
    ):
        if before == after:
            continue
        for _ in range(_STEPS):
            middle = array.dtype.type((float(low) + float(high)) / 2)
            if middle in (low, high):
                break
            if predicate(scaled(middle)) == before:
                low = middle
            else:
                high = middle
        return [scaled(low), scaled(high)]
    return None
