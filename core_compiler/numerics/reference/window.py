"""Pooling and windowed sums, 1 to 3 spatial axes (or any): x [N, C, *spatial].

Positions of a window are visited row-major, one addition each from +0; padded positions are not
terms. NumPy's ``+`` is one IEEE addition per element and step, so the loop over positions is here
and the loop over outputs is NumPy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from core_compiler.numerics.reference.dtypes import (
    accumulator,
    canonical_nan,
    cast,
    is_float,
    widen,
)
from core_compiler.numerics.reference.keys import lowest_key, order_keys, values_of_keys
from core_compiler.numerics.reference.scatter import scatter_rows

Pads = Sequence[tuple[int, int]]


def window_sum(x, kernel, strides=None, pads=None, dilations=None) -> np.ndarray:
    """Return sums over windows in x's dtype; narrow floats add in f32 and round once."""
    geometry = _Geometry(x, kernel, strides, pads, dilations)
    return cast(_sums(x, geometry), x.dtype)


def average_pool(
    x: np.ndarray,
    kernel: Sequence[int],
    strides=None,
    pads: Pads | None = None,
    dilations=None,
    count_include_pad: bool = False,
    extra: Sequence[int] | None = None,
    divisor: int | None = None,
) -> np.ndarray:
    """Return window sums divided once by the count of positions.

    ``count_include_pad`` counts positions in the padding too. ``extra`` is further high padding
    that is never counted (as in ceil mode). ``divisor`` replaces the count.
    """
    rank = len(kernel)
    pads = tuple(pads or ((0, 0),) * rank)
    extra = tuple(extra or (0,) * rank)
    reach = [(low, high + e) for (low, high), e in zip(pads, extra, strict=True)]
    geometry = _Geometry(x, kernel, strides, reach, dilations)
    if divisor is None:
        counted = np.ones(x.shape[2:], np.float64)
        if count_include_pad:
            counted = np.pad(counted, pads, constant_values=1)
            reach = [(0, e) for e in extra]
        counts = _Geometry(counted[None, None], kernel, strides, reach, dilations)
        divisors = _sums(counted[None, None], counts)
    else:
        divisors = np.asarray(divisor, np.float64)
    total = _sums(x, geometry)
    with np.errstate(all="ignore"):
        return cast(canonical_nan(total / np.asarray(divisors, total.dtype)), x.dtype)


def max_pool(
    x: np.ndarray, kernel: Sequence[int], strides=None, pads: Pads | None = None, dilations=None
) -> np.ndarray:
    """Return window maxima (-0 < +0, NaN wins); a window of only padding has the lowest value."""
    geometry = _Geometry(x, kernel, strides, pads, dilations)
    keys = order_keys(x)
    best = np.full((*geometry.lead, *geometry.out), lowest_key(x), keys.dtype)
    for out_box, in_box in geometry.positions():
        best[out_box] = np.maximum(best[out_box], keys[in_box])
    return values_of_keys(best, x.dtype)


