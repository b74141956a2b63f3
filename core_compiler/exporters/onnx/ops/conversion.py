"""Casts and bit casts.

ONNX leaves floats that the target integer cannot represent to the runtime; the IR saturates, and
NaN becomes 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.exporters.onnx.dtypes import number
from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import F32, I32, Emitter, NotInOnnx, core
from core_compiler.ir import DType
from core_compiler.ops import typed

#: The opset whose Cast supports 8-bit floats and saturation.
SATURATES = 19


@core("cast")
def cast(g, op: typed.Cast, x):
    wanted = op.dtype
    if x.dtype.is_float and wanted.is_integer:
        return _to_integer(g, op, x, wanted)
    if x.dtype.is_float and x.dtype.bits <= 8 and not wanted.is_float:
        x = g.cast(x, F32)  # exact; runtimes only convert them to floats
    narrow = wanted.is_float and wanted.bits == 8
    saturate = int(op.saturate) if narrow and g.opset >= SATURATES else None
    if wanted.bits == 4 and wanted.is_float and not op.saturate:
        raise NotInOnnx(f"Cast to {wanted.name} saturates")
    return g.cast(x, wanted, saturate=saturate)


def _to_integer(g: Emitter, op: typed.Cast, x: Tensor, wanted: DType) -> Tensor:
    """Truncate floats to integers, clipped first to the representable range if necessary."""
    if x.dtype.bits < 32:
        x = g.cast(x, F32)
    low, high = limits(wanted)
    held = g.bounds(op.x)
    narrow = I32 if wanted.bits < 8 else wanted
    if not g.guards or (held is not None and low <= held[0] and held[1] <= high):
        return g.cast(g.cast(x, narrow), wanted)
    kind = x.dtype.numpy.type
    zeroed = g.where(g.is_nan(x), g.scalar(0, x.dtype), x)
    most = kind(high)
    exact = int(most) <= high
    top: Any = most if exact else np.nextafter(most, kind(0))
    clipped = g.emit("Clip", zeroed, g.scalar(low, x.dtype), g.scalar(top, x.dtype))
    made = g.cast(g.cast(clipped, narrow), wanted)
    if exact:
        return made
    # No float lies between the highest representable value and the first that is out of range.
    beyond = g.emit("GreaterOrEqual", x, g.scalar(most, x.dtype))
    return g.where(beyond, g.scalar(high, wanted), made)


def limits(kind: DType) -> tuple[int, int]:
    """Return the least and the greatest integer of a dtype."""
    if kind.kind == "uint":
        return 0, (1 << kind.bits) - 1
    return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1


@core("bitcast")
def bitcast(g, op: typed.Bitcast, x):
    wanted = op.dtype
    if x.dtype is wanted:
        return x
    if x.dtype.is_integer and wanted.is_integer:
        return g.cast(x, wanted)  # ONNX keeps the bits, since the widths are equal
    if not g.has("BitCast"):
        raise NotInOnnx(f"opset {g.opset} has no BitCast")
    made = Tensor(wanted)
    g.node("BitCast", (x,), (made,), to=number(wanted))
    return made
