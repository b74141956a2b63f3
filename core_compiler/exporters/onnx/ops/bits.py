"""Bitwise ops and shifts.

A shift by less than 0, or by the width and more, yields 0, or -1 for a negative number shifted
right.  ONNX leaves these cases open, and only shifts unsigned integers.
"""

from __future__ import annotations

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import BOOL, Emitter, core
from core_compiler.ir import dtype
from core_compiler.ops import typed


def _enter(name: str, of_bools: str, of_integers: str) -> None:
    def handler(g, op, a, b):
        return g.emit(of_bools if a.dtype is BOOL else of_integers, a, b)

    core(name)(handler)


for _name, _of_bools, _of_integers in (
    ("and", "And", "BitwiseAnd"),
    ("or", "Or", "BitwiseOr"),
    ("xor", "Xor", "BitwiseXor"),
):
    _enter(_name, _of_bools, _of_integers)


@core("bitnot")
def bitnot(g, op, x):
    return inverted(g, x)


def inverted(g: Emitter, x: Tensor) -> Tensor:
    """Invert every bit; before opset 18 as ``-1 - x``, which wraps to the same value."""
    if g.has("BitwiseNot"):
        return g.emit("BitwiseNot", x)
    return g.emit("Sub", g.constant(np.array(-1, np.int64).astype(x.dtype.numpy)), x)


@core("shl")
def shl(g, op, a, b):
    """Shift in 32 or 64 bits and keep the low ones."""
    return _shift(g, op, a, b, "LEFT")


@core("shr")
def shr(g, op, a, b):
    """Shift right; a negative number is inverted, shifted, and inverted back."""
    if a.dtype.kind == "uint":
        return _shift(g, op, a, b, "RIGHT")
    negative = g.emit("Less", a, g.scalar(0, a.dtype))
    size = g.where(negative, inverted(g, a), a)
    return _shift(g, op, size, b, "RIGHT", negative)


def _shift(
    g: Emitter,
    op: typed.Shl | typed.Shr,
    x: Tensor,
    count: Tensor,
    direction: str,
    negative: Tensor | None = None,
) -> Tensor:
    """Shift ``x``, inverted if ``negative``.

    As an unsigned number, a negative count is larger than the width.
    """
    kind = x.dtype
    signed, unsigned = (dtype(f"{p}{64 if kind.bits == 64 else 32}") for p in ("i", "ui"))
    x, count = g.cast(x, unsigned), g.cast(count, unsigned)
    bounds, fits = g.bounds(op.b), None
    if g.guards and not (bounds and bounds[0] >= 0 and bounds[1] < kind.bits):
        fits = g.emit("Less", count, g.scalar(kind.bits, unsigned))
        count = g.emit("Min", count, g.scalar(kind.bits - 1, unsigned))
    made = g.cast(g.emit("BitShift", x, count, direction=direction), signed)
    if fits is not None:
        made = g.where(fits, made, g.scalar(0, signed))
    if negative is not None:
        made = g.where(negative, inverted(g, made), made)
    return g.cast(made, kind)
