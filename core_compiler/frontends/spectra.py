"""Discrete Fourier transforms as products with constant matrices."""

from __future__ import annotations

import math

import numpy as np


def matrix(
    size: int, parts: int, count: int, inverse: bool, onesided: bool, largest: int
) -> np.ndarray:
    """Return the f64 matrix from a signal along ``size * parts`` to its ``count``-point transform.

    Its shape is (size * parts, bins * 2), or (size * parts, count) from the one-sided spectrum of a
    real signal back to it.  The result is not divided by the count.

    ``parts``: 2 if the signal holds pairs (real, imaginary), else 1.  A longer signal is cut, a
    shorter one is padded with zeros.  Raise ValueError for a matrix of more than ``largest``
    elements.
    """
    bins = count // 2 + 1 if onesided and not inverse else count
    if size * parts * bins * 2 > largest:
        raise ValueError(f"a transform of {count} points: its matrix is too large")
    used = min(size, count // 2 + 1 if onesided and inverse else count)
    cos, sin = circle(np.outer(np.arange(used), np.arange(bins)), count)
    sin = sin if inverse else 0.0 - sin  # no zero gets a sign
    if inverse and onesided:
        twice = np.where((np.arange(used) == 0) | (2 * np.arange(used) == count), 1, 2)[:, None]
        table = np.stack([cos * twice, -sin * twice][:parts], axis=1)  # (used, parts, count)
    else:
        real = np.stack([cos, sin], axis=-1)  # the contribution of a real part to (bins, 2)
        imaginary = np.stack([-sin, cos], axis=-1)
        table = np.stack([real, imaginary][:parts], axis=1)  # (used, parts, bins, 2)
    whole = np.zeros((size, *table.shape[1:]))
    whole[:used] = table
    return whole.reshape(size * parts, -1)


def circle(turns: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (cos, sin) of ``turns / count`` of a circle (integers) in f64.

    Quarters of it are exact: the spectrum of a real signal has no imaginary part at 0 and at half
    the rate, and ``angle`` would show the sign of an inexact one.
    """
    quarter, rest = np.divmod(4 * (turns % count), count)  # exact for any number of turns
    beyond = 2 * rest > count  # closer to the next quarter, so it is computed from there
    angle = (math.pi / 2) * np.where(beyond, count - rest, rest) / count
    cos, sin = np.cos(angle), np.sin(angle)
    cos, sin = np.where(beyond, sin, cos), np.where(beyond, cos, sin)
    cos, sin = (
        np.choose(quarter, [cos, -sin, -cos, sin]),
        np.choose(quarter, [sin, cos, -sin, -cos]),
    )
    return cos + 0.0, sin + 0.0  # converts -0 to 0
