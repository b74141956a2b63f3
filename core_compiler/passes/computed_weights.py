"""The constants from which the matrix of a product is computed, such as quantised weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from core_compiler.ir import Op, Rewriter, Value
from core_compiler.ops import typed
from core_compiler.ops.traits import has_trait
from core_compiler.passes.grouping import is_widening

#: Elements of the least matrix, or constant, that is worth another layout.
LEAST = 1024


@dataclass(frozen=True)
class ComputedWeight:
    """A constant, or the view of one, and the axis along which the columns of a product lie.

    ``ops``: the constant, and the view if there is one.
    """

    ops: tuple[Op, ...]
    axis: int

    @property
    def value(self) -> Value:
        return self.ops[-1].result


def computed_weights(product: Op, rewriter: Rewriter) -> list[ComputedWeight]:
    """Return the constants of which arithmetic makes the second operand of a matrix product.

    None are listed if a part of the matrix is computed from anything else, or something else reads
    it too; nor those that are only viewed, moved or widened: products read them as they are.
    """
    found = typed.Matmul.match(product)
    if found is None or found.b.type.rank < 2 or found.b.type.elements < LEAST:
        return []
    return _trace(found.b, found.b.type.rank - 1, False, rewriter) or []


def rows_of(product: typed.Matmul) -> int:
    """Return how many rows a matrix product multiplies by each column."""
    return product.result.type.elements * product.b.type.shape[-2] // product.b.type.elements


def _trace(value: Value, axis: int, computed: bool, rw: Rewriter) -> list[ComputedWeight] | None:
    """Return the constants of ``value``, whose ``axis`` holds the columns; None if of others too.

    ``computed``: there is arithmetic between it and the product.
    """
    op = rw.producer(value)
    spread = typed.Broadcast.match(op) if op is not None else None
    if spread is not None and _is_repeated(spread, axis):
        return []
    if op is None or not rw.has_one_use(value):
        return None
    chain = _constant(op, rw)
    if chain is not None:
        return [ComputedWeight(chain, axis)] if computed else []
    if has_trait(op, "elementwise") and len(op.results) == 1:
        computed = computed or not is_widening(op)
        parts = [_trace(operand, axis, computed, rw) for operand in dict.fromkeys(op.operands)]
        return None if None in parts else [w for part in parts if part is not None for w in part]
    moved = _axis_before(op, axis)
    return None if moved is None else _trace(op.operands[0], moved, computed, rw)


def _constant(op: Op, rw: Rewriter) -> tuple[Op, ...] | None:
    """Return the ops of a constant, or of the view of one that nothing else reads."""
    if op.kind == "core.constant":
        return (op,)
    source = rw.producer(op.operands[0]) if op.kind == "core.reshape" else None
    if source is None or source.kind != "core.constant" or not rw.has_one_use(source.result):
        return None
    return source, op


def _is_repeated(spread: typed.Broadcast, axis: int) -> bool:
    """Return whether a broadcast has the same elements all along ``axis``."""
    return axis not in spread.dims or spread.x.type.shape[spread.dims.index(axis)] == 1


def _axis_before(op: Op, axis: int) -> int | None:
    """Return the axis of an op's operand that is ``axis`` of its result, or None."""
    if turned := typed.Transpose.match(op):
        return turned.permutation[axis]
    if spread := typed.Broadcast.match(op):
        return spread.dims.index(axis)
    if cut := typed.Slice.match(op):
        whole = cut.x.type.shape[axis] == op.result.type.shape[axis]
        return axis if whole and cut.strides[axis] == 1 else None
    if typed.Reshape.match(op) is None:
        return None
    before, after = op.operands[0].type.shape, op.result.type.shape
    ahead = prod(after[:axis])
    return next(
        (i for i, n in enumerate(before) if n == after[axis] and prod(before[:i]) == ahead), None
    )
