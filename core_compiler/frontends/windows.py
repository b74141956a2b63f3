"""Pooling helpers shared by the frontends.

They cover positions of the largest elements, averages whose last windows overhang, and windows of
unequal sizes.  A ``pool`` is the attributes of ``core.max_pool``: window, strides, low, high,
dilations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from core_compiler.frontends.base import need_small
from core_compiler.ir import Value, dtype
from core_compiler.ops.builder import Builder

I64 = dtype("i64")


def lowest_value(kind) -> float | int:
    """Return the smallest value of a dtype, which pads a maximum."""
    if kind.is_float:
        return -math.inf
    return -(1 << (kind.bits - 1)) if kind.kind == "int" else 0


def _padded(b: Builder, x: Value, number, low: Sequence[int], high: Sequence[int]) -> Value:
    return b.pad(
        x,
        b.constant(number, x.type.dtype),
        low=(0, 0, *low),
        high=(0, 0, *high),
        interior=(0,) * x.type.rank,
    )


def positions_of_largest(
    b: Builder, x: Value, pool: Mapping[str, Any], column_major: bool = False
) -> Value:
    """Return the position of the largest element of each window in its plane of x (N, C, *sizes).

    Positions are i64; of equal elements the first is chosen, else the last NaN
    (``core.max_pool_positions``).  The elements of a plane are counted row-major or column-major.
    -1 denotes a window of padding alone.
    """
    position = b.max_pool_positions(x, **pool)
    sizes = x.type.shape[2:]
    if not column_major or len(sizes) == 1:
        return position
    steps = [prod(sizes[:i]) for i in range(len(sizes))]
    counted = _weighted(b, _coordinates(b, position, sizes), steps)
    return b.select(b.lt(position, b.scalar_like(0, position)), position, counted)


def elements_at(b: Builder, x: Value, positions: Value, pool: Mapping[str, Any]) -> Value:
    """Return the elements of x at the row-major ``positions`` in their planes.

    Pooling returns these next to its positions.  A window of padding alone has the lowest value.
    """
    lead, sizes, out = x.type.shape[:2], x.type.shape[2:], positions.type.shape
    flat = b.reshape(x, shape=(*lead, prod(sizes)))
    at = b.reshape(positions, shape=(*lead, prod(out[2:])))
    found = b.reshape(b.take_along(flat, at, axis=2), shape=out)
    if all(
        _all_windows_overlap(pool, axis, size, out[2 + axis]) for axis, size in enumerate(sizes)
    ):
        return found
    lowest = b.scalar_like(lowest_value(x.type.dtype), found)
    return b.select(b.lt(positions, b.scalar_like(0, positions)), lowest, found)


def _all_windows_overlap(pool: Mapping[str, Any], axis: int, size: int, count: int) -> bool:
    """Return whether every window has a position inside the image along a spatial axis."""
    starts = np.arange(count)[:, None] * pool["strides"][axis] - pool["low"][axis]
    reach = starts + np.arange(pool["window"][axis]) * pool["dilations"][axis]
    return bool(((reach >= 0) & (reach < size)).any(1).all())


def _coordinates(b: Builder, position: Value, sizes: Sequence[int]) -> list[Value]:
    """Return the coordinates of row-major positions in a box of ``sizes``."""
    found = []
    for axis, size in enumerate(sizes):
        at = b.div(position, b.scalar_like(prod(sizes[axis + 1 :]), position))
        found.append(b.rem(at, b.scalar_like(size, at)))
    return found


def _weighted(b: Builder, coordinates: Sequence[Value], steps: Sequence[int]) -> Value:
    """Return the sum of coordinates times their steps."""
    terms = [b.mul(c, b.scalar_like(n, c)) for c, n in zip(coordinates, steps, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = b.add(total, term)
    return total


def average(
    b: Builder,
    x: Value,
    pool: Mapping[str, Any],
    padding: Sequence[int],
    counts: bool,
    divisor: int | None = None,
) -> Value:
    """Return the average over windows.

    ``padding`` is the requested padding after each axis; the excess in ``pool["high"]`` lets the
    last windows overhang, and never counts.  ``counts``: the padding counts; ``divisor``: every sum
    is divided by it instead.
    """
    over = tuple(h - p for h, p in zip(pool["high"], padding, strict=True))
    if divisor is not None:
        mean = b.avg_pool(x, **pool, count_padding=True)
        return b.mul(mean, b.scalar_like(prod(pool["window"]) / divisor, mean))
    if counts and any(over):
        x = _padded(b, x, 0, pool["low"], padding)
        return b.avg_pool(x, **{**pool, "low": (0,) * len(over), "high": over})
    counts = counts and any((*pool["low"], *padding))
    return b.avg_pool(x, **pool, count_padding=bool(counts))


def first_largest(b: Builder, x: Value, axis: int, name: str = "max") -> tuple[Value, Value]:
    """Return the largest (or least, ``min``) element along an axis and its position.

    The element is read at its position: the first of equal elements receives the gradient.
    """
    at = b.op(f"core.arg{name}", (x,), axis=axis, dtype=I64)
    shape = tuple(1 if i == axis else d for i, d in enumerate(x.type.shape))
    found = b.take_along(x, b.reshape(at, shape=shape), axis=axis)
    return b.reshape(found, shape=at.type.shape), at


def adaptive_max_positions(b: Builder, x: Value, sizes: Sequence[int]) -> Value:
    """Return the positions of the largest elements in ``sizes`` windows of x (N, C, *spatial).

    The windows are those of :func:`adaptive`, and positions refer to the planes.  Windows that are
    shorter than the longest one repeat their last position: that is never the first of equal
    elements, and a NaN is at the same position.
    """
    spatial, tables = x.type.shape[2:], []
    for axis, (size, n) in enumerate(zip(spatial, sizes, strict=True)):
        start, length = _windows_along(size, n)
        reach = np.minimum(np.arange(length.max()), length[:, None] - 1)
        tables.append((start[:, None] + reach).astype(np.int64))
        x = b.take(x, b.constant(tables[-1].reshape(-1)), axis=axis + 2)
    window = tuple(table.shape[1] for table in tables)
    zero, one = (0,) * len(window), (1,) * len(window)
    position = b.max_pool_positions(
        x, window=window, strides=window, low=zero, high=zero, dilations=one
    )
    counted = _coordinates(b, position, x.type.shape[2:])
    at = [
        b.take(b.constant(table.reshape(-1)), c, axis=0)
        for table, c in zip(tables, counted, strict=True)
    ]
    return _weighted(b, at, [prod(spatial[i + 1 :]) for i in range(len(spatial))])


def _windows_along(size: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and lengths of ``n`` windows.

    They go from floor(i size / n) to ceil((i + 1) size / n).
    """
    need_small(max(n, size, -(-size // max(n, 1)) * n), "positions of windows")
    start = np.arange(n) * size // n
    return start, -(-(np.arange(1, n + 1) * size) // n) - start


def adaptive(b: Builder, x: Value, sizes: Sequence[int], kind: str) -> Value:
    """Reduce ``sizes`` windows along each of the last axes by mean or max (``kind``).

    They go from floor(i size / n) to ceil((i + 1) size / n).  Means of narrow floats are computed
    in f32.
    """
    if kind == "mean" and x.type.dtype.bits < 32:
        wide = b.cast(x, dtype="f32")
        return b.cast(adaptive(b, wide, sizes, kind), dtype=x.type.dtype)
    count: Any = 1.0
    for axis, n in zip(range(x.type.rank - len(sizes), x.type.rank), sizes, strict=True):
        size = x.type.shape[axis]
        start, length = _windows_along(size, n)
        reach = np.arange(length.max())
        positions = np.minimum(start[:, None] + reach, size - 1).astype(np.int64)
        parts = b.take(x, b.constant(positions), axis=axis)  # ..., n, reach, ...
        held = b.broadcast(
            b.constant(reach < length[:, None]), shape=parts.type.shape, dims=(axis, axis + 1)
        )
        rest = b.scalar_like(0 if kind == "mean" else lowest_value(x.type.dtype), parts)
        parts = b.select(held, parts, rest)
        x = (b.reduce_sum if kind == "mean" else b.reduce_max)(parts, axes=(axis + 1,))
        shape = [1] * len(sizes)
        shape[axis - x.type.rank + len(sizes)] = n
        count = count * length.reshape(shape)
    if kind == "max":
        return x
    need_small(prod(sizes), "windows")
    scale = b.constant(np.broadcast_to(count, sizes).astype(x.type.dtype.numpy))
    dims = tuple(range(x.type.rank - len(sizes), x.type.rank))
    return b.div(x, b.broadcast(scale, shape=x.type.shape, dims=dims))
