"""Data movement of ATen: views, slices, concatenations, gathers, and tensor creation."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends.pytorch.aten.table import (
    NotSupported,
    aten,
    axis_of,
)
from core_compiler.ir import Value
from core_compiler.ops.rules import I64


@aten(
    "view",
    "reshape",
    "_unsafe_view",
    "_reshape_alias",
    "view_copy",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "squeeze_copy",
    "unsqueeze_copy",
    "reshape_as",
    "view_as",
)
def to_shape(b, x, *args, **kwargs):
    return b.reshape(x, shape=b.shape)


@aten("permute", "permute_copy")
def permute(b, x, axes):
    return b.transpose(x, permutation=tuple(axis_of(a, x.type.rank) for a in axes))


@aten("transpose", "swapaxes", "swapdims", "transpose_copy")
def transpose(b, x, first, second):
    order = list(range(x.type.rank))
    if not order:
        return x
    i, j = axis_of(first, x.type.rank), axis_of(second, x.type.rank)
    order[i], order[j] = order[j], order[i]
    return b.transpose(x, permutation=tuple(order))


@aten("t", "t_copy", "numpy_T", "mT", "adjoint")
def t(b, x):
    return transpose(b, x, -2, -1) if x.type.rank > 1 else x


@aten("movedim")
def movedim(b, x, source, target):
    source = [source] if isinstance(source, int) else source
    target = [target] if isinstance(target, int) else target
    rank = x.type.rank
    order = np.moveaxis(np.empty((1,) * rank), source, target)
    del order
    rest = [a for a in range(rank) if a not in [axis_of(s, rank) for s in source]]
    for place, axis in sorted(
        zip([axis_of(d, rank) for d in target], [axis_of(s, rank) for s in source], strict=True)
    ):
        rest.insert(place, axis)
    return b.transpose(x, permutation=tuple(rest))


@aten("expand", "expand_copy", "broadcast_to", "expand_as")
def expand(b, x, *args, **kwargs):
    return b.expand(x, b.shape)


@aten("slice", "slice_copy")
def slice_(b, x, axis=0, start=None, end=None, step=1):
    axis, size = axis_of(axis, x.type.rank), x.type.shape[axis_of(axis, x.type.rank)]
    begin, stop, step = slice(start, end, step).indices(size)
    return b.cut(x, axis, begin, max(begin, stop), step)


@aten("narrow")
def narrow(b, x, axis, start, length):
    axis = axis_of(axis, x.type.rank)
    start = start + x.type.shape[axis] if start < 0 else start
    return b.cut(x, axis, start, start + length)


@aten("select", "select_copy")
def select(b, x, axis, index):
    axis = axis_of(axis, x.type.rank)
    index = index + x.type.shape[axis] if index < 0 else index
    return b.reshape(b.cut(x, axis, index, index + 1), shape=b.shape)


@aten("unbind", "unbind_copy")
def unbind(b, x, axis=0):
    axis = axis_of(axis, x.type.rank)
    shape = tuple(d for i, d in enumerate(x.type.shape) if i != axis)
    return tuple(
        b.reshape(b.cut(x, axis, i, i + 1), shape=shape) for i in range(x.type.shape[axis])
    )


@aten("split", "split_with_sizes", "split_copy", "split_with_sizes_copy")
def split(b, x, sizes, axis=0):
    axis = axis_of(axis, x.type.rank)
    total = x.type.shape[axis]
    if isinstance(sizes, int):
        count = max(1, math.ceil(total / sizes)) if sizes else 1
        sizes = [min(sizes, total - i * sizes) for i in range(count)]
    parts, start = [], 0
    for size in sizes:
        parts.append(b.cut(x, axis, start, start + size))
        start += size
    return tuple(parts)


@aten("chunk", "unsafe_chunk")
def chunk(b, x, count, axis=0):
    total = x.type.shape[axis_of(axis, x.type.rank)]
    return split(b, x, max(1, math.ceil(total / count)), axis)


@aten("tensor_split")
def tensor_split(b, x, cuts, axis=0):
    """Split along an axis.

    ``cuts`` is the number of parts, of which the first ones may be longer by one, or the list of
    positions where parts start.
    """
    if isinstance(cuts, Value):
        raise NotSupported("split positions that depend on data")
    total = x.type.shape[axis_of(axis, x.type.rank)]
    if isinstance(cuts, int):
        least, longer = divmod(total, cuts)
        cuts = [i * least + min(i, longer) for i in range(1, cuts)]
    ends = [slice(0, end).indices(total)[1] for end in (*cuts, total)]
    starts = [0, *ends[:-1]]
    return tuple(
        b.cut(x, axis_of(axis, x.type.rank), start, max(start, end))
        for start, end in zip(starts, ends, strict=True)
    )


@aten("hsplit")
def hsplit(b, x, cuts):
    return tensor_split(b, x, cuts, min(1, x.type.rank - 1))


@aten("vsplit")
def vsplit(b, x, cuts):
    return tensor_split(b, x, cuts, 0)


@aten("dsplit")
def dsplit(b, x, cuts):
    return tensor_split(b, x, cuts, 2)


@aten("cat", "concat", "concatenate")
def cat(b, xs, axis=0):
    xs = [b.to(x, b.dtype) for x in xs if x.type.shape != (0,)]
    if not xs:
        return b.constant(np.zeros(b.shape, b.dtype.numpy))
    return b.concat(*xs, axis=axis_of(axis, xs[0].type.rank))


@aten("stack")
def stack(b, xs, axis=0):
    axis = axis_of(axis, xs[0].type.rank + 1)
    shape = xs[0].type.shape
    lifted = [b.reshape(b.to(x, b.dtype), shape=(*shape[:axis], 1, *shape[axis:])) for x in xs]
    return b.concat(*lifted, axis=axis)


@aten("cartesian_prod")
def cartesian_prod(b, xs):
    """Return all tuples of their elements; those of the last one vary fastest."""
    if len(xs) == 1:
        return xs[0]
    shape = tuple(x.type.elements for x in xs)
    columns = [b.broadcast(b.to(x, b.dtype), shape=shape, dims=(i,)) for i, x in enumerate(xs)]
    columns = [b.reshape(c, shape=(math.prod(shape), 1)) for c in columns]
    return b.concat(*columns, axis=1)


@aten("flip")
def flip(b, x, axes):
    return b.reverse(x, axes=tuple(sorted(axis_of(a, x.type.rank) for a in axes)))


@aten("roll")
def roll(b, x, shifts, axes=()):
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [axes] if isinstance(axes, int) else list(axes)
    shape = x.type.shape
    if not axes:
        x = b.reshape(x, shape=(x.type.elements,))
        axes = [0]
    for shift, axis in zip(shifts, axes, strict=True):
        axis = axis_of(axis, x.type.rank)
        size = x.type.shape[axis]
        cut = (-shift) % size if size else 0
        if cut:
            x = b.concat(b.cut(x, axis, cut, size), b.cut(x, axis, 0, cut), axis=axis)
    return b.reshape(x, shape=shape)


@aten("repeat")
def repeat(b, x, times):
    lead = len(times) - x.type.rank
    shape = (1,) * lead + x.type.shape
    wide = tuple(n for t, d in zip(times, shape, strict=True) for n in (t, d))
    spread = b.broadcast(x, shape=wide, dims=tuple(2 * (i + lead) + 1 for i in range(x.type.rank)))
    return b.reshape(spread, shape=b.shape)


@aten("tile")
def tile(b, x, times):
    return repeat(b, x, [1] * (x.type.rank - len(times)) + list(times))


@aten("repeat_interleave.self_int")
def repeat_interleave(b, x, times, axis=None, output_size=None):
    if axis is None:
        x, axis = b.reshape(x, shape=(x.type.elements,)), 0
    axis, shape = axis_of(axis, x.type.rank), x.type.shape
    wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
    dims = tuple(i if i <= axis else i + 1 for i in range(len(shape)))
    return b.reshape(b.broadcast(x, shape=wide, dims=dims), shape=b.shape)


@aten("repeat_interleave.self_Tensor")
def repeat_interleave_each(b, x, times, axis=None, *, output_size=None):
    """Repeat each element (or slice) its own number of times; their sum is ``output_size``."""
    if output_size is None:
        raise NotSupported("without output_size, the result's size depends on data")
    if axis is None:
        x, axis = b.reshape(x, shape=(x.type.elements,)), 0
    axis = axis_of(axis, x.type.rank)
    size = x.type.shape[axis]
    # A position of the result is in the copies of the element before which as many elements end.
    ends = b.cumsum(b.expand(b.to(times, I64), (size,)), axis=0)
    none, one = (b.expand(b.constant(n, I64), (k,)) for n, k in ((0, output_size), (1, size)))
    ended = b.scatter_along(none, ends, one, axis=0, mode="add")
    return b.plain("core.take", (x, b.cumsum(ended, axis=0)), {"axis": axis})


@aten("constant_pad_nd", "pad")
def constant_pad(b, x, widths, mode="constant", value=0.0):
    if isinstance(mode, int | float):
        mode, value = "constant", mode
    if mode != "constant":
        raise NotSupported(f"padding mode {mode}")
    rank = x.type.rank
    low, high = [0] * rank, [0] * rank
    for i in range(len(widths) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = widths[2 * i], widths[2 * i + 1]
    fill = b.value(0 if value is None else value, x.type.dtype)
    return b.pad(x, fill, low=tuple(low), high=tuple(high), interior=(0,) * rank)


@aten("broadcast_in_dim")
def broadcast_in_dim(b, x, shape, dims):
    return b.broadcast(x, shape=b.shape, dims=tuple(dims))


@aten("mH", "matrix_H")
def matrix_h(b, x):
    return transpose(b, x, -2, -1) if x.type.rank > 1 else x


@aten("sym_size")
def sym_size(b, x, axis):
    return x.type.shape[axis]


@aten("linalg_diagonal")
def linalg_diagonal(b, x, *, offset=0, dim1=-2, dim2=-1):
    return diagonal(b, x, offset, dim1, dim2)


@aten("diagonal", "diagonal_copy")
def diagonal(b, x, offset=0, axis1=0, axis2=1):
    """Return the entries where column - row = offset, as the last axis."""
    rank = x.type.rank
    i, j = axis_of(axis1, rank), axis_of(axis2, rank)
    rest = [a for a in range(rank) if a not in (i, j)]
    moved = b.transpose(x, permutation=(*rest, i, j))
    rows, columns = x.type.shape[i], x.type.shape[j]
    start = offset if offset >= 0 else -offset * columns
    count = b.shape[-1]
    flat = b.reshape(moved, shape=(*moved.type.shape[:-2], rows * columns))
    last = flat.type.rank - 1
    limit = start + (count - 1) * (columns + 1) + 1 if count else start
    return b.cut(flat, last, start, limit, columns + 1)


@aten("item", "_local_scalar_dense")
def item(b, x):
    raise NotSupported("a Python number taken from a tensor depends on data")


@aten("unfold", "unfold_copy")
def unfold(b, x, dimension, size, step):
    if not x.type.rank:
        return b.reshape(x, shape=b.shape)
    axis = axis_of(dimension, x.type.rank)
    return b.windows(x, axes=(axis,), sizes=(size,), strides=(step,), dilations=(1,))


@aten("im2col")
def im2col(b, x, kernel_size, dilation, padding, stride):
    """Return the columns ``[images, channels * taps, places]`` of ``[images, channels, y, x]``."""
    lead = x.type.rank - 2
    low = (*(0 for _ in range(lead)), *padding)
    zero = b.constant(0, x.type.dtype)
    x = b.pad(x, zero, low=low, high=low, interior=(0,) * x.type.rank)
    axes = (lead, lead + 1)
    made = b.windows(x, axes=axes, sizes=kernel_size, strides=stride, dilations=dilation)
    order = (*range(lead), lead + 2, lead + 3, *axes)
    return b.reshape(b.transpose(made, permutation=order), shape=b.shape)


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(b, x, padding):
    def repeated(x, axis: int, place: int, count: int) -> Value:
        shape = (*x.type.shape[:axis], count, *x.type.shape[axis + 1 :])
        one = b.cut(x, axis, place, place + 1)
        return b.broadcast(one, shape=shape, dims=tuple(range(len(shape))))

    def ends(x, axis: int, low: int, high: int):
        return repeated(x, axis, 0, low), repeated(x, axis, x.type.shape[axis] - 1, high)

    return _padded_by(b, x, padding, ends)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(b, x, padding):
    def ends(x, axis: int, low: int, high: int):
        last = x.type.shape[axis] - 1
        parts = (1, 1 + low), (last - high, last)
        return [b.reverse(b.cut(x, axis, *part), axes=(axis,)) for part in parts]

    return _padded_by(b, x, padding, ends)


def _padded_by(b, x, padding, ends) -> Value:
    """Pad axis by axis, the last one first; ``ends(x, axis, low, high)`` are what is joined.

    A negative padding cuts.
    """
    for i in range(0, len(padding), 2):
        axis, (low, high) = x.type.rank - 1 - i // 2, padding[i : i + 2]
        before, after = ends(x, axis, max(0, low), max(0, high))
        x = b.cut(x, axis, max(0, -low), x.type.shape[axis] - max(0, -high))
        parts = [p for p in (before, x, after) if p is x or p.type.shape[axis]]
        x = b.concat(*parts, axis=axis) if len(parts) > 1 else x
    return x
