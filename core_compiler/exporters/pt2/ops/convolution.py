"""Convolutions and pooling of one to three spatial axes; others are sums over the taps.

Torch has no convolutions of integers: they run in f64, which contains all sums of products of
operands of up to 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.exporters.pt2.ops.movement import padded
from core_compiler.exporters.pt2.table import F64, I64, Emitter, Node, core, in_f32
from core_compiler.ops import typed

#: The largest number of spatial axes.
SPATIAL = 3


def _spatial(op: typed.Convolution | typed.Pool) -> int:
    return len(op.strides)


def _has_rank(op: typed.Convolution | typed.Pool) -> bool:
    return 1 <= _spatial(op) <= SPATIAL


def _convolves(g: Emitter, op: typed.Convolution) -> bool:
    kind = op.x.type.dtype
    return _has_rank(op) and (kind.is_float or kind.bits <= 16) and 0 not in op.x.type.shape


def _is_even(low: Sequence[int], high: Sequence[int]) -> bool:
    return tuple(low) == tuple(high) and min(low) >= 0


@core("conv", when=_convolves)
def conv(g, op: typed.Conv, x, weight):
    padding = list(op.low)
    if not _is_even(op.low, op.high):
        x, padding = padded(g, x, (0, 0, *op.low), (0, 0, *op.high), 0), [0] * _spatial(op)
    options = [None, list(op.strides), padding, list(op.dilations), op.groups]
    return _product(g, op, f"conv{_spatial(op)}d", x, weight, options)


def _product(
    g: Emitter, op: typed.Convolution, function: str, x: Node, weight: Node, options: list
) -> Node:
    kind = op.result.type.dtype
    wide = F64 if kind.is_integer else kind
    made = g.call(function, g.cast(x, wide), g.cast(weight, wide), *options)
    return g.cast(g.cast(made, I64), kind) if kind.is_integer else made


def _transposes(g: Emitter, op: typed.ConvTranspose) -> bool:
    if not _convolves(g, op) or not _is_even(op.low, op.high):
        return False
    rows = zip(op.output_padding, op.strides, op.dilations, strict=True)
    return all(0 <= more < max(stride, step) for more, stride, step in rows)


@core("conv_transpose", when=_transposes)
def conv_transpose(g, op: typed.ConvTranspose, x, weight):
    geometry = [list(n) for n in (op.strides, op.low, op.output_padding)]
    options = [None, *geometry, op.groups, list(op.dilations)]
    overload = "" if _spatial(op) == 1 else ".input"
    function = f"conv_transpose{_spatial(op)}d{overload or ''}"
    return _product(g, op, function, x, weight, options)


# -- pooling ---------------------------------------------------------------------------------------


def _pads_at_most_half(op: typed.Pool) -> bool:
    return all(2 * pad <= size for pad, size in zip(op.low, op.window, strict=True))


def _max_pools(g: Emitter, op: typed.MaxPool) -> bool:
    return _has_rank(op) and op.x.type.dtype.is_float and 0 not in op.x.type.shape


@core("max_pool", when=_max_pools)
def max_pool(g, op: typed.MaxPool, x):
    padding = list(op.low)
    if not _is_even(op.low, op.high) or not _pads_at_most_half(op):
        low, high = (0, 0, *op.low), (0, 0, *op.high)
        x, padding = padded(g, x, low, high, -float("inf")), [0] * _spatial(op)
    geometry = [list(op.window), list(op.strides), padding, list(op.dilations)]
    return g.call(f"max_pool{_spatial(op)}d", x, *geometry)


def _avg_pools(g: Emitter, op: typed.AvgPool) -> bool:
    is_plain = _is_even(op.low, op.high) and _pads_at_most_half(op) and set(op.dilations) == {1}
    return _has_rank(op) and is_plain and 0 not in op.x.type.shape


@core("avg_pool", when=_avg_pools)
@in_f32
def avg_pool(g, op: typed.AvgPool, x):
    geometry = [list(op.window), list(op.strides), list(op.low)]
    return g.call(f"avg_pool{_spatial(op)}d", x, *geometry, False, op.count_padding)
