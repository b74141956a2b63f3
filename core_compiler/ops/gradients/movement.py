"""Gradients of data movement: every element's cotangent goes back to the element's source.

The gradient of a gather is a scatter that adds; the contract fixes the order of the additions.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import spread
from core_compiler.ops.gradients.table import Box, gradient, of_each, of_one
from core_compiler.ops.rules import I64


def zeros(b: Builder, like: Value) -> Value:
    return b.scalar_like(0, like)


def _position(b: Builder, x: Value) -> Value:
    return x if x.type.dtype is I64 else b.cast(x, dtype=I64)


def _clamped(b: Builder, indices: Value, size: int) -> Value:
    """Return positions as a gather reads them, clamped to the range."""
    if indices.type.dtype.name == "ui64":  # as an i64 it may be negative
        indices = b.min(indices, b.scalar_like(max(size - 1, 0), indices))
    indices = _position(b, indices)
    low, high = b.scalar_like(0, indices), b.scalar_like(max(size - 1, 0), indices)
    return b.min(b.max(indices, low), high)


# -- one operand -----------------------------------------------------------------------------------


@of_one("broadcast")
def _broadcast(b, op: typed.Broadcast, dy):
    """Return the sum over the broadcast axes."""
    (x,), made = op.operands, op.result.type.shape
    repeated = [a for i, a in enumerate(op.dims) if x.type.shape[i] != made[a]]
    axes = tuple(a for a in range(len(made)) if a not in op.dims or a in repeated)
    summed = b.reduce_sum(dy, axes=axes) if axes else dy
    return summed if summed.type.shape == x.type.shape else b.reshape(summed, shape=x.type.shape)


@of_one("reshape")
def _reshape(b, op: typed.Reshape, dy):
    return b.reshape(dy, shape=op.x.type.shape)


@of_one("transpose")
def _transpose(b, op: typed.Transpose, dy):
    there = op.permutation
    return b.transpose(dy, permutation=tuple(there.index(a) for a in range(len(there))))


@of_one("reverse")
def _reverse(b, op: typed.Reverse, dy):
    return b.reverse(dy, axes=op.axes)


@of_one("slice")
def _slice(b, op: typed.Slice, dy):
    parts = zip(op.x.type.shape, dy.type.shape, op.starts, op.strides, strict=True)
    high = [n - start - ((m - 1) * step + 1 if m else 0) for n, m, start, step in parts]
    return b.pad(
        dy,
        b.constant(0, dy.type.dtype),
        low=op.starts,
        high=high,
        interior=[s - 1 for s in op.strides],
    )


@of_one("windows")
def _windows(b, op: typed.Windows, dy):
    """Add up the positions of a window one after another, the last of the axes first."""
    zero = b.constant(0, dy.type.dtype)
    for number in reversed(range(len(op.axes))):
        axis, size, stride, dilation = (
            values[number] for values in (op.axes, op.sizes, op.strides, op.dilations)
        )
        *shape, _ = dy.type.shape
        span = (shape[axis] - 1) * stride + 1 if shape[axis] else 0
        total = None
        for k in range(size):
            box = {"starts": [0] * len(shape) + [k], "limits": [*shape, k + 1]}
            part = b.slice(dy, **box, strides=[1] * (len(shape) + 1))
            ends = {name: [0] * len(shape) for name in ("low", "high", "interior")}
            ends["low"][axis], ends["interior"][axis] = k * dilation, stride - 1
            ends["high"][axis] = op.x.type.shape[axis] - span - k * dilation
            part = b.pad(b.reshape(part, shape=tuple(shape)), zero, **ends)
            total = part if total is None else b.add(total, part)
        dy = total
    return dy


@of_each("pad")
def _pad(b, op: typed.Pad, dy):
    x = op.x

    def of_x() -> Value:
        return _unpadded(b, op, dy, x)

    def of_value() -> Value:
        """Return the sum over the positions without an element of x."""
        kept = b.pad(
            b.scalar_like(False, b.eq(x, x)),
            b.constant(True, "i1"),
            low=op.low,
            high=op.high,
            interior=op.interior,
        )
        return b.reduce_sum(b.select(kept, dy, zeros(b, dy)), axes=tuple(range(dy.type.rank)))

    return of_x, of_value


def _unpadded(b: Builder, op: typed.Pad, dy: Value, x: Value) -> Value:
    low, high, interior = op.low, op.high, op.interior
    if any(v < 0 for v in (*low, *high)):  # cropped elements: restore them as zeros first
        dy = b.pad(
            dy,
            b.constant(0, dy.type.dtype),
            low=[max(-v, 0) for v in low],
            high=[max(-v, 0) for v in high],
            interior=[0] * len(low),
        )
    steps = [i + 1 for i in interior]
    starts = [max(v, 0) for v in low]
    ends = [
        s + (n - 1) * step + 1 if n else s
        for s, n, step in zip(starts, x.type.shape, steps, strict=True)
    ]
    return b.slice(dy, starts=starts, limits=ends, strides=steps)


# -- several operands ------------------------------------------------------------------------------


@of_each("concat")
def _concat(b, op: typed.Concat, dy):
    axis, ends, at = op.axis, [], 0
    for x in op.operands:
        ends.append((at, at := at + x.type.shape[axis]))
    return [lambda s=start, e=end: b.cut(dy, axis, s, e) for start, end in ends]


@of_each("dynamic_slice")
def _dynamic_slice(b, op, dy):
    _x, *starts = op.operands
    return (lambda: Box(dy, tuple(starts)),)


@gradient("dynamic_update_slice")
def _dynamic_update_slice(b, op, cotangents, wanted):
    """Return the gradient; the part is read before it is set to 0, so that this can be in place."""
    (_, update, *starts), (dy,) = op.operands, cotangents
    of_x = of_update = None
    if wanted[1]:
        of_update = b.dynamic_slice(dy, *starts, sizes=update.type.shape)
    if wanted[0]:
        of_x = b.dynamic_update_slice(dy, zeros(b, update), *starts)
    return (of_x, of_update, *[None] * len(starts))


# -- gathers ---------------------------------------------------------------------------------------


@of_each("take")
def _take(b, op: typed.Take, dy):
    """Return the cotangents of a table's rows, each summed (the embedding gradient)."""
    x, indices = op.operands
    axis, size = op.axis, x.type.shape[op.axis]
    count, rank = indices.type.rank, x.type.rank

    def of_x() -> Value:
        # The axis comes first, so that whole rows are added.
        lead = tuple(range(axis, axis + count))
        rest = tuple(i for i in range(dy.type.rank) if i not in lead)
        rows = dy if axis == 0 else b.transpose(dy, permutation=(*lead, *rest))
        shape = (size, *(n for i, n in enumerate(x.type.shape) if i != axis))
        table = b.expand(b.constant(0, x.type.dtype), shape)
        places = _clamped(b, indices, size)
        places = b.reshape(places, shape=(*indices.type.shape, 1))
        made = b.scatter_nd(table, places, rows, mode="add")
        back = (*range(1, axis + 1), 0, *range(axis + 1, rank))
        return made if axis == 0 else b.transpose(made, permutation=back)

    return (of_x,)


