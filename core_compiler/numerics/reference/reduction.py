"""Reductions in the contract's order.

Size-1 axes form no group; adjacent reduced axes merge row-major into groups; the last group is
reduced first. A group's order is ``lanes`` if it contains the operand's last non-unit axis, else
``sequence``. Sums start from +0, also those over axes of size 1 only; without any axes an element
is unchanged. ``prod`` always runs in ``sequence`` order, from 1. Maxima, minima, and, or, xor do
not depend on an order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.jit import jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.contraction import accumulator_type
from core_compiler.numerics.reference.dtypes import (
    accumulator,
    canonical_nan,
    cast,
    dtype_name,
    is_float,
    widen,
)
from core_compiler.numerics.reference.keys import lowest_key, order_keys, values_of_keys

LANES, LANES_LIMIT, CHUNK = 32, 4096, 256
KINDS = ("sum", "prod", "max", "min", "and", "or", "xor", "argmax", "argmin")
_BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def groups_of_axes(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[list[int], str]]:
    """Return the groups of reduced axes in ascending order, each with its default order."""
    kept = [i for i, size in enumerate(shape) if size != 1]
    reduced = {axis % len(shape) for axis in axes}
    groups: list[list[int]] = []
    previous = None
    for i in kept:
        if i in reduced:
            if previous is not None and previous in reduced and groups:
                groups[-1].append(i)
            else:
                groups.append([i])
        previous = i
    last = kept[-1] if kept else None
    return [(group, "lanes" if last in group else "sequence") for group in groups]


def reduce(
    x: np.ndarray,
    axes: Sequence[int] | None = None,
    kind: str = "sum",
    orders: Sequence[str] | None = None,
    keepdims: bool = False,
    dtype: np.dtype | None = None,
) -> np.ndarray:
    """Reduce x over ``axes`` (default all) by ``kind``, one of ``KINDS``.

    ``orders`` overrides each group's order ("lanes" or "sequence", groups ascending): a
    canonicalisation that moves a transpose through a reduction preserves it. Sums and products of
    floats of at most 16 bits run in f32 and round once to ``dtype`` (default x's); integers wrap in
    x's dtype. Arg-forms take one axis, or all (flattened row-major), and return i64, the lowest
    index of the largest or smallest: zeros of both signs are equal, the first NaN wins.
    """
    x = np.asarray(x)
    axes = tuple(range(x.ndim)) if axes is None else tuple(sorted(a % x.ndim for a in axes))
    if kind in ("argmax", "argmin"):
        return _arg(x, axes, kind, keepdims)
    if kind in ("max", "min"):
        result = _extreme(x, axes, kind)
    elif kind in _BITWISE:
        result = _BITWISE[kind].reduce(x, axis=axes) if axes else x
        result = result.astype(x.dtype)
    elif kind in ("sum", "prod"):
        result = _accumulate(x, axes, kind, orders, dtype)
    else:
        raise ValueError(f"unknown reduction {kind!r}, expected one of {', '.join(KINDS)}")
    shape = [1 if i in axes else size for i, size in enumerate(x.shape)]
    kept = [size for i, size in enumerate(x.shape) if i not in axes]
    return np.asarray(result).reshape(shape if keepdims else kept)


def mean(
    x: np.ndarray,
    axes: Sequence[int] | None = None,
    keepdims: bool = False,
    orders: Sequence[str] | None = None,
) -> np.ndarray:
    """Return the reduce-sum divided once by float(n); narrow floats round once, at the end."""
    wide = widen(np.asarray(x))
    total = reduce(wide, axes, "sum", orders, keepdims)
    count = x.size // max(1, total.size) if total.size else 0
    with np.errstate(all="ignore"):
        return cast(canonical_nan(np.asarray(total / total.dtype.type(count))), x.dtype)


def centre(x: np.ndarray, axes: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return x - mean, and the contract's scale for its squares, with the reduced axes kept.

    In f32 or f64, not rounded to x's dtype.
    """
    wide = widen(np.asarray(x))
    one, half, tiny = wide.dtype.type(1), wide.dtype.type(0.5), np.finfo(wide.dtype).tiny
    with np.errstate(all="ignore"):
        least = reduce(wide, axes, "min", keepdims=True) * half
        most = reduce(wide, axes, "max", keepdims=True) * half
        middle = least + most
        scale = one / np.clip(most - least, tiny, one / tiny)
        offset = mean((wide - middle) * scale, axes, keepdims=True) / scale
        high = middle + offset
        return (wide - high) - (offset - (high - middle)), scale


def variance(
    x: np.ndarray, axes: Sequence[int] | None = None, correction: float = 0, keepdims: bool = False
) -> np.ndarray:
    """Return the variance, rounded once.

    It is the sum of squares of the centred and scaled x, divided by n - correction and twice by the
    scale.
    """
    made, scale = _scaled_variance(x, axes, correction, keepdims)
    with np.errstate(all="ignore"):
        return cast(canonical_nan(np.asarray(made / scale / scale)), np.asarray(x).dtype)


def standard_deviation(
    x: np.ndarray, axes: Sequence[int] | None = None, correction: float = 0, keepdims: bool = False
) -> np.ndarray:
    """Return the root of the scaled variance, divided by the scale; rounded once."""
    made, scale = _scaled_variance(x, axes, correction, keepdims)
    with np.errstate(all="ignore"):
        return cast(canonical_nan(np.asarray(np.sqrt(made) / scale)), np.asarray(x).dtype)


def _scaled_variance(x, axes, correction, keepdims):
    d, scale = centre(x, axes)
    with np.errstate(all="ignore"):
        scaled = d * scale
        total = reduce(scaled * scaled, axes, "sum", keepdims=keepdims)
        count = max(scaled.size // max(1, total.size) - correction, 0)
        return total / total.dtype.type(count), scale.reshape(total.shape)


def _accumulate(x, axes, kind, orders, dtype):
    if x.dtype == np.bool_:
        raise TypeError(f"{kind} of bool: cast it to an integer first")
    groups = groups_of_axes(x.shape, axes)
    if orders is not None:
        if len(orders) != len(groups):
            raise ValueError(f"{len(orders)} orders for {len(groups)} groups of axes")
        groups = [(group, order) for (group, _), order in zip(groups, orders, strict=True)]
    wide = widen(x).astype(accumulator(x.dtype), copy=False)
    for group, order in reversed(groups):
        outer = math.prod(wide.shape[: group[0]])
        size = math.prod(wide.shape[group[0] : group[-1] + 1])
        inner = math.prod(wide.shape[group[-1] + 1 :])
        kept = [1 if group[0] <= i <= group[-1] else n for i, n in enumerate(wide.shape)]
        box = np.ascontiguousarray(wide).reshape(outer, size, inner)
        if kind == "sum" and order == "lanes":
            rows = np.ascontiguousarray(box.transpose(0, 2, 1)).reshape(outer * inner, size)
            wide = sum_lanes(rows).reshape(kept)
        else:
            wide = sum_sequence(box, kind).reshape(kept)
    target = np.dtype(dtype or x.dtype)
    wide = np.ascontiguousarray(wide)
    if kind == "sum" and axes and not groups and is_float(wide.dtype):
        wide = wide + wide.dtype.type(0)  # one term from +0: the sum of -0 is +0
    return (
        canonical_nan(wide.copy())
        if target == wide.dtype and is_float(target)
        else (cast(wide, target))
    )


def sum_lanes(x: np.ndarray) -> np.ndarray:
    """Sum [rows, R] -> [rows] in ``lanes`` order, in chunks of 4096 recursively."""
    rows, size = x.shape
    if size == 0:
        return np.zeros(rows, x.dtype)
    while True:
        chunks = -(-x.shape[1] // LANES_LIMIT)
        out = np.empty((rows, chunks), x.dtype)
        _lanes_kernel(dtype_name(x.dtype))(np.ascontiguousarray(x), out)
        if chunks == 1:
            return out[:, 0]
        x = out


def sum_sequence(x: np.ndarray, kind: str = "sum") -> np.ndarray:
    """Sum [outer, R, inner] -> [outer, inner] in ``sequence`` order (kind "sum" or "prod")."""
    outer, _, inner = x.shape
    out = np.full((outer, inner), 0 if kind == "sum" else 1, x.dtype)
    if x.size:
        _sequence_kernel(kind, dtype_name(x.dtype))(x, out)
    return out


def _extreme(x, axes, kind):
    keys = order_keys(x, nan_least=kind == "min")
    if not axes:
        best = keys
    elif kind == "max":
        best = np.maximum.reduce(keys, axis=axes, initial=lowest_key(x))
    else:
        initial = (
            order_keys(np.array([np.inf], widen(x[:0]).dtype))[0]
            if is_float(x.dtype)
            else (1 if x.dtype == np.bool_ else np.iinfo(keys.dtype).max)
        )
        best = np.minimum.reduce(keys, axis=axes, initial=initial)
    return values_of_keys(np.asarray(best, keys.dtype), x.dtype)


def _arg(x, axes, kind, keepdims):
    if len(axes) not in (1, x.ndim):
        raise ValueError(f"{kind} over axes {axes}: expected one axis or all axes")
    keys = order_keys(x, nan_least=kind == "argmin", zeros_equal=True)
    find = np.argmax if kind == "argmax" else np.argmin
    if len(axes) == 1:
        return find(keys, axis=axes[0], keepdims=keepdims).astype(np.int64)
    return np.asarray(find(keys.reshape(-1)), np.int64).reshape((1,) * x.ndim if keepdims else ())


# ruff: noqa: F821  (``add``, ``start``, ``zero`` are bound per kernel)


def _lanes_loop(x, out):
    lane = np.empty(LANES, x.dtype)
    for r in range(x.shape[0]):
        for c in range(out.shape[1]):
            begin = c * LANES_LIMIT
            end = min(begin + LANES_LIMIT, x.shape[1])
            for l in range(LANES):  # noqa: E741
                lane[l] = zero
            i = begin
            while i + LANES <= end:
                for l in range(LANES):  # noqa: E741
                    lane[l] = add(lane[l], x[r, i + l])
                i += LANES
            for l in range(end - i):  # noqa: E741
                lane[l] = add(lane[l], x[r, i + l])
            w = LANES // 2
            while w > 0:
                for l in range(w):  # noqa: E741
                    lane[l] = add(lane[l], lane[l + w])
                w //= 2
            out[r, c] = lane[0]


def _sequence_loop(x, out):
    part = np.empty(x.shape[2], x.dtype)
    for o in range(x.shape[0]):
        for r0 in range(0, x.shape[1], CHUNK):
            for j in range(x.shape[2]):
                part[j] = start
            for r in range(r0, min(r0 + CHUNK, x.shape[1])):
                for j in range(x.shape[2]):
                    part[j] = add(part[j], x[o, r, j])
            for j in range(x.shape[2]):
                out[o, j] = part[j] if r0 == 0 else add(out[o, j], part[j])


@functools.cache
def _lanes_kernel(dtype: str):
    bound = {"add": NAMESPACE[f"add_{dtype}"], "zero": accumulator_type(dtype)(0)}
    return jit(
        specialise(_lanes_loop, f"lanes_{dtype}", **bound),
        reads(NUMBERS[dtype], 2),
        writes(NUMBERS[dtype], 2),
        bounds=True,
    )


@functools.cache
def _sequence_kernel(kind: str, dtype: str):
    operation, start = ("add", 0) if kind == "sum" else ("mul", 1)
    bound = {"add": NAMESPACE[f"{operation}_{dtype}"], "start": accumulator_type(dtype)(start)}
    return jit(
        specialise(_sequence_loop, f"sequence_{kind}_{dtype}", **bound),
        reads(NUMBERS[dtype], 3),
        writes(NUMBERS[dtype], 2),
        bounds=True,
    )
