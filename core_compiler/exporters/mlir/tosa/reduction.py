"""Reductions, one axis after another, and arg-reductions.

16-bit floats are summed in f32, integers in 32 or 64 bits.  Reductions that TOSA does not have
(products and bitwise ops of integers) are computed by repeated halving.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.exporters.compositions.normalization import softmax_or_zero
from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.mlir.tosa.context import F32, I1, I32, I64, Tosa, op
from core_compiler.exporters.mlir.tosa.elementwise import INTEGERS, from_order, negated, ordered
from core_compiler.exporters.mlir.tosa.numbers import (
    convert,
    resized,
    to_arithmetic_dtype,
    to_float,
)
from core_compiler.exporters.mlir.tosa.shape import joined
from core_compiler.ir import tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import replaced, without


def reduced(b: Tosa, x: Ref, axes: Sequence[int], name: str) -> Ref:
    """Emit ``tosa.reduce_*`` over the axes, which are removed."""
    shape = without(x.type.shape, axes)
    x, permutation = b.source(x)
    for axis in (permutation[a] for a in axes):
        made = tensor(replaced(x.type.shape, axis, 1), x.type.dtype)
        x = b.op(f"reduce_{name}", [x], made, {"axis": f"{axis} : i32"})
    return b.reshaped(b.transposed(x, permutation), shape)


def folded(b: Tosa, x: Ref, axes: Sequence[int], name: str) -> Ref:
    """Combine the axes by an elementwise op of integers, halving them repeatedly."""
    shape = without(x.type.shape, axes)
    for axis in axes:
        while (size := x.type.shape[axis]) > 1:
            half = size // 2
            kept, start = replaced(x.type.shape, axis, half), [0] * x.type.rank
            first = b.cut(x, start, kept)
            start[axis] = half
            made = INTEGERS[name](b, first, b.cut(x, start, kept))
            if size % 2:
                start[axis] = size - 1
                rest = b.cut(x, start, replaced(x.type.shape, axis, 1))
                made = joined(b, [made, rest], axis)
            x = made
    return b.reshaped(x, shape)


@op("reduce_sum")
def reduce_sum(b: Tosa, op: typed.ReduceSum, x: Ref) -> Ref:
    kind = x.type.dtype
    if kind.is_float:
        return to_float(b, reduced(b, to_float(b, x, F32), op.axes, "sum"), kind)
    return resized(b, reduced(b, to_arithmetic_dtype(b, x), op.axes, "sum"), kind)


@op("reduce_prod")
def reduce_prod(b: Tosa, op: typed.ReduceProd, x: Ref) -> Ref:
    kind = x.type.dtype
    if kind.is_float:
        return to_float(b, reduced(b, to_float(b, x, F32), op.axes, "product"), kind)
    return resized(b, folded(b, to_arithmetic_dtype(b, x), op.axes, "mul"), kind)


def _extreme(b: Tosa, op: typed.ReduceMax | typed.ReduceMin, x: Ref) -> Ref:
    name, kind = op.kind.removeprefix("core.reduce_"), x.type.dtype
    if kind.is_float:
        return reduced(b, x, op.axes, name)
    return from_order(b, reduced(b, ordered(b, x), op.axes, name), kind)


op("reduce_max", "reduce_min")(_extreme)


def _logical(b: Tosa, op: typed.ReduceAnd | typed.ReduceOr, x: Ref) -> Ref:
    name = op.kind.removeprefix("core.reduce_")
    if x.type.dtype is not I1:
        return folded(b, x, op.axes, name)
    return reduced(b, x, op.axes, {"and": "all", "or": "any"}[name])


op("reduce_and", "reduce_or")(_logical)


@op("argmax", "argmin")
def arg(b: Tosa, op: typed.Argmax | typed.Argmin, x: Ref) -> Ref:
    """Return the argmax of x, or of -x (for integers: of the inverted bits). -0 equals +0."""
    if x.type.dtype.is_float:
        x = negated(b, x) if op.kind == "core.argmin" else x
    else:
        x = ordered(b, x)
        x = b.each("bitwise_not", x) if op.kind == "core.argmin" else x
    # The op's table only has 32-bit integers with i64 positions.
    made = tensor(op.result.type.shape, I32 if x.type.dtype.is_float else I64)
    return convert(b, b.op("argmax", [x], made, {"axis": f"{op.axis} : i32"}), op.dtype)


@op("softmax", lacks=lambda b, op: "" if op.empty_rows == "zero" else "softmax")
def softmax(b: Tosa, op: typed.Softmax, x: Ref) -> Ref:
    return b.core(lambda c, v: softmax_or_zero(c, v, op.axis), x)
