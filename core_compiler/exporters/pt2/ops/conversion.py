"""Casts and bit casts.

Torch leaves floats that the target integer cannot represent open; the IR saturates, and NaN
becomes 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.exporters.pt2.table import F32, F64, I64, Emitter, Node, core
from core_compiler.ir import DType
from core_compiler.ops import typed


@core("cast")
def cast(g, op: typed.Cast, x):
    source, wanted = op.x.type.dtype, op.dtype
    if wanted.is_float and wanted.bits <= 8:
        return _to_narrow(g, op, x, wanted)
    if source.is_float and source.bits <= 8:
        x = g.cast(x, F32)
    if source.is_float and wanted.is_integer and g.guards:
        return _saturated(g, x, wanted)
    return g.cast(x, wanted)


def _to_narrow(g: Emitter, op: typed.Cast, x: Node, wanted: DType) -> Node:
    """Round to a float of 8 bits; with ``saturate`` larger values become the largest finite one."""
    x = g.cast(x, F64 if g.dtype(x) is F64 else F32)
    if op.saturate:
        import ml_dtypes

        limit = float(ml_dtypes.finfo(wanted.numpy).max)
        x = g.call("clamp", x, -limit, limit)
    return g.cast(x, wanted)


def limits(kind: DType) -> tuple[int, int]:
    """Return the least and the greatest integer of a dtype."""
    if kind.kind == "uint":
        return 0, (1 << kind.bits) - 1
    return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1


def _saturated(g: Emitter, x: Node, wanted: DType) -> Node:
    """Truncate floats to integers, limited first to those that the dtype represents."""
    x = g.widened(x)
    kind, (low, high) = g.dtype(x), limits(wanted)
    number: Any = kind.numpy.type
    top = number(high) if int(number(high)) <= high else np.nextafter(number(high), number(0))
    zeroed = g.where(g.call("isnan", x), g.scalar(0.0, kind), x)
    made = g.cast(g.call("clamp", zeroed, float(low), float(top)), wanted)
    if int(top) == high:
        return made
    # No float lies between the highest representable value and the first that is out of range.
    beyond = g.call("ge.Scalar", x, float(number(high)))
    most = g.scalar(high, wanted) if high < 1 << 63 else g.bits(g.scalar(-1, I64), wanted)
    return g.where(beyond, most, made)


@core("bitcast")
def bitcast(g, op: typed.Bitcast, x):
    return g.bits(x, op.dtype)
