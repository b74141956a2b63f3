"""Numbers as functions of a size: polynomials through the values at a few sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any


class NotPolynomial(Exception):
    """Values are not a polynomial of degree 2 of the size, or differ by more than numbers."""


@dataclass(frozen=True)
class Polynomial:
    """``(a + b t + c t**2) / divisor``, in whole numbers."""

    a: int
    b: int
    c: int
    divisor: int

    @staticmethod
    def through(sizes: Sequence[int], values: Sequence[int]) -> Polynomial:
        """Return the one through the first three points.

        Raise NotPolynomial if the others are not on it.
        """
        (t0, t1, t2), (v0, v1, v2) = sizes[:3], values[:3]
        slope = Fraction(v1 - v0, t1 - t0)  # Newton's divided differences
        c = (Fraction(v2 - v1, t2 - t1) - slope) / (t2 - t0)
        b = slope - c * (t0 + t1)
        a = v0 - b * t0 - c * t0 * t0
        divisor = lcm(a.denominator, b.denominator, c.denominator)
        made = Polynomial(int(a * divisor), int(b * divisor), int(c * divisor), divisor)
        for size, value in zip(sizes[3:], values[3:], strict=True):
            if made._scaled(size) != value * divisor:
                raise NotPolynomial(f"{value} at size {size} is not on the curve of {values[:3]}")
        return made

    def _scaled(self, size: int) -> int:
        return self.a + size * (self.b + size * self.c)

    def at(self, size: int) -> int:
        """Return the value; NotPolynomial if it is not an integer."""
        found, rest = divmod(self._scaled(size), self.divisor)
        if rest:
            raise NotPolynomial(f"the value at size {size} is not an integer")
        return found

    def never_falls(self, low: int) -> bool:
        """Return whether it does not fall from ``low`` to ``low + 1``, nor after that."""
        return self.c >= 0 and self._scaled(low + 1) >= self._scaled(low)


def fitted(sizes: Sequence[int], values: Sequence[Any]) -> Callable[[int], Any]:
    """Return plain data as a function of the size, given the data at four sizes or more.

    Integers, also those in texts, may differ from size to size; everything else must be equal.
    """
    first = values[0]
    if all(value == first for value in values):
        return lambda size: first
    if any(type(value) is not type(first) for value in values):
        raise NotPolynomial(f"{values} differ in type")
    if type(first) is int:
        return Polynomial.through(sizes, values).at
    if isinstance(first, str) and len(_numbers_in(first)) > 1:
        parts = _fitted_items(sizes, [_numbers_in(value) for value in values])
        return lambda size: "".join(str(part(size)) for part in parts)
    if isinstance(first, list | tuple):
        kind, items = type(first), _fitted_items(sizes, values)
        return lambda size: kind(item(size) for item in items)
    if isinstance(first, dict) and all(list(value) == list(first) for value in values):
        entries = _fitted_items(sizes, [list(value.values()) for value in values])
        return lambda size: {name: entry(size) for name, entry in zip(first, entries, strict=True)}
    raise NotPolynomial(f"{first!r} differs from size to size")


def _fitted_items(sizes: Sequence[int], values: Sequence[Sequence]) -> list[Callable[[int], Any]]:
    if len({len(value) for value in values}) > 1:
        raise NotPolynomial("the data differ in length")
    return [fitted(sizes, column) for column in zip(*values, strict=True)]


def _numbers_in(text: str) -> list[str | int]:
    """Return the parts of a text, its whole numbers as integers (none with a leading zero)."""
    parts = re.split(r"((?<!\d)(?:0|[1-9]\d*)(?!\d))", text)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]
