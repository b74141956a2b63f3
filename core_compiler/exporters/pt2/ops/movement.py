"""Iota and data movement."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.table import BOOL, Emitter, Node, core, shape_of
from core_compiler.ops import typed


@core("iota")
def iota(g, op: typed.Iota):
    shape, axis = op.shape, op.axis
    made = g.cast(g.count(shape[axis]), dtypes.carrier(op.dtype))
    column = [shape[axis] if a == axis else 1 for a in range(axis, len(shape))]
    return g.expand(g.reshape(made, column), shape)


@core("reshape")
def reshape(g, op: typed.Reshape, x):
    return g.reshape(x, op.shape)


@core("transpose")
def transpose(g, op: typed.Transpose, x):
    return g.permute(x, op.permutation)


@core("slice")
def slice_(g, op: typed.Slice, x):
    for axis, row in enumerate(zip(op.starts, op.limits, op.strides, strict=True)):
        x = g.cut(x, axis, *row)
    return x


@core("reverse")
def reverse(g, op: typed.Reverse, x):
    return g.call("flip", x, list(op.axes)) if op.axes else x


@core("concat")
def concat(g, op: typed.Concat, *xs):
    return xs[0] if len(xs) == 1 else g.call("cat", list(xs), op.axis)


@core("pad")
def pad(g, op: typed.Pad, x, value):
    """Pad a tensor; interior padding uses an additional axis after each."""
    number = g.number(op.value)
    if number is not None and dtypes.carrier(op.x.type.dtype) is op.x.type.dtype:
        return _with_interior(g, op, x, number)
    inside = g.full(shape_of(x), True, BOOL)
    inside = _with_interior(g, op, inside, False)
    return g.where(inside, _with_interior(g, op, x, 0), value)


def _with_interior(g: Emitter, op: typed.Pad, x: Node, number: int | float | bool) -> Node:
    shape, high = shape_of(x), list(op.high)
    interior = [n if size > 1 else 0 for n, size in zip(op.interior, shape, strict=True)]
    if any(interior):
        behind = [n for more in interior for n in (0, more)]
        x = g.reshape(x, [n for size in shape for n in (size, 1)])
        x = padded(g, x, (0,) * len(behind), behind, number)
        x = g.reshape(x, [n * (more + 1) for n, more in zip(shape, interior, strict=True)])
        high = [n - more for n, more in zip(high, interior, strict=True)]
    return padded(g, x, op.low, high, number)


def padded(
    g: Emitter,
    x: Node,
    low: Sequence[int],
    high: Sequence[int],
    number: int | float | bool,
) -> Node:
    """Pad a tensor with a number; negative sizes crop."""
    shape = shape_of(x)
    kept = [(max(0, -a), min(n, n + b)) for n, a, b in zip(shape, low, high, strict=True)]
    if any(start >= end for start, end in kept):  # nothing of x is left
        return g.full([sum(n) for n in zip(shape, low, high, strict=True)], number, g.dtype(x))
    for axis, ends in enumerate(kept):
        x = g.cut(x, axis, *ends)
    around = [max(n, 0) for pair in zip(low, high, strict=True) for n in reversed(pair)][::-1]
    return g.call("constant_pad_nd", x, around, number) if any(around) else x
