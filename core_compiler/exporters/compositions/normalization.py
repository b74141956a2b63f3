"""A softmax that returns 0 for rows that are all -infinity."""

from __future__ import annotations

from core_compiler.ir import Value
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import others, spread


def softmax_or_zero(b: Builder, x: Value, axis: int) -> Value:
    """Return the softmax, with 0 if the whole row is -infinity.

    The row's maximum would show it too, but not in tools whose maximum starts from the lowest
    finite number.
    """
    share = b.softmax(x, axis=axis)
    empty = b.reduce_and(b.eq(x, b.scalar_like(float("-inf"), x)), axes=(axis,))
    empty = spread(b, empty, x, others(x.type.rank, (axis,)))
    return b.select(empty, b.scalar_like(0, share), share)
