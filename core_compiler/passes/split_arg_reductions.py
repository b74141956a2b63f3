"""Split arg reductions: the position of an extreme of a row is found by its value."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import refuse
from core_compiler.ops.rules import I32
from core_compiler.ops.typed import Argmax, Argmin
from core_compiler.passes.replacement import ReplaceOps

#: Shorter rows are faster in one loop; positions of longer ones do not fit 32 bits.
SHORTEST, LONGEST = 64, 1 << 31


@dataclass(frozen=True)
class SplitArgReductions(ReplaceOps):
    """Find the position of a row's maximum (minimum) as the first that equals it.

    The maximum and the smallest position are reductions in vectors; a loop that carries both is
    not.  A NaN is the extreme of its row, and equal zeros of both signs are equal: the position is
    the same, exact.
    """

    half = "implementation"

    @override
    def refused(self, op):
        found = _view(op)
        if found is None:
            return refuse("an arg reduction", "{0} is none", op)
        kind = found.x.type
        if found.axis % kind.rank != kind.rank - 1:
            return refuse("the last axis", "{0} reduces axis {1}", op, found.axis)
        if not SHORTEST <= kind.shape[-1] < LONGEST:
            return refuse("long rows", "{0} reduces {1} elements", op, kind.shape[-1])
        return None

    @override
    def replacement(self, b, op):
        found = _view(op)
        assert found is not None
        x, kind = found.x, found.x.type
        axis, shape = kind.rank - 1, kind.shape
        reduced = b.reduce_max if isinstance(found, Argmax) else b.reduce_min
        extreme = b.broadcast(reduced(x, axes=(axis,)), shape=shape, dims=tuple(range(axis)))
        hit = b.eq(x, extreme)
        if kind.dtype.is_float:
            hit = b.or_(hit, b.ne(x, x))
        positions = b.iota(shape=shape, axis=axis, dtype=I32)
        none = b.expand(b.constant(shape[-1] - 1, I32), shape)
        first = b.reduce_min(b.select(hit, positions, none), axes=(axis,))
        return b.cast(first, dtype=found.dtype)

    @override
    def rule(self, op):
        return "an arg reduction by its value"


def _view(op: Op) -> Argmax | Argmin | None:
    return Argmax.match(op) or Argmin.match(op)
