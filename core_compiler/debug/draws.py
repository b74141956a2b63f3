"""Random numbers beside a framework's: other numbers of one distribution.

A framework draws from a generator of its own.  What can be compared is how often, how large and,
where an operand is kept or dropped, what becomes of an element that both keep.
"""

from __future__ import annotations

import math

import numpy as np

from core_compiler.debug.metric import epsilon

#: The chance that numbers of one distribution are called numbers of two.
CHANCE = 1e-12
#: Ulps that an element which both keep may be apart.
ULPS = 8


def unlike(ours: np.ndarray, theirs: np.ndarray, operand: np.ndarray | None = None) -> str:
    """What says that two tensors of random numbers are not of one distribution; "" where nothing
    does.  ``operand``: what was kept or dropped, where there is such a tensor of their shape."""
    if ours.size == 0:
        return ""
    a, b = (np.asarray(x, np.float64) for x in (ours, theirs))
    if operand is not None and operand.shape == ours.shape and ours.dtype.kind not in "biu":
        present = np.isfinite(np.asarray(operand, np.float64)) & (operand != 0)
        dropped = [float(np.mean(x[present] == 0)) if present.any() else 0.0 for x in (a, b)]
        if all(0 < part < 1 for part in dropped):
            kept = present & (a != 0) & (b != 0)
            off = np.abs(a - b)[kept] > ULPS * epsilon(ours.dtype) * np.abs(b)[kept]
            if off.any():
                place = int(np.argmax(off))
                return (f"an element that both keep is {a[kept][place]:.6g} here, "
                        f"{b[kept][place]:.6g} there")  # fmt: skip
    apart = _farthest(a.ravel(), b.ravel())
    # Kolmogorov and Smirnov's test of two samples, by Massart's bound on its chance.
    allowed = math.sqrt(-math.log(CHANCE / 2) / ours.size)
    if apart > allowed:
        return (f"the distributions differ by {apart:.2g}, and {allowed:.2g} is what "
                f"{ours.size} draws may")  # fmt: skip
    return ""


def _farthest(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference of the shares of numbers that are at most so large."""
    points = np.unique(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(x), points, side="right") / x.size for x in (a, b)]
    return float(np.max(np.abs(shares[0] - shares[1]), initial=0.0))
