"""Data movement of ONNX: constants, reshapes, slices, gathers, scatters."""

from __future__ import annotations

from functools import reduce
from math import ceil, prod

import numpy as np

from core_compiler.frontends.base import need_small
from core_compiler.frontends.onnx.reading import dtype_of, to_array
from core_compiler.frontends.onnx.table import (
    FOLDED_ELEMENTS,
    TABLE,
    NotSupported,
    axis_of,
    onnx_op,
)
from core_compiler.ir import dtype
from core_compiler.ops.builder import broadcast_shape

I64 = dtype("i64")


@onnx_op("Constant")
def constant(b):
    if len(b.attributes) != 1:
        raise NotSupported(f"a constant with {len(b.attributes)} values")
    ((name, value),) = b.attributes.items()
    if name == "value":
        return b.constant(to_array(value, b.importer.folder))
    kinds = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if name not in kinds:
        raise NotSupported(f"a constant given as {name}")
    return b.constant(np.asarray(value, kinds[name]))


@onnx_op("ConstantOfShape")
def constant_of_shape(b, shape):
    value = b.attr("value")
    number = to_array(value, None).reshape(()) if value is not None else np.float32(0)
    return b.expand(b.constant(number), [int(d) for d in b.const(shape, "the shape").reshape(-1)])


@onnx_op("Shape")
def shape_(b, x):
    sizes, counts = x.type.shape, b.sizes.of(x)
    axes = range(x.type.rank)[slice(b.attr("start", 0), b.attr("end"))]
    if not any(axis in counts for axis in axes):
        return b.constant(np.array([sizes[axis] for axis in axes], np.int64))
    found = [counts[axis] if axis in counts else b.constant(np.int64(sizes[axis])) for axis in axes]
    return b.concat(*(b.reshape(size, shape=(1,)) for size in found), axis=0)


@onnx_op("Size")
def size(b, x):
    counts = b.sizes.of(x)
    fixed = prod(d for axis, d in enumerate(x.type.shape) if axis not in counts)
    return reduce(b.mul, counts.values(), b.constant(np.int64(fixed)))


@onnx_op("Range")
def range_(b, start, limit, step):
    start, limit, step = (b.const(v, "the range").reshape(()) for v in (start, limit, step))
    if not step or not abs(float(limit) - float(start)) <= abs(float(step)) * FOLDED_ELEMENTS:
        raise NotSupported(f"a range from {start} to {limit} in steps of {step}")
    if start.dtype.kind in "iu":
        return b.constant(np.arange(start, limit, step, dtype=start.dtype))
    first, last, each = (float(v) for v in (start, limit, step))  # arange rounds the step first
    places = np.arange(max(ceil((last - first) / each), 0))
    return b.constant((first + places * each).astype(start.dtype))


