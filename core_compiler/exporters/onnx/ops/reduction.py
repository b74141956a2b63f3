"""Reductions and argmax/argmin.

ONNX does not specify NaN in a maximum; onnxruntime mostly ignores it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import BOOL, I32, I64, Emitter, core
from core_compiler.ir import DType
from core_compiler.ir.views import OpView
from core_compiler.ops import typed

#: f64 represents every integer up to this one.
EXACT = 1 << 53
#: A position beyond the end of any axis.
LAST = (1 << 63) - 1
#: The opset from which on a reduction's axes are an input.
_AXES_AS_INPUT = 18


def reduced(g: Emitter, kind: str, x: Tensor, axes: Sequence[int], keep: bool = False) -> Tensor:
    """Emit a reduction over ``axes`` (at least one).

    Booleans are widened if the opset does not accept them.
    """
    if kind == "ReduceSum" or g.opset >= _AXES_AS_INPUT:
        return g.emit(kind, x, g.ints(*axes), keepdims=int(keep))
    return g.emit(kind, x, axes=list(axes), keepdims=int(keep))


def _of_empty(op: typed.Mean | typed.Reduction) -> bool:
    """Return whether a reduction covers no elements."""
    return op.x.type.elements == 0


def _full(g: Emitter, op: OpView, number) -> Tensor:
    return g.expand(
        g.constant(np.asarray(number, op.result.type.dtype.numpy)), op.result.type.shape
    )


def _halved(
    g: Emitter, op: typed.ReduceAnd | typed.ReduceOr | typed.ReduceProd, x: Tensor, kind: str
) -> Tensor:
    """Combine the halves of an axis repeatedly until one position is left."""
    for axis in op.axes:
        size = op.x.type.shape[axis]
        while size > 1:
            half = size // 2
            made = g.emit(kind, g.cut(x, axis, 0, half), g.cut(x, axis, half, 2 * half))
            if size % 2:
                made = g.emit("Concat", made, g.cut(x, axis, size - 1, size), axis=axis)
            x, size = made, half + size % 2
    return g.reshape(x, op.result.type.shape)


@core("reduce_sum")
def reduce_sum(g, op: typed.ReduceSum, x):
    """Sum without onnxruntime's integer sums in f64, exact up to 2^53, which saturate beyond.

    Its sum of a single -0 is -0, while a sum that starts from +0 is +0.
    """
    if _of_empty(op):
        return _full(g, op, 0)
    if not op.axes:
        return x
    if not g.guards:
        return reduced(g, "ReduceSum", x, op.axes)
    if x.dtype.is_float:
        made = reduced(g, "ReduceSum", x, op.axes)
        return g.emit("Add", made, g.scalar(0, x.dtype))
    terms = op.x.type.elements // op.result.type.elements
    whole = 1 << (x.dtype.bits - (x.dtype.kind == "int"))
    low, high = g.bounds(op.x) or (-whole, whole)
    wide = g.cast(x, I64)
    if terms * max(abs(low), abs(high)) <= EXACT:
        return g.cast(reduced(g, "ReduceSum", wide, op.axes), x.dtype)
    for axis in op.axes:  # the last of the running sums, which wrap
        running = g.emit("CumSum", wide, g.constant(np.int64(axis)))
        wide = g.cut(running, axis, op.x.type.shape[axis] - 1, LAST)
    return g.cast(g.reshape(wide, op.result.type.shape), x.dtype)


@core("reduce_prod")
def reduce_prod(g, op: typed.ReduceProd, x):
    """Multiply without onnxruntime's integer products in floats, which do not wrap."""
    if _of_empty(op):
        return _full(g, op, 1)
    if not op.axes:
        return x
    if g.guards and x.dtype.is_integer:
        return _halved(g, op, x, "Mul")
    return reduced(g, "ReduceProd", x, op.axes)


def _enter_extreme(name: str, kind: str) -> None:
    def handler(g, op: typed.ReduceMax | typed.ReduceMin, x):
        if not op.axes:
            return x
        made = reduced(g, kind, x, op.axes)
        if not g.guards or not x.dtype.is_float:
            return made
        found = reduced(g, "ReduceMax", g.is_nan(x), op.axes)
        return g.where(found, g.scalar(np.nan, x.dtype), made)

    core(name)(handler)


_enter_extreme("reduce_max", "ReduceMax")
_enter_extreme("reduce_min", "ReduceMin")


@core("mean", when=lambda g, op: bool(op.axes) and not _of_empty(op))
def mean(g, op: typed.Mean, x):
    return reduced(g, "ReduceMean", x, op.axes)


# -- and, or ---------------------------------------------------------------------------------------


def _ones(kind: DType) -> np.ndarray:
    return np.array(-1, np.int64).astype(kind.numpy)


def _enter_bitwise(name: str, of_bools: str, of_integers: str) -> None:
    def handler(g, op: typed.ReduceAnd | typed.ReduceOr, x):
        if _of_empty(op):
            return _full(g, op, _ones(op.result.type.dtype) if name == "reduce_and" else 0)
        if not op.axes:
            return x
        if x.dtype is BOOL:
            return reduced(g, of_bools, x, op.axes)
        return _halved(g, op, x, of_integers)  # ONNX has no such reduction

    core(name)(handler)


_enter_bitwise("reduce_and", "ReduceMin", "BitwiseAnd")
_enter_bitwise("reduce_or", "ReduceMax", "BitwiseOr")


# -- positions -------------------------------------------------------------------------------------


def _enter_position(name: str, kind: str, extreme: str) -> None:
    def handler(g, op: typed.Argmax | typed.Argmin, x):
        if g.guards and x.dtype.is_float:
            made = g.emit("ArgMax", _scores(g, op, x, extreme), axis=op.axis, keepdims=0)
        else:
            made = g.emit(kind, x, axis=op.axis, keepdims=0)
        return g.cast(made, op.dtype)

    core(name)(handler)


def _scores(g: Emitter, op: typed.Argmax | typed.Argmin, x: Tensor, extreme: str) -> Tensor:
    """Return 1 for the extreme values, else 0: NaN before all others; -0 equals +0."""
    best = reduced(g, extreme, x, (op.axis,), keep=True)
    nan = g.is_nan(x)
    found = reduced(g, "ReduceMax", nan, (op.axis,), keep=True)
    return g.cast(g.where(found, nan, g.emit("Equal", x, best)), I32)


_enter_position("argmax", "ArgMax", "ReduceMax")
_enter_position("argmin", "ArgMin", "ReduceMin")
