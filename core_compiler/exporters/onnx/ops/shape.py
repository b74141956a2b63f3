"""Iota and data movement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import I32, I64, Emitter, core
from core_compiler.ir import dtype
from core_compiler.ops import typed

#: The end of a slice that runs backwards through the first element.
BEFORE_FIRST = -(1 << 63)
UI64 = dtype("ui64")


@core("iota")
def iota(g, op: typed.Iota):
    shape, axis = op.shape, op.axis
    bounds = (g.scalar(n, I64) for n in (0, shape[axis], 1))
    made = g.cast(g.emit("Range", *bounds), op.dtype)
    column = [shape[axis] if a == axis else 1 for a in range(axis, len(shape))]
    made.shape = made.shape or (shape[axis],)
    return g.expand(g.reshape(made, column), shape)


@core("reshape")
def reshape(g, op: typed.Reshape, x):
    return g.reshape(x, op.shape)


@core("transpose")
def transpose(g, op: typed.Transpose, x):
    return g.transpose(x, op.permutation)


@core("slice")
def slice_(g, op: typed.Slice, x):
    rows = zip(op.x.type.shape, op.starts, op.limits, op.strides, strict=True)
    cuts = [
        (axis, start, limit, step)
        for axis, (size, start, limit, step) in enumerate(rows)
        if (start, limit, step) != (0, size, 1)
    ]
    if not cuts:
        return x
    axes, starts, limits, steps = (g.ints(*column) for column in zip(*cuts, strict=True))
    strided = () if all(c[3] == 1 for c in cuts) else (steps,)
    return g.emit("Slice", x, starts, limits, axes, *strided)


@core("reverse")
def reverse(g, op: typed.Reverse, x):
    axes = op.axes
    if not axes:
        return x
    ends = (BEFORE_FIRST,) * len(axes)
    back = (-1,) * len(axes)
    return g.emit("Slice", x, g.ints(*back), g.ints(*ends), g.ints(*axes), g.ints(*back))


@core("pad")
def pad(g, op: typed.Pad, x, value):
    """Pad a tensor; interior padding uses an additional axis after each."""
    shape = op.x.type.shape
    if 0 in shape:
        return g.expand(value, op.result.type.shape)
    interior = [n if size > 1 else 0 for n, size in zip(op.interior, shape, strict=True)]
    high = list(op.high)
    if any(interior):
        with_unit_axes = [n for size in shape for n in (size, 1)]
        behind = [n for more in interior for n in (0, more)]
        x = padded(
            g,
            g.reshape(x, with_unit_axes),
            with_unit_axes,
            value,
            (0,) * len(with_unit_axes),
            behind,
        )
        shape = [size * (more + 1) for size, more in zip(shape, interior, strict=True)]
        x = g.reshape(x, shape)
        high = [n - more for n, more in zip(high, interior, strict=True)]
    return padded(g, x, shape, value, op.low, high)


def padded(
    g: Emitter,
    x: Tensor,
    shape: Sequence[int],
    value: Tensor,
    low: Sequence[int],
    high: Sequence[int],
) -> Tensor:
    """Pad ``x`` of ``shape`` with ``value``; negative numbers crop."""
    kept = [(max(0, -a), min(n, n + b)) for n, a, b in zip(shape, low, high, strict=True)]
    if any(start >= end for start, end in kept):  # nothing of x is left
        return g.expand(value, [sum(n) for n in zip(shape, low, high, strict=True)])
    cuts = [(axis, *ends) for axis, ends in enumerate(kept) if ends != (0, shape[axis])]
    if cuts:
        axes, starts, ends = (g.ints(*column) for column in zip(*cuts, strict=True))
        x = g.emit("Slice", x, starts, ends, axes)
    around = [max(n, 0) for n in (*low, *high)]
    return g.emit("Pad", x, g.ints(*around), value) if any(around) else x


@core("concat")
def concat(g, op: typed.Concat, *xs):
    return xs[0] if len(xs) == 1 else g.emit("Concat", *xs, axis=op.axis)


# -- boxes at run-time positions -------------------------------------------------------------------


def clamped(g: Emitter, x: Tensor, *last: int) -> Tensor:
    """Clamp positions (i32 or i64) to 0..``last``; ``last`` has a value per column.

    Unsigned ones are clamped in their own dtype, because some exceed i64.
    """
    if x.dtype.kind == "uint":
        most = np.minimum(np.array(last, np.uint64), np.iinfo(x.dtype.numpy).max)
        limit = most.astype(x.dtype.numpy)
        return g.cast(g.emit("Min", x, g.constant(limit[0] if len(last) == 1 else limit)), I64)
    x = x if x.dtype is I32 else g.cast(x, I64)
    zero, kind = g.scalar(0, x.dtype), x.dtype.numpy
    if len(last) == 1:
        return g.emit("Clip", x, zero, g.scalar(*last, x.dtype))
    return g.emit("Min", g.emit("Max", x, zero), g.constant(np.array(last, kind)))


def _places(
    g: Emitter,
    op: typed.DynamicSlice | typed.DynamicUpdateSlice,
    starts: Sequence[Tensor],
    sizes: Sequence[int],
) -> dict[int, Tensor]:
    """Return axis -> the positions of the box on it (i64), for axes that it does not cover.

    The start is clamped so that the box fits.
    """
    found = {}
    values = op.operands[len(op.operands) - len(starts) :]
    shape = op.x.type.shape
    rows = enumerate(zip(starts, values, shape, sizes, strict=True))
    for axis, (start, value, size, part) in rows:
        if part == size:
            continue
        held, last, inside = g.numbers(value), size - part, np.arange(part)
        if held is not None:
            found[axis] = g.constant(inside + min(max(held.item(), 0), last))
            continue
        bounds = g.bounds(value)
        if g.guards and not (bounds and bounds[0] >= 0 and bounds[1] <= last):
            start = clamped(g, start, last)
        start = g.cast(start, I64)
        found[axis] = (
            g.reshape(start, (1,)) if part == 1 else g.emit("Add", start, g.constant(inside))
        )
    return found


@core("dynamic_slice")
def dynamic_slice(g, op: typed.DynamicSlice, x, *starts):
    """Use gathers, whose result sizes are static; those of Slice at run-time positions are not."""
    for axis, places in _places(g, op, starts, op.result.type.shape).items():
        x = g.emit("Gather", x, places, axis=axis)
    return x


@core("dynamic_update_slice")
def dynamic_update_slice(g, op: typed.DynamicUpdateSlice, x, update, *starts):
    """Update axis by axis: the rows of the box are updated along the other axes and stored back."""
    sizes = op.update.type.shape
    if 0 in sizes:
        return x
    found = _places(g, op, starts, sizes)

    def updated(x: Tensor, shape: Sequence[int], axes: Sequence[int]) -> Tensor:
        if not axes:
            return update
        axis, *rest = axes
        part = (*shape[:axis], sizes[axis], *shape[axis + 1 :])
        rows = g.emit("Gather", x, found[axis], axis=axis) if rest else update
        column = g.reshape(found[axis], [n if a == axis else 1 for a, n in enumerate(part)])
        return g.emit(
            "ScatterElements", x, g.expand(column, part), updated(rows, part, rest), axis=axis
        )

    return updated(x, op.result.type.shape, [*found])
