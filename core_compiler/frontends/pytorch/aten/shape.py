"""Data movement of ATen: views, slices, joins, gathers, and tensors made from nothing."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends.pytorch.aten.table import (
    BOOL,
    I64,
    NotSupported,
    aten,
    axis_of,
)
from core_compiler.ir import Value


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
    for place, axis in sorted(zip([axis_of(d, rank) for d in target],
                                  [axis_of(s, rank) for s in source], strict=True)):  # fmt: skip
        rest.insert(place, axis)
    return b.transpose(x, permutation=tuple(rest))


@aten("expand", "expand_copy", "broadcast_to", "expand_as")
def expand(b, x, *args, **kwargs):
    return b.expand(x, b.shape)


@aten("slice", "slice_copy")
def slice_(b, x, axis=0, start=None, end=None, step=1):
    axis, size = axis_of(axis, x.type.rank), x.type.shape[axis_of(axis, x.type.rank)]
    begin, stop, step = slice(start, end, step).indices(size)
    return _cut(b, x, axis, begin, max(begin, stop), step)


def _cut(b, x, axis, start, limit, step=1):
    rank, shape = x.type.rank, x.type.shape
    return b.slice(
        x,
        starts=tuple(start if i == axis else 0 for i in range(rank)),
        limits=tuple(limit if i == axis else d for i, d in enumerate(shape)),
        strides=tuple(step if i == axis else 1 for i in range(rank)),
    )


@aten("narrow")
def narrow(b, x, axis, start, length):
    axis = axis_of(axis, x.type.rank)
    start = start + x.type.shape[axis] if start < 0 else start
    return _cut(b, x, axis, start, start + length)


@aten("select", "select_copy")
def select(b, x, axis, index):
    axis = axis_of(axis, x.type.rank)
    index = index + x.type.shape[axis] if index < 0 else index
    return b.reshape(_cut(b, x, axis, index, index + 1), shape=b.shape)


@aten("unbind", "unbind_copy")
def unbind(b, x, axis=0):
    axis = axis_of(axis, x.type.rank)
    shape = tuple(d for i, d in enumerate(x.type.shape) if i != axis)
    return tuple(
        b.reshape(_cut(b, x, axis, i, i + 1), shape=shape) for i in range(x.type.shape[axis])
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
        parts.append(_cut(b, x, axis, start, start + size))
        start += size
    return tuple(parts)


@aten("chunk")
def chunk(b, x, count, axis=0):
    total = x.type.shape[axis_of(axis, x.type.rank)]
    return split(b, x, max(1, math.ceil(total / count)), axis)


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
            x = b.concat(_cut(b, x, axis, cut, size), _cut(b, x, axis, 0, cut), axis=axis)
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


@aten("embedding")
def embedding(b, weight, indices, *args):
    return b.take(weight, indices, axis=0)


@aten("index_select")
def index_select(b, x, axis, indices):
    axis = axis_of(axis, x.type.rank)
    if indices.type.rank == 0:
        indices = b.reshape(indices, shape=(1,))
    return b.take(x, indices, axis=axis) if x.type.rank else x


@aten("gather")
def gather(b, x, axis, indices, sparse_grad=False):
    if x.type.rank == 0:
        return x
    if any(i > d for a, (i, d) in enumerate(zip(indices.type.shape, x.type.shape, strict=True))
           if a != axis_of(axis, x.type.rank)):  # fmt: skip
        raise NotSupported("indices wider than the tensor")
    axis = axis_of(axis, x.type.rank)
    limits = tuple(d if a == axis else i for a, (d, i) in
                   enumerate(zip(x.type.shape, indices.type.shape, strict=True)))  # fmt: skip
    if limits != x.type.shape:
        x = b.slice(x, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))
    return b.take_along(x, indices, axis=axis)


@aten("index", "_unsafe_index")
def index(b, x, indices):
    """Advanced indexing with integer tensors, NumPy's rules; masks depend on data and are
    refused."""
    used = [i for i, v in enumerate(indices) if v is not None]
    arrays = [indices[i] for i in used]
    if any(a.type.dtype is BOOL for a in arrays):
        raise NotSupported("a boolean mask makes a shape that depends on data")
    if used != list(range(used[0], used[0] + len(used))):
        # The indexed axes come first in the result, as in NumPy.
        rest = [i for i in range(x.type.rank) if i not in used]
        x = b.transpose(x, permutation=(*used, *rest))
        used = list(range(len(used)))
    arrays = list(b.together(*(b.to(a, I64) for a in arrays)))
    sizes = [x.type.shape[i] for i in used]
    arrays = [_from_front(b, a, d) for a, d in zip(arrays, sizes, strict=True)]
    if len(used) == 1:
        return b.take(x, arrays[0], axis=used[0])
    flat = arrays[0]
    for array, size in zip(arrays[1:], sizes[1:], strict=True):
        flat = b.add(b.mul(flat, b.scalar_like(size, flat)), array)
    shape = x.type.shape
    merged = b.reshape(x, shape=(*shape[: used[0]], math.prod(sizes), *shape[used[-1] + 1 :]))
    return b.take(merged, flat, axis=used[0])


def _from_front(b, indices, size):
    """Negative indices count from the end."""
    return b.select(b.lt(indices, b.scalar_like(0, indices)),
                    b.add(indices, b.scalar_like(size, indices)), indices)  # fmt: skip


@aten("index_put", "_unsafe_index_put", "index_put_")
def index_put(b, x, indices, values, accumulate=False):
    """Assignment at integer positions: one scatter over tuples of the leading axes."""
    if any(i is not None and i.type.dtype is BOOL for i in indices):
        mask = next(i for i in indices if i is not None)
        if (
            len(indices) > 1
            or accumulate
            or values.type.elements != 1
            or mask.type.shape != x.type.shape
        ):
            raise NotSupported("a boolean mask makes a shape that depends on data")
        fill = b.expand(b.reshape(b.to(values, x.type.dtype), shape=()), x.type.shape)
        return b.select(mask, fill, x)
    used = [i for i, v in enumerate(indices) if v is not None]
    rank = x.type.rank
    rest = [i for i in range(rank) if i not in used]
    moved = b.transpose(x, permutation=(*used, *rest))
    arrays = b.together(*(b.to(indices[i], I64) for i in used))
    arrays = [_from_front(b, a, x.type.shape[i]) for a, i in zip(arrays, used, strict=True)]
    shape = arrays[0].type.shape
    tuples = b.concat(*(b.reshape(a, shape=(*shape, 1)) for a in arrays), axis=len(shape))
    full = (*shape, *(x.type.shape[i] for i in rest))
    if used == list(range(used[0], used[0] + len(used))) and used[0]:
        # torch keeps neighbouring index axes in their place: before them come the axes left of
        # them.
        lead = used[0]
        spread = b.expand(
            values, (*full[len(shape) : len(shape) + lead], *shape, *full[len(shape) + lead :])
        )
        order = (
            *range(lead, lead + len(shape)),
            *range(lead),
            *range(lead + len(shape), len(full)),
        )
        updates = b.transpose(spread, permutation=order)
    else:
        updates = b.expand(values, full)
    mode = "add" if accumulate else "set"
    made = b.scatter_nd(moved, tuples, b.to(updates, x.type.dtype), mode=mode)
    back = [(*used, *rest).index(i) for i in range(rank)]
    return b.transpose(made, permutation=tuple(back))


def _scatter(b, x, axis, indices, updates, mode):
    if x.type.rank == 0:
        flat, at = (b.reshape(v, shape=(v.type.elements,)) for v in (x, indices))
        if isinstance(updates, Value):
            updates = b.reshape(updates, shape=(updates.type.elements,))
        return b.reshape(_scatter(b, flat, 0, at, updates, mode), shape=())
    if not isinstance(updates, Value):
        updates = b.expand(b.value(updates, x.type.dtype), indices.type.shape)
    if updates.type.shape != indices.type.shape:
        shape = indices.type.shape
        updates = b.slice(
            updates, starts=(0,) * len(shape), limits=shape, strides=(1,) * len(shape)
        )
    return b.scatter_along(x, indices, updates, axis=axis_of(axis, x.type.rank), mode=mode)


@aten("scatter")
def scatter(b, x, axis, indices, updates, reduce=None):
    modes = {None: "set", "add": "add", "multiply": "mul"}
    return _scatter(b, x, axis, indices, updates, modes[reduce])


@aten("scatter_add")
def scatter_add(b, x, axis, indices, updates):
    return _scatter(b, x, axis, indices, updates, "add")


@aten("scatter_reduce")
def scatter_reduce(b, x, axis, indices, updates, reduce, include_self=True):
    modes = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in modes:
        raise NotSupported(f"scatter_reduce {reduce}")
    if not include_self:
        start = _identity(b, x, reduce)
        x = _scatter(b, x, axis, indices, start, "set")
    return _scatter(b, x, axis, indices, updates, modes[reduce])


def _identity(b, x, reduce: str):
    """What an element is set to before updates are combined with it."""
    kind = x.type.dtype
    if reduce in ("sum", "prod"):
        return 0 if reduce == "sum" else 1
    if kind.is_float:
        return float("-inf") if reduce == "amax" else float("inf")
    info = np.iinfo(kind.numpy)
    return info.min if reduce == "amax" else info.max


@aten("select_scatter")
def select_scatter(b, x, update, axis, index):
    axis = axis_of(axis, x.type.rank)
    index = index + x.type.shape[axis] if index < 0 else index
    shape = x.type.shape
    update = b.reshape(update, shape=(*shape[:axis], 1, *shape[axis + 1 :]))
    return _replace_range(b, x, update, axis, index)


@aten("slice_scatter")
def slice_scatter(b, x, update, axis=0, start=None, end=None, step=1):
    axis = axis_of(axis, x.type.rank)
    begin, _, step = slice(start, end, step).indices(x.type.shape[axis])
    if step == 1:
        return _replace_range(b, x, update, axis, begin)
    shape = update.type.shape
    places = b.iota(shape=shape, dtype=I64, axis=axis)
    places = b.mul(places, b.scalar_like(step, places))
    places = b.add(places, b.scalar_like(begin, places))
    return b.scatter_along(x, places, b.to(update, x.type.dtype), axis=axis, mode="set")


@aten("diagonal_scatter")
def diagonal_scatter(b, x, update, offset=0, axis1=0, axis2=1):
    """``x`` with its diagonal replaced: where column - row = offset, the update spread over it."""
    rank, shape = x.type.rank, x.type.shape
    i, j = axis_of(axis1, rank), axis_of(axis2, rank)
    rows, columns = (b.iota(shape=shape, dtype=I64, axis=a) for a in (i, j))
    here = b.eq(b.sub(columns, rows), b.scalar_like(offset, rows))
    rest = tuple(a for a in range(rank) if a not in (i, j))
    # Along the diagonal the position is the row (offset >= 0) or the column.
    along, across = (i, j) if offset >= 0 else (j, i)
    wide = tuple(shape[a] if a != across else 1 for a in range(rank))
    order = sorted((*rest, along))
    source = (*rest, along)
    moved = b.transpose(
        b.to(update, x.type.dtype), permutation=tuple(source.index(a) for a in order)
    )
    axis = order.index(along)
    missing = shape[along] - moved.type.shape[axis]
    high = tuple(missing if a == axis else 0 for a in range(rank - 1))
    zeros = (0,) * (rank - 1)
    moved = b.pad(moved, b.constant(0, x.type.dtype), low=zeros, high=high, interior=zeros)
    spread = b.broadcast(b.reshape(moved, shape=wide), shape=shape, dims=tuple(range(rank)))
    return b.select(here, spread, x)


@aten("broadcast_in_dim")
def broadcast_in_dim(b, x, shape, dims):
    return b.broadcast(x, shape=b.shape, dims=tuple(dims))


@aten("empty", "empty_like", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided")
def empty(b, *args, **kwargs):
    """A tensor whose content torch leaves open: zeros."""
    return _filled(b, 0)


@aten("mH", "matrix_H")
def matrix_h(b, x):
    return transpose(b, x, -2, -1) if x.type.rank > 1 else x


@aten("eye", "eye.m")
def eye(b, *args, **kwargs):
    rows, columns = (b.iota(shape=b.shape, dtype=I64, axis=a) for a in (0, 1))
    return b.cast(b.eq(rows, columns), dtype=b.dtype)


def _replace_range(b, x, update, axis, start):
    size, length = x.type.shape[axis], update.type.shape[axis]
    parts = [_cut(b, x, axis, 0, start), update, _cut(b, x, axis, start + length, size)]
    return b.concat(*(p for p in parts if p.type.shape[axis]), axis=axis)


@aten("tril", "triu")
def triangle(b, x, diagonal=0):
    upper = str(b.node.target).split(".")[1].startswith("triu")
    rank, shape = x.type.rank, x.type.shape
    rows = b.iota(shape=shape, dtype=I64, axis=rank - 2)
    columns = b.iota(shape=shape, dtype=I64, axis=rank - 1)
    reach = b.add(rows, b.scalar_like(diagonal, rows))
    inside = b.ge(columns, reach) if upper else b.le(columns, reach)
    return b.select(inside, x, b.scalar_like(0, x))


def _filled(b, number):
    return b.expand(b.constant(np.asarray(number).astype(b.dtype.numpy)), b.shape)


@aten("full", "full_like", "new_full")
def full(b, x, *args, **kwargs):
    name = str(b.node.target).split(".")[1]
    number = args[1] if name == "new_full" else args[0]
    return b.expand(b.value(number, b.dtype), b.shape)


@aten("zeros", "zeros_like", "new_zeros")
def zeros(b, *args, **kwargs):
    return _filled(b, 0)


@aten("ones", "ones_like", "new_ones")
def ones(b, *args, **kwargs):
    return _filled(b, 1)


@aten("scalar_tensor")
def scalar_tensor(b, number, **kwargs):
    return b.value(number, b.dtype)


@aten("fill")
def fill(b, x, number):
    return b.expand(b.value(number, b.dtype), b.shape)


@aten("copy")
def copy(b, x, source, non_blocking=False):
    return b.expand(b.to(source, x.type.dtype), x.type.shape)


@aten("arange", "arange.start", "arange.start_step")
def arange(b, *args, **kwargs):
    numbers = [a for a in args if a is not None]
    start, step = 0, kwargs.get("step", 1)
    if len(numbers) == 1:
        pass
    elif len(numbers) == 2:
        start = numbers[0]
    else:
        start, _, step = numbers[:3]
    count = b.shape[0]
    if b.dtype.is_float:
        return b.constant((start + np.arange(count, dtype=np.float64) * step).astype(b.dtype.numpy))
    steps = b.iota(shape=(count,), dtype=b.dtype, axis=0)
    if step != 1:
        steps = b.mul(steps, b.scalar_like(step, steps))
    return b.add(steps, b.scalar_like(start, steps)) if start else steps


@aten("sym_size")
def sym_size(b, x, axis):
    return x.type.shape[axis]


@aten("diagonal", "diagonal_copy")
def diagonal(b, x, offset=0, axis1=0, axis2=1):
    """The entries where column - row = offset, as the last axis."""
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
    return _cut(b, flat, last, start, limit, columns + 1)


@aten("item", "_local_scalar_dense")
def item(b, x):
    raise NotSupported("a Python number taken from a tensor depends on data")
