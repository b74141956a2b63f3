"""Gathers and scatters in the contract's order.

Each destination's hits come in ascending linear index of the update; their total runs from +0 in
chunks of 256; the old value is added first: old + total. A destination without hits keeps its bits.
There are no atomics, so the result depends on nothing else. ``mul`` is the same with 1 and
products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.jit import jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.contraction import accumulator_type
from core_compiler.numerics.reference.dtypes import accumulator, cast, dtype_name, widen
from core_compiler.numerics.reference.keys import order_keys, values_of_keys

CHUNK = 256
REDUCTIONS = ("none", "add", "mul", "max", "min")


def gather(x: np.ndarray, indices: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return x[.., indices, ..] along ``axis`` (ONNX Gather).

    Negative indices count from the end.
    """
    return np.take(x, _checked(indices, x.shape[axis], "gather"), axis)


def gather_elements(x: np.ndarray, indices: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return out[i, j] = x[indices[i, j], j] for axis 0 (ONNX GatherElements, torch.gather)."""
    places = _element_places(x.shape, indices, axis, "gather_elements")
    return x.reshape(-1)[places]


def gather_nd(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Gather by indices [..., d] of x's first d axes; result [..., x.shape[d:]]."""
    depth = indices.shape[-1]
    rows = _linear(x.shape[:depth], indices)
    return (
        x.reshape(-1, *x.shape[depth:])[rows]
        if depth
        else np.broadcast_to(x, (*indices.shape[:-1], *x.shape)).copy()
    )


def scatter_elements(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0, reduction: str = "none"
) -> np.ndarray:
    """Return x updated at x[indices[i, j], j] for axis 0 (ONNX ScatterElements, torch.scatter)."""
    updates = updates[tuple(slice(0, n) for n in indices.shape)]
    places = _element_places(x.shape, indices, axis, "scatter_elements").reshape(-1)
    rows = scatter_rows(x.reshape(-1, 1), places, updates.reshape(-1, 1), reduction)
    return rows.reshape(x.shape)


def scatter_nd(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str = "none"
) -> np.ndarray:
    """Return x with updates [..., x.shape[d:]] at indices [..., d] of x's first d axes.

    This is ONNX ScatterND.
    """
    depth = indices.shape[-1]
    width = math.prod(x.shape[depth:])
    rows = _linear(x.shape[:depth], indices).reshape(-1)
    table = x.reshape(math.prod(x.shape[:depth]), width)
    return scatter_rows(table, rows, updates.reshape(-1, width), reduction).reshape(x.shape)


def index_add(x: np.ndarray, axis: int, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """Return x with updates' slices added at ``indices`` [n] along ``axis`` (torch.index_add)."""
    rows = _checked(indices, x.shape[axis], "index_add").reshape(-1)
    table = np.moveaxis(x, axis, 0)
    values = np.moveaxis(updates, axis, 0).reshape(len(rows), -1)
    done = scatter_rows(table.reshape(table.shape[0], -1), rows, values, "add")
    return np.moveaxis(done.reshape(table.shape), 0, axis)


def embedding_gradient(indices: np.ndarray, dy: np.ndarray, rows: int) -> np.ndarray:
    """Return dw [rows, D] of a lookup: dy [..., D] added at ``indices`` [...]."""
    table = np.zeros((rows, dy.shape[-1]), dy.dtype)
    places = _checked(indices, rows, "embedding_gradient").reshape(-1)
    return scatter_rows(table, places, dy.reshape(-1, dy.shape[-1]), "add")


def scatter_rows(
    table: np.ndarray, rows: np.ndarray, updates: np.ndarray, reduction: str = "none"
) -> np.ndarray:
    """Return table [R, W] with updates [U, W] applied at ``rows`` [U] in ascending u.

    ``none``: the last update of a row remains. ``add``, ``mul``: see the module. ``max``, ``min``:
    the contract's order (-0 < +0, NaN wins). Narrow floats accumulate in f32, rounded once.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"unknown scatter reduction {reduction!r}, expected one of {', '.join(REDUCTIONS)}"
        )
    rows = np.ascontiguousarray(rows, np.int64)
    if reduction == "none":
        out = table.copy()
        last = np.full(table.shape[0], -1, np.int64)
        np.maximum.at(last, rows, np.arange(len(rows)))
        out[last >= 0] = updates[last[last >= 0]]
        return out
    if reduction in ("max", "min"):
        low = reduction == "min"
        keys, new = order_keys(table, low), order_keys(updates, low)
        keys = keys.copy()
        (np.minimum if low else np.maximum).at(keys, rows, new)
        return np.where(_hit(table, rows), values_of_keys(keys, table.dtype), table)
    wide = np.ascontiguousarray(widen(table).astype(accumulator(table.dtype)))
    terms = np.ascontiguousarray(widen(updates).astype(wide.dtype, copy=False))
    if table.size and len(rows):
        _kernel(reduction, dtype_name(wide.dtype))(wide, rows, terms)
    return np.where(_hit(table, rows), cast(wide, table.dtype), table)


def _hit(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    hit = np.zeros((table.shape[0], 1), bool)
    hit[rows] = True
    return hit


def _checked(indices: np.ndarray, size: int, where: str) -> np.ndarray:
    indices = np.asarray(indices).astype(np.int64)
    if indices.size and (indices.min() < -size or indices.max() >= size):
        bad = indices[(indices < -size) | (indices >= size)].flat[0]
        raise IndexError(f"{where}: index {bad} is outside an axis of {size}")
    return np.where(indices < 0, indices + size, indices)


def _linear(shape: Sequence[int], indices: np.ndarray) -> np.ndarray:
    rows = np.zeros(indices.shape[:-1], np.int64)
    for axis, size in enumerate(shape):
        rows = rows * size + _checked(indices[..., axis], size, f"axis {axis}")
    return rows


def _element_places(shape, indices, axis, where) -> np.ndarray:
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = _checked(indices, shape[axis], where)
    places = np.zeros(indices.shape, np.int64)
    for size, position in zip(shape, grid, strict=True):
        places = places * size + position
    return places


def _scatter_loop(table, rows, updates):
    width = table.shape[1]
    hits = np.zeros(table.shape[0], np.int64)
    for u in range(rows.shape[0]):
        hits[rows[u]] += 1
    slot = np.empty(table.shape[0], np.int64)
    used = 0
    for r in range(table.shape[0]):
        slot[r] = used
        used += 1 if hits[r] > 0 else 0
        hits[r] = 0
    part, total = np.empty((used, width), table.dtype), np.empty((used, width), table.dtype)
    for u in range(rows.shape[0]):
        row = rows[u]
        at, seen = slot[row], hits[row]
        if seen % CHUNK == 0:
            for j in range(width):
                if seen == CHUNK:
                    total[at, j] = part[at, j]
                elif seen > CHUNK:
                    total[at, j] = join(total[at, j], part[at, j])  # noqa: F821
                part[at, j] = start  # noqa: F821
        for j in range(width):
            part[at, j] = join(part[at, j], updates[u, j])  # noqa: F821
        hits[row] = seen + 1
    for r in range(table.shape[0]):
        if hits[r] > 0:
            at = slot[r]
            for j in range(width):
                value = part[at, j]
                if hits[r] > CHUNK:
                    value = join(total[at, j], value)  # noqa: F821
                table[r, j] = join(table[r, j], value)  # noqa: F821


@functools.cache
def _kernel(reduction: str, dtype: str):
    bound = {
        "join": NAMESPACE[f"{reduction}_{dtype}"],
        "start": accumulator_type(dtype)(0 if reduction == "add" else 1),
    }
    return jit(
        specialise(_scatter_loop, f"scatter_{reduction}_{dtype}", **bound),
        writes(NUMBERS[dtype], 2),
        reads(NUMBERS["i64"], 1),
        reads(NUMBERS[dtype], 2),
        bounds=True,
    )
