"""Pooling over windows, as the frontends share it: places of the largest elements, averages whose
last windows hang over, windows of unequal sizes.

A ``pool`` is the attributes of ``core.max_pool``: window, strides, low, high, dilations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from core_compiler.frontends.base import WRITTEN_OUT, need_small
from core_compiler.ir import Value, dtype
from core_compiler.ops.builder import Builder

I64 = dtype("i64")


def least(kind) -> float | int:
    """The smallest number of a dtype: what padding is for a maximum."""
    if kind.is_float:
        return -math.inf
    return -(1 << (kind.bits - 1)) if kind.kind == "int" else 0


def _padded(b: Builder, x: Value, number, low: Sequence[int], high: Sequence[int]) -> Value:
    return b.pad(x, b.constant(number, x.type.dtype), low=(0, 0, *low), high=(0, 0, *high),
                 interior=(0,) * x.type.rank)  # fmt: skip


def places_of_largest(
    b: Builder, x: Value, pool: Mapping[str, Any], column_major: bool = False
) -> Value:
    """Where in its plane of x (N, C, *sizes) the largest element of each window lies, as i64: the
    first of equals, the plane's elements counted row-major or column-major."""
    batch, channels, *sizes = x.type.shape
    wide = _padded(b, x, least(x.type.dtype), pool["low"], pool["high"])
    out = [
        (size - dilation * (window - 1) - 1) // stride + 1
        for size, window, stride, dilation in zip(
            wide.type.shape[2:], pool["window"], pool["strides"], pool["dilations"], strict=True)
    ]  # fmt: skip
    if column_major:
        steps = [prod(sizes[:i]) for i in range(len(sizes))]
    else:
        steps = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    need_small(prod(pool["window"]), "elements of a window", WRITTEN_OUT)
    need_small(prod(out), "windows")
    parts, offsets = [], []
    for taps in itertools.product(*map(range, pool["window"])):
        start = [tap * dilation for tap, dilation in zip(taps, pool["dilations"], strict=True)]
        limit = [s + (n - 1) * stride + 1
                 for s, n, stride in zip(start, out, pool["strides"], strict=True)]  # fmt: skip
        part = b.slice(wide, starts=(0, 0, *start), limits=(batch, channels, *limit),
                       strides=(1, 1, *pool["strides"]))  # fmt: skip
        parts.append(b.reshape(part, shape=(1, *part.type.shape)))
        offsets.append(sum(s * step for s, step in zip(start, steps, strict=True)))
    chosen = b.argmax(b.concat(*parts, axis=0), axis=0, dtype=I64)
    first = np.zeros([1] * len(out), np.int64)
    for axis, (n, step) in enumerate(zip(out, steps, strict=True)):
        at = (np.arange(n) * pool["strides"][axis] - pool["low"][axis]) * step
        first = first + at.reshape(-1, *(1,) * (len(out) - 1 - axis))
    corner = b.broadcast(b.constant(np.broadcast_to(first, out)), shape=chosen.type.shape,
                         dims=tuple(range(2, chosen.type.rank)))  # fmt: skip
    return b.add(b.take(b.constant(np.array(offsets, np.int64)), chosen, axis=0), corner)


def average(
    b: Builder, x: Value, pool: Mapping[str, Any], padding: Sequence[int], counts: bool,
    divisor: int | None = None,
) -> Value:  # fmt: skip
    """The average over windows.  ``padding`` after each axis is what the model asks for; what
    ``pool["high"]`` is more lets the last windows hang over, and never counts.  ``counts``: the
    padding does; ``divisor``: every sum is divided by it instead."""
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
    """The largest (or least, ``min``) along an axis, as what is read at its place, and the place:
    the first of equals has the gradient."""
    at = b.op(f"core.arg{name}", (x,), axis=axis, dtype=I64)
    shape = tuple(1 if i == axis else d for i, d in enumerate(x.type.shape))
    found = b.take_along(x, b.reshape(at, shape=shape), axis=axis)
    return b.reshape(found, shape=at.type.shape), at


def adaptive(
    b: Builder, x: Value, sizes: Sequence[int], kind: str, first: bool = False
) -> Value:  # fmt: skip
    """``sizes`` windows along each of the last axes, from floor(i size / n) to ceil((i + 1) size /
    n): their mean or max (``kind``); ``first``: the gradient of a max goes to the first of
    equals, in row-major order."""
    count = 1.0
    along = list(zip(range(x.type.rank - len(sizes), x.type.rank), sizes, strict=True))
    for axis, n in reversed(along) if first else along:
        size = x.type.shape[axis]
        need_small(max(n, size, -(-size // max(n, 1)) * n), "positions of windows")
        start = np.arange(n) * size // n
        length = -(-(np.arange(1, n + 1) * size) // n) - start
        reach = np.arange(length.max())
        places = np.minimum(start[:, None] + reach, size - 1).astype(np.int64)
        parts = b.take(x, b.constant(places), axis=axis)  # ..., n, reach, ...
        held = b.broadcast(b.constant(reach < length[:, None]), shape=parts.type.shape,
                           dims=(axis, axis + 1))  # fmt: skip
        rest = b.scalar_like(0 if kind == "mean" else least(x.type.dtype), parts)
        parts = b.select(held, parts, rest)
        if kind == "max" and first:
            x, _ = first_largest(b, parts, axis + 1)
        else:
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
