"""Constants, iota and data movement: exact, no arithmetic on elements."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import Dense, DType, Resource, tensor
from core_compiler.ops import dims, hooks, index_maps
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import EXPLICIT, FOLLOWS
from core_compiler.ops.rules import (
    NUMBERS,
    free,
    need,
    need_axes,
    need_axis,
    need_dtype,
    need_index,
    need_length,
    need_rank,
    need_same_dtype,
    need_static,
    refuse,
    replaced,
    show,
)
from core_compiler.ops.traits import traits

DIM = (int, str)


# -- ops without tensor operands -------------------------------------------------------------------


def _constant_rule(types, attributes):
    return (attributes["value"].type,)


declare(
    OpDef(
        "core.constant",
        "A constant tensor: bytes in the IR if it is small, else a reference to the weight store",
        (),
        _constant_rule,
        attributes={"value": Attr((Dense, Resource), doc="its type and its bytes or digest")},
        flops=free,
        traits=traits("exact"),
        precision=EXPLICIT,
        lower=hooks.Constant(),
        gradient=CONSTANT,
    )
)


def _iota_rule(types, attributes):
    shape = attributes["shape"]
    need_axis(attributes["axis"], len(shape))
    need_dtype("dtype", attributes["dtype"], NUMBERS)
    return (tensor(shape, attributes["dtype"]),)


def _iota(arrays, attributes, types):
    shape, axis = types[0].shape, attributes["axis"]
    column = [1] * len(shape)
    column[axis] = shape[axis]
    counted = np.arange(shape[axis]).astype(types[0].dtype.numpy).reshape(column)
    return (np.broadcast_to(counted, shape),)


declare(
    OpDef(
        "core.iota",
        "0, 1, 2, ... along an axis, equal along all others; rounded if the dtype is too narrow",
        (),
        _iota_rule,
        _iota,
        attributes={
            "shape": Attr(tuple, doc="the result's shape", of=DIM),
            "dtype": Attr(DType, doc="the result's dtype"),
            "axis": Attr(int, 0, "the axis along which the values increase"),
        },
        flops=free,
        traits=traits("exact"),
        precision=EXPLICIT,
        lower=hooks.Constant(),
        gradient=CONSTANT,
    )
)


# -- one operand -----------------------------------------------------------------------------------


def _broadcast_rule(types, attributes):
    (x,), shape, axes = types, attributes["shape"], attributes["dims"]
    need_length("dims", axes, x.rank)
    need_axes(axes, len(shape), "dims")
    for i, axis in enumerate(axes):
        need(
            x.shape[i] in (1, shape[axis]),
            f"axis {i} of x has size {x.shape[i]}, which is neither 1 nor {shape[axis]}"
            f" (axis {axis} of {show(shape)})",
        )
    return (tensor(shape, x.dtype),)


def _broadcast(arrays, attributes, types):
    (x,), shape = arrays, types[0].shape
    padded = [1] * len(shape)
    for i, axis in enumerate(attributes["dims"]):
        padded[axis] = x.shape[i]
    return (np.broadcast_to(x.reshape(padded), shape),)


declare(
    OpDef(
        "core.broadcast",
        "Axis i of x becomes axis dims[i] of the result (repeated where its size is 1); "
        "axes of the result that dims leaves out are repeated",
        ("x",),
        _broadcast_rule,
        _broadcast,
        attributes={
            "shape": Attr(tuple, doc="the result's shape", of=DIM),
            "dims": Attr(tuple, doc="for each axis of x the result's axis, ascending"),
        },
        traits=traits("view", "shape_only", "multilinear"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.broadcast),
        gradient=RULES["broadcast"],
    )
)


def _reshape_rule(types, attributes):
    (x,), shape = types, attributes["shape"]
    for size in shape:
        need(isinstance(size, str) or size >= 0, f"shape {show(shape)} has a negative size")
    before, after = dims.product(x.shape), dims.product(shape)
    need(before == after, f"{show(x.shape)} has {before} elements but {show(shape)} has {after}")
    return (tensor(shape, x.dtype),)


def _reshape(arrays, attributes, types):
    return (arrays[0].reshape(types[0].shape),)


declare(
    OpDef(
        "core.reshape",
        "The same elements, in row-major order of the logical axes, under another shape",
        ("x",),
        _reshape_rule,
        _reshape,
        attributes={"shape": Attr(tuple, doc="the result's shape", of=DIM)},
        traits=traits("view", "shape_only", "multilinear"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.reshape),
        gradient=RULES["reshape"],
    )
)


def _transpose_rule(types, attributes):
    (x,), permutation = types, attributes["permutation"]
    need(
        sorted(permutation) == list(range(x.rank)),
        f"{show(permutation)} is not a permutation of the {x.rank} axes of x",
    )
    return (tensor([x.shape[a] for a in permutation], x.dtype),)


def _transpose(arrays, attributes, types):
    return (arrays[0].transpose(attributes["permutation"]),)


declare(
    OpDef(
        "core.transpose",
        "Axis i of the result is axis permutation[i] of x",
        ("x",),
        _transpose_rule,
        _transpose,
        attributes={"permutation": Attr(tuple, doc="for each axis of the result, x's axis")},
        traits=traits("view", "shape_only", "multilinear"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.transpose),
        gradient=RULES["transpose"],
    )
)


def _same_rule(types, attributes):
    return (tensor(types[0].shape, types[0].dtype),)


declare(
    OpDef(
        "core.stop_gradient",
        "x; differentiation treats it as a constant",
        ("x",),
        _same_rule,
        lambda arrays, attributes, types: (arrays[0],),
        traits=traits("view"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.same),
        expand=lambda b, op: op.x,
        gradient=CONSTANT,
    )
)


def _slice_rule(types, attributes):
    (x,) = types
    parts = starts, limits, strides = [attributes[n] for n in ("starts", "limits", "strides")]
    for name, part in zip(("starts", "limits", "strides"), parts, strict=True):
        need_length(name, part, x.rank)
    shape = []
    for axis, (size, start, limit, stride) in enumerate(
        zip(x.shape, starts, limits, strides, strict=True)
    ):
        need(stride >= 1, f"axis {axis}: stride {stride} is below 1 (reverse is its own op)")
        need(start >= 0, f"axis {axis}: start {start} is negative")
        if isinstance(limit, int):
            need(limit >= start, f"axis {axis}: limit {limit} is below start {start}")
            if isinstance(size, int):
                need(limit <= size, f"axis {axis}: limit {limit} exceeds the size {size}")
        else:
            need(limit == size, f"axis {axis}: limit {limit!r} is not the size {size!r}")
        steps = dims.floor_divide(dims.add(limit, stride - 1 - start), stride)
        if steps is None:
            refuse(f"axis {axis}: symbolic limit {limit!r} with stride {stride}; bind it first")
        shape.append(steps)
    return (tensor(shape, x.dtype),)


def _slice(arrays, attributes, types):
    bounds = zip(*(attributes[n] for n in ("starts", "limits", "strides")), strict=True)
    return (arrays[0][tuple(slice(*b) for b in bounds)],)


declare(
    OpDef(
        "core.slice",
        "Elements starts[i], starts[i] + strides[i], ... below limits[i] of each axis",
        ("x",),
        _slice_rule,
        _slice,
        attributes={
            "starts": Attr(tuple, doc="first position of each axis"),
            "limits": Attr(tuple, doc="end of each axis, exclusive", of=DIM),
            "strides": Attr(tuple, doc="step of each axis, at least 1"),
        },
        traits=traits("view", "partial_read", "multilinear"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.slice_),
        gradient=RULES["slice"],
    )
)


def _reverse_rule(types, attributes):
    need_axes(attributes["axes"], types[0].rank)
    return (tensor(types[0].shape, types[0].dtype),)


def _reverse(arrays, attributes, types):
    return (np.flip(arrays[0], attributes["axes"]),)


declare(
    OpDef(
        "core.reverse",
        "The order of the elements reversed along the axes",
        ("x",),
        _reverse_rule,
        _reverse,
        attributes={"axes": Attr(tuple, doc="which axes, ascending")},
        traits=traits("view", "multilinear"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.reverse),
        gradient=RULES["reverse"],
    )
)


def _pad_rule(types, attributes):
    x, value = types
    need_rank("value", value, 0)
    need_same_dtype(("x", "value"), types)
    low, high = attributes["low"], attributes["high"]
    interior, shape = attributes["interior"], []
    for name, part in (("low", low), ("high", high), ("interior", interior)):
        need_length(name, part, x.rank)
    for axis, size in enumerate(x.shape):
        need(interior[axis] >= 0, f"axis {axis}: interior padding {interior[axis]} is negative")
        between = dims.multiply(interior[axis], dims.subtract(size, 1)) if size != 0 else 0
        total = dims.add(size, between, low[axis], high[axis])
        need(isinstance(total, str) or total >= 0, f"axis {axis}: size {size} cropped to {total}")
        shape.append(total)
    return (tensor(shape, x.dtype),)


def _pad(arrays, attributes, types):
    x, value = arrays
    made = np.full(types[0].shape, value, x.dtype)
    target, source = [], []
    parts = zip(*(attributes[n] for n in ("low", "interior")), strict=True)
    for (low, interior), size, extent in zip(parts, x.shape, made.shape, strict=True):
        step = interior + 1
        first = max(0, -(low // step))  # the first element of x that is not cropped
        last = min(size, (extent - 1 - low) // step + 1)
        source.append(slice(first, max(first, last)))
        begin = low + first * step
        target.append(slice(begin, begin + max(0, last - first) * step, step))
    made[tuple(target)] = x[tuple(source)]
    return (made,)


declare(
    OpDef(
        "core.pad",
        "x with value before (low), after (high) and between (interior) its elements; "
        "a negative low or high crops",
        ("x", "value"),
        _pad_rule,
        _pad,
        attributes={
            "low": Attr(tuple, doc="elements before each axis"),
            "high": Attr(tuple, doc="elements after each axis"),
            "interior": Attr(tuple, doc="elements between adjacent elements of each axis"),
        },
        flops=free,
        traits=traits("exact", "selects", "multilinear"),
        precision=FOLLOWS,
        lower=hooks.IndexMap(index_maps.pad),
        gradient=RULES["pad"],
    )
)


# -- several operands ------------------------------------------------------------------------------


def _concat_rule(types, attributes):
    need(bool(types), "nothing to join")
    first, axis = types[0], attributes["axis"]
    need_axis(axis, first.rank)
    for i, other in enumerate(types[1:], 1):
        need(
            other.dtype is first.dtype,
            f"operand 0 is {first.dtype.name} but operand {i} is {other.dtype.name}",
        )
        need(
            other.rank == first.rank
            and replaced(other.shape, axis, 0) == replaced(first.shape, axis, 0),
            f"operand {i} has shape {show(other.shape)}, which differs from operand 0's"
            f" {show(first.shape)} outside axis {axis}",
        )
    joined = dims.add(*(t.shape[axis] for t in types))
    return (tensor(replaced(first.shape, axis, joined), first.dtype),)


def _concat(arrays, attributes, types):
    return (np.concatenate(arrays, attributes["axis"]),)


declare(
    OpDef(
        "core.concat",
        "The operands concatenated along an axis",
        ("*xs",),
        _concat_rule,
        _concat,
        attributes={"axis": Attr(int, doc="the axis of the concatenation")},
        flops=free,
        traits=traits("exact", "selects", "multilinear"),
        precision=FOLLOWS,
        lower=hooks.IndexMap(index_maps.concat),
        gradient=RULES["concat"],
    )
)


def _dynamic_slice_rule(types, attributes):
    x, *starts = types
    sizes = attributes["sizes"]
    need_length("sizes", sizes, x.rank)
    need_starts(starts, x.rank)
    for axis, (size, wanted) in enumerate(zip(x.shape, sizes, strict=True)):
        if isinstance(size, int):
            need(
                need_static(f"sizes[{axis}]", wanted) <= size,
                f"axis {axis}: a slice of {wanted} exceeds the size {size}",
            )
    return (tensor(sizes, x.dtype),)


def need_starts(starts, rank: int) -> None:
    """Check that there is one rank-0 integer per dimension, all of one dtype."""
    need(len(starts) == rank, f"{len(starts)} starts for {rank} axes")
    for i, start in enumerate(starts):
        need_rank(f"start {i}", start, 0)
        need_index(f"start {i}", start)


def _dynamic_slice(arrays, attributes, types):
    x, *starts = arrays
    return (x[_box(x.shape, starts, types[0].shape)],)


def _box(shape, starts, sizes) -> tuple[slice, ...]:
    """Return the box of ``sizes`` at ``starts``, clamped into ``shape``."""
    clamped = [
        min(max(int(start), 0), size - part)
        for size, start, part in zip(shape, starts, sizes, strict=True)
    ]
    return tuple(slice(c, c + part) for c, part in zip(clamped, sizes, strict=True))


declare(
    OpDef(
        "core.dynamic_slice",
        "A box of the given sizes at run-time starts, each clamped so that the box fits",
        ("x", "*starts"),
        _dynamic_slice_rule,
        _dynamic_slice,
        attributes={"sizes": Attr(tuple, doc="the result's shape", of=DIM)},
        flops=free,
        traits=traits("exact", "selects", "partial_read"),
        precision=FOLLOWS,
        lower=hooks.IndexMap(index_maps.dynamic_slice),
        gradient=RULES["dynamic_slice"],
    )
)


def _dynamic_update_slice_rule(types, attributes):
    x, update, *starts = types
    need_same_dtype(("x", "update"), (x, update))
    need_rank("update", update, x.rank)
    need_starts(starts, x.rank)
    for axis, (size, part) in enumerate(zip(x.shape, update.shape, strict=True)):
        if isinstance(size, int) and isinstance(part, int):
            need(part <= size, f"axis {axis}: an update of {part} exceeds the size {size}")
    return (tensor(x.shape, x.dtype),)


def _dynamic_update_slice(arrays, attributes, types):
    x, update, *starts = arrays
    made = x.copy()
    made[_box(x.shape, starts, update.shape)] = update
    return (made,)


declare(
    OpDef(
        "core.dynamic_update_slice",
        "x with the box at run-time starts (each clamped so that the box fits) replaced by update",
        ("x", "update", "*starts"),
        _dynamic_update_slice_rule,
        _dynamic_update_slice,
        flops=free,
        traits=traits("exact", "selects"),
        precision=FOLLOWS,
        lower=hooks.Part(index_maps.dynamic_update_slice, index_maps.update_starts),
        gradient=RULES["dynamic_update_slice"],
    )
)
