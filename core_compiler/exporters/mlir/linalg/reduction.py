"""Reductions and arg-reductions.

The tool chooses the order of a sum, since linalg's reductions do not define one. 16-bit floats are
summed in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.exporters.mlir.linalg import scalars
from core_compiler.exporters.mlir.linalg.context import (
    F32,
    F64,
    I1,
    I32,
    I64,
    PARALLEL,
    REDUCTION,
    Linalg,
    op,
)
from core_compiler.exporters.mlir.literals import type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir import DType, tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import without


def least(kind: DType) -> Any:
    """Return the start value of a maximum: a value not greater than any value of the dtype."""
    return -np.inf if kind.is_float else np.iinfo(kind.numpy).min


def greatest(kind: DType) -> Any:
    return np.inf if kind.is_float else np.iinfo(kind.numpy).max


#: reduction -> (the combining elementwise op, its start value).
JOINS = {
    "sum": ("add", lambda kind: 0),
    "prod": ("mul", lambda kind: 1),
    "max": ("max", least),
    "min": ("min", greatest),
    "and": (
        "and",
        lambda kind: True if kind is I1 else 2**kind.bits - 1 if kind.kind == "uint" else -1,
    ),
    "or": ("or", lambda kind: 0),
}


def accumulated(b: Linalg, x: Ref, name: str) -> Ref:
    """Return ``x`` in the dtype that the reduction runs in."""
    kind = x.type.dtype
    if kind.is_float and kind.bits < 32 and name in ("sum", "prod"):
        return b.each(lambda v: scalars.convert(b, v, F32), x, dtype=F32)
    return x


def rounded(b: Linalg, x: Ref, kind: DType) -> Ref:
    """Convert ``x`` to another dtype if necessary."""
    if x.type.dtype is kind:
        return x
    return b.each(lambda v: scalars.convert(b, v, kind), x, dtype=kind)


def reduced(b: Linalg, x: Ref, axes: Sequence[int], name: str) -> Ref:
    """Emit a ``linalg.reduce`` with one of ``JOINS``, in ``x``'s dtype."""
    join, start = JOINS[name]
    kind = x.type.dtype
    made = tensor(without(x.type.shape, axes), kind)
    init = b.filled(b.scalar(start(kind), kind), made)
    with b.writer.region((kind, kind), ("in", "init"), header=False) as region:
        joined = scalars.scalar(join, kind)(b, *region.arguments)
        b.writer.end(f"linalg.yield {joined} : {type_text(kind)}")
    arguments = ", ".join(f"{v}: {type_text(kind)}" for v in region.arguments)
    return b.writer.line(
        f"linalg.reduce ins({x} : {type_text(x.type)}) outs({init} : {type_text(made)}) "
        f"dimensions = {list(axes)} ({arguments}) {region}",
        made,
        regions=(region,),
    )


def _reduce(b: Linalg, op: typed.Reduction, x: Ref) -> Ref:
    if not op.axes:
        return x
    name = op.kind.removeprefix("core.reduce_")
    return rounded(b, reduced(b, accumulated(b, x, name), op.axes, name), x.type.dtype)


op(*(f"reduce_{name}" for name in JOINS))(_reduce)


@op("argmax", "argmin")
def arg(b: Linalg, op: typed.Argmax | typed.Argmin, x: Ref) -> Ref:
    """Return the lowest position among the largest (smallest) values, independent of the order.

    Floats are compared through integers with the same order: -0 equals +0, NaN is beyond all.
    """
    axis, largest = op.axis, op.kind == "core.argmax"
    kind = x.type.dtype
    key_kind = kind if not kind.is_float else I64 if kind is F64 else I32
    rank, shape = x.type.rank, without(x.type.shape, (axis,))
    loops = [
        *(f"d{i}" for i in range(axis)),
        f"d{rank - 1}",
        *(f"d{i}" for i in range(axis, rank - 1)),
    ]
    kept = [f"d{i}" for i in range(rank - 1)]
    start = (least if largest else greatest)(key_kind)
    results = [
        (b.filled(b.scalar(start, key_kind), tensor(shape, key_kind)), kept),
        (b.filled(b.scalar(np.iinfo(np.int64).max, I64), tensor(shape, I64)), kept),
    ]

    def body(value: Ref, best: Ref, at: Ref) -> tuple[Ref, Ref]:
        key = _key(b, value, largest) if kind.is_float else value
        place = b.converted("arith.index_cast", b.loop_index(rank - 1), I64)
        better = b.compared("gt" if largest else "lt", key, best)
        earlier = b.same("arith.andi", b.compared("eq", key, best), b.compared("lt", place, at))
        taken = b.same("arith.ori", better, earlier)
        return b.chosen(taken, key, best), b.chosen(taken, place, at)

    iterators = [PARALLEL] * (rank - 1) + [REDUCTION]
    _, places = b.generic([(x, loops)], results, iterators, body)
    return rounded(b, places, op.dtype)


def _key(b: Linalg, x: Ref, largest: bool) -> Ref:
    """Return a signed integer with the order of the floats, with both zeros equal.

    NaN is the greatest value (the least for a minimum).
    """
    if x.type.bits < 32:
        x = b.converted("arith.extf", x, F32)
    kind = I64 if x.type is F64 else I32
    bits = b.converted("arith.bitcast", x, kind)
    info = np.iinfo(kind.numpy)
    flipped = b.same("arith.xori", bits, b.scalar(info.max, kind))
    key = b.chosen(b.compared("lt", bits, b.scalar(0, kind)), flipped, bits)
    key = b.chosen(b.compared("eq", key, b.scalar(-1, kind)), b.scalar(0, kind), key)
    return b.chosen(b.compared("ne", x, x), b.scalar(info.max if largest else info.min, kind), key)
