"""Sorts of ATen, and what follows from an order: positions, medians, distinct elements."""

from __future__ import annotations

from core_compiler.frontends.pytorch.aten.table import (
    BOOL,
    I64,
    NotSupported,
    aten,
    axis_of,
)
from core_compiler.ir import Value


@aten("sort")
def sort(b, x, axis=-1, descending=False):
    return _sorted(b, x, axis, descending)


@aten("sort.stable")
def sort_stable(b, x, *, stable=None, dim=-1, descending=False):
    return _sorted(b, x, dim, descending)


def _sorted(b, x, axis, descending):
    if x.type.rank == 0:
        return x, b.constant(0, "i64")
    axis = axis_of(axis, x.type.rank)
    return (
        b.sort(x, axis=axis, descending=descending),
        b.argsort(x, axis=axis, descending=descending),
    )


@aten("argsort", "argsort.default")
def argsort(b, x, axis=-1, descending=False):
    return _sorted(b, x, axis, descending)[1]


@aten("argsort.stable")
def argsort_stable(b, x, *, stable=True, dim=-1, descending=False):
    return _sorted(b, x, dim, descending)[1]


@aten("kthvalue")
def kthvalue(b, x, k, axis=-1, keepdim=False):
    """Return the k-th smallest (counted from 1) along an axis, and its position."""
    if x.type.rank == 0:
        return x, b.constant(0, "i64")
    axis = axis_of(axis, x.type.rank)
    return tuple(_at(b, v, axis, k - 1, keepdim) for v in _sorted(b, x, axis, False))


def _at(b, x, axis, place, keepdim):
    """Return one position of an axis."""
    shape = x.type.shape
    one = b.slice(
        x,
        starts=tuple(place if i == axis else 0 for i in range(len(shape))),
        limits=tuple(place + 1 if i == axis else d for i, d in enumerate(shape)),
        strides=(1,) * len(shape),
    )
    return (
        one if keepdim else b.reshape(one, shape=tuple(d for i, d in enumerate(shape) if i != axis))
    )


@aten("topk")
def topk(b, x, k, axis=-1, largest=True, sorted=True):
    if x.type.rank:
        return b.topk(x, axis=axis_of(axis, x.type.rank), k=k, largest=largest)
    if k != 1:
        raise NotSupported(f"the {k} largest elements of a scalar")
    return x, b.constant(0, I64)


@aten("median")
def median(b, x):
    return _median(b, _flat(b, x), 0, keepdim=False, skip_nan=False)[0]


@aten("nanmedian")
def nanmedian(b, x):
    return _median(b, _flat(b, x), 0, keepdim=False, skip_nan=True)[0]


@aten("median.dim")
def median_dim(b, x, axis, keepdim=False):
    return _median(b, x, axis, keepdim, skip_nan=False)


@aten("nanmedian.dim")
def nanmedian_dim(b, x, axis, keepdim=False):
    return _median(b, x, axis, keepdim, skip_nan=True)


