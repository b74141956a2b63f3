"""The distance of two tensors: the one metric of all comparisons (docs/numerics.md).

``max |got - want| / max |want|`` over the tensor, and the distance in ulps (units in the last place
of the tensor's dtype) at *significant* elements, those of at least 1/1024 of the largest magnitude.
Elements that are not finite must agree in kind: an infinity with the same one, NaN with NaN.
Integers and booleans must be equal.  The large values of masks, equal on both sides, do not count
as the largest magnitude (:func:`masks`).  A part of complex numbers is measured by the larger part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

#: Elements below this fraction of the largest magnitude have few significant digits.
SIGNIFICANT = 2.0**-10
#: The least magnitude of a mask value, absolute and relative to the largest other element.
MASK, MASK_TIMES = 2.0**12, 2.0**10


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of two tensors.

    ``relative``: to the largest magnitude (inf if values that are not finite, integers, shapes or
    dtypes differ); ``index``: the element with it, with its values ``want`` and ``got`` (None
    without elements); ``ulps``: the largest distance at significant elements (None for integers, or
    if elements are not finite).
    """

    relative: float = 0.0
    index: tuple[int, ...] = ()
    want: float | None = None
    got: float | None = None
    ulps: int | None = 0
    note: str = ""


def masks(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Return a boolean mask of elements that are mask values: -1e9 in logits, infinities, NaN.

    They are equal on both sides and much larger than all elements that differ.
    """
    if want.dtype.kind in "biu" or want.shape != got.shape:
        return np.zeros(want.shape, bool)
    a, b = (np.abs(x.astype(np.float64)) for x in (want, got))
    with np.errstate(invalid="ignore"):
        same = np.asarray(want == got)
        most = max(float(np.max(x, where=~same & np.isfinite(x), initial=0.0)) for x in (a, b))
        return (same & (a >= max(MASK, MASK_TIMES * most))) | (np.isnan(a) & np.isnan(b))


def distance(
    want: np.ndarray,
    got: np.ndarray,
    dtype: np.dtype | None = None,
    ignored: np.ndarray | None = None,
    fallback_scale: float = 0.0,
    whole_scale: float = 0.0,
) -> Distance:
    """Return the distance of ``got`` from ``want``.

    ``dtype`` determines the ulps (default: the dtype of ``got``); ``ignored`` are elements that do
    not count; ``fallback_scale`` is the largest magnitude if ``want`` is 0 everywhere,
    ``whole_scale`` that of the whole of which ``want`` is a part.
    """
    if ignored is not None and want.shape == got.shape and ignored.any():
        dtype = got.dtype if dtype is None else dtype
        want, got = (np.where(ignored, np.zeros((), x.dtype), x) for x in (want, got))
    if want.shape != got.shape:
        note = f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        return Distance(math.inf, ulps=None, note=note)
    if want.size == 0:
        return Distance()
    if want.dtype.kind in "biu" or got.dtype.kind in "biu":
        return _integer_distance(want, got)
    kind = got.dtype if dtype is None else dtype
    a, b = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    agree = finite | (np.isnan(a) & np.isnan(b)) | (a == b)
    if not agree.all():
        flat_index = int(np.argmin(agree))
        return _distance_at(math.inf, flat_index, a, b, None, "values that are not finite differ")
    difference = np.zeros_like(a)
    with np.errstate(over="ignore"):
        np.subtract(b, a, out=difference, where=finite)
    np.abs(difference, out=difference)
    flat_index = int(np.argmax(difference))
    worst = float(difference.reshape(-1)[flat_index])
    scale = max(float(np.max(np.abs(a), where=finite, initial=0.0)), whole_scale) or fallback_scale
    if worst == 0.0:
        return _distance_at(0.0, flat_index, a, b, 0)
    if scale == 0.0:
        return _distance_at(math.inf, flat_index, a, b, None, "all values are 0")
    return _distance_at(worst / scale, flat_index, a, b, _ulps(a, difference, scale, kind))


def largest(arrays: Iterable[np.ndarray], ignored: np.ndarray) -> float:
    """Return the largest finite magnitude of ``arrays``, ignoring the elements ``ignored``."""
    wide = (np.abs(a.astype(np.float64)) for a in arrays)
    return max(float(np.max(a, where=np.isfinite(a) & ~ignored, initial=0.0)) for a in wide)


def _distance_at(relative, flat_index, a, b, ulps, note: str = "") -> Distance:
    index = tuple(map(int, np.unravel_index(flat_index, a.shape)))
    return Distance(relative, index, float(a[index]), float(b[index]), ulps, note)


def _integer_distance(want: np.ndarray, got: np.ndarray) -> Distance:
    bad = np.asarray(want != got)
    flat_index = int(np.argmax(bad))
    index = tuple(map(int, np.unravel_index(flat_index, bad.shape)))
    relative = math.inf if bad.any() else 0.0
    return Distance(relative, index, float(want[index]), float(got[index]), None)


def _ulps(a: np.ndarray, off: np.ndarray, scale: float, kind: np.dtype) -> int | None:
    """Return the largest distance in ulps of ``kind`` at significant elements."""
    digits = precision(kind)
    significant = np.abs(a) >= SIGNIFICANT * scale
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(significant, a, 1.0))[1] - 1
        ulp = np.maximum(np.ldexp(1.0, exponent - digits), _least(kind))
        units = np.where(significant & np.isfinite(off), off / ulp, 0.0)
    return int(min(np.ceil(units.max()), 2.0**53)) if units.size else 0


def _least(kind: np.dtype) -> float:
    """Return the smallest positive value of a float dtype, the ulp of denormal values."""
    import ml_dtypes

    return float(ml_dtypes.finfo(kind).smallest_subnormal)


def precision(kind: np.dtype) -> int:
    """Return the number of explicit mantissa bits of a float dtype."""
    import ml_dtypes

    return int(ml_dtypes.finfo(kind).nmant)  # supports NumPy's own dtypes too


def epsilon(kind: np.dtype) -> float:
    """Return the distance from 1 to the next value of a float dtype; 0.0 for integers."""
    return 0.0 if kind.kind in "biu" else 2.0 ** -precision(kind)


def farthest(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[int, Distance]:
    """Return the index of the (want, got) pair with the largest distance, and that distance.

    Without pairs: 0 and a distance of zero.
    """
    found = [distance(want, got) for want, got in pairs]
    number = max(range(len(found)), key=lambda i: found[i].relative, default=0)
    return number, (found[number] if found else Distance())
