"""Indexed reads and writes of ATen."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends.pytorch.aten.table import (
    BOOL,
    I64,
    TABLE,
    NotSupported,
    Refused,
    aten,
    axis_of,
    broadcast_shape,
)
from core_compiler.frontends.pytorch.tensors import dtype_of
from core_compiler.ir import Value


@aten("embedding")
def embedding(b, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    rows = b.in_range(b.take(weight, indices, axis=0))
    if not b.symbols.training:
        return rows
    if scale_grad_by_freq:
        raise Refused("gradients scaled by index frequency (scale_grad_by_freq)")
    if padding_idx < 0:
        return rows
    padding = b.eq(indices, b.scalar_like(padding_idx, indices))  # its row is not trained
    padding = b.broadcast(padding, shape=rows.type.shape, dims=tuple(range(indices.type.rank)))
    return b.select(padding, b.stop_gradient(rows), rows)


@aten("one_hot")
def one_hot(b, indices, classes=-1):
    if classes < 0:
        raise NotSupported("a number of classes that depends on data; pass num_classes")
    return b.in_range(b.one_hot(indices, classes=classes, dtype=I64), (indices, classes))


@aten("index_select")
def index_select(b, x, axis, indices):
    axis = axis_of(axis, x.type.rank)
    if indices.type.rank == 0:
        indices = b.reshape(indices, shape=(1,))
    return b.in_range(b.take(x, indices, axis=axis)) if x.type.rank else x


@aten("take")
def take(b, x, indices):
    """Take elements by their row-major positions; negative ones count from the end."""
    flat = b.reshape(x, shape=(x.type.elements,))
    at = b.reshape(b.to(indices, I64), shape=(indices.type.elements,))
    made = b.in_range(b.take(flat, _from_front(b, at, x.type.elements), axis=0))
    return b.reshape(made, shape=b.shape)


@aten("gather")
def gather(b, x, axis, indices, sparse_grad=False):
    if not indices.type.elements:  # of any rank
        return b.expand(b.constant(0, x.type.dtype), b.shape)
    if x.type.rank == 0:
        return b.broadcast(x, shape=indices.type.shape, dims=())
    if indices.type.rank == 0:
        indices = b.reshape(indices, shape=(1,))
        return b.reshape(b.in_range(b.take(x, indices, axis=0)), shape=())
    if any(
        i > d
        for a, (i, d) in enumerate(zip(indices.type.shape, x.type.shape, strict=True))
        if a != axis_of(axis, x.type.rank)
    ):
        raise NotSupported("indices wider than the tensor")
    axis = axis_of(axis, x.type.rank)
    limits = tuple(
        d if a == axis else i
        for a, (d, i) in enumerate(zip(x.type.shape, indices.type.shape, strict=True))
    )
    if limits != x.type.shape:
        x = b.slice(x, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))
    return b.in_range(b.take_along(x, indices, axis=axis))


def _in_range(b, made, *positions):
    """Require positions in range for ``made``, as torch does for all but its unsafe ops."""
    return made if "_unsafe" in str(b.node.target) else b.in_range(made, *positions)


@aten("index", "_unsafe_index")
def index(b, x, indices):
    """Index by NumPy's rules, with integer tensors or a mask over the first axes."""
    used = [i for i, v in enumerate(indices) if v is not None]
    arrays = [indices[i] for i in used]
    if any(a.type.dtype is BOOL for a in arrays):
        if used != [0]:
            raise NotSupported("a boolean mask with other indices, or not over the first axes")
        return _where_true(b, x, arrays[0])
    if used != list(range(used[0], used[0] + len(used))):
        # The indexed axes come first in the result, as in NumPy.
        rest = [i for i in range(x.type.rank) if i not in used]
        x = b.transpose(x, permutation=(*used, *rest))
        used = list(range(len(used)))
    arrays = list(b.broadcast_together(*(b.to(a, I64) for a in arrays)))
    sizes = [x.type.shape[i] for i in used]
    arrays = [_from_front(b, a, d) for a, d in zip(arrays, sizes, strict=True)]
    if len(used) == 1:
        return _in_range(b, b.take(x, arrays[0], axis=used[0]))
    flat = arrays[0]
    for array, size in zip(arrays[1:], sizes[1:], strict=True):
        flat = b.add(b.mul(flat, b.scalar_like(size, flat)), array)
    shape = x.type.shape
    merged = b.reshape(x, shape=(*shape[: used[0]], math.prod(sizes), *shape[used[-1] + 1 :]))
    return _in_range(b, b.take(merged, flat, axis=used[0]), *zip(arrays, sizes, strict=True))


