"""Reductions, positions of extremes, and scans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.table import BOOL, I32, Emitter, Node, core, in_f32, shape_of
from core_compiler.ir import DType
from core_compiler.ops import typed


def _one_by_one(g: Emitter, function: str, x: Node, axes: Sequence[int], **options) -> Node:
    """Reduce axes from the last to the first."""
    for axis in sorted(axes, reverse=True):
        x = g.call(function, x, axis, **options)
    return x


@core("reduce_sum")
@in_f32
def reduce_sum(g, op: typed.ReduceSum, x):
    """Sum in the operand's dtype: torch's default for integers is i64."""
    if not op.axes:
        return x
    kind = dtypes.torch_dtype(g.dtype(x))
    return g.call("sum.dim_IntList", x, list(op.axes), dtype=kind)


@core("reduce_prod")
@in_f32
def reduce_prod(g, op: typed.ReduceProd, x):
    kind = dtypes.torch_dtype(g.dtype(x))
    return _one_by_one(g, "prod.dim_int", x, op.axes, dtype=kind)


def _enter_extreme(name: str, function: str) -> None:
    def handler(g, op: typed.ReduceMax | typed.ReduceMin, x):
        return g.call(function, x, list(op.axes)) if op.axes else x

    core(name)(handler)


_enter_extreme("reduce_max", "amax")
_enter_extreme("reduce_min", "amin")


@core("mean")
@in_f32
def mean(g, op: typed.Mean, x):
    return g.call("mean.dim", x, list(op.axes)) if op.axes else x


def _enter_bitwise(name: str, of_bools: str, of_integers: str, neutral: int) -> None:
    def handler(g, op: typed.ReduceAnd | typed.ReduceOr, x):
        if g.dtype(x) is BOOL:
            return _one_by_one(g, of_bools, x, op.axes)
        for axis in sorted(op.axes, reverse=True):
            x = _halved(g, of_integers, x, axis, neutral)
        return x

    core(name)(handler)


def _halved(g: Emitter, function: str, x: Node, axis: int, neutral: int) -> Node:
    """Combine both halves of an axis until one element is left."""
    shape = list(shape_of(x))
    rest = shape[:axis] + shape[axis + 1 :]
    if not shape[axis]:
        return g.full(rest, neutral, g.dtype(x))
    while (size := shape_of(x)[axis]) > 1:
        half = size // 2
        both = g.call(function, g.cut(x, axis, 0, half), g.cut(x, axis, half, 2 * half))
        left = g.cut(x, axis, 2 * half, size)
        x = g.call("cat", [both, left], axis) if size % 2 else both
    return g.reshape(x, rest)


_enter_bitwise("reduce_and", "all.dim", "bitwise_and.Tensor", -1)
_enter_bitwise("reduce_or", "any.dim", "bitwise_or.Tensor", 0)


def _enter_position(name: str) -> None:
    def handler(g, op: typed.Argmax | typed.Argmin, x):
        x = g.cast(x, I32) if g.dtype(x) is BOOL else x
        return g.call(name, x, op.axis)

    core(name)(handler)


_enter_position("argmax")
_enter_position("argmin")


# -- scans -----------------------------------------------------------------------------------------


def _enter_scan(name: str, start) -> None:
    def handler(g, op: typed.Scan, x):
        kind, axis = g.dtype(x), op.axis
        if not shape_of(x)[axis]:
            return x
        x = g.call("flip", x, [axis]) if op.reverse else x
        if name in ("cumsum", "cumprod"):
            made = g.call(name, x, axis, dtype=dtypes.torch_dtype(kind))
        else:
            made = g.calls(name, 2, x, axis)[0]
        if op.exclusive:
            made = _moved(g, made, axis, start(kind))
        return g.call("flip", made, [axis]) if op.reverse else made

    core(name)(in_f32(handler))


def _moved(g: Emitter, x: Node, axis: int, number) -> Node:
    """Move elements to the next position of an axis; the first is a number."""
    shape = [1 if a == axis else n for a, n in enumerate(shape_of(x))]
    first = g.full(shape, number, g.dtype(x))
    return g.call("cat", [first, g.cut(x, axis, 0, shape_of(x)[axis] - 1)], axis)


def _limit(kind: DType, least: bool) -> float | int:
    if kind.is_float:
        return -float("inf") if least else float("inf")
    held = np.iinfo(kind.numpy)
    return int(held.min if least else held.max)


_enter_scan("cumsum", lambda kind: 0)
_enter_scan("cumprod", lambda kind: 1)
_enter_scan("cummax", lambda kind: _limit(kind, least=True))
_enter_scan("cummin", lambda kind: _limit(kind, least=False))
