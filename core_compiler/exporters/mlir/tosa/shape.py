"""Constants and data movement in TOSA; exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import Tosa, op
from core_compiler.exporters.shapes import kept_ranges
from core_compiler.ir import tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import replaced


@op("constant")
def constant(b: Tosa, op: typed.Constant) -> Ref:
    if 0 in op.result.type.shape:  # only a concat can use it, and omits it
        return Ref(op.result.type)
    argument = b.parameter(op)
    if argument is not None:
        return argument
    return b.held(op.value, name=op.result.name, once=b.readers[op.result] == 1)


@op("iota")
def iota(b: Tosa, op: typed.Iota) -> Ref:
    made, axis = op.result.type, op.axis
    column = [1] * made.rank
    column[axis] = made.shape[axis]
    counted = np.arange(made.shape[axis]).astype(made.dtype.numpy).reshape(column)
    return _repeated(b, b.constant(counted, made.dtype), made.shape)


@op("broadcast")
def broadcast(b: Tosa, op: typed.Broadcast, x: Ref) -> Ref:
    ones = [1] * op.result.type.rank
    for size, axis in zip(x.type.shape, op.dims, strict=True):
        ones[axis] = size
    return _repeated(b, b.reshaped(x, ones), op.result.type.shape)


def _repeated(b: Tosa, x: Ref, shape: Sequence[Any]) -> Ref:
    """Repeat ``x`` to ``shape``; elementwise ops use ``x`` directly."""
    made = b.tiled(x, shape)
    if made is not x:
        b.spread[made.number] = b.spread.get(x.number, x)
    return made


@op("reshape")
def reshape(b: Tosa, op: typed.Reshape, x: Ref) -> Ref:
    return b.reshaped(x, op.result.type.shape)


@op("transpose")
def transpose(b: Tosa, op: typed.Transpose, x: Ref) -> Ref:
    return b.transposed(x, op.permutation)


@op("slice")
def slice_(b: Tosa, op: typed.Slice, x: Ref) -> Ref:
    """Emit a strided slice: take the first of every ``stride`` elements, on a temporary axis."""
    made, strides = op.result.type, op.strides
    spans = [
        min((n - 1) * s + 1, size - start)
        for n, s, size, start in zip(made.shape, strides, x.type.shape, op.starts, strict=True)
    ]
    x = b.cut(x, op.starts, spans)
    for axis, stride in enumerate(strides):
        if stride > 1 and made.shape[axis] > 1:
            x = _every(b, x, axis, stride, made.shape[axis])
    return b.reshaped(x, made.shape)


def _every(b: Tosa, x: Ref, axis: int, stride: int, count: int) -> Ref:
    """Return elements 0, stride, 2 * stride, ... of an axis."""
    rank, missing = x.type.rank, count * stride - x.type.shape[axis]
    high = [missing if a == axis else 0 for a in range(rank)]
    x = b.padded(x, b.zero_point(x.type.dtype), [0] * rank, high)
    shape = list(x.type.shape)
    x = b.reshaped(x, [*shape[:axis], count, stride, *shape[axis + 1 :]])
    first = replaced(x.type.shape, axis + 1, 1)
    x = b.cut(x, [0] * (rank + 1), first)
    return b.reshaped(x, [*first[: axis + 1], *first[axis + 2 :]])


@op("reverse")
def reverse(b: Tosa, op: typed.Reverse, x: Ref) -> Ref:
    for axis in op.axes:
        x = b.op("reverse", [x], x.type, {"axis": f"{axis} : i32"})
    return x


@op("pad")
def pad(b: Tosa, op: typed.Pad, x: Ref, value: Ref) -> Ref:
    value, made = b.reshaped(value, (1,)), op.result.type
    for axis, between in enumerate(op.interior):
        if between and x.type.shape[axis] > 1:
            x = _parted(b, x, value, axis, between)
    kept = kept_ranges(x.type.shape, op.low, made.shape, (0,) * made.rank)
    if any(count == 0 for _, count, _ in kept):
        return b.tiled(b.reshaped(value, (1,) * made.rank), made.shape)
    x = b.cut(x, [first for first, _, _ in kept], [count for _, count, _ in kept])
    low = [begin for _, _, begin in kept]
    high = [e - p - n for e, p, n in zip(made.shape, low, x.type.shape, strict=True)]
    return b.padded(x, value, low, high)


def _parted(b: Tosa, x: Ref, value: Ref, axis: int, between: int) -> Ref:
    """Insert ``between`` copies of ``value`` between adjacent elements of an axis."""
    rank, shape = x.type.rank, x.type.shape
    x = b.reshaped(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    high = [between if a == axis + 1 else 0 for a in range(rank + 1)]
    x = b.padded(x, value, [0] * (rank + 1), high)
    size = shape[axis] * (between + 1)
    x = b.reshaped(x, replaced(shape, axis, size))
    return b.cut(x, [0] * rank, replaced(shape, axis, size - between))


@op("concat")
def concat(b: Tosa, op: typed.Concat, *xs: Ref) -> Ref:
    return joined(b, [x for x in xs if 0 not in x.type.shape], op.axis)


def joined(b: Tosa, xs: Sequence[Ref], axis: int) -> Ref:
    """Concatenate tensors along an axis."""
    if len(xs) == 1:
        return xs[0]
    sources, orders = zip(*map(b.source, xs), strict=True)
    if len(set(orders)) == 1:
        xs, axis = sources, orders[0][axis]
    first = xs[0].type
    made = tensor(replaced(first.shape, axis, sum(x.type.shape[axis] for x in xs)), first.dtype)
    result = b.op("concat", xs, made, {"axis": f"{axis} : i32"})
    return b.transposed(result, orders[0]) if len(set(orders)) == 1 else result
