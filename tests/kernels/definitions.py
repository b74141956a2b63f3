"""The contract's orders as slow scalar Python, written apart from the reference. Test helper.

Arithmetic is exact: sums and products as Fractions, rounded once to f32 here.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def round_f32(exact: Fraction, zero_negative: bool = False) -> np.float32:
    """An exact rational rounded to nearest even f32."""
    if exact == 0:
        return np.float32(-0.0 if zero_negative else 0.0)
    sign, magnitude = (-1 if exact < 0 else 1), abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, -126) - 23)
    whole = round(magnitude / quantum)  # Fractions round half to even
    value = whole * quantum
    if value >= Fraction(2) ** 128:
        return np.float32(sign * np.inf)
    return np.float32(sign * float(value))


def fma(a, b, c) -> np.float32:
    """a * b + c with one rounding, signs of zero as IEEE 754."""
    a, b, c = (np.float32(v) for v in (a, b, c))
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        with np.errstate(all="ignore"):
            return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    product = Fraction(float(a)) * Fraction(float(b))
    total = product + Fraction(float(c))
    if total == 0:
        product_negative = np.signbit(a) != np.signbit(b)
        both = product_negative and np.signbit(c) and product == 0
        return np.float32(-0.0 if both else 0.0)
    return round_f32(total, total < 0)


def add(a, b) -> np.float32:
    with np.errstate(all="ignore"):
        return np.float32(np.float32(a) + np.float32(b))


def chunked(terms, chunk, join=None) -> np.float32:
    """terms: list of (a, b) to fma, or of scalars to add; chunk sums added in order."""
    total = None
    for start in range(0, len(terms), chunk):
        acc = np.float32(0)
        for term in terms[start : start + chunk]:
            acc = fma(*term, acc) if isinstance(term, tuple) else add(acc, term)
        total = acc if total is None else add(total, acc)
    return np.float32(0) if total is None else total


def lanes(values) -> np.float32:
    """32 lanes, halving tree; chunks of 4096, recursively."""
    values = list(values)
    if len(values) > 4096:
        return lanes([lanes(values[i : i + 4096]) for i in range(0, len(values), 4096)])
    lane = [np.float32(0)] * 32
    for i, v in enumerate(values):
        lane[i % 32] = add(lane[i % 32], v)
    for w in (16, 8, 4, 2, 1):
        for l in range(w):  # noqa: E741
            lane[l] = add(lane[l], lane[l + w])
    return lane[0]


def same_bits(a, b) -> bool:
    """Equal shapes and bits; NaNs count as one value."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    integer = f"u{a.dtype.itemsize}"
    equal = np.ascontiguousarray(a).view(integer) == np.ascontiguousarray(b).view(integer)
    if a.dtype.kind not in "iub":
        equal = equal | (np.isnan(a) & np.isnan(b)).reshape(equal.shape)
    return bool(equal.all())
