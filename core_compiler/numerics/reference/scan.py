"""Scans along one axis in the contract's order.

Chunks of 256; inside a chunk sequential from its first element; offsets by a sequential scan of the
chunks' totals; y = offset + local, and local itself in the first chunk.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.jit import jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.dtypes import (
    accumulator,
    canonical_nan,
    cast,
    dtype_name,
    is_float,
    widen,
)
from core_compiler.numerics.reference.keys import order_keys, values_of_keys

CHUNK = 256


def cumulative(
    x: np.ndarray, axis: int, kind: str = "sum", reverse: bool = False, exclusive: bool = False
) -> np.ndarray:
    """Return the running "sum", "prod", "max" or "min" along ``axis``, in x's shape and dtype.

    ``reverse`` scans the flipped axis. ``exclusive`` (sum and prod) shifts the result by one and
    starts with the identity. Narrow floats run in f32 and round each element once.
    """
    x = np.asarray(x)
    moved = np.flip(x, axis) if reverse else x
    if kind in ("max", "min"):
        keys = order_keys(moved, nan_least=kind == "min")
        running = np.maximum if kind == "max" else np.minimum
        y = values_of_keys(running.accumulate(keys, axis=axis), x.dtype)
    else:
        y = _running(moved, axis % x.ndim, kind)
        if exclusive and x.shape[axis]:
            first = np.full_like(np.take(y, [0], axis), 0 if kind == "sum" else 1)
            y = np.concatenate([first, np.delete(y, -1, axis)], axis)
    return np.ascontiguousarray(np.flip(y, axis)) if reverse else y


def cumsum(x: np.ndarray, axis: int, reverse: bool = False, exclusive: bool = False) -> np.ndarray:
    """Return the running sum; see ``cumulative``."""
    return cumulative(x, axis, "sum", reverse, exclusive)


def _running(x, axis, kind):
    wide = np.ascontiguousarray(widen(x).astype(accumulator(x.dtype), copy=False))
    box = wide.reshape(math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
    out = np.empty_like(box)
    if box.size:
        _kernel(kind, dtype_name(box.dtype))(box, out)
    out = out.reshape(x.shape)
    return canonical_nan(out) if out.dtype == x.dtype and is_float(x.dtype) else cast(out, x.dtype)


def _scan_loop(x, out):
    offset, local = np.empty(x.shape[2], x.dtype), np.empty(x.shape[2], x.dtype)
    for o in range(x.shape[0]):
        for r in range(x.shape[1]):
            if r % CHUNK == 0:
                for j in range(x.shape[2]):
                    if r == CHUNK:
                        offset[j] = local[j]
                    elif r > CHUNK:
                        offset[j] = join(offset[j], local[j])  # noqa: F821
                    local[j] = x[o, r, j]
            else:
                for j in range(x.shape[2]):
                    local[j] = join(local[j], x[o, r, j])  # noqa: F821
            for j in range(x.shape[2]):
                out[o, r, j] = local[j] if r < CHUNK else join(offset[j], local[j])  # noqa: F821


@functools.cache
def _kernel(kind: str, dtype: str):
    join = NAMESPACE[f"{'add' if kind == 'sum' else 'mul'}_{dtype}"]
    return jit(
        specialise(_scan_loop, f"scan_{kind}_{dtype}", join=join),
        reads(NUMBERS[dtype], 3),
        writes(NUMBERS[dtype], 3),
        bounds=True,
    )