def max_pool_indices(
    x: np.ndarray, kernel: Sequence[int], strides=None, pads: Pads | None = None, dilations=None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (``max_pool``, i64 row-major spatial positions of the largest).

    Zeros of both signs are equal, and the first of equals is chosen; of NaNs the last one, as in
    torch; -1 if a window has no position inside. A position is always one of x's own elements, so
    the value there may be the -0 before a +0 that ``max_pool`` returns.
    """
    where = _positions(x, _Geometry(x, kernel, strides, pads, dilations))
    return max_pool(x, kernel, strides, pads, dilations), where


def max_pool_gradient(
    x: np.ndarray, dy: np.ndarray, kernel: Sequence[int], strides=None, pads=None, dilations=None
) -> np.ndarray:
    """Return dx: each output's gradient is added at the position of ``max_pool_indices``.

    Contributions to an input element are added in ascending linear index of the output, from +0,
    chunks of 256.
    """
    where = _positions(x, _Geometry(x, kernel, strides, pads, dilations))
    return positions_gradient(where, dy, x.shape)


def positions_gradient(where: np.ndarray, dy: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return dx [*shape]: each element of dy added at its row-major spatial position ``where``.

    -1 means no position. The order is that of dy, from +0, in chunks of 256.
    """
    planes, size = math.prod(shape[:2]), math.prod(shape[2:])
    rows = where.reshape(planes, math.prod(where.shape[2:])) + size * np.arange(planes)[:, None]
    valid = where.reshape(-1) >= 0
    terms = np.ascontiguousarray(dy).reshape(-1)[valid]
    return _from_zero(planes * size, rows.reshape(-1)[valid], terms).reshape(shape)


def average_pool_gradient(
    dy: np.ndarray,
    shape: Sequence[int],
    kernel: Sequence[int],
    strides=None,
    pads=None,
    dilations=None,
    count_include_pad: bool = False,
    extra=None,
    divisor: int | None = None,
) -> np.ndarray:
    """Return dx [*shape] of ``average_pool``: round(dy / count) at each window's positions."""
    rank = len(kernel)
    pads = tuple(pads or ((0, 0),) * rank)
    extra = tuple(extra or (0,) * rank)
    ones = np.zeros((1, 1, *shape[2:]))
    reach = [(low, high + e) for (low, high), e in zip(pads, extra, strict=True)]
    geometry = _Geometry(ones, kernel, strides, reach, dilations)
    counted = ones + 1
    if divisor is None and count_include_pad:
        counted = np.pad(counted, ((0, 0), (0, 0), *pads), constant_values=1)
    inner = [(0, e) for e in extra] if count_include_pad and divisor is None else reach
    counts = _sums(counted, _Geometry(counted, kernel, strides, inner, dilations))
    wide = widen(dy)
    with np.errstate(all="ignore"):
        share = wide / (
            np.asarray(counts, wide.dtype) if divisor is None else wide.dtype.type(divisor)
        )
    planes, size = math.prod(shape[:2]), math.prod(shape[2:])
    places = np.arange(size).reshape(shape[2:])
    owners, hits = [], []
    outputs = np.arange(math.prod(dy.shape[2:])).reshape(dy.shape[2:])
    for out_box, in_box in geometry.positions():
        owners.append(outputs[out_box].reshape(-1))
        hits.append(places[in_box].reshape(-1))
    if not owners:  # no window covers an element
        return np.zeros(shape, dy.dtype)
    owner, hit = np.concatenate(owners), np.concatenate(hits)
    order = np.argsort(owner, kind="stable")
    owner, hit = owner[order], hit[order]
    rows = (hit[None] + size * np.arange(planes)[:, None]).reshape(-1)
    updates = share.reshape(planes, outputs.size)[:, owner].reshape(-1)
    return cast(_from_zero(planes * size, rows, updates).reshape(shape), dy.dtype)


def _from_zero(size: int, rows: np.ndarray, updates: np.ndarray) -> np.ndarray:
    table = np.zeros((size, 1), updates.dtype)
    return scatter_rows(table, rows, updates.reshape(-1, 1), "add")


class _Geometry:
    """The outputs that see an input element at each position of the window."""

    def __init__(self, x, kernel, strides, pads, dilations):
        rank = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = tuple(strides or kernel)
        self.dilations = tuple(dilations or (1,) * rank)
        self.pads = tuple(pads or ((0, 0),) * rank)
        self.sizes = tuple(x.shape[x.ndim - rank :])
        self.lead = tuple(x.shape[: x.ndim - rank])
        self.out = tuple(
            max(0, (n + low + high - d * (k - 1) - 1) // s + 1)
            for n, (low, high), d, k, s in zip(
                self.sizes, self.pads, self.dilations, self.kernel, self.strides, strict=True
            )
        )

    def positions(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield (box of outputs, strided box of their inputs) per window position, row-major."""
        for tap in itertools.product(*(range(k) for k in self.kernel)):
            outs, ins = [], []
            for t, s, d, (low, _), n, m in zip(
                tap, self.strides, self.dilations, self.pads, self.sizes, self.out, strict=True
            ):
                shift = t * d - low
                first = max(0, -(shift // s))
                last = min(m, (n - 1 - shift) // s + 1)
                if last <= first:
                    break
                begin = first * s + shift
                outs.append(slice(first, last))
                ins.append(slice(begin, begin + (last - first - 1) * s + 1, s))
            else:
                yield (..., *outs), (..., *ins)


def _sums(x: np.ndarray, geometry: _Geometry) -> np.ndarray:
    wide = widen(np.asarray(x)).astype(accumulator(x.dtype), copy=False)
    total = np.zeros((*geometry.lead, *geometry.out), wide.dtype)
    with np.errstate(all="ignore"):
        for out_box, in_box in geometry.positions():
            total[out_box] += wide[in_box]
    return canonical_nan(total) if is_float(total.dtype) else total


def _positions(x: np.ndarray, geometry: _Geometry) -> np.ndarray:
    keys = order_keys(x, zeros_equal=True)
    unordered = x != x if is_float(x.dtype) else np.zeros(x.shape, bool)
    shape = (*geometry.lead, *geometry.out)
    best = np.full(shape, lowest_key(x), keys.dtype)
    where = np.full(shape, -1, np.int64)
    places = np.arange(math.prod(geometry.sizes)).reshape(geometry.sizes)
    for out_box, in_box in geometry.positions():
        seen, old, at = keys[in_box], best[out_box], where[out_box]
        better = (seen > old) | unordered[in_box] | (at < 0)
        old[better] = seen[better]
        at[better] = np.broadcast_to(places[in_box], seen.shape)[better]
    return where