def _where_true(b, x, mask):
    """Return the entries of x (axes of the mask, ...) at which the mask is true, in order."""
    shape, lead = x.type.shape, mask.type.rank
    if b.sizes.of(mask) or b.sizes.of(x):
        if lead != 1:
            raise NotSupported("a mask over several axes whose sizes depend on data")
        return b.compact(mask, x)[0]
    count = math.prod(shape[:lead])
    rows = b.reshape(x, shape=(count, *shape[lead:]))
    return b.compact(b.reshape(mask, shape=(count,)), rows)[0]


@aten("masked_select")
def masked_select(b, x, mask):
    shape = broadcast_shape(x.type.shape, mask.type.shape)
    return _where_true(b, b.expand(x, shape), b.expand(mask, shape))


@aten("nonzero", "argwhere")
def nonzero(b, x):
    return _places(b, x)


@aten("nonzero_static")
def nonzero_static(b, x, *, size, fill_value=-1):
    made = _places(b, x)
    fill = b.scalar_like(fill_value, made)
    made = b.plain("core.select", (b.valid_mask(made, 0), made, fill), {})
    more = max(size - made.type.shape[0], 0)
    made = b.pad(made, b.constant(fill_value, I64), low=(0, 0), high=(more, 0), interior=(0, 0))
    return b.cut(made, 0, 0, size)


def _places(b, x):
    """Return the positions of nonzero elements, one per row, and their number."""
    shape = x.type.shape
    if b.sizes.of(x):
        raise NotSupported("nonzero positions of a tensor whose size depends on data")
    held = x if x.type.dtype is BOOL else b.ne(x, b.scalar_like(0, x))
    count = math.prod(shape)
    axes = [
        b.reshape(b.iota(shape=shape, dtype=I64, axis=axis), shape=(count,))
        for axis in range(len(shape))
    ]
    row = b.iota(shape=(count,), dtype=I64, axis=0)
    made = b.compact(b.reshape(held, shape=(count,)), row, *axes)
    if not shape:  # a scalar has no position, just a row if it is not zero
        empty = b.expand(b.constant(0, I64), (1, 0))
        b.sizes.mark(empty, b.sizes.of(made[0]))
        return empty
    columns = [b.broadcast(c, shape=(count, 1), dims=(0,)) for c in made[1:]]
    return b.concat(*columns, axis=1)


def _from_front(b, indices, size):
    """Convert negative indices, which count from the end."""
    return b.select(
        b.lt(indices, b.scalar_like(0, indices)),
        b.add(indices, b.scalar_like(size, indices)),
        indices,
    )


@aten("index_put", "_unsafe_index_put", "index_put_")
def index_put(b, x, indices, values, accumulate=False):
    """Assign at integer positions, by one scatter over tuples of the leading axes."""
    if any(i is not None and i.type.dtype is BOOL for i in indices):
        if [i for i, v in enumerate(indices) if v is not None] != [0]:
            raise NotSupported("a boolean mask with other indices, or not over the first axes")
        return _masked_assign(b, x, indices[0], b.to(values, x.type.dtype), accumulate)
    if any(b.sizes.of(v) for v in (x, values, *indices) if v is not None):
        raise NotSupported("an input's size depends on data")
    used = [i for i, v in enumerate(indices) if v is not None]
    rank = x.type.rank
    rest = [i for i in range(rank) if i not in used]
    moved = b.transpose(x, permutation=(*used, *rest))
    arrays = b.broadcast_together(*(b.to(indices[i], I64) for i in used))
    arrays = [_from_front(b, a, x.type.shape[i]) for a, i in zip(arrays, used, strict=True)]
    shape = arrays[0].type.shape
    tuples = b.concat(*(b.reshape(a, shape=(*shape, 1)) for a in arrays), axis=len(shape))
    full = (*shape, *(x.type.shape[i] for i in rest))
    if used == list(range(used[0], used[0] + len(used))) and used[0]:
        # torch keeps adjacent index axes in their position: the axes before them come first.
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
    made = _in_range(b, made, *((a, x.type.shape[i]) for a, i in zip(arrays, used, strict=True)))
    back = [(*used, *rest).index(i) for i in range(rank)]
    return b.transpose(made, permutation=tuple(back))