@of_each("take_along")
def _take_along(b, op: typed.TakeAlong, dy):
    x, indices = op.operands
    axis = op.axis

    def of_x() -> Value:
        places = _clamped(b, indices, x.type.shape[axis])
        return b.scatter_along(zeros(b, x), places, dy, axis=axis, mode="add")

    return (of_x,)


@of_each("gather_nd")
def _gather_nd(b, op: typed.GatherNd, dy):
    x = op.x

    def of_x() -> Value:
        return b.scatter_nd(zeros(b, x), _full_places(b, op), dy, mode="add")

    return (of_x,)


def _full_places(b: Builder, op: typed.GatherNd) -> Value:
    """Return the positions of a ``gather_nd``, clamped, preceded by those of the batch axes."""
    x, indices = op.operands
    batch, shape = op.batch_dims, indices.type.shape
    columns = [b.iota(shape=(*shape[:-1], 1), dtype=I64, axis=i) for i in range(batch)]
    for i in range(shape[-1]):
        own = b.cut(indices, len(shape) - 1, i, i + 1)
        columns.append(_clamped(b, own, x.type.shape[batch + i]))
    if not columns:
        return _position(b, indices)
    return columns[0] if len(columns) == 1 else b.concat(*columns, axis=len(shape) - 1)


# -- scatters --------------------------------------------------------------------------------------


@gradient("scatter_along", "scatter_nd")
def _scatter(b, op: typed.Scatter, cotangents, wanted):
    """Return the gradient of a scatter.

    With ``set``, replaced elements do not contribute to the result. If several updates set one
    element, each gets its cotangent although only one counts, as in torch.
    """
    (_x, _, updates), (dy,), mode = op.operands, cotangents, op.mode
    of_x = of_updates = None
    if mode in ("max", "min"):
        return _of_scattered_extremes(b, op, dy, wanted)
    if mode == "mul":
        return _of_scattered_products(b, op, dy, wanted)
    if wanted[0]:
        of_x = dy if mode == "add" else _put(b, op, dy, zeros(b, updates), "set")
    if len(wanted) > 2 and wanted[2]:
        of_updates = _read(b, op, dy)
    return of_x, None, of_updates


