"""Index expressions: linear combinations of loop axes and of a few opaque terms, with ranges.

``AffineExpr`` is ``sum(coefficient * atom) + constant`` with static integers. Atoms are loop axes,
quotients and remainders that do not simplify, and indices read from data. Everything compares by
structure, so equal indices are recognised whatever chain of reshapes and transposes produced them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from typing_extensions import override


@dataclass(frozen=True)
class Axis:
    """A loop of ``size`` iterations; ``number`` is its identity and its position in the nest.

    ``reduced`` marks the loop of a reduction, whose order is part of its meaning: it is never split
    or moved.
    """

    number: int
    size: int
    reduced: bool = False

    @property
    def key(self) -> tuple:
        return (0, self.number)

    @property
    def range(self) -> tuple[int, int]:
        return 0, max(self.size - 1, 0)

    @property
    def axes(self) -> frozenset[Axis]:
        return frozenset((self,))


@dataclass(frozen=True)
class Quotient:
    """``floor(of / by)``."""

    of: AffineExpr
    by: int

    @cached_property
    def key(self) -> tuple:
        return (1, self.of.key, self.by)

    @property
    def range(self) -> tuple[int, int]:
        low, high = self.of.range
        return low // self.by, high // self.by

    @property
    def axes(self) -> frozenset[Axis]:
        return self.of.axes


@dataclass(frozen=True)
class Remainder:
    """``of - by * floor(of / by)``."""

    of: AffineExpr
    by: int

    @cached_property
    def key(self) -> tuple:
        return (2, self.of.key, self.by)

    @property
    def range(self) -> tuple[int, int]:
        return 0, self.by - 1

    @property
    def axes(self) -> frozenset[Axis]:
        return self.of.axes


@dataclass(frozen=True)
class Clamped:
    """``min(max(of, low), high)``."""

    of: AffineExpr
    low: int
    high: int

    @cached_property
    def key(self) -> tuple:
        return (3, self.of.key, self.low, self.high)

    @property
    def range(self) -> tuple[int, int]:
        return self.low, max(self.low, self.high)

    @property
    def axes(self) -> frozenset[Axis]:
        return self.of.axes


@dataclass(frozen=True)
class Data:
    """An index read from integer data, clamped to [low, high].

    It is element ``index`` of the tensor that the lowering numbered ``value``.
    """

    value: int
    index: tuple[AffineExpr, ...]
    low: int
    high: int

    @cached_property
    def key(self) -> tuple:
        return (4, self.value, tuple(i.key for i in self.index), self.low, self.high)

    @property
    def range(self) -> tuple[int, int]:
        return self.low, max(self.low, self.high)

    @property
    def axes(self) -> frozenset[Axis]:
        return frozenset().union(*(i.axes for i in self.index))


Atom = Axis | Quotient | Remainder | Clamped | Data


@dataclass(frozen=True)
class AffineExpr:
    """``sum(c * atom for atom, c in terms) + constant``; terms sorted, no zero coefficients."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @cached_property
    def key(self) -> tuple:
        return (tuple((a.key, c) for a, c in self.terms), self.constant)

    @override
    def __eq__(self, other) -> bool:
        return isinstance(other, AffineExpr) and self.key == other.key

    @override
    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def range(self) -> tuple[int, int]:
        """The smallest and largest value, given the bounds of each axis."""
        low = high = self.constant
        for atom, c in self.terms:
            a, b = atom.range
            low, high = low + min(c * a, c * b), high + max(c * a, c * b)
        return low, high

    @cached_property
    def axes(self) -> frozenset[Axis]:
        return frozenset().union(*(a.axes for a, _ in self.terms))

    @property
    def known(self) -> int | None:
        """The value if it is a constant, else None."""
        return None if self.terms else self.constant

    def coefficient(self, atom: Atom) -> int:
        return next((c for a, c in self.terms if a == atom), 0)

    def __add__(self, other: AffineExpr | int) -> AffineExpr:
        if isinstance(other, int):
            return AffineExpr(self.terms, self.constant + other)
        return combine((*self.terms, *other.terms), self.constant + other.constant)

    def __sub__(self, other: AffineExpr | int) -> AffineExpr:
        return self + (other * -1 if isinstance(other, AffineExpr) else -other)

    def __mul__(self, factor: int) -> AffineExpr:
        if factor == 0:
            return AffineExpr()
        return AffineExpr(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, by: int) -> AffineExpr:
        return divide(self, by)[0]

    def __mod__(self, by: int) -> AffineExpr:
        return divide(self, by)[1]


