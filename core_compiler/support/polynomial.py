"""Numbers as functions of a size: polynomials through the values at a few sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


class NotPolynomial(Exception):
    """Values are not a polynomial of degree 2 of the size, or differ by more than numbers."""


@dataclass(frozen=True)
class Polynomial:
    """``a + b (t - t0) + c (t - t0) (t - t1)``."""

    t0: int
    t1: int
    a: Fraction
    b: Fraction
    c: Fraction

    @staticmethod
    def through(sizes: Sequence[int], values: Sequence[int]) -> Polynomial:
        """Return the one through the first three points.

        Raise NotPolynomial if the others are not on it.
        """
        (t0, t1, t2), (v0, v1, v2) = sizes[:3], values[:3]
        b = Fraction(v1 - v0, t1 - t0)
        c = (Fraction(v2 - v1, t2 - t1) - b) / (t2 - t0)
        made = Polynomial(t0, t1, Fraction(v0), b, c)
        for size, value in zip(sizes[3:], values[3:], strict=True):
            if made._exact(size) != value:
                raise NotPolynomial(f"{value} at size {size} is not on the curve of {values[:3]}")
        return made

    def _exact(self, size: int) -> Fraction:
        return self.a + (size - self.t0) * (self.b + (size - self.t1) * self.c)

    def at(self, size: int) -> int:
        """Return the value; NotPolynomial if it is not an integer."""
        found = self._exact(size)
        if found.denominator != 1:
            raise NotPolynomial(f"{found} at size {size} is not an integer")
        return int(found)

    @property
    def never_falls(self) -> bool:
        """Return whether it does not fall from ``t0`` on, at integers."""
        return self.b >= 0 and self.c >= 0


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