@onnx_op("Reshape")
def reshape(b, x, shape):
    wanted = [int(d) for d in b.const(shape, "the shape").reshape(-1)]
    if not b.attr("allowzero", 0):
        wanted = [x.type.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    if -1 in wanted:
        rest = prod(d for d in wanted if d != -1)
        wanted[wanted.index(-1)] = x.type.elements // rest if rest else 0
    return b.reshape(x, shape=tuple(wanted))


@onnx_op("Flatten")
def flatten(b, x):
    axis = b.attr("axis", 1)
    axis = axis + x.type.rank if axis < 0 else axis
    rows = prod(x.type.shape[:axis])
    return b.reshape(x, shape=(rows, prod(x.type.shape[axis:])))


@onnx_op("Squeeze")
def squeeze(b, x, axes=None):
    given = b.axes(axes, x.type.rank)
    if given is None:
        given = tuple(i for i, d in enumerate(x.type.shape) if d == 1)
    if any(x.type.shape[a] != 1 for a in given):
        raise NotSupported(f"squeeze of axes {given} of shape {x.type.shape}")
    return b.reshape(x, shape=tuple(d for i, d in enumerate(x.type.shape) if i not in given))


@onnx_op("Unsqueeze")
def unsqueeze(b, x, axes=None):
    given = b.ints(axes, "axes") if axes is not None else b.attr("axes")
    rank = x.type.rank + len(given)
    places = sorted(axis_of(int(a), rank) for a in given)
    shape = list(x.type.shape)
    for place in places:
        shape.insert(place, 1)
    kept = tuple(axis for axis in range(rank) if axis not in places)
    if b.sizes.of(x):  # a reshape does not identify axes
        return b.broadcast(x, shape=tuple(shape), dims=kept)
    return b.reshape(x, shape=tuple(shape))


@onnx_op("Transpose")
def transpose(b, x):
    order = b.attr("perm") or list(reversed(range(x.type.rank)))
    return b.transpose(x, permutation=tuple(int(a) for a in order))


@onnx_op("Expand")
def expand(b, x, shape):
    wanted = [int(d) for d in b.const(shape, "the shape").reshape(-1)]
    return b.expand(x, broadcast_shape(x.type.shape, tuple(wanted)))


@onnx_op("Tile")
def tile(b, x, repeats):
    times = b.ints(repeats, "repeats")
    wide = tuple(n for t, d in zip(times, x.type.shape, strict=True) for n in (t, d))
    spread = b.broadcast(x, shape=wide, dims=tuple(2 * i + 1 for i in range(x.type.rank)))
    return b.reshape(spread, shape=tuple(t * d for t, d in zip(times, x.type.shape, strict=True)))


@onnx_op("Concat")
def concat(b, *xs):
    return b.concat(*xs, axis=axis_of(b.attr("axis"), xs[0].type.rank))


@onnx_op("Split")
def split(b, x, sizes=None):
    axis = axis_of(b.attr("axis", 0), x.type.rank)
    given = b.ints(sizes, "the sizes") if sizes is not None else b.attr("split")
    total = x.type.shape[axis]
    if given is None:
        count = len(b.node.output)
        if b.attr("num_outputs", count) != count:
            raise NotSupported(f"num_outputs {b.attr('num_outputs')} with {count} outputs")
        part = -(-total // count)
        given = [max(0, min(part, total - i * part)) for i in range(count)]
    parts, start = [], 0
    for length in given:
        parts.append(b.cut(x, axis, start, start + length))
        start += length
    return tuple(parts)


@onnx_op("Slice")
def slice_(b, x, starts=None, ends=None, axes=None, steps=None):
    rank = x.type.rank
    if b.opset < 10:
        starts, ends, axes = b.attr("starts"), b.attr("ends"), b.attr("axes")
        steps = None
    else:
        starts, ends = b.ints(starts, "starts"), b.ints(ends, "ends")
        axes = b.ints(axes, "axes") if axes is not None else None
        steps = b.ints(steps, "steps") if steps is not None else None
    axes = list(axes) if axes is not None else list(range(len(starts)))
    steps = steps or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(axis, rank)
        if step < 0:  # it begins with the first element then
            start = max(start, -x.type.shape[axis])
        places = range(*slice(start, end, step).indices(x.type.shape[axis]))
        if step < 0:
            x = b.reverse(x, axes=(axis,))
            last = x.type.shape[axis] - 1
            places = range(last - places.start, last - places.stop, -step)
        limit = places[-1] + 1 if len(places) else places.start
        count = b.sizes.of(x).get(axis)
        x = b.cut(x, axis, min(places.start, limit), limit, abs(step))
        if count is not None and end < 0:  # from the data-dependent end
            left = b.max(b.add(count, b.constant(end, I64)), b.constant(0, I64))
            b.sizes.mark(x, {**b.sizes.of(x), axis: left})
    return x


@onnx_op("Gather")
def gather(b, x, indices):
    axis = axis_of(b.attr("axis", 0), x.type.rank)
    return b.in_range(b.take(x, from_front(b, indices, x.type.shape[axis]), axis=axis))


def from_front(b, indices, size: int):
    """Convert negative indices, which count from the end; known ones are converted at import."""
    known = b.known(indices)
    if known is not None:
        if np.all(known >= 0):
            return indices
        return b.constant(np.where(known < 0, known + size, known).astype(known.dtype))
    return b.select(
        b.lt(indices, b.scalar_like(0, indices)),
        b.add(indices, b.scalar_like(size, indices)),
        indices,
    )


@onnx_op("GatherElements")
def gather_elements(b, x, indices):
    axis = axis_of(b.attr("axis", 0), x.type.rank)
    limits = tuple(
        d if a == axis else i
        for a, (d, i) in enumerate(zip(x.type.shape, indices.type.shape, strict=True))
    )
    if limits != x.type.shape:
        x = b.slice(x, starts=(0,) * len(limits), limits=limits, strides=(1,) * len(limits))
    return b.in_range(b.take_along(x, from_front(b, indices, x.type.shape[axis]), axis=axis))


@onnx_op("GatherND")
def gather_nd(b, x, indices):
    first = int(b.attr("batch_dims", 0))
    return b.in_range(b.gather_nd(x, _tuple_from_front(b, x, indices), batch_dims=first))


def _tuple_from_front(b, x, indices):
    """Convert negative components of index tuples, which count from the end of their axis."""
    first = int(b.attr("batch_dims", 0))
    width = indices.type.shape[-1]
    known = b.known(indices)
    sizes = np.array(x.type.shape[first : first + width], np.int64)
    if known is not None:
        return (
            indices if np.all(known >= 0) else b.constant(np.where(known < 0, known + sizes, known))
        )
    spread = b.broadcast(b.constant(sizes), shape=indices.type.shape, dims=(indices.type.rank - 1,))
    return b.select(b.lt(indices, b.scalar_like(0, indices)), b.add(indices, spread), indices)


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(b, x, indices, updates):
    axis = axis_of(b.attr("axis", 0), x.type.rank)
    mode = {"none": "set"}.get(b.attr("reduction", "none"), b.attr("reduction", "none"))
    indices = from_front(b, indices, x.type.shape[axis])
    return b.in_range(b.scatter_along(x, indices, updates, axis=axis, mode=mode))


@onnx_op("ScatterND")
def scatter_nd(b, x, indices, updates):
    mode = {"none": "set"}.get(b.attr("reduction", "none"), b.attr("reduction", "none"))
    return b.in_range(b.scatter_nd(x, _tuple_from_front(b, x, indices), updates, mode=mode))


@onnx_op("Pad")
def pad(b, x, pads=None, value=None, axes=None):
    rank = x.type.rank
    mode = b.attr("mode", "constant")
    if b.opset < 11:
        amounts = [int(p) for p in b.attr("pads")]
        fill = b.constant(b.attr("value", 0.0), x.type.dtype)
    else:
        amounts = b.ints(pads, "pads")
        fill = value if value is not None else b.constant(0, x.type.dtype)
        fill = b.reshape(fill, shape=()) if fill.type.rank else fill
    places = (
        [axis_of(a, rank) for a in b.ints(axes, "axes")] if axes is not None else list(range(rank))
    )
    low, high = [0] * rank, [0] * rank
    for i, axis in enumerate(places):
        low[axis], high[axis] = amounts[i], amounts[i + len(places)]
    if mode == "constant":
        return b.pad(x, fill, low=tuple(low), high=tuple(high), interior=(0,) * rank)
    for axis in range(rank):
        if low[axis] or high[axis]:
            x = b.take(
                x, b.constant(_mirrored(x.type.shape[axis], low[axis], high[axis], mode)), axis=axis
            )
    return x


def _mirrored(size: int, low: int, high: int, mode: str) -> np.ndarray:
    """Return the source positions of an axis padded by reflection, edge or wrap.

    Negative amounts crop.
    """
    need_small(max(size, low + size + high), "positions of a padded axis")
    places = np.arange(-low, size + high)
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    if mode == "reflect":
        period = max(2 * (size - 1), 1)
        places = places % period
        return np.where(places < size, places, period - places)
    raise NotSupported(f"padding mode {mode}")


@onnx_op("Trilu")
def trilu(b, x, k=None):
    shift = b.ints(k, "k")[0] if k is not None else 0
    rank, shape = x.type.rank, x.type.shape
    rows = b.iota(shape=shape, dtype=I64, axis=rank - 2)
    columns = b.iota(shape=shape, dtype=I64, axis=rank - 1)
    reach = b.add(rows, b.scalar_like(shift, rows))
    inside = b.ge(columns, reach) if b.attr("upper", 1) else b.le(columns, reach)
    return b.select(inside, x, b.scalar_like(0, x))


@onnx_op("EyeLike")
def eye_like(b, x):
    kind = dtype_of(b.attr("dtype")) if b.attr("dtype") is not None else x.type.dtype
    rows, columns = (b.iota(shape=x.type.shape, dtype=I64, axis=a) for a in (0, 1))
    shifted = b.add(rows, b.scalar_like(int(b.attr("k", 0)), rows))
    return b.cast(b.eq(shifted, columns), dtype=kind)


@onnx_op("OneHot")
def one_hot(b, indices, depth, values):
    count = b.ints(depth, "the depth")[0]
    rank = indices.type.rank + 1
    axis = axis_of(b.attr("axis", -1), rank)
    kind = indices.type.dtype
    if kind.is_float or kind.bits < 32:  # the dtype may be too small to count that far
        indices = b.cast(indices, dtype=I64)
    indices = from_front(b, indices, count)
    shape = (*indices.type.shape[:axis], count, *indices.type.shape[axis:])
    kept = tuple(i for i in range(rank) if i != axis)
    here = b.eq(
        b.iota(shape=shape, dtype=indices.type.dtype, axis=axis),
        b.broadcast(indices, shape=shape, dims=kept),
    )
    off, on = (b.expand(b.reshape(b.cut(values, 0, i, i + 1), shape=()), shape) for i in (0, 1))
    return b.select(here, on, off)


@onnx_op("DepthToSpace")
def depth_to_space(b, x):
    n, c, h, w = x.type.shape
    s = b.attr("blocksize")
    if b.attr("mode", "DCR") == "DCR":
        parts, order = (n, s, s, c // (s * s), h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, c // (s * s), s, s, h, w), (0, 1, 4, 2, 5, 3)
    moved = b.transpose(b.reshape(x, shape=parts), permutation=order)
    return b.reshape(moved, shape=(n, c // (s * s), h * s, w * s))


@onnx_op("SpaceToDepth")
def space_to_depth(b, x):
    n, c, h, w = x.type.shape
    s = b.attr("blocksize")
    split = b.reshape(x, shape=(n, c, h // s, s, w // s, s))
    order = (0, 1, 3, 5, 2, 4) if b.attr("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return b.reshape(b.transpose(split, permutation=order), shape=(n, c * s * s, h // s, w // s))


@onnx_op("CenterCropPad")
def center_crop_pad(b, x, shape):
    rank = x.type.rank
    wanted = b.ints(shape, "the shape")
    axes = [axis_of(a, rank) for a in b.attr("axes")] if b.attr("axes") else list(range(rank))
    low, high = [0] * rank, [0] * rank
    for axis, size in zip(axes, wanted, strict=True):
        more = size - x.type.shape[axis]
        before = more // 2 if more >= 0 else -(-more // 2)
        low[axis], high[axis] = before, more - before
    fill = b.constant(0, x.type.dtype)
    return b.pad(x, fill, low=tuple(low), high=tuple(high), interior=(0,) * rank)


@onnx_op("ReverseSequence")
def reverse_sequence(b, x, lengths):
    batch, time = int(b.attr("batch_axis", 1)), int(b.attr("time_axis", 0))
    if {batch, time} != {0, 1}:
        raise NotSupported(f"batches along axis {batch} and time along axis {time}")
    shape = x.type.shape
    steps = b.iota(shape=shape, dtype=I64, axis=time)
    ends = b.broadcast(b.to(lengths, I64), shape=shape, dims=(batch,))
    mirrored = b.sub(b.sub(ends, b.scalar_like(1, ends)), steps)
    return b.take_along(x, b.select(b.lt(steps, ends), mirrored, steps), axis=time)


@onnx_op("Col2Im")
def col2im(b, x, image, block):
    """Add columns back onto the image they were cut from, by one scatter over flat positions."""
    image, block = b.ints(image, "the image's shape"), b.ints(block, "the block's shape")
    count = len(image)
    dilations, strides = (b.attr(n) or [1] * count for n in ("dilations", "strides"))
    pads = b.attr("pads") or [0] * (2 * count)
    padded = [d + lo + hi for d, lo, hi in zip(image, pads[:count], pads[count:], strict=True)]
    counts = [
        (p - dl * (k - 1) - 1) // s + 1
        for p, k, s, dl in zip(padded, block, strides, dilations, strict=True)
    ]
    n, columns, places = x.type.shape
    channels = columns // prod(block)
    if prod(padded) > FOLDED_ELEMENTS or prod(block) * places > FOLDED_ELEMENTS:
        raise NotSupported(f"an image of {image}")
    flat = np.zeros((1,) * (2 * count), np.int64)
    for i in range(count):
        at = (
            np.arange(block[i])[:, None] * dilations[i] + np.arange(counts[i])[None, :] * strides[i]
        )
        view = [1] * (2 * count)
        view[i], view[count + i] = at.shape
        flat = flat * padded[i] + at.reshape(view)
    index = np.broadcast_to(flat, (*block, *counts)).reshape(1, prod(block) * places)
    shape = (n * channels, prod(block) * places)
    index = b.broadcast(b.constant(np.ascontiguousarray(index)), shape=shape, dims=(0, 1))
    zeros = b.expand(b.constant(0, x.type.dtype), (n * channels, prod(padded)))
    summed = b.scatter_along(zeros, index, b.reshape(x, shape=shape), axis=1, mode="add")
    full = b.reshape(summed, shape=(n, channels, *padded))
    starts = (0, 0, *pads[:count])
    limits = (n, channels, *(lo + d for lo, d in zip(pads[:count], image, strict=True)))
    return b.slice(full, starts=starts, limits=limits, strides=(1,) * (count + 2))


def _window(formula):
    def handler(b, size):
        length = b.ints(size, "the size")[0]
        if length > FOLDED_ELEMENTS:
            raise NotSupported(f"a window of {length} elements")
        period = length if b.attr("periodic", 1) else length - 1
        angle = 2 * np.pi * np.arange(length) / period
        return b.constant(formula(angle).astype(dtype_of(b.attr("output_datatype", 1)).numpy))

    return handler


TABLE["HannWindow"] = _window(lambda a: 0.5 - 0.5 * np.cos(a))
TABLE["HammingWindow"] = _window(lambda a: 25 / 46 - 21 / 46 * np.cos(a))
TABLE["BlackmanWindow"] = _window(lambda a: 0.42 - 0.5 * np.cos(a) + 0.08 * np.cos(2 * a))


@onnx_op("AffineGrid")
def affine_grid(b, theta, size):
    """Compute sampling positions in [-1, 1]: theta times the homogeneous grid."""
    n, _, *spatial = b.ints(size, "the size")
    if prod(spatial) > FOLDED_ELEMENTS:
        raise NotSupported(f"a grid of {spatial}")
    aligned = bool(b.attr("align_corners", 0))

    def ticks(d):
        if aligned:
            return np.linspace(-1, 1, d) if d > 1 else np.array([-1.0])
        return (2 * np.arange(d) + 1) / d - 1

    grids = np.meshgrid(*(ticks(d) for d in spatial), indexing="ij")
    homogeneous = np.stack([*(g.reshape(-1) for g in reversed(grids)), np.ones(prod(spatial))], -1)
    points = b.constant(homogeneous.astype(theta.type.dtype.numpy))
    points = b.broadcast(points, shape=(n, *points.type.shape), dims=(1, 2))
    made = b.matmul(points, b.transpose(theta, permutation=(0, 2, 1)))
    return b.reshape(made, shape=(n, *spatial, len(spatial)))
