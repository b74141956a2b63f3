"""Gradients of reductions and scans."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, others, size_of, spread, widened
from core_compiler.ops.gradients.movement import zeros
from core_compiler.ops.gradients.table import gradient, of_one, rounded
from core_compiler.ops.rules import I64


def over(b: Builder, x: Value, like: Value, axes) -> Value:
    """Broadcast the result of a reduction of ``like`` over ``axes`` along them."""
    return spread(b, x, like, others(like.type.rank, axes))


@of_one("reduce_sum")
def _sum(b, op: typed.ReduceSum, dy):
    return over(b, dy, op.x, op.axes)


@of_one("mean")
def _mean(b, op: typed.Mean, dy):
    (x,) = op.operands
    wide = widened(b, dy)
    each = b.div(wide, b.scalar_like(size_of(x, op.axes), wide))
    return over(b, rounded(b, each, x), x, op.axes)


@of_one("centre")
def _centre(b, op: typed.Centre, dy):
    """Return the gradient: subtracting the mean is its own transpose."""
    return rounded(b, b.centre(widened(b, dy), axes=op.axes), op.x)


def _count(op: typed.StandardDeviation | typed.Variance) -> float:
    return max(size_of(op.x, op.axes) - op.correction, 0)


@of_one("variance")
def _variance(b, op: typed.Variance, dy):
    """Return 2 (x - mean) / (n - correction) for each element."""
    (x,), axes = op.operands, op.axes
    wide, slope = widened(b, x), widened(b, dy)
    if op.plain:
        d = b.sub(wide, over(b, b.mean(wide, axes=axes), wide, axes))
    else:
        d = b.centre(wide, axes=axes)
    slope = b.div(b.mul(slope, b.scalar_like(2, slope)), b.scalar_like(_count(op), slope))
    return rounded(b, b.mul(d, over(b, slope, wide, axes)), x)


@of_one("standard_deviation")
def _standard_deviation(b, op: typed.StandardDeviation, dy):
    """Return (x - mean) / deviation / (n - correction) for each element.

    It is 0 where the deviation is 0, as in torch.
    """
    (x,), axes = op.operands, op.axes
    wide, slope = widened(b, x), widened(b, dy)
    deviation = op.result if wide is x else b.op(op.kind, (wide,), **op.op.attributes)
    nothing, one = zeros(b, deviation), b.scalar_like(1, deviation)
    none = b.eq(deviation, nothing)
    share = b.div(b.centre(wide, axes=axes), over(b, b.select(none, one, deviation), wide, axes))
    slope = b.select(none, nothing, b.div(slope, b.scalar_like(_count(op), slope)))
    return rounded(b, b.mul(share, over(b, slope, wide, axes)), x)


@of_one("reduce_prod")
def _prod(b, op: typed.ReduceProd, dy):
    """Return the product of all others, from the left and from the right, so zeros need no care."""
    (x,), axes = op.operands, op.axes
    kept = others(x.type.rank, axes)
    last = len(kept)
    there = (*kept, *axes)
    shape = [x.type.shape[a] for a in there]
    flat = b.reshape(
        b.transpose(widened(b, x), permutation=there), shape=(*shape[:last], size_of(x, axes))
    )
    left = b.cumprod(flat, axis=last, exclusive=True)
    right = b.cumprod(flat, axis=last, exclusive=True, reverse=True)
    slope = spread(b, widened(b, dy), flat, range(last))
    made = b.reshape(b.mul(slope, b.mul(left, right)), shape=shape)
    made = b.transpose(made, permutation=[there.index(a) for a in range(len(there))])
    return rounded(b, made, x)


@of_one("reduce_max", "reduce_min")
def _extreme(b, op: typed.ReduceMax | typed.ReduceMin, dy):
    """Distribute the cotangent over the elements equal to the result."""
    (x,), axes = op.operands, op.axes
    wide = widened(b, dy)
    hits = b.eq(x, over(b, op.result, x, axes))
    ones = as_dtype(b, hits, wide.type.dtype)
    share = b.div(wide, b.reduce_sum(ones, axes=axes))
    return rounded(b, b.select(hits, over(b, share, x, axes), zeros(b, ones)), x)


# -- scans -----------------------------------------------------------------------------------------


@of_one("cumsum")
def _cumsum(b, op: typed.Cumsum, dy):
    return b.cumsum(dy, axis=op.axis, reverse=not op.reverse, exclusive=op.exclusive)


@of_one("cumprod")
def _cumprod(b, op: typed.Cumprod, dy):
    """Return the gradient of a cumulative product.

    Up to the first zero z of a row it is (sum of dy * y from here on) / x; at z the same with 1 in
    its place; after it every result is 0 for any x.
    """
    (x,), axis, backwards = op.operands, op.axis, op.reverse
    wide, slope = widened(b, x), widened(b, dy)
    none, one = zeros(b, wide), b.scalar_like(1, wide)

    def behind(values: Value) -> Value:
        return b.cumsum(values, axis=axis, reverse=not backwards, exclusive=op.exclusive)

    def products(values: Value) -> Value:
        return b.cumprod(values, axis=axis, reverse=backwards, exclusive=op.exclusive)

    empty = b.eq(wide, none)
    count = b.cumsum(b.cast(empty, dtype=I64), axis=axis, reverse=backwards)
    first = b.and_(empty, b.eq(count, b.scalar_like(1, count)))
    filled = b.select(first, one, wide)
    before = b.eq(count, b.scalar_like(0, count))
    usual = b.div(behind(b.mul(slope, products(wide))), b.select(before, wide, one))
    at_first = behind(b.mul(slope, products(filled)))
    return rounded(b, b.select(before, usual, b.select(first, at_first, none)), x)


@gradient("cummax", "cummin")
def _running_extreme(b, op: typed.Cummax | typed.Cummin, cotangents, wanted):
    """Return the gradient: the result is the last element that reached it.

    For an exclusive scan it is that of the previous position.
    """
    (x,), (dy,), axis, backwards = op.operands, cotangents, op.axis, op.reverse
    size = x.type.shape[axis]
    if size == 0:
        return (dy,)
    y = op.result
    if op.exclusive:
        y = b.op(op.kind, (x,), axis=axis, reverse=backwards)
        rest = b.cut(dy, axis, 0, size - 1) if backwards else b.cut(dy, axis, 1, size)
        last = zeros(b, b.cut(dy, axis, 0, 1))
        dy = b.concat(*((last, rest) if backwards else (rest, last)), axis=axis)
    position = b.iota(shape=x.type.shape, dtype=I64, axis=axis)
    if backwards:
        where = b.select(b.eq(x, y), position, b.scalar_like(size, position))
        where = b.cummin(where, axis=axis, reverse=True)
    else:
        where = b.select(b.eq(x, y), position, b.scalar_like(-1, position))
        where = b.cummax(where, axis=axis)
    return (b.scatter_along(zeros(b, x), where, dy, axis=axis, mode="add"),)
