"""Gather and scatter with dimension numbers (StableHLO spec, gather and scatter).

Both become positions over leading axes of a transposed operand: ``core.gather_nd`` and
``core.scatter_nd``.  A window that partially covers an indexed axis is expanded to one index for
each of its elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.frontends.stablehlo.regions import combiner
from core_compiler.frontends.stablehlo.table import Context, NotSupported, op
from core_compiler.ir import Value

MODES = {"set": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _vectors_last(b: Context, indices: Value, axis: int) -> Value:
    """Return indices as i64 with their vectors on the last axis."""
    if indices.type.dtype.name == "ui64":  # values beyond i64 are beyond every axis
        indices = b.min(indices, b.scalar_like((1 << 63) - 1, indices))
    indices = b.to(indices, b.long)
    rank = indices.type.rank
    if axis == rank:
        return b.reshape(indices, shape=(*indices.type.shape, 1))
    order = (*(i for i in range(rank) if i != axis), axis)
    return b.transpose(indices, permutation=order)


def _component(b: Context, vectors: Value, index: int) -> Value:
    """Return one component of every index vector."""
    axis = vectors.type.rank - 1
    part = b.cut(vectors, axis, index, index + 1)
    return b.reshape(part, shape=vectors.type.shape[:-1])


def _stacked(b: Context, parts: Sequence[Value]) -> Value:
    """Stack components, all of one shape, to index vectors."""
    shape = parts[0].type.shape
    return b.concat(*(b.reshape(p, shape=(*shape, 1)) for p in parts), axis=len(shape))


def _spelled_out(b: Context, starts: Sequence[Value], windows: Sequence[int]) -> list[Value]:
    """Return component -> positions, with an axis for each window longer than 1.

    ``starts`` has the shape [batch..]; along a window's axis its component counts up.
    """
    lead = starts[0].type.shape
    wide = [size for size in windows if size > 1]
    shape = (*lead, *wide)
    made, place = [], len(lead)
    for start, size in zip(starts, windows, strict=True):
        value = b.broadcast(start, shape=shape, dims=tuple(range(len(lead))))
        if size > 1:
            value = b.add(value, b.iota(shape=shape, dtype="i64", axis=place))
            place += 1
        made.append(value)
    return made


@op("gather", "dynamic_gather")
def gather(b, x, indices, *_sizes):
    from jaxlib.mlir.dialects import stablehlo

    (wanted,) = b.results
    dims = stablehlo.GatherDimensionNumbers(b.operation.attributes["dimension_numbers"])
    sizes = b.integers("slice_sizes", x.type.rank, 1)
    if _sizes:
        known = b.constant_of(_sizes[0])
        if known is None:
            raise NotSupported("slice sizes that depend on data")
        sizes = tuple(map(int, known))
    if 0 in wanted.shape:
        return b.broadcast(b.constant(0, wanted.dtype), shape=wanted.shape, dims=())
    batching = list(dims.operand_batching_dims)
    indexed = list(dims.start_index_map)
    collapsed = list(dims.collapsed_slice_dims)
    vectors = _vectors_last(b, indices, dims.index_vector_dim)
    lead = [i for i in range(indices.type.rank) if i != dims.index_vector_dim]
    index_batching = [lead.index(i) for i in dims.start_indices_batching_dims]
    others = [i for i in range(len(lead)) if i not in index_batching]
    vectors = b.transpose(vectors, permutation=(*index_batching, *others, len(lead)))
    rest = [i for i in range(x.type.rank) if i not in batching and i not in indexed]
    for axis in rest:
        x = b.cut(x, axis, 0, sizes[axis]) if sizes[axis] != x.type.shape[axis] else x
    source = b.transpose(x, permutation=(*batching, *indexed, *rest))
    shape = [vectors.type.shape[i] for i in range(len(lead))]
    windows = [sizes[axis] for axis in indexed]
    if indexed:
        starts = []
        for place, axis in enumerate(indexed):
            start = _component(b, vectors, place)
            last = b.scalar_like(x.type.shape[axis] - sizes[axis], start)
            starts.append(b.min(b.max(start, b.zero(start)), last))
        positions = _stacked(b, _spelled_out(b, starts, windows))
        made = b.gather_nd(source, positions, batch_dims=len(batching))
    else:
        made = b.expand(
            b.reshape(
                source,
                shape=(
                    *source.type.shape[: len(batching)],
                    *[1] * len(others),
                    *source.type.shape[len(batching) :],
                ),
            ),
            (*shape, *source.type.shape[len(batching) :]),
        )
    # The axes are now: batch (of the indices, batching first), windows of the indexed axes, the
    # rest.
    names: list[tuple[str, int]] = [("index", i) for i in (*index_batching, *others)]
    names += [("x", axis) for axis, size in zip(indexed, windows, strict=True) if size > 1]
    made = b.reshape(
        made,
        shape=(
            *made.type.shape[: len(names)],
            *(sizes[axis] for axis in rest if axis not in collapsed),
        ),
    )
    names += [("x", axis) for axis in rest if axis not in collapsed]
    kept = [axis for axis in range(x.type.rank) if axis not in batching and axis not in collapsed]
    offsets = iter(kept)
    batches = iter(range(len(lead)))
    order = [
        ("x", next(offsets)) if i in dims.offset_dims else ("index", next(batches))
        for i in range(wanted.rank)
    ]
    made = b.transpose(made, permutation=tuple(names.index(n) for n in order if n in names))
    return b.reshape(made, shape=wanted.shape)


@op("scatter")
def scatter(b, *operands):
    from jaxlib.mlir.dialects import stablehlo

    if len(operands) != 3:
        raise NotSupported("a scatter of several tensors")
    x, indices, updates = operands
    kind = combiner(b.operation.regions[0])
    if kind == "keep":
        return x
    if x.type.dtype.kind == "bool" and kind != "set":
        kind = {
            "or": "max",
            "add": "max",
            "max": "max",
            "and": "min",
            "mul": "min",
            "min": "min",
        }.get(kind or "")
        wide = [b.cast(v, dtype="ui8") for v in (x, updates)]
        if kind is None:
            raise NotSupported("this update of booleans")
        made = _scattered(b, wide[0], indices, wide[1], kind, stablehlo)
        return b.cast(made, dtype=x.type.dtype)
    if kind not in MODES:
        raise NotSupported(
            "an update other than a sum, product, maximum or minimum of old and new elements"
        )
    return _scattered(b, x, indices, updates, kind, stablehlo)


def _scattered(b: Context, x: Value, indices: Value, updates: Value, kind: str, stablehlo) -> Value:
    held = b.operation.attributes["scatter_dimension_numbers"]
    dims = stablehlo.ScatterDimensionNumbers(held)
    rank, shape = x.type.rank, x.type.shape
    if 0 in updates.type.shape:
        return x
    batching = list(dims.input_batching_dims)
    indexed = list(dims.scattered_dims_to_operand_dims)
    inserted = {*dims.inserted_window_dims, *batching}
    window_axes = list(dims.update_window_dims)
    kept = [axis for axis in range(rank) if axis not in inserted]
    sizes = [1] * rank
    for place, axis in zip(window_axes, kept, strict=True):
        sizes[axis] = updates.type.shape[place]
    vectors = _vectors_last(b, indices, dims.index_vector_dim)
    lead = [i for i in range(indices.type.rank) if i != dims.index_vector_dim]
    count = vectors.type.shape[:-1]
    # An axis without an index starts at 0 if its window is shorter than it, or has no axis.
    partial = [
        axis
        for axis in range(rank)
        if axis not in (*indexed, *batching) and (axis in inserted or sizes[axis] != shape[axis])
    ]
    leading = [*batching, *indexed, *partial]
    rest = [axis for axis in range(rank) if axis not in leading]
    zero = b.broadcast(b.constant(0, "i64"), shape=count, dims=())
    starts, inside = [], None
    for place, axis in enumerate(leading):
        if axis in batching:
            which = dims.scatter_indices_batching_dims[place]
            starts.append(b.iota(shape=count, dtype="i64", axis=lead.index(which)))
        elif axis in partial:
            starts.append(zero)
        else:
            start = _component(b, vectors, indexed.index(axis))
            last = b.scalar_like(shape[axis] - sizes[axis], start)
            fits = b.and_(b.ge(start, b.zero(start)), b.le(start, last))
            inside = fits if inside is None else b.and_(inside, fits)
            starts.append(start)
    if not leading:  # one window over everything
        raise NotSupported("a scatter without indexed axes")
    # A window that does not fit is dropped as a whole, so all of its elements must fit.
    if inside is not None:
        far = b.scalar_like(-(1 << 40), starts[0])
        starts[0] = b.select(inside, starts[0], far)
    windows = [sizes[axis] for axis in leading]
    positions = _stacked(b, _spelled_out(b, starts, windows))
    batches = [i for i in range(updates.type.rank) if i not in window_axes]
    held_axes = dict(zip(kept, window_axes, strict=True))
    wide = [axis for axis, size in zip(leading, windows, strict=True) if size > 1]
    order = (*batches, *(held_axes[axis] for axis in (*wide, *rest)))
    # Window axes of size 1 on indexed axes no longer have a separate axis.
    ones = [held_axes[axis] for axis in leading if axis in held_axes and sizes[axis] == 1]
    moved = b.transpose(updates, permutation=(*order, *ones))
    moved = b.reshape(moved, shape=tuple(updates.type.shape[i] for i in order))
    source = b.transpose(x, permutation=(*leading, *rest))
    made = b.scatter_nd(source, positions, moved, mode=MODES[kind])
    back = [0] * rank
    for place, axis in enumerate((*leading, *rest)):
        back[axis] = place
    return b.transpose(made, permutation=tuple(back))
