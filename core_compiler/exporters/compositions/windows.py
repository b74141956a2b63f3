"""Transposed convolutions, and windows split into their taps."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from core_compiler.exporters.compositions.ordering import bound
from core_compiler.exporters.shapes import positions_inside
from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened


def conv_transpose(b: Builder, op: typed.ConvTranspose) -> Value:
    """Convolve the image, with zeros between its elements, with the reversed weights.

    The inserted zeros are multiplied by weights, unlike in the op itself, which shows if the
    weights are not finite.
    """
    x, w = op.operands
    (channels, per_group, *window), groups = w.type.shape, op.groups
    spatial = len(window)
    reach = [d * (k - 1) for d, k in zip(op.dilations, window, strict=True)]
    low = [r - p for r, p in zip(reach, op.low, strict=True)]
    high = [r - p + e for r, p, e in zip(reach, op.high, op.output_padding, strict=True)]
    zero = b.constant(0, x.type.dtype)
    spread = b.pad(
        x,
        zero,
        low=(0, 0, *low),
        high=(0, 0, *high),
        interior=(0, 0, *(s - 1 for s in op.strides)),
    )
    w = b.reshape(w, shape=(groups, channels // groups, per_group, *window))
    w = b.transpose(w, permutation=(0, 2, 1, *range(3, 3 + spatial)))
    w = b.reshape(w, shape=(groups * per_group, channels // groups, *window))
    w = b.reverse(w, axes=tuple(range(2, 2 + spatial)))
    options = {"accumulate": op.accumulate} if op.accumulate is not None else {}
    return b.conv(
        spread,
        w,
        strides=(1,) * spatial,
        low=(0,) * spatial,
        high=(0,) * spatial,
        dilations=op.dilations,
        groups=groups,
        **options,
    )


def conv_by_taps(b: Builder, op: typed.Conv) -> Value:
    """Sum, over all taps of the window, the product of the elements at the tap and its weights."""
    x, w = op.operands
    (outputs, inner, *window), groups, made = w.type.shape, op.groups, op.result.type
    spatial, n = len(window), x.type.shape[0]
    x = b.pad(
        x,
        b.constant(0, x.type.dtype),
        low=(0, 0, *op.low),
        high=(0, 0, *op.high),
        interior=(0,) * (spatial + 2),
    )
    x = b.reshape(x, shape=(n, groups, inner, *x.type.shape[2:]))
    w = b.reshape(w, shape=(groups, outputs // groups, inner, *window))
    options = {"accumulate": op.accumulate} if op.accumulate is not None else {}
    total = None
    for tap in product(*map(range, window)):
        seen = _elements_at_tap(b, x, 3, tap, op, made.shape[2:])
        weights = w
        for axis, place in enumerate(tap):
            weights = b.cut(weights, 3 + axis, place, place + 1)
        weights = b.reshape(weights, shape=(groups, outputs // groups, inner))
        part = b.contract(
            seen, weights, batch_a=(1,), batch_b=(0,), contract_a=(2,), contract_b=(2,), **options
        )
        total = part if total is None else b.add(total, part)
    assert total is not None
    order = (1, 0, 2 + spatial, *range(2, 2 + spatial))
    return b.reshape(b.transpose(total, permutation=order), shape=made.shape)


def pool_by_taps(b: Builder, op: typed.Pool) -> Value:
    """Combine the elements at each tap of the window one after another, for windows of any rank."""
    (x,) = op.operands
    kind, made, spatial = x.type.dtype, op.result.type, len(op.window)
    largest = op.kind == "core.max_pool"
    x = x if largest else widened(b, x)
    start = bound(kind, least=True) if largest else 0
    size = x.type.shape[2:]
    x = b.pad(
        x,
        b.constant(start, x.type.dtype),
        low=(0, 0, *op.low),
        high=(0, 0, *op.high),
        interior=(0,) * (spatial + 2),
    )
    total = None
    for tap in product(*map(range, op.window)):
        seen = _elements_at_tap(b, x, 2, tap, op, made.shape[2:])
        total = seen if total is None else (b.max if largest else b.add)(total, seen)
    assert total is not None
    if largest:
        return total
    counts = np.full(made.shape[2:], float(prod(op.window)))
    if not (isinstance(op, typed.AvgPool) and op.count_padding):
        counts = positions_inside(size, op.window, op.strides, op.dilations, op.low, made.shape[2:])
    divisor = b.constant(counts, total.type.dtype)
    return as_dtype(b, b.div(total, b.expand(divisor, made.shape)), kind)


def _elements_at_tap(
    b: Builder, x: Value, lead: int, tap, op: typed.Conv | typed.Pool, sizes
) -> Value:
    """Return the element at ``tap`` of each window; the first ``lead`` axes are kept whole."""
    starts = [place * d for place, d in zip(tap, op.dilations, strict=True)]
    spans = [(n - 1) * s + 1 for n, s in zip(sizes, op.strides, strict=True)]
    return b.slice(
        x,
        starts=(*(0,) * lead, *starts),
        strides=(*(1,) * lead, *op.strides),
        limits=(*x.type.shape[:lead], *map(sum, zip(starts, spans, strict=True))),
    )
