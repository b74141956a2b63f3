"""Linear algebra of ONNX beyond products."""

from __future__ import annotations

import math

from core_compiler.frontends.onnx.table import NotSupported, onnx_op
from core_compiler.ir import Value, dtype

I64 = dtype("i64")
#: The maximum number of rows of an unrolled elimination.
ROWS = 64


@onnx_op("Det")
def det(b, x):
    """Compute the determinant by Gaussian elimination with partial pivoting, fully unrolled."""
    *batch, n, columns = x.type.shape
    if n != columns or n > ROWS:
        raise NotSupported(f"the determinant of {n} x {columns} (at most {ROWS})")
    count = math.prod(batch)
    a = b.reshape(x, shape=(count, n, n))
    result = b.expand(b.constant(1, x.type.dtype), (count,))
    for k in range(n):
        size = n - k
        column = b.reshape(b.cut(a, 2, 0, 1), shape=(count, size))
        pivot = b.argmax(b.abs(column), axis=1, dtype=I64)
        a, swapped = _with_pivot_first(b, a, pivot)
        top = b.reshape(b.cut(a, 1, 0, 1), shape=(count, size))
        head = b.reshape(b.cut(top, 1, 0, 1), shape=(count,))
        result = b.mul(result, b.select(swapped, b.neg(head), head))
        if size == 1:
            break
        below = b.cut(b.cut(a, 1, 1, size), 2, 1, size)
        lead = b.reshape(b.cut(b.cut(a, 1, 1, size), 2, 0, 1), shape=(count, size - 1))
        zero = b.scalar_like(0, head)
        # All elements below are zero then.
        safe = b.select(b.eq(head, zero), b.scalar_like(1, head), head)
        factor = b.div(lead, b.broadcast(safe, shape=(count, size - 1), dims=(0,)))
        wide = {"shape": (count, size - 1, size - 1)}
        row = b.broadcast(b.cut(top, 1, 1, size), **wide, dims=(0, 2))
        a = b.sub(below, b.mul(b.broadcast(factor, **wide, dims=(0, 1)), row))
    return b.reshape(result, shape=tuple(batch))


def _with_pivot_first(b, a: Value, pivot: Value) -> tuple[Value, Value]:
    """Exchange rows 0 and ``pivot`` of each matrix, if they differ."""
    count, size, _ = a.type.shape
    places = b.iota(shape=(count, size), axis=1, dtype=I64)
    wide = b.broadcast(pivot, shape=(count, size), dims=(0,))
    zero = b.scalar_like(0, wide)
    order = b.select(b.eq(places, wide), zero, b.select(b.eq(places, zero), wide, places))
    rows = b.broadcast(order, shape=a.type.shape, dims=(0, 1))
    return b.take_along(a, rows, axis=1), b.gt(pivot, b.scalar_like(0, pivot))
