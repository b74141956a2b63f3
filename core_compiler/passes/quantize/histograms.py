"""Histograms of calibration data, and the ranges that leave part of the data out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from core_compiler.ir import dtype
from core_compiler.numerics.reference.elementwise import apply
from core_compiler.passes.quantize.parameters import Range, affine

#: Bins of a histogram, from minus to plus the largest magnitude.
BINS = 4096
#: Bins that ``entropy`` merges a distribution into: as many as a byte has integers.
MERGED_BINS = 256
#: Numbers that a bin should have on average: ``entropy`` compares fewer, wider bins of few numbers.
PER_BIN = 16
#: Taken from the bins of a distribution that have counts, for those that have none.
SMOOTHING = 1e-4
#: Fractions of the range, in steps of so much, that ``mse`` tries for both ends and for each.
FRACTIONS = 64


@dataclass
class Histogram:
    """Counts and sums of numbers in bins of equal width from ``-largest`` to ``largest``.

    Sums are in f64, in the order of the numbers.
    """

    bins: ClassVar[int] = BINS
    largest: float
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.float64))

    def add(self, numbers: np.ndarray) -> None:
        """Count finite numbers of f32, none larger than ``largest``."""
        wide = numbers.ravel().astype(np.float64)
        end = self.largest or 1.0
        index = ((wide + end) * (self.bins / (2 * end))).astype(np.int64)
        index = np.minimum(index, self.bins - 1)
        self.counts += np.bincount(index, minlength=self.bins)
        self.sums += np.bincount(index, wide, self.bins)

    def edges(self, bins: int) -> np.ndarray:
        """Return the ends of so many bins of the same range."""
        return np.arange(-bins, bins + 1, 2) * (self.largest / bins)

    def representatives(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of bins that have any, and the mean of each."""
        filled = self.counts > 0
        counts = self.counts[filled]
        return counts, self.sums[filled] / counts


def percentile_range(histogram: Histogram, full: Range, percentile: float) -> Range:
    """Return the range without ``100 - percentile`` percent of the numbers, half at each end.

    McKinstry et al., "Discovering low-precision networks close to full-precision networks for
    efficient inference" (2018).
    """
    share = np.cumsum(histogram.counts) / int(histogram.counts.sum())
    left = (100 - percentile) / 200
    edges = histogram.edges(histogram.bins)
    low, high = (int(np.searchsorted(share, s)) for s in (left, 1 - left))
    return _within(float(edges[low]), float(edges[min(high + 1, histogram.bins)]), full)


def entropy_range(histogram: Histogram, full: Range) -> Range:
    """Return the range whose quantised distribution diverges least from that of the numbers.

    Migacz, "8-bit inference with TensorRT" (GTC 2017): ranges from minus to plus a limit are
    merged into as many bins as a byte has integers there, and compared by the Kullback-Leibler
    divergence. Numbers of one sign have all integers on their side.
    """
    merged, bins = MERGED_BINS, histogram.bins
    while bins > merged and int(histogram.counts.sum()) < PER_BIN * bins:
        bins //= 2
    counts = histogram.counts.reshape(bins, -1).sum(1)
    middle = bins // 2  # zeros have no error in any range
    counts[middle - 1 : middle + 1] = counts[middle - 2], counts[middle + 1]
    if not full.low < 0 < full.high:
        counts, merged = counts + counts[::-1], 2 * merged
    low, high = least_divergence(counts, merged)
    edges = histogram.edges(bins)
    return _within(float(edges[low]), float(edges[high]), full)


def least_divergence(counts: np.ndarray, merged: int) -> tuple[int, int]:
    """Return the first and the last edge of the bins, around the middle, that diverge least."""
    middle = len(counts) // 2
    found: tuple[float, int, int] = (np.inf, 0, len(counts))
    for half in range(merged // 2, middle + 1):
        start, end = middle - half, min(middle + half + 1, len(counts))
        divergence = _divergence(counts, start, end, merged)
        if divergence < found[0]:
            found = divergence, start, end
    return found[1:]


def _divergence(counts: np.ndarray, start: int, end: int, merged: int) -> float:
    inside = counts[start:end]
    p = inside.astype(np.float64)
    p[0] += counts[:start].sum()
    p[-1] += counts[end:].sum()
    size = len(inside) // merged
    whole = merged * size
    parts = inside[:whole].reshape(merged, size).sum(1)
    filled = (p[:whole] != 0).reshape(merged, size).sum(1)
    parts[-1] += inside[whole:].sum()
    q = np.zeros(len(p))
    q[:whole] = np.repeat(parts / np.maximum(filled, 1) * (filled > 0), size)
    if not q.any():
        return np.inf
    p, q = _smoothed(p), _smoothed(q)
    p, q = p / _sum(p), q / _sum(q)
    return _sum(p * apply("log", p / q))


def _smoothed(counts: np.ndarray) -> np.ndarray:
    empty = counts == 0
    zeros = int(empty.sum())
    taken = SMOOTHING * zeros / (len(counts) - zeros)
    return np.where(empty, SMOOTHING, counts - taken)


def mse_range(histogram: Histogram, full: Range) -> Range:
    """Return the range of the least squared error of bytes with a zero point, over the bins.

    The range is narrowed at both ends, then at each end alone.
    """
    counts, numbers = histogram.representatives()
    found = full
    least = _squared_error(counts, numbers, full)
    for low_end, high_end in ((True, True), (False, True), (True, False)):
        start = found
        for step in range(1, FRACTIONS):
            part = 1 - step / FRACTIONS
            tried = Range(
                start.low * part if low_end else start.low,
                start.high * part if high_end else start.high,
            )
            error = _squared_error(counts, numbers, tried)
            if error < least:
                found, least = tried, error
    return found


def _squared_error(counts: np.ndarray, numbers: np.ndarray, of: Range) -> float:
    return _sum(counts * (numbers - affine(of, dtype("i8")).rounded(numbers)) ** 2)


def squared_error(numbers: np.ndarray, of: Range) -> float:
    """Return the sum of the squared errors of numbers as bytes of a range."""
    wide = numbers.ravel().astype(np.float64)
    return _sum((wide - affine(of, dtype("i8")).rounded(wide)) ** 2)


def _sum(terms: np.ndarray) -> float:
    """Return the sum of f64, term after term: the same bits on every machine."""
    return float(np.cumsum(terms)[-1])


def _within(low: float, high: float, full: Range) -> Range:
    return Range(max(low, full.low), min(high, full.high))
