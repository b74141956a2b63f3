"""Comparison of random numbers with a framework's by their distribution.

A framework draws from its own generator.  What can be compared is the distribution of the values
and, if an operand is kept or dropped (dropout), the elements that both keep.
"""

from __future__ import annotations

import math

import numpy as np

from core_compiler.debug.metric import epsilon

#: The probability that samples of one distribution are reported as different.
CHANCE = 1e-12
#: Maximum difference in ulps of an element that both keep.
ULPS = 8


def distribution_difference(
    ours: np.ndarray, theirs: np.ndarray, operand: np.ndarray | None = None
) -> str:
    """Return the evidence that two random tensors differ in distribution; "" if there is none.

    ``operand`` is the tensor whose elements were kept or dropped, if it has their shape.
    """
    if ours.size == 0:
        return ""
    a, b = (np.asarray(x, np.float64) for x in (ours, theirs))
    if operand is not None and operand.shape == ours.shape and ours.dtype.kind not in "biu":
        kept_all = [np.array_equal(x, operand, equal_nan=True) for x in (a, b)]
        if kept_all == [False, True]:
            return "the framework returns its operand and draws nothing"
        present = np.isfinite(np.asarray(operand, np.float64)) & (operand != 0)
        dropped = [float(np.mean(x[present] == 0)) if present.any() else 0.0 for x in (a, b)]
        if all(0 < part < 1 for part in dropped):
            kept_by_both = present & (a != 0) & (b != 0)
            off = np.abs(a - b)[kept_by_both] > ULPS * epsilon(ours.dtype) * np.abs(b)[kept_by_both]
            if off.any():
                index = int(np.argmax(off))
                return (
                    f"an element that both keep is {a[kept_by_both][index]:.6g}, expected "
                    f"{b[kept_by_both][index]:.6g}"
                )
    difference = _farthest(a.ravel(), b.ravel())
    # The two-sample Kolmogorov-Smirnov test, with Massart's bound on its probability.
    allowed = math.sqrt(-math.log(CHANCE / 2) / ours.size)
    if difference > allowed:
        return (
            f"the distributions differ by {difference:.2g}, more than {allowed:.2g}, the bound for "
            f"{ours.size} draws"
        )
    return ""


def _farthest(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of the two empirical distribution functions."""
    points = np.unique(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(x), points, side="right") / x.size for x in (a, b)]
    return float(np.max(np.abs(shares[0] - shares[1]), initial=0.0))
