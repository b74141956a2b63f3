"""Hide scores: masks that are added to a softmax's scores become selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

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
#: A number that hides among others that are added: no score is as large.
FAR = -(2.0**13)
#: Sums with a lower number are that number in f64 too.
ABSORBS = -(2.0**60)
BOOL, I32 = dtype("i1"), dtype("i32")
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
    tolerance = (
        "shares of hidden scores, exp(-64) or less, become 0; scores lose no bits to a large number"
    )
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
    b = Builder(masks.module.weights)
    found = masks.mask(b, total.result)
    if found is None or found.rest is None or found.is_mixed:
        return False
    rest = found.rest
    if found.absorbs:  # a row without visible scores is uniform
        rest = b.select(found.all_show(b), rest, b.scalar_like(0, rest))
    visible = _visible(b, found, typed.Softmax.of(softmax).axis)
    shown = b.select(visible, rest, b.scalar_like(float("-inf"), rest))
    b.ops.append(softmax.substitute({total.result: shown}).with_(origin=None))
    made = _makers(total.result, {v for op in b.ops for v in op.operands}, rewriter)
    rewriter.replace(
        (*made, softmax),
        (*made, *b.ops),
        rule="a mask that is added => a selection",
        # A sum with a large number is rounded to its step.
        tolerance=min(1.0, max(1e-12, found.step)),
        in_f64=min(1.0, found.step * 2.0**-29),
        except_for=EXCEPT_FOR,
    )
    return True


def _visible(b: Builder, mask: _Mask, axis: int) -> Value:
    """Return which scores are shown: in a row without any, those that the least numbers hide."""
    if mask.endless:
        return mask.all_show(b)
    kept = others(mask.hides[0][0].type.rank, (axis,))
    if len(mask.hides) == 1:
        ((shows, _),) = mask.hides
        none = b.not_(b.reduce_or(shows, axes=(axis,)))
        return b.or_(shows, spread(b, none, shows, kept))
    total: Value | None = None
    for (shows, _), weight in zip(mask.hides, _weights([n for _, n in mask.hides]), strict=True):
        hidden = b.cast(b.not_(shows), dtype=I32)
        hidden = b.mul(hidden, b.scalar_like(weight, hidden)) if weight > 1 else hidden
        total = hidden if total is None else b.add(total, hidden)
    assert total is not None
    return b.eq(total, spread(b, b.reduce_min(total, axes=(axis,)), total, kept))


def _weights(numbers: Sequence[float]) -> list[int]:
    """Return for each number an integer that is larger than those of all lesser ones together."""
    found: dict[float, int] = {}
    for number in sorted(set(numbers), reverse=True):
        found[number] = 1 + sum(found.get(n, 0) for n in numbers)
    return [found[n] for n in numbers]


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
class _Mask:
    """A mask that is added to scores: which of them parts of it show, and the number of each part.

    ``rest`` is added too, where there is one.
    """

    hides: tuple[tuple[Value, float], ...]
    rest: Value | None = None

    @property
    def endless(self) -> bool:
        """True if infinity hides the scores that are not shown."""
        return all(number == -np.inf for _, number in self.hides)

    @property
    def absorbs(self) -> bool:
        """True if sums of scores with the numbers are the numbers, even in f64."""
        return not self.endless and all(number < ABSORBS for _, number in self.hides)

    @property
    def is_mixed(self) -> bool:
        """True if some of the numbers absorb and others do not."""
        return len({number < ABSORBS for _, number in self.hides}) > 1

    @property
    def step(self) -> float:
        """The step of f32 at the sum of the numbers; 0 if it does not matter."""
        if self.endless or self.absorbs:
            return 0.0
        return -sum(number for _, number in self.hides) * 2.0**-23

    def all_show(self, b: Builder) -> Value:
        """Return the scores that all parts show."""
        first, *more = (shows for shows, _ in self.hides)
        return reduce(b.and_, more, first)


@dataclass(frozen=True)
class _Masks:
    """Values that are 0 where scores are shown and at most ``HIDES`` where they are hidden."""

    rewriter: Rewriter
    module: Module
    ranges: Mapping[Value, tuple[int, int]]

    def mask(self, b: Builder, value: Value) -> _Mask | None:
        """Return a value as a mask of its shape, or None."""
        maker = self.rewriter.producer(value)
        if maker is None:
            return None
        if is_constant(value, self.rewriter):
            return self._constant(b, value)
        if has_trait(maker, "view"):
            return self._viewed(b, maker)
        if typed.Select.match(maker) is not None:
            return self._selected(b, maker)
        if typed.Add.match(maker) is not None:
            return self._added(b, maker)
        if typed.Mul.match(maker) is not None:
            return self._multiplied(b, maker)
        if typed.Clamp.match(maker) is not None:
            return self._limited(b, maker)
        return None

    def _constant(self, b: Builder, value: Value) -> _Mask | None:
        array = constant_of(value, self.rewriter, self.module)
        shown, endless = array > HIDES, np.isneginf(array)
        if np.isnan(array).any() or (endless.any() and not (shown | endless).all()):
            return None
        hides = ((b.constant(shown), float(array.min(initial=0.0)) or HIDES),)
        rest = np.where(shown, array, 0)
        if not rest.any():
            return _Mask(hides)
        if shown.all() or array[~shown].max() > FAR:
            return None  # numbers that are added
        return _Mask(hides, b.constant(rest.astype(array.dtype)))

    def _viewed(self, b: Builder, maker: Op) -> _Mask | None:
        inner = self.mask(b, maker.operands[0])
        if inner is None:
            return None
        rest = None if inner.rest is None else _viewed(b, maker, inner.rest)
        return _Mask(tuple((_viewed(b, maker, v), n) for v, n in inner.hides), rest)

    def _selected(self, b: Builder, maker: Op) -> _Mask | None:
        condition, *branches = maker.operands
        found = self._either(b, condition, branches)
        if found is not None:
            return found
        for rest, hides in (branches, branches[::-1]):
            number = self._number(hides)
            if number is not None and number <= HIDES:
                shows = condition if rest is branches[0] else b.not_(condition)
                shown = b.select(shows, rest, b.scalar_like(0, rest))
                return _Mask(((shows, number),), shown)
        return None

    def _either(self, b: Builder, condition: Value, branches: Sequence[Value]) -> _Mask | None:
        """Return one of two masks, if one number hides."""
        found = [self.mask(b, v) for v in branches]
        parts = [m.hides[0] for m in found if m is not None and m.rest is None]
        if len(parts) < 2 or any(len(m.hides) > 1 for m in found if m is not None):
            return None
        pairs = zip(parts, branches, strict=True)
        numbers = {number for (_, number), value in pairs if self._number(value) != 0}
        if len(numbers) != 1:
            return None
        return _Mask(((b.select(condition, *(shows for shows, _ in parts)), *numbers),))

    def _added(self, b: Builder, maker: Op) -> _Mask | None:
        found = [self.mask(b, v) for v in maker.operands]
        hides = tuple(each for mask in found if mask is not None for each in mask.hides)
        if not hides or len({number == -np.inf for _, number in hides}) > 1:
            return None
        rests = [v if m is None else m.rest for v, m in zip(maker.operands, found, strict=True)]
        kept = [rest for rest in rests if rest is not None]
        return _Mask(hides, b.add(*kept) if len(kept) > 1 else next(iter(kept), None))

    def _multiplied(self, b: Builder, maker: Op) -> _Mask | None:
        for flag, factor in (maker.operands, maker.operands[::-1]):
            number = self._number(factor)
            if number is not None and -np.inf < number <= HIDES:
                hidden = self._flag(b, flag)
                if hidden is not None:
                    return _Mask(((b.not_(hidden), number),))
        return None

    def _limited(self, b: Builder, maker: Op) -> _Mask | None:
        limits = typed.Clamp.of(maker)
        if (limits.low is not None and limits.low > HIDES) or (limits.high or 0) < 0:
            return None
        found = self.mask(b, maker.operands[0])
        if found is None or found.rest is not None:
            return None
        if limits.low is None:
            return found
        return _Mask(((found.all_show(b), float(limits.low)),))

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
    """Return a value under the view of a mask."""
    result = Value(maker.result.type.with_(dtype=inner.type.dtype))
    b.ops.append(maker.with_(operands=(inner,), results=(result,), origin=None))
    return result