@aten("index_fill")
def index_fill(b, x, axis, indices, value):
    """Fill by a select, so that an element named by several indices is set once.

    Its gradient is then used once, too.
    """
    fill = b.to(b.value(value, x.type.dtype), x.type.dtype)
    fill = b.expand(b.reshape(fill, shape=()), x.type.shape)
    axis = axis_of(axis, x.type.rank)
    size = x.type.shape[axis] if x.type.rank else 1
    at = b.reshape(b.to(indices, I64), shape=(indices.type.elements,))
    none, one = (b.expand(b.constant(n, I64), (k,)) for n, k in ((0, size), (1, at.type.elements)))
    held = b.in_range(b.scatter_along(none, _from_front(b, at, size), one, axis=0, mode="set"))
    held = b.ne(held, b.scalar_like(0, held))
    if x.type.rank == 0:
        return b.select(b.reshape(held, shape=()), fill, x)
    return b.select(b.broadcast(held, shape=x.type.shape, dims=(axis,)), fill, x)


def _masked_assign(b, x, mask, values, accumulate):
    """Replace the entries of x at which the mask (over its first axes) is true, in order.

    ``values`` is one for all, or a row for each.
    """
    if b.sizes.of(x) or b.sizes.of(mask):
        raise NotSupported("it writes into a tensor whose size depends on data")
    shape, lead = x.type.shape, mask.type.rank
    tail, rows = shape[lead:], math.prod(shape[:lead])
    if values.type.rank <= len(tail) or (values.type.shape[0] == 1 and not b.sizes.of(values)):
        at = max(values.type.rank - len(tail), 0)
        row = b.reshape(values, shape=values.type.shape[at:])
        fill = b.expand(b.expand(row, tail), shape)
    elif not values.type.elements:
        return x
    else:
        held = b.to(b.reshape(mask, shape=(rows,)), I64)
        place = b.sub(b.cumsum(held, axis=0), b.scalar_like(1, held))
        spread = b.expand(values, (values.type.shape[0], *tail))
        # The number of valid rows equals the number of true elements: no position is beyond them.
        fill = b.reshape(b.plain("core.take", (spread, place), {"axis": 0}), shape=shape)
    fill = b.add(x, fill) if accumulate else fill
    return b.select(b.broadcast(mask, shape=shape, dims=tuple(range(lead))), fill, x)


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
    axis = axis_of(axis, x.type.rank)
    return b.in_range(b.scatter_along(x, indices, updates, axis=axis, mode=mode))


@aten("scatter")
def scatter(b, x, axis, indices, updates, reduce=None):
    modes = {None: "set", "add": "add", "multiply": "mul"}
    return _scatter(b, x, axis, indices, updates, modes[reduce])


@aten("bincount")
def bincount(b, x, weights=None, minlength=0):
    """Count each number, or add the weights of its occurrences.

    The length is the largest number + 1, at least ``minlength``.  It has the bound that the model
    states by ``torch._check``; without one it is ``minlength``, and larger numbers are refused.
    """
    (size,) = b.node.meta["val"].shape
    name = str(getattr(size, "node", size))
    _, bound = b.symbols.ranges.get(name, (0, -1))
    length = bound if bound >= 0 else minlength
    if not length:
        raise NotSupported(
            "a length that depends on data has no bound; pass minlength=the largest number + 1"
        )
    kind = dtype_of(b.node.meta["val"].dtype)
    x = b.to(x, I64)
    added = b.expand(b.constant(1, kind), x.type.shape) if weights is None else b.to(weights, kind)
    made = b.expand(b.constant(0, kind), (length,))
    if x.type.elements:
        made = b.in_range(b.scatter_along(made, x, added, axis=0, mode="add"))
    if bound < 0:
        b.symbols.fixed[name] = length
        return made
    count = b.constant(minlength, I64)
    if x.type.elements:
        largest = b.reduce_max(x, axes=(0,))
        count = b.max(count, b.add(largest, b.scalar_like(1, largest)))
    b.sizes.mark(made, {0: count})
    return made


