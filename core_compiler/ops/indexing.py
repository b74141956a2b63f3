"""Gather and scatter: reading and writing at positions in tensors.

Positions out of range: a gather clamps them, a scatter drops them. Negative positions do not count
from the end (a frontend resolves them). If a model's framework rejects positions out of range, as
torch and onnxruntime do, calls of the compiled model do too (``ops/positions.py``).
"""

from __future__ import annotations

import math

import numpy as np

from core_compiler.ir import tensor
from core_compiler.ops import hooks, index_maps, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import RULES
from core_compiler.ops.precision import FOLLOWS, SUM
from core_compiler.ops.rules import (
    NUMBERS,
    free,
    need,
    need_axis,
    need_dtype,
    need_index,
    need_rank,
    need_same_dtype,
    need_shape,
    need_static,
    show,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

scatter = lazy_module.module("core_compiler.numerics.reference.scatter")

MODE = Attr(
    str,
    "set",
    "how an update changes the element: set replaces it (the last update in row-major order "
    "wins), the others combine both (add: the old value first, then the sum of its updates)",
    choices=("set", "add", "mul", "max", "min"),
)


def _take_rule(types, attributes):
    x, indices = types
    need_index("indices", indices)
    axis = need_axis(attributes["axis"], x.rank)
    need(x.shape[axis] != 0 or 0 in indices.shape, f"axis {axis} of x is empty")
    return (tensor((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype),)


def _positions(indices, size: int):
    """Return positions of any integer dtype, clamped to an axis of ``size``."""
    return np.clip(indices, 0, max(size - 1, 0)).astype(np.int64)


def _take(arrays, attributes, types):
    x, indices = arrays
    axis = attributes["axis"]
    if indices.size == 0:
        return (np.empty(types[0].shape, x.dtype),)
    return (np.take(x, _positions(indices, x.shape[axis]), axis),)


declare(
    OpDef(
        "core.take",
        "result[i.., j.., k..] = x[i.., indices[j..], k..]: whole slices along an axis (embedding)",
        ("x", "indices"),
        _take_rule,
        _take,
        attributes={"axis": Attr(int, 0, "the axis of x that indices point into")},
        flops=free,
        traits=traits("exact", "selects", "partial_read", "multilinear"),
        precision=FOLLOWS,
        lower=hooks.IndexMap(index_maps.take),
        gradient=RULES["take"],
    )
)


def _need_along(x, indices, axis: int) -> None:
    """Check that ``indices`` select along ``axis``: same rank, no other axis larger than x's."""
    need_index("indices", indices)
    need_axis(axis, x.rank)
    need_rank("indices", indices, x.rank)
    for i, (size, wanted) in enumerate(zip(x.shape, indices.shape, strict=True)):
        fits = size == wanted or (
            isinstance(size, int) and isinstance(wanted, int) and wanted <= size
        )
        need(i == axis or fits, f"axis {i}: indices has size {wanted} but x has {size}")


def _take_along_rule(types, attributes):
    x, indices = types
    axis = attributes["axis"]
    _need_along(x, indices, axis)
    need(x.shape[axis] != 0 or 0 in indices.shape, f"axis {axis} of x is empty")
    return (tensor(indices.shape, x.dtype),)


def _take_along(arrays, attributes, types):
    x, indices = arrays
    axis = attributes["axis"]
    if indices.size == 0:
        return (np.empty(types[0].shape, x.dtype),)
    box = tuple(slice(None if i == axis else n) for i, n in enumerate(indices.shape))
    return (np.take_along_axis(x[box], _positions(indices, x.shape[axis]), axis),)


declare(
    OpDef(
        "core.take_along",
        "result[i.., j, k..] = x[i.., indices[i.., j, k..], k..]: one element for each index "
        "(torch.gather)",
        ("x", "indices"),
        _take_along_rule,
        _take_along,
        attributes={"axis": Attr(int, doc="the axis of x that indices point into")},
        flops=free,
        traits=traits("exact", "selects", "partial_read", "multilinear"),
        precision=FOLLOWS,
        lower=hooks.IndexMap(index_maps.take_along),
        gradient=RULES["take_along"],
    )
)


def _gather_nd_rule(types, attributes):
    x, indices = types
    batch = attributes["batch_dims"]
    need_index("indices", indices)
    need(indices.rank >= 1, "indices has rank 0, expected a last axis of positions")
    need(
        0 <= batch < indices.rank and batch <= x.rank,
        f"batch_dims {batch} with operands of rank {x.rank} and {indices.rank}",
    )
    need(
        x.shape[:batch] == indices.shape[:batch],
        f"batch axes of x are {show(x.shape[:batch])} but of indices {show(indices.shape[:batch])}",
    )
    depth = need_static("the last axis of indices", indices.shape[-1])
    need(batch + depth <= x.rank, f"{depth} positions after {batch} batch axes of rank {x.rank}")
    return (tensor((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype),)


def _gather_nd(arrays, attributes, types):
    x, indices = arrays
    if 0 in types[0].shape:
        return (np.empty(types[0].shape, x.dtype),)
    batch, depth = attributes["batch_dims"], indices.shape[-1]
    grid = np.indices(indices.shape[:batch], sparse=True) if batch else ()
    lead = [g.reshape(g.shape + (1,) * (indices.ndim - 1 - batch)) for g in grid]
    found = [_positions(indices[..., i], x.shape[batch + i]) for i in range(depth)]
    chosen = x[tuple(lead + found)] if lead or found else x
    return (np.broadcast_to(chosen, types[0].shape),)


declare(
    OpDef(
        "core.gather_nd",
        "The last axis of indices contains positions on x's axes after the batch axes; each "
        "selects a slice of x (ONNX GatherND)",
        ("x", "indices"),
        _gather_nd_rule,
        _gather_nd,
        attributes={"batch_dims": Attr(int, 0, "number of leading axes that x and indices share")},
        flops=free,
        traits=traits("exact", "selects", "partial_read"),
        precision=FOLLOWS,
        lower=hooks.IndexMap(index_maps.gather_nd),
        gradient=RULES["gather_nd"],
    )
)


def _scatter_flops(op: typed.Scatter) -> int:
    return 0 if op.mode == "set" else op.updates.type.elements


def _need_combinable(x, mode: str) -> None:
    if mode != "set":
        need_dtype("x", x, NUMBERS)


def _put(x, depth: int, positions, updates, mode: str):
    """Return ``x`` with rows of its axes after the first ``depth`` updated at ``positions``.

    There is one array of positions per leading axis, broadcast. Updates are applied in row-major
    order; positions out of range are dropped.
    """
    rows = np.zeros(updates.shape[: updates.ndim - (x.ndim - depth)], np.int64)
    inside = np.ones(rows.shape, bool)
    for size, position in zip(x.shape, positions, strict=False):
        inside &= (position >= 0) & (position < size)
        rows = rows * size + np.where(inside, position, 0).astype(np.int64)
    width = math.prod(x.shape[depth:])
    table = np.ascontiguousarray(x).reshape(math.prod(x.shape[:depth]), width)
    kept = inside.reshape(-1)
    values = np.ascontiguousarray(updates).reshape(kept.size, width)[kept]
    made = scatter.scatter_rows(
        table, rows.reshape(-1)[kept], values, "none" if mode == "set" else mode
    )
    return made.reshape(x.shape)


def _scatter_along_rule(types, attributes):
    x, indices, updates = types
    _need_combinable(x, attributes["mode"])
    need_same_dtype(("x", "updates"), (x, updates))
    _need_along(x, indices, attributes["axis"])
    need_shape("updates", updates, indices.shape)
    return (tensor(x.shape, x.dtype),)


def _scatter_along(arrays, attributes, types):
    x, indices, updates = arrays
    positions = list(np.indices(indices.shape, sparse=True))
    positions[attributes["axis"]] = indices
    return (_put(x, x.ndim, positions, updates, attributes["mode"]),)


declare(
    OpDef(
        "core.scatter_along",
        "x with updates[i.., j, k..] written to x[i.., indices[i.., j, k..], k..] (torch.scatter)",
        ("x", "indices", "updates"),
        _scatter_along_rule,
        _scatter_along,
        attributes={"axis": Attr(int, doc="the axis of x that indices point into"), "mode": MODE},
        flops=_scatter_flops,
        precision=SUM,
        lower=hooks.Custom("scatter_along"),
        gradient=RULES["scatter_along"],
    )
)


def _scatter_nd_rule(types, attributes):
    x, indices, updates = types
    _need_combinable(x, attributes["mode"])
    need_same_dtype(("x", "updates"), (x, updates))
    need_index("indices", indices)
    need(indices.rank >= 1, "indices has rank 0, expected a last axis of positions")
    depth = need_static("the last axis of indices", indices.shape[-1])
    need(depth <= x.rank, f"{depth} positions but x has rank {x.rank}")
    need_shape("updates", updates, (*indices.shape[:-1], *x.shape[depth:]))
    return (tensor(x.shape, x.dtype),)


def _scatter_nd(arrays, attributes, types):
    x, indices, updates = arrays
    depth = indices.shape[-1]
    positions = [indices[..., i] for i in range(depth)]
    return (_put(x, depth, positions, updates, attributes["mode"]),)


declare(
    OpDef(
        "core.scatter_nd",
        "x with slices replaced or combined at the positions in the last axis of indices "
        "(ONNX ScatterND)",
        ("x", "indices", "updates"),
        _scatter_nd_rule,
        _scatter_nd,
        attributes={"mode": MODE},
        flops=_scatter_flops,
        precision=SUM,
        lower=hooks.Custom("scatter_nd"),
        gradient=RULES["scatter_nd"],
    )
)
