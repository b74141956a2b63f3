"""Arithmetic on dimensions: ints, or strings that are polynomials in symbols (``"2*batch*seq+3"``).

Every dimension computed here has a canonical spelling, so equal sizes are equal strings: terms by
descending degree, then by name; factors by name; the coefficient first in a term and the constant
last in a sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod

Dim = int | str
#: Monomial (its symbols, sorted, repeated for powers) -> coefficient.
_Polynomial = dict[tuple[str, ...], int]
_TERM = re.compile(r"[+-]?[^+-]+")


def add(*dims: Dim) -> Dim:
    """Return the sum of dimensions; an int if no symbol is left."""
    total: _Polynomial = {}
    for dim in dims:
        _accumulate(total, _parse(dim))
    return _to_text(total)


def multiply(*dims: Dim) -> Dim:
    """Return the product of dimensions (1 for none)."""
    numbers = [d for d in dims if isinstance(d, int)]
    if len(numbers) == len(dims):
        return prod(numbers)
    product: _Polynomial = {(): 1}
    for dim in dims:
        factor, previous, product = _parse(dim), product, {}
        for left, a in previous.items():
            for right, b in factor.items():
                _accumulate(product, {tuple(sorted(left + right)): a * b})
    return _to_text(product)


def subtract(a: Dim, b: Dim) -> Dim:
    """Return the difference; it may be negative, which is only known once sizes are bound."""
    return add(a, multiply(-1, b))


def floor_divide(a: Dim, b: int) -> Dim | None:
    """Return ``a // b`` if every coefficient but the constant is a multiple of ``b``; else None."""
    quotient: _Polynomial = {}
    for symbols, k in _parse(a).items():
        if symbols and k % b:
            return None
        quotient[symbols] = k // b
    return _to_text(quotient)


def bind(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Return ``dim`` with the symbols of ``sizes`` replaced by numbers."""
    if isinstance(dim, int):
        return dim
    terms = []
    for symbols, k in _parse(dim).items():
        terms.append(multiply(k, *(sizes.get(s, s) for s in symbols)))
    return add(*terms)


def symbols(dim: Dim) -> tuple[str, ...]:
    """Return the symbols in ``dim``, sorted by name."""
    return tuple(sorted({s for term in _parse(dim) for s in term}))


def product(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    return multiply(*shape)


def _accumulate(total: _Polynomial, more: _Polynomial) -> None:
    for term, k in more.items():
        total[term] = total.get(term, 0) + k


def _parse(dim: Dim) -> _Polynomial:
    return {(): int(dim)} if isinstance(dim, int) else dict(_parse_text(dim))


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> tuple[tuple[tuple[str, ...], int], ...]:
    total: _Polynomial = {}
    for term in _TERM.findall(text.replace(" ", "")):
        sign = -1 if term.startswith("-") else 1
        number, names = sign, []
        for factor in term.lstrip("+-").split("*"):
            if factor.isdigit():
                number *= int(factor)
            else:
                names.append(factor)
        _accumulate(total, {tuple(sorted(names)): number})
    return tuple(total.items())


def _to_text(total: _Polynomial) -> Dim:
    terms = sorted(((t, k) for t, k in total.items() if k), key=lambda e: (-len(e[0]), e[0]))
    if not any(t for t, _ in terms):
        return sum(k for _, k in terms)
    text = ""
    for term, k in terms:
        size = [str(abs(k))] if abs(k) != 1 or not term else []
        text += ("-" if k < 0 else "+" if text else "") + "*".join([*size, *term])
    return text
