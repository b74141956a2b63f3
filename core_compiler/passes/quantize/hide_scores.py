"""Hide scores: masks that are added to a softmax's scores become selections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value, dtype
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import others, spread
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.eliminate_dead_code import erase_unused
from core_compiler.passes.quantize.observe import calibration_samples
from core_compiler.passes.quantize.roles import constant_of, is_constant

#: A number that hides: added to a score, it leaves exp(-64) of the score's share or less.
HIDES = -64.0
BOOL = dtype("i1")
#: Classes of values for which sums and selections differ; positions: integers but 0 and 1.
EXCEPT_FOR = ("infinities", "largest", "nan", "positions")


@dataclass(frozen=True)
class HideScores(Pass):
    """Let softmax select the scores that a mask shows, in place of adding 0 or a large negative.

    A mask is a constant, or computed from booleans or from integers that are 0 or 1 on the
    calibration data. One step of a sum of scores and -10,000 is larger than any score: quantised,
    all scores would be the same. ``data``: as of ``observe``.
    """

    exact = False
    tolerance = "shares of hidden scores, exp(-64) or less, become 0"
    data: str = ""

    @override
    def run(self, module: Module, context):
        rewriter = context.rewriter(module.main.body)
        found = [op for op in rewriter.ops if _added(op, rewriter) is not None]
        if not found:
            return module
        samples = calibration_samples(module, context, self.data)
        masks = _Masks(rewriter, module, _ranges(module, samples))
        changed = [op for op in found if _hide(op, rewriter, masks)]
        if changed:
            erase_unused(rewriter)
        return module.with_main(rewriter.commit())


def _added(op: Op, rewriter: Rewriter) -> Op | None:
    """Return the sum that a softmax alone reads."""
    found = typed.Softmax.match(op)
    maker = None if found is None else rewriter.producer(op.operands[0])
    is_sum = maker is not None and typed.Add.match(maker) is not None
    return maker if is_sum and rewriter.has_one_use(op.operands[0]) else None


def _ranges(module: Module, samples: Sequence[Sequence[np.ndarray]]) -> Mapping[Value, tuple]:
    """Return the least and greatest integer of the inputs of integers, on all samples."""
    found: dict[Value, tuple[int, int]] = {}
    for sample in samples:
        for value, array in zip(module.main.arguments, sample, strict=True):
            if not value.type.dtype.is_float and array.size:
                low, high = found.get(value, (int(array.min()), int(array.max())))
                found[value] = min(low, int(array.min())), max(high, int(array.max()))
    return found


def _hide(softmax: Op, rewriter: Rewriter, masks: _Masks) -> bool:
    """Replace a softmax of a sum by one of selected scores, if an operand is a mask."""
    total = _added(softmax, rewriter)
    assert total is not None
    for mask, scores in (total.operands, total.operands[::-1]):
        b = Builder(masks.module.weights)
        seen = masks.visible(b, mask)
        if seen is None:
            continue
        visible = b.expand(seen[0], scores.type.shape)
        if not seen[1]:
            visible = _some(b, visible, typed.Softmax.of(softmax).axis)
        shown = b.select(visible, scores, b.scalar_like(float("-inf"), scores))
        b.ops.append(softmax.substitute({total.result: shown}).with_(origin=None))
        made = _makers(mask, {v for op in b.ops for v in op.operands}, rewriter)
        rewriter.replace(
            (*made, total, softmax),
            (*made, *b.ops),
            rule="a mask that is added => a selection",
            tolerance=1e-12,
            except_for=EXCEPT_FOR,
        )
        return True
    return False


def _some(b: Builder, visible: Value, axis: int) -> Value:
    """Return ``visible``, but all of a row that shows nothing: its scores decide."""
    any_ = b.reduce_or(visible, axes=(axis,))
    every = spread(b, b.not_(any_), visible, others(visible.type.rank, (axis,)))
    return b.or_(visible, every)


def _makers(value: Value, known: set[Value], rewriter: Rewriter) -> list[Op]:
    """Return the ops that compute ``value`` from ``known`` values and constants, in order."""
    maker = rewriter.producer(value)
    if maker is None or value in known or maker.kind == "core.constant":
        return []
    found: dict[Op, None] = {}
    for operand in maker.operands:
        found |= dict.fromkeys(_makers(operand, known, rewriter))
    return [*found, maker]


@dataclass(frozen=True)
class _Masks:
    """Values that are 0 where scores are shown and at most ``HIDES`` where they are hidden."""

    rewriter: Rewriter
    module: Module
    ranges: Mapping[Value, tuple[int, int]]

    def visible(self, b: Builder, value: Value) -> tuple[Value, bool] | None:
        """Return which scores a mask shows, in its shape, and whether infinity hides the others."""
        maker = self.rewriter.producer(value)
        if maker is None:
            return None
        if is_constant(value, self.rewriter):
            return self._constant(b, value)
        if has_trait(maker, "view"):
            inner = self.visible(b, maker.operands[0])
            return None if inner is None else (_viewed(b, maker, inner[0]), inner[1])
        if typed.Select.match(maker) is not None:
            condition, *branches = maker.operands
            return self._joined(b, branches, lambda one, other: b.select(condition, one, other))
        if typed.Add.match(maker) is not None:
            return self._joined(b, maker.operands, b.and_)
        if typed.Mul.match(maker) is not None:
            return self._multiplied(b, maker)
        if typed.Clamp.match(maker) is not None:
            return self._limited(b, maker)
        return None

    def _constant(self, b: Builder, value: Value) -> tuple[Value, bool] | None:
        array = constant_of(value, self.rewriter, self.module)
        shown, endless = array == 0, np.isneginf(array)
        if not (shown | (array <= HIDES)).all():
            return None
        if endless.any() and not (shown | endless).all():
            return None
        return b.constant(shown), bool(endless.any())

    def _joined(
        self, b: Builder, masks: Sequence[Value], join: Callable[[Value, Value], Value]
    ) -> tuple[Value, bool] | None:
        """Return two masks as one; what infinity hides is not joined with what numbers hide."""
        one, other = (self.visible(b, v) for v in masks)
        if one is None or other is None:
            return None
        kinds = {f[1] for f, v in ((one, masks[0]), (other, masks[1])) if not self._shows_all(v)}
        return None if len(kinds) > 1 else (join(one[0], other[0]), True in kinds)

    def _shows_all(self, value: Value) -> bool:
        return self._number(value) == 0

    def _multiplied(self, b: Builder, maker: Op) -> tuple[Value, bool] | None:
        for flag, factor in (maker.operands, maker.operands[::-1]):
            number = self._number(factor)
            if number is not None and -np.inf < number <= HIDES:
                hidden = self._flag(b, flag)
                if hidden is not None:
                    return b.not_(hidden), False
        return None

    def _limited(self, b: Builder, maker: Op) -> tuple[Value, bool] | None:
        limits = typed.Clamp.of(maker)
        if (limits.low is not None and limits.low > HIDES) or (limits.high or 0) < 0:
            return None
        found = self.visible(b, maker.operands[0])
        return None if found is None else (found[0], found[1] and limits.low is None)

    def _flag(self, b: Builder, value: Value) -> Value | None:
        """Return whether a number that is 0 or 1 is 1."""
        if value.type.dtype is BOOL:
            return value
        low, high = self.ranges.get(value, (0, 2))
        if low >= 0 and high <= 1:
            return b.cast(value, dtype=BOOL)
        maker = self.rewriter.producer(value)
        if maker is None:
            return None
        if typed.Cast.match(maker) is not None:
            return self._flag(b, maker.operands[0])
        if has_trait(maker, "view"):
            inner = self._flag(b, maker.operands[0])
            return None if inner is None else _viewed(b, maker, inner)
        if typed.Sub.match(maker) is not None and self._number(maker.operands[0]) == 1:
            inner = self._flag(b, maker.operands[1])
            return None if inner is None else b.not_(inner)
        return None

    def _number(self, value: Value) -> float | None:
        """Return the number that all elements of a constant are."""
        if not is_constant(value, self.rewriter):
            return None
        array = constant_of(value, self.rewriter, self.module)
        return float(array.flat[0]) if (array == array.flat[:1]).all() else None


def _viewed(b: Builder, maker: Op, inner: Value) -> Value:
    """Return booleans under the view of a mask."""
    result = Value(maker.result.type.with_(dtype=BOOL))
    b.ops.append(maker.with_(operands=(inner,), results=(result,), origin=None))
    return result
