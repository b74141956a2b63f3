"""ONNX ops whose result sizes depend on data: NonZero, Compress, Unique, NonMaxSuppression.

Known inputs are evaluated at import.  Otherwise the result has the largest possible size, and an
additional value holds the number of valid elements (``core_compiler.frontends.run_time_sizes``).
"""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends.onnx.table import NotSupported, axis_of, onnx_op
from core_compiler.ir import Block, Value, dtype, tensor
from core_compiler.ops.builder import Builder

I1, I64 = dtype("i1"), dtype("i64")
#: The maximum number of columns of rows that Unique compares one by one.
COLUMNS = 256


@onnx_op("NonZero")
def non_zero(b, x):
    known = b.known(x)
    if known is not None:
        return b.constant(np.array(np.nonzero(known), np.int64).reshape(known.ndim, -1))
    shape = x.type.shape or (1,)
    flat = b.reshape(x, shape=(math.prod(shape),))
    held = flat if x.type.dtype is I1 else b.ne(flat, b.scalar_like(0, flat))
    places = []
    for axis in range(len(shape)):
        counter = b.iota(shape=shape, axis=axis, dtype=I64)
        places.append(b.reshape(counter, shape=(math.prod(shape),)))
    made = b.compact(held, *places)
    rows = [b.broadcast(row, shape=(1, *row.type.shape), dims=(1,)) for row in made]
    return b.concat(*rows, axis=0)


@onnx_op("Compress")
def compress(b, x, chosen):
    axis = b.attr("axis")
    if axis is None:
        x, axis = b.reshape(x, shape=(x.type.elements,)), 0
    axis = axis_of(axis, x.type.rank)
    known = b.known(chosen)
    if known is not None:
        return b.take(x, b.constant(np.flatnonzero(known).astype(np.int64)), axis=axis)
    length = min(chosen.type.shape[0], x.type.shape[axis])
    held, place = b.cut(chosen, 0, 0, length), b.iota(shape=(length,), axis=0, dtype=I64)
    counts = dict(b.sizes.of(x))
    if axis in counts:
        held = b.and_(held, b.lt(place, b.expand(counts[axis], (length,))))
    (places,) = b.compact(held, place)
    made = b.plain("core.take", (x, places), {"axis": axis})
    b.sizes.mark(made, {**counts, axis: b.sizes.of(places)[0]})
    return made


@onnx_op("Unique")
def unique(b, x):
    """Sort the rows and merge equal neighbours; each is represented by its first occurrence."""
    axis = b.attr("axis")
    if axis is None:
        x, axis = b.reshape(x, shape=(x.type.elements,)), 0
    axis = axis_of(axis, x.type.rank)
    first_axis = (axis, *(i for i in range(x.type.rank) if i != axis))
    moved = b.transpose(x, permutation=first_axis)
    rows = b.reshape(moved, shape=(moved.type.shape[0], math.prod(moved.type.shape[1:])))
    size, columns = rows.type.shape
    if columns > COLUMNS:
        raise NotSupported(f"rows of {columns} elements (at most {COLUMNS} are compared)")
    order = b.iota(shape=(size,), axis=0, dtype=I64)
    for column in reversed(range(columns)):  # each sort keeps the order of equal rows
        keys = b.take(b.reshape(b.cut(rows, 1, column, column + 1), shape=(size,)), order, axis=0)
        order = b.take(order, b.argsort(keys, axis=0), axis=0)
    ordered = b.take(rows, order, axis=0)
    first = _differs_from_previous(b, ordered)
    run = b.cumsum(b.cast(first, dtype=I64), axis=0)
    run = b.sub(run, b.scalar_like(1, run))
    zeros = b.scalar_like(0, run)
    inverse = b.scatter_along(zeros, order, run, axis=0, mode="set")
    times = b.scatter_along(zeros, run, b.scalar_like(1, run), axis=0, mode="add")
    values, places = b.compact(first, ordered, order)
    count = b.sizes.of(places)[0]
    if not b.attr("sorted", 1):
        sort_keys = b.mask_invalid(places, (0,), np.iinfo(np.int64).max)
        first_order = b.plain(
            "core.argsort", (sort_keys,), {"axis": 0, "descending": False, "dtype": I64}
        )
        rank = b.scatter_along(
            zeros, first_order, b.iota(shape=(size,), axis=0, dtype=I64), axis=0, mode="set"
        )
        values, places, times = (
            b.plain("core.take", (v, first_order), {"axis": 0}) for v in (values, places, times)
        )
        inverse = b.take(rank, inverse, axis=0)
    for value in (values, places, times):
        b.sizes.mark(value, {0: count})
    back = tuple(first_axis.index(i) for i in range(x.type.rank))
    values = b.transpose(b.reshape(values, shape=moved.type.shape), permutation=back)
    return values, places, inverse, times


def _differs_from_previous(b, rows: Value) -> Value:
    """Return (n,): whether a row of (n, m) differs from the row before; always for the first."""
    size, columns = rows.type.shape
    place = b.iota(shape=(size,), axis=0, dtype=I64)
    start = b.eq(place, b.scalar_like(0, place))
    if size < 2 or not columns:
        return start
    before = b.concat(b.cut(rows, 0, 0, 1), b.cut(rows, 0, 0, size - 1), axis=0)
    return b.or_(start, b.reduce_or(b.ne(rows, before), axes=(1,)))