ZERO = AffineExpr()


def axis_index(axis: Axis) -> AffineExpr:
    return AffineExpr(((axis, 1),)) if axis.size != 1 else ZERO


def combine(terms: Iterable[tuple[Atom, int]], constant: int) -> AffineExpr:
    """Return the sum of terms, with ``k*b * (e // k) + b * (e % k)`` recognised as ``b * e``.

    Also ``k/d*b * (e // k) + b * (e % k // d)`` as ``b * (e // d)``.
    """
    total: dict[Atom, int] = {}
    for atom, c in terms:
        total[atom] = total.get(atom, 0) + c
    for atom in list(total):
        found = _split(atom) if total.get(atom) else None
        if found is not None:
            (remainder, by), b = found, total[atom]
            partner = Quotient(remainder.of, remainder.by)
            if total.get(partner) == b * (remainder.by // by):
                del total[atom], total[partner]
                rest = combine(total.items(), constant)
                return rest + remainder.of // by * b
    kept = sorted(((a, c) for a, c in total.items() if c), key=lambda t: t[0].key)
    return AffineExpr(tuple(kept), constant)


def _split(atom: Atom) -> tuple[Remainder, int] | None:
    """Return (r, 1) for a remainder r, and (r, d) for ``r // d`` if d divides what r is of."""
    if isinstance(atom, Remainder):
        return atom, 1
    inner = _single(atom.of) if isinstance(atom, Quotient) else None
    if isinstance(atom, Quotient) and isinstance(inner, Remainder) and inner.by % atom.by == 0:
        return inner, atom.by
    return None


def _single(e: AffineExpr) -> Atom | None:
    """Return the atom that ``e`` is, or None if it is another sum."""
    return e.terms[0][0] if len(e.terms) == 1 and e.terms[0][1] == 1 and not e.constant else None


def divide(e: AffineExpr, by: int) -> tuple[AffineExpr, AffineExpr]:
    """Return ``(e // by, e % by)``, simplified as the ranges allow."""
    if by == 1:
        return e, ZERO
    whole = AffineExpr(tuple((a, c // by) for a, c in e.terms if c % by == 0), e.constant // by)
    rest = AffineExpr(tuple((a, c) for a, c in e.terms if c % by), e.constant % by)
    low, high = rest.range
    if low // by == high // by:
        return whole + low // by, rest - low // by * by
    inner = _single(rest)
    if isinstance(inner, Remainder) and inner.by % by == 0:  # (e % 32) % 2 is e % 2
        return whole + combine(((Quotient(rest, by), 1),), 0), inner.of % by
    return whole + combine(((Quotient(rest, by), 1),), 0), combine(((Remainder(rest, by), 1),), 0)


def clamp(e: AffineExpr, low: int, high: int) -> AffineExpr:
    """Return ``e`` clamped to [low, high]; ``e`` itself if its range is inside."""
    a, b = e.range
    if low <= a and b <= high:
        return e
    return combine(((Clamped(e, low, high), 1),), 0)


def find_axis_split(e: AffineExpr) -> tuple[Axis, int] | None:
    """Return an axis and a split factor that would eliminate a quotient inside ``e``."""
    for atom, _ in e.terms:
        if isinstance(atom, Quotient | Remainder):
            for axis, c in atom.of.terms:
                if isinstance(axis, Axis) and not axis.reduced and c > 0 and atom.by % c == 0:
                    factor = atom.by // c
                    if 1 < factor < axis.size and axis.size % factor == 0:
                        return axis, factor
            found = find_axis_split(atom.of)
            if found is not None:
                return found
    return None
