"""Conversion of the user's numbers and switches to Python's.

A UserError names an invalid or out-of-range value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from operator import index
from typing import Any

from core_compiler.support.errors import UserError, one_line

#: The range of a seed, and the fix for invalid ones.
SEEDS = -(2**63), 2**63 - 1, "pass a whole number from -2^63 to 2^63 - 1"
#: Number of characters of a value that a message shows.
_SHOWN = 60


def number(
    where: str, name: str, given: Any, holds: Callable[[float], bool], fix: str
) -> int | float:
    """Return a real number (also NumPy's) for which ``holds``; NaN is always rejected."""
    try:
        made = given if type(given) in (bool, int, float) else _float(given)
        is_valid = not math.isnan(made) and holds(made)
    except OverflowError:  # an integer beyond the range of f64
        is_valid = False
    if not is_valid:
        raise UserError(f"invalid value {one_line(repr(given), _SHOWN)} for {name}", where, fix)
    return made


def _float(given: Any) -> float:
    return float(given) if isinstance(given, Real) else math.nan


def whole(where: str, name: str, given: Any, low: int, high: int, fix: str) -> int:
    """Return a whole number (also NumPy's) from ``low`` to ``high``."""
    try:
        made = index(given)
    except TypeError:
        made = None
    if made is None or not low <= made <= high:
        raise UserError(f"invalid value {one_line(repr(given), _SHOWN)} for {name}", where, fix)
    return made


def flag(where: str, name: str, given: Any) -> bool:
    """Return True or False (also NumPy's); other values are rejected."""
    if type(given).__name__ not in ("bool", "bool_"):
        raise UserError(
            f"invalid value {one_line(repr(given), _SHOWN)} for {name}", where, "pass True or False"
        )
    return bool(given)


def is_non_negative(value: float) -> bool:
    return 0 <= value < math.inf


def is_below_one(value: float) -> bool:
    return 0 <= value < 1