# -- NonMaxSuppression -----------------------------------------------------------------------------


@onnx_op("NonMaxSuppression")
def non_max_suppression(b, boxes, scores, limit=None, overlap=None, least=None):
    """Select the best boxes of each image and class.

    They are taken in order of decreasing score; each removes those that overlap it too much.  The
    result has rows of (image, class, box).
    """
    images, classes, count = scores.type.shape
    most = 0 if limit is None else min(int(b.ints(limit, "the number of boxes")[0]), count)
    if most <= 0 or not count:
        return b.constant(np.zeros((0, 3), np.int64))
    shape = (images, classes, count)
    order = b.argsort(scores, axis=2, descending=True)
    ranked = b.take_along(scores, order, axis=2)
    corners = [
        b.take_along(b.broadcast(side, shape=shape, dims=(0, 2)), order, axis=2)
        for side in _corners(b, boxes)
    ]
    if least is None:
        held = b.expand(b.constant(True, I1), shape)
    else:
        held = b.gt(ranked, b.expand(b.reshape(least, shape=()), shape))
    threshold = b.constant(0.0, boxes.type.dtype) if overlap is None else overlap
    held = _suppressed(b, held, corners, b.reshape(threshold, shape=()))
    flags = b.cast(held, dtype=I64)
    before = b.cumsum(flags, axis=2)
    held = b.and_(held, b.le(before, b.scalar_like(most, before)))
    image, class_ = (b.iota(shape=shape, axis=a, dtype=I64) for a in (0, 1))
    whole = (math.prod(shape),)
    columns = b.compact(
        b.reshape(held, shape=whole), *(b.reshape(v, shape=whole) for v in (image, class_, order))
    )
    made = b.concat(*(b.broadcast(c, shape=(*whole, 1), dims=(0,)) for c in columns), axis=1)
    return b.cut(made, 0, 0, images * classes * most)


def _corners(b, boxes: Value) -> list[Value]:
    """Return the lowest and highest coordinate on both axes, each (images, boxes)."""
    shape = boxes.type.shape[:2]
    parts = [b.reshape(b.cut(boxes, 2, i, i + 1), shape=shape) for i in range(4)]
    if b.attr("center_point_box", 0):
        x, y, width, height = parts
        half = b.scalar_like(0.5, x)
        reach = [b.mul(width, half), b.mul(height, half)]
        low = [b.sub(v, r) for v, r in zip((x, y), reach, strict=True)]
        high = [b.add(v, r) for v, r in zip((x, y), reach, strict=True)]
    else:
        low = [b.min(parts[i], parts[i + 2]) for i in range(2)]
        high = [b.max(parts[i], parts[i + 2]) for i in range(2)]
    return [*low, *high]


def _suppressed(b, held: Value, corners: list[Value], threshold: Value) -> Value:
    """Clear ``held`` for boxes that an earlier held box overlaps by more than ``threshold``.

    The overlap is the intersection over the union; the loop has one step for each box.
    """
    images, classes, count = held.type.shape
    scalar = tensor((), I64)

    def arguments() -> tuple[Value, Value]:
        return Value(scalar), Value(held.type)

    tested, inner = arguments(), arguments()
    test, body = Builder(b.weights, b.origin), Builder(b.weights, b.origin)
    more = test.lt(tested[0], test.constant(count, I64))
    step, now = inner
    zero = body.constant(0, I64)

    def column(x: Value) -> Value:
        one = body.dynamic_slice(x, zero, zero, step, sizes=(images, classes, 1))
        return body.expand(one, x.type.shape)

    mine = [column(c) for c in corners]
    low = [body.max(c, m) for c, m in zip(corners[:2], mine[:2], strict=True)]
    high = [body.min(c, m) for c, m in zip(corners[2:], mine[2:], strict=True)]
    nothing = body.scalar_like(0, low[0])
    sides = [body.max(body.sub(h, lo), nothing) for lo, h in zip(low, high, strict=True)]
    shared = body.mul(*sides)

    def area(box: list[Value]) -> Value:
        return body.mul(body.sub(box[2], box[0]), body.sub(box[3], box[1]))

    whole = body.sub(body.add(area(corners), area(mine)), shared)
    positive = body.gt(whole, nothing)
    share = body.div(shared, body.select(positive, whole, body.scalar_like(1, whole)))
    too_much = body.and_(positive, body.gt(share, body.expand(threshold, share.type.shape)))
    later = body.gt(
        body.iota(shape=held.type.shape, axis=2, dtype=I64), body.expand(step, held.type.shape)
    )
    out = body.and_(body.and_(too_much, later), column(now))
    left = body.and_(now, body.not_(out))
    following = body.add(step, body.constant(1, I64))
    blocks = (
        Block(tested, tuple(test.ops), (more,)),
        Block(inner, tuple(body.ops), (following, left)),
    )
    return b.op("core.while", (b.constant(0, I64), held), regions=blocks)[1]
