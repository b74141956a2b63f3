"""Iota and data movement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import I64, Emitter, core
from core_compiler.ir import dtype

#: The end of a slice that runs backwards through the first element.
BEFORE_FIRST = -(1 << 63)
UI64 = dtype("ui64")


@core("iota")
def iota(g, op):
    shape, axis = op["shape"], op["axis"]
    bounds = (g.scalar(n, I64) for n in (0, shape[axis], 1))
    made = g.cast(g.emit("Range", *bounds), op["dtype"])
    column = [shape[axis] if a == axis else 1 for a in range(axis, len(shape))]
    made.shape = made.shape or (shape[axis],)
    return g.expand(g.reshape(made, column), shape)


@core("reshape")
def reshape(g, op, x):
    return g.reshape(x, op["shape"])


@core("transpose")
def transpose(g, op, x):
    return g.transpose(x, op["permutation"])


@core("slice")
def slice_(g, op, x):
    rows = zip(op.operands[0].type.shape, op["starts"], op["limits"], op["strides"], strict=True)
    cuts = [(axis, start, limit, step) for axis, (size, start, limit, step) in enumerate(rows)
            if (start, limit, step) != (0, size, 1)]  # fmt: skip
    if not cuts:
        return x
    axes, starts, limits, steps = (g.ints(*column) for column in zip(*cuts, strict=True))
    strided = () if all(c[3] == 1 for c in cuts) else (steps,)
    return g.emit("Slice", x, starts, limits, axes, *strided)


@core("reverse")
def reverse(g, op, x):
    axes = op["axes"]
    if not axes:
        return x
    ends = (BEFORE_FIRST,) * len(axes)
    back = (-1,) * len(axes)
    return g.emit("Slice", x, g.ints(*back), g.ints(*ends), g.ints(*axes), g.ints(*back))


@core("pad")
def pad(g, op, x, value):
    """Between its elements a tensor is padded on an axis of its own behind each."""
    shape = op.operands[0].type.shape
    interior = [n if size > 1 else 0 for n, size in zip(op["interior"], shape, strict=True)]
    high = list(op["high"])
    if any(interior) and 0 not in shape:
        apart = [n for size in shape for n in (size, 1)]
        behind = [n for more in interior for n in (0, more)]
        x = padded(g, g.reshape(x, apart), apart, value, (0,) * len(apart), behind)
        shape = [size * (more + 1) for size, more in zip(shape, interior, strict=True)]
        x = g.reshape(x, shape)
        high = [n - more for n, more in zip(high, interior, strict=True)]
    return padded(g, x, shape, value, op["low"], high)


def padded(
    g: Emitter, x: Tensor, shape: Sequence[int], value: Tensor, low: Sequence[int],
    high: Sequence[int],
) -> Tensor:  # fmt: skip
    """``x`` of ``shape`` with ``value`` around it; negative numbers crop."""
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
def concat(g, op, *xs):
    return xs[0] if len(xs) == 1 else g.emit("Concat", *xs, axis=op["axis"])


# -- boxes at run-time places ----------------------------------------------------------------------


def _starts(g: Emitter, op, starts: Sequence[Tensor], shape, sizes) -> dict[int, Tensor]:
    """Axis -> where the box starts (of shape [1]), for axes that it does not fill; clamped so that
    it fits."""
    found = {}
    values = op.operands[len(op.operands) - len(starts) :]
    rows = enumerate(zip(starts, values, shape, sizes, strict=True))
    for axis, (start, value, size, part) in rows:
        if part == size:
            continue
        held, last = g.numbers(value), size - part
        if held is not None:
            found[axis] = g.ints(min(max(held.item(), 0), last))
            continue
        bounds = g.bounds(value)
        fits = bounds is not None and bounds[0] >= 0 and bounds[1] <= last
        if start.dtype is UI64 and not fits:  # it may be larger than any i64
            start = g.emit("Min", start, g.scalar(last, UI64))
        start = g.cast(start, I64)
        if g.guards and not fits:
            start = g.emit("Clip", start, g.scalar(0, I64), g.scalar(last, I64))
        start.shape = start.shape or ()
        found[axis] = g.reshape(start, (1,))
    return found


def _ends(g: Emitter, start: Tensor, size: int) -> Tensor:
    if start.array is not None:
        return g.ints(start.array.item() + size)
    return g.emit("Add", start, g.ints(size))


def _joined(g: Emitter, parts: Sequence[Tensor]) -> Tensor:
    """Lists of one number as a list."""
    if all(p.array is not None for p in parts):
        return g.constant(np.concatenate([p.array for p in parts if p.array is not None]))
    return parts[0] if len(parts) == 1 else g.emit("Concat", *parts, axis=0)


@core("dynamic_slice")
def dynamic_slice(g, op, x, *starts):
    sizes = op["sizes"]
    found = _starts(g, op, starts, op.operands[0].type.shape, sizes)
    if not found:
        return x
    ends = [_ends(g, start, sizes[axis]) for axis, start in found.items()]
    return g.emit("Slice", x, _joined(g, [*found.values()]), _joined(g, ends), g.ints(*found))


@core("dynamic_update_slice")
def dynamic_update_slice(g, op, x, update, *starts):
    """Axis by axis: what lies before the box, the box updated along the other axes, what lies
    behind."""
    sizes = op.operands[1].type.shape
    found = _starts(g, op, starts, op.operands[0].type.shape, sizes)

    def updated(x: Tensor, axes: Sequence[int]) -> Tensor:
        if not axes:
            return update
        axis, *rest = axes
        start = found[axis]
        end, on = _ends(g, start, sizes[axis]), g.ints(axis)
        before = g.emit("Slice", x, g.ints(0), start, on)
        middle = g.emit("Slice", x, start, end, on) if rest else update
        behind = g.emit("Slice", x, end, g.ints((1 << 63) - 1), on)
        return g.emit("Concat", before, updated(middle, rest), behind, axis=axis)

    if 0 in sizes:
        return x
    return updated(x, [*found])