def _of_scattered_products(b, op: typed.Scatter, dy: Value, wanted: Sequence[bool]):
    """Return the product of all other factors, by division by those that are not 0.

    It is 0 if another factor is 0.
    """
    x, _, updates = op.operands

    def parted(v: Value) -> tuple[Value, Value]:
        """Return a mask of zeros as ones, and ``v`` with ones in these positions."""
        one, none = b.scalar_like(1, v), zeros(b, v)
        is_zero = b.eq(v, none)
        return b.select(is_zero, one, none), b.select(is_zero, one, v)

    def others(dy_product: Value, count: Value, own_zero: Value, own: Value) -> Value:
        none = zeros(b, own)
        return b.select(b.eq(count, own_zero), b.div(dy_product, own), none)

    (x_zero, x_own), (u_zero, u_own) = parted(x), parted(updates)
    count = _put(b, op, x_zero, u_zero, "add")
    product = b.mul(dy, _put(b, op, x_own, u_own, "mul"))
    of_x = others(product, count, x_zero, x_own) if wanted[0] else None
    of_updates = None
    if wanted[2]:
        of_updates = others(_read(b, op, product), _read(b, op, count), u_zero, u_own)
    return of_x, None, of_updates


def _put(b: Builder, op: typed.Scatter, x: Value, updates: Value, mode: str) -> Value:
    """Scatter ``updates`` into ``x`` at the positions of ``op``."""
    if isinstance(op, typed.ScatterAlong):
        return b.scatter_along(x, op.indices, updates, axis=op.axis, mode=mode)
    return b.scatter_nd(x, op.indices, updates, mode=mode)


def _read(b: Builder, op: typed.Scatter, x: Value) -> Value:
    """Return the elements of ``x`` at the positions of the updates of ``op``; 0 out of range."""
    shape = op.x.type.shape
    indices = _position(b, op.indices)
    if isinstance(op, typed.ScatterAlong):
        axis = op.axis
        found = b.take_along(x, indices, axis=axis)
        return b.select(_inside(b, indices, shape[axis]), found, zeros(b, found))
    depth, last = indices.type.shape[-1], indices.type.rank - 1
    found = b.gather_nd(x, indices)
    inside = None
    for i in range(depth):
        own = b.cut(indices, last, i, i + 1)
        own = _inside(b, b.reshape(own, shape=own.type.shape[:-1]), shape[i])
        inside = own if inside is None else b.and_(inside, own)
    if inside is None:
        return found
    inside = spread(b, inside, found, range(inside.type.rank))
    return b.select(inside, found, zeros(b, found))


def _inside(b: Builder, indices: Value, size: int) -> Value:
    return b.and_(
        b.ge(indices, b.scalar_like(0, indices)), b.lt(indices, b.scalar_like(size, indices))
    )


def _of_scattered_extremes(b, op: typed.Scatter, dy: Value, wanted: Sequence[bool]):
    """Distribute the cotangent of the result over all elements equal to it."""
    x, _, updates = op.operands
    y = op.result
    one, none = b.scalar_like(1, x), zeros(b, x)
    own = b.select(b.eq(x, y), one, none)
    there = _read(b, op, y)
    theirs = b.select(b.eq(updates, there), b.scalar_like(1, updates), zeros(b, updates))
    share = b.div(dy, b.max(_put(b, op, own, theirs, "add"), one))
    of_x = b.mul(share, own) if wanted[0] else None
    of_updates = b.mul(_read(b, op, share), theirs) if wanted[2] else None
    return of_x, None, of_updates


# -- sorting ---------------------------------------------------------------------------------------


@of_one("sort")
def _sort(b, op: typed.Sort, dy):
    (x,), axis = op.operands, op.axis
    order = b.argsort(x, axis=axis, descending=op.descending)
    return b.scatter_along(zeros(b, x), order, dy, axis=axis, mode="set")


@gradient("topk")
def _topk(b, op: typed.Topk, cotangents, wanted):
    (x,), (dy, _) = op.operands, cotangents
    if dy is None:
        return (None,)
    return (b.scatter_along(zeros(b, x), op.results[1], dy, axis=op.axis, mode="set"),)
