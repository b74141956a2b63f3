"""Ops of training in terms of other ops, for formats that lack them; equal up to rounding."""

from __future__ import annotations

import itertools
from math import inf, prod
from typing import Any

import numpy as np

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import in_f32
from core_compiler.ops.rules import I64


def conv_weight_gradient(b: Builder, op: typed.ConvWeightGradient) -> Value:
    """Convolve x with dy as the window and sum over the batch, which gives each tap's gradient.

    Channels of the weights' second axis become images, so that groups stay separate.
    """
    x, dy = op.operands
    shape, groups = op.result.type.shape, op.groups
    batch, inner, size = x.type.shape[0], shape[1], x.type.shape[2:]
    images = b.reshape(x, shape=(batch, groups, inner, *size))
    order = (2, 1, 0, *range(3, 3 + len(size)))
    images = b.reshape(b.transpose(images, permutation=order), shape=(inner, groups * batch, *size))
    spatial = tuple(range(2, dy.type.rank))
    window = b.transpose(dy, permutation=(1, 0, *spatial))
    made = b.conv(
        images,
        window,
        strides=op.dilations,
        dilations=op.strides,
        low=op.low,
        high=op.high,
        groups=groups,
    )
    made = b.transpose(made, permutation=(1, 0, *spatial))
    if made.type.shape != shape:  # strides that do not divide the size leave some at the end
        rank = len(shape)
        made = b.slice(made, starts=(0,) * rank, limits=shape, strides=(1,) * rank)
    return (
        made
        if made.type.dtype is op.result.type.dtype
        else b.cast(made, dtype=op.result.type.dtype)
    )


def max_pool_positions(b: Builder, op: typed.MaxPoolPositions) -> Value:
    """Return, over all taps, the first position of the largest value, or that of the last NaN."""
    (x,) = op.operands
    kind, lead, sizes = x.type.dtype, x.type.shape[:2], x.type.shape[2:]
    low, high, none = (0, 0, *op.low), (0, 0, *op.high), (0,) * x.type.rank
    least = -inf if kind.is_float else int(np.iinfo(kind.numpy).min)
    wide = b.pad(x, b.constant(least, kind), low=low, high=high, interior=none)
    positions = np.broadcast_to(np.arange(prod(sizes)).reshape(sizes), (*lead, *sizes))
    held = b.pad(
        b.constant(np.ascontiguousarray(positions)),
        b.constant(-1, I64),
        low=low,
        high=high,
        interior=none,
    )
    best: Any = None
    position: Any = None
    for tap in itertools.product(*map(range, op.window)):
        starts = [t * d for t, d in zip(tap, op.dilations, strict=True)]
        parts = zip(starts, op.result.type.shape[2:], op.strides, strict=True)
        ends = [s + (n - 1) * step + 1 for s, n, step in parts]
        box = {
            "starts": (0, 0, *starts),
            "limits": (*lead, *ends),
            "strides": (1, 1, *op.strides),
        }
        value, here = b.slice(wide, **box), b.slice(held, **box)
        if best is None:
            best, position = value, here
            continue
        better = b.gt(value, best)
        if kind.is_float:
            better = b.or_(better, b.is_nan(value))
        better = b.or_(better, b.lt(position, b.scalar_like(0, position)))
        better = b.and_(better, b.ge(here, b.scalar_like(0, here)))
        best, position = b.select(better, value, best), b.select(better, here, position)
    return position


def max_pool_gradient(b: Builder, op: typed.MaxPoolGradient) -> Value:
    places, dy = op.operands
    shape, lead = op.shape, op.shape[:2]
    size, count = prod(shape[2:]), prod(dy.type.shape[2:])
    table = b.expand(b.constant(0, dy.type.dtype), (*lead, size))
    made = b.scatter_along(
        table,
        b.reshape(places, shape=(*lead, count)),
        b.reshape(dy, shape=(*lead, count)),
        axis=2,
        mode="add",
    )
    return b.reshape(made, shape=shape)


@in_f32
def avg_pool_gradient(b: Builder, op: typed.AvgPoolGradient, dy: Value) -> Value:
    """Spread each share of dy by a transposed convolution with ones."""
    shape = op.shape
    kind, sizes = dy.type.dtype, dy.type.shape[2:]
    counts = [np.ones(())]
    geometry = list(zip(sizes, shape[2:], op.window, op.strides, op.low, op.dilations, strict=True))
    for made, size, window, stride, low, dilation in geometry:
        at = np.arange(made)[:, None] * stride - low + np.arange(window) * dilation
        inside = window if op.count_padding else ((at >= 0) & (at < size)).sum(1)
        counts.append(np.broadcast_to(inside, (made,)))
    number = np.array(counts[0])
    for each in counts[1:]:
        number = number[..., None] * each
    share = b.div(dy, b.expand(b.constant(number.astype(kind.numpy)), dy.type.shape))
    channels = shape[1]
    ones = b.expand(b.constant(1, kind), (channels, 1, *op.window))
    ends = [(m - 1) * s + d * (w - 1) + 1 - low - n for m, n, w, s, low, d in geometry]
    found = b.conv_transpose(
        share,
        ones,
        strides=op.strides,
        dilations=op.dilations,
        groups=channels,
        low=op.low,
        high=tuple(max(e, 0) for e in ends),
        output_padding=(0,) * len(ends),
    )
    if any(e < 0 for e in ends):  # no window covers these elements
        none = (0,) * len(shape)
        found = b.pad(
            found,
            b.constant(0, kind),
            low=none,
            interior=none,
            high=(0, 0, *(max(-e, 0) for e in ends)),
        )
    return found


def windows(b: Builder, op: typed.Windows) -> Value:
    """Return the windows by gathers: one along each of the axes, whose positions go to the end."""
    made = op.x
    for axis, size, stride, dilation in zip(
        op.axes, op.sizes, op.strides, op.dilations, strict=True
    ):
        count = op.result.type.shape[axis]
        places = np.arange(count)[:, None] * stride + np.arange(size) * dilation
        made = b.take(made, b.constant(places.astype(np.int64)), axis=axis)
        rank = made.type.rank
        made = b.transpose(made, permutation=(*range(axis + 1), *range(axis + 2, rank), axis + 1))
    return made