def _median(b, x, axis: int, keepdim: bool, skip_nan: bool) -> tuple[Value, Value]:
    """Return the lower median along an axis and its position.

    A NaN is the median of its row, or is left out with ``skip_nan``.
    """
    if x.type.rank == 0:
        return x, b.constant(0, I64)
    axis = axis_of(axis, x.type.rank)
    size = x.type.shape[axis]
    if not size:
        raise NotSupported("the median of no elements")
    values, order = _sorted(b, x, axis, False)  # NaNs come last
    if not x.type.dtype.is_float:
        return tuple(_at(b, v, axis, (size - 1) // 2, keepdim) for v in (values, order))
    nans = b.reduce_sum(b.cast(b.is_nan(x), dtype=I64), axes=(axis,))
    valid = b.sub(b.scalar_like(size, nans), nans)
    if skip_nan:
        last = b.max(b.sub(valid, b.scalar_like(1, valid)), b.scalar_like(0, valid))
        place = b.div(last, b.scalar_like(2, last))
    else:
        middle = b.scalar_like((size - 1) // 2, nans)
        place = b.select(b.eq(nans, b.scalar_like(0, nans)), middle, valid)
    at = b.keep(place, (axis,), True, x)
    found = (b.take_along(v, at, axis=axis) for v in (values, order))
    return tuple(v if keepdim else b.reshape(v, shape=place.type.shape) for v in found)


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(b, rows, x, *, out_int32=False, right=False, side=None, sorter=None):
    """Return where elements would be inserted into sorted rows, by bisection."""
    scalar = not isinstance(x, Value)
    if scalar:
        x = b.constant(x, rows.type.dtype)
    if sorter is not None:
        rows = b.in_range(b.take_along(rows, sorter, axis=rows.type.rank - 1))
    if side is not None:
        right = side == "right"
    shape = x.type.shape
    if x.type.rank == 0:
        x = b.reshape(x, shape=(1,))
    made = _bisect(b, rows, x, right)
    return b.to(b.reshape(made, shape=shape), b.dtype if out_int32 else I64)


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(b, x, boundaries, *, out_int32=False, right=False):
    return searchsorted(b, boundaries, x, out_int32=out_int32, right=right)


def _bisect(b, rows, x, right: bool) -> Value:
    """Return how many elements of its row are before each element of ``x``, in i64.

    ``rows`` is one row for all, or has the axes of ``x`` but for the size of the last one.
    """
    size = rows.type.shape[-1]
    kind = b.common(rows, x)
    rows, x = b.to(rows, kind), b.to(x, kind)
    count = b.expand(b.constant(0, I64), x.type.shape)
    step = 1 << size.bit_length() >> 1
    while step:
        further = b.add(count, b.scalar_like(step, count))
        at = b.sub(b.min(further, b.scalar_like(size, count)), b.scalar_like(1, count))
        if rows.type.rank == 1:
            bound = b.take(rows, at, axis=0)
        else:
            bound = b.take_along(rows, at, axis=rows.type.rank - 1)
        after = b.gt(bound, x) if right else b.ge(bound, x)  # a NaN is after all
        inside = b.le(further, b.scalar_like(size, count))
        count = b.select(b.op("core.and", (inside, b.not_(after))), further, count)
        step >>= 1
    return count


@aten("_unique2")
def unique(b, x, sorted=True, return_inverse=False, return_counts=False):
    """Return the distinct elements in order, where each element's is, and how often each is."""
    flat = _flat(b, x)
    values, order = _sorted(b, flat, 0, False)
    made, group, counts = _distinct(b, values)
    inverse = b.scatter_along(b.scalar_like(0, group), order, group, axis=0, mode="set")
    inverse = b.reshape(inverse, shape=x.type.shape)
    return made, _asked(b, return_inverse, inverse), _asked(b, return_counts, counts)


@aten("unique_consecutive")
def unique_consecutive(b, x, return_inverse=False, return_counts=False, dim=None):
    """Return the first element of each run of equal ones, the run of each, and its length."""
    if dim is not None and x.type.rank != 1:
        raise NotSupported("runs of equal rows (dim)")
    made, group, counts = _distinct(b, _flat(b, x))
    group = b.reshape(group, shape=x.type.shape)
    return made, _asked(b, return_inverse, group), _asked(b, return_counts, counts)


def _asked(b, asked: bool, made: Value) -> Value:
    """Return ``made``, or the empty result of torch for what was not asked for."""
    return made if asked else b.expand(b.constant(0, I64), (0,))


def _distinct(b, x) -> tuple[Value, Value, Value]:
    """Return the first element of each run of ``x``, each element's run, and the runs' lengths."""
    (size,) = x.type.shape
    if not size:
        raise NotSupported("distinct elements of none")
    one = b.expand(b.constant(True, BOOL), (1,))
    first = b.concat(one, b.ne(b.cut(x, 0, 1, size), b.cut(x, 0, 0, size - 1)), axis=0)
    flags = b.cast(first, dtype=I64)
    group = b.sub(b.cumsum(flags, axis=0), b.scalar_like(1, flags))
    (made,) = b.compact(first, x)
    lengths = b.scatter_along(
        b.scalar_like(0, group), group, b.scalar_like(1, group), axis=0, mode="add"
    )
    b.sizes.mark(lengths, b.sizes.of(made))
    return made, group, lengths


def _flat(b, x) -> Value:
    return b.reshape(x, shape=(x.type.elements,))