@aten("put")
def put(b, x, indices, source, accumulate=False):
    """Assign at row-major positions; of equal ones the last counts, or all are added."""
    flat = b.reshape(x, shape=(x.type.elements,))
    at = b.reshape(b.to(indices, I64), shape=(indices.type.elements,))
    values = b.reshape(source, shape=(source.type.elements,))
    mode = "add" if accumulate else "set"
    made = b.scatter_along(flat, _from_front(b, at, x.type.elements), values, axis=0, mode=mode)
    return b.reshape(b.in_range(made), shape=x.type.shape)


@aten("scatter_add")
def scatter_add(b, x, axis, indices, updates):
    return _scatter(b, x, axis, indices, updates, "add")


@aten("scatter_reduce")
def scatter_reduce(b, x, axis, indices, updates, reduce, include_self=True):
    if x.type.dtype is BOOL and reduce != "mean":
        kind = {"sum": "amax", "prod": "amin"}.get(reduce, reduce)
        x, updates = b.to(x, I64), b.to(updates, I64)
        made = scatter_reduce(b, x, axis, indices, updates, kind, include_self)
        return b.to(made, BOOL)
    modes = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if not include_self:
        start = _identity(b, x, reduce)
        x = _scatter(b, x, axis, indices, start, "set")
    made = _scatter(b, x, axis, indices, updates, modes[reduce])
    if reduce != "mean":
        return made
    counts = b.expand(b.constant(int(include_self), I64), x.type.shape)
    counts = _scatter(b, counts, axis, indices, 1, "add")
    counts = b.to(b.max(counts, b.scalar_like(1, counts)), x.type.dtype)
    return b.div(made, counts) if x.type.dtype.is_float else TABLE["floor_divide"](b, made, counts)


def _identity(b, x, reduce: str):
    """Return the initial value of an element before updates are combined with it."""
    kind = x.type.dtype
    if reduce in ("sum", "mean", "prod"):
        return 1 if reduce == "prod" else 0
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
    """Replace the diagonal of ``x``, where column - row = offset, by the update spread over it."""
    rank, shape = x.type.rank, x.type.shape
    i, j = axis_of(axis1, rank), axis_of(axis2, rank)
    rows, columns = (b.iota(shape=shape, dtype=I64, axis=a) for a in (i, j))
    here = b.eq(b.sub(columns, rows), b.scalar_like(offset, rows))
    rest = tuple(a for a in range(rank) if a not in (i, j))
    # The position along the diagonal is the row (offset >= 0) or the column.
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


def _replace_range(b, x, update, axis, start):
    size, length = x.type.shape[axis], update.type.shape[axis]
    parts = [b.cut(x, axis, 0, start), update, b.cut(x, axis, start + length, size)]
    return b.concat(*(p for p in parts if p.type.shape[axis]), axis=axis)


@aten("masked_scatter")
def masked_scatter(b, x, mask, source):
    """Replace the elements at which the mask is true by those of ``source``, in order."""
    shape = b.shape
    x, mask = b.expand(x, shape), b.expand(mask, shape)
    count = x.type.elements
    if not count or not source.type.elements:
        return x
    held = b.to(b.reshape(mask, shape=(count,)), I64)
    place = b.sub(b.cumsum(held, axis=0), b.scalar_like(1, held))
    found = b.take(b.reshape(source, shape=(source.type.elements,)), place, axis=0)
    return b.select(mask, b.reshape(found, shape=shape), x)


@aten("as_strided", "as_strided_copy")
def as_strided(b, x, size, stride, storage_offset=None):
    """Take elements by their position in memory.

    The position is only known if ``x`` is row-major and does not share its storage.
    """
    held = b.node.args[0].meta["val"]
    if not held.is_contiguous() or held.storage_offset():
        raise NotSupported("as_strided of a view")
    places = np.full([1] * len(size), storage_offset or 0, np.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        places = places + (np.arange(n) * step).reshape(-1, *(1,) * (len(size) - 1 - axis))
    if places.size and places.max() >= x.type.elements:
        raise NotSupported("as_strided beyond the end of its tensor")
    flat = b.reshape(x, shape=(x.type.elements,))
    return b.take(flat, b.constant(np.ascontiguousarray(places)), axis=0)
