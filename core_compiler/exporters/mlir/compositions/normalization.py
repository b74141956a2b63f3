"""softmax whose rows of -infinity give 0."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import others, spread


def softmax_or_zero(b: Builder, x: Value, axis: int) -> Value:
    """0 where all of a row is -infinity.  Its maximum would say so too, but not with tools whose
    maximum starts from the lowest finite number."""
    share = b.softmax(x, axis=axis)
    empty = b.reduce_and(b.eq(x, b.scalar_like(float("-inf"), x)), axes=(axis,))
    empty = spread(b, empty, x, others(x.type.rank, (axis,)))
    return b.select(empty, b.scalar_like(0, share), share)
