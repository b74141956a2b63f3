"""Ranges of a loop in which conditions are known and clamps do nothing.

Concatenation, padding, shifts and windows choose between operands by conditions on an index, and
clamp the index of an operand that is not chosen. Split where the conditions change, each range of
the loop is a plain copy or sum over contiguous elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core_compiler.ir import Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.ops import INDEPENDENT
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    expect,
    expression,
    find_loop,
    need,
    producers,
    rebuild,
)

#: Most ranges of a loop with different values of its conditions.
MOST = 24


def interior(function: Function, loop: str, unclamped: int = MOST) -> Function:
    """Split an independent loop into ranges in which its conditions and clamps are known.

    A range in which all conditions on the loop's index have one value and no clamp changes
    anything is the loop ``<loop>_<number>``; the rest, for sizes at which there is one, is
    ``<loop>_rest<number>``. More than ``unclamped`` ranges keep their clamps and have no rests,
    which is a third of the code.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {loop} are sequential")
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    need(not For.of(op).init, f"{loop} carries values")
    split = _Split(op, defs)
    need(bool(split.conditions or split.clamps), f"{loop} has no conditions or clamps on its index")
    split.unclamped = not unclamped < split.leaves <= MOST
    return rebuild(function, {op: split.emit})


@dataclass(frozen=True)
class _Linear:
    """``index + terms``: values added (or subtracted), and inner loops' indices times a factor."""

    terms: tuple[tuple[int, Value], ...] = ()
    inner: tuple[tuple[int, Op, Value | None], ...] = ()

    def plus(self, sign: int, other: _Linear) -> _Linear:
        return _Linear(
            (*self.terms, *((sign * s, v) for s, v in other.terms)),
            (*self.inner, *((sign * s, op, factor) for s, op, factor in other.inner)),
        )


class _Split:
    def __init__(self, op: Op, defs: Mapping[Value, Op]):
        self.op, self.defs = op, defs
        self.index = For.of(op).index
        self.inside = {v for o in op.walk() if o is not op for v in o.results}
        self.inner = {
            r.arguments[0]: o
            for o in op.walk()
            if o is not op and o.kind == "kernel.for"
            for r in o.regions
        }
        own = {self.index, *self.inner}
        self.invariant = lambda v: not depends_on([v], own, defs)
        self.conditions: list[Op] = []
        self.clamps: list[Op] = []
        for inner in op.walk():
            if inner.kind in _COMPARISONS and self._sides(inner) is not None:
                self.conditions.append(inner)
            elif inner.kind in _CLAMPS and self._sides(inner) is not None:
                self.clamps.append(inner)
        self.number = self.rests = 0
        self.unclamped = True
        self.leaves = self._leaves({}, MOST)
        self.exact = self.leaves <= MOST

    def _leaves(self, truths: dict[Value, bool], most: int) -> int:
        """Return the number of ranges that differ in conditions, as far as it is at most ``most``.

        Each part of a concatenation is one; independent conditions double it, which is too many.
        """
        condition = self._open_condition(truths)
        if condition is None or most < 1:
            return 1
        first = self._leaves({**truths, condition.result: True}, most - 1)
        return first + self._leaves({**truths, condition.result: False}, most - first)

    # -- analysis ----------------------------------------------------------------------------------

    def _sides(self, op: Op) -> tuple[_Linear, Value] | None:
        """Return the side that moves with the index by 1, and the other, which is invariant."""
        if op.operands[0].type is not INDEX:
            return None
        moving, limit = op.operands
        clamp = op.kind in _CLAMPS
        if clamp and self.invariant(moving):
            moving, limit = limit, moving
        if not self.invariant(limit):
            return None
        found = self._linear(moving, clamp)
        return None if found is None or found[0] != 1 else (found[1], limit)

    def _known_sides(self, op: Op) -> tuple[_Linear, Value]:
        return expect(self._sides(op), f"{op} does not move with the loop")

    def _linear(self, value: Value, through: bool) -> tuple[int, _Linear] | None:
        """Return ``(factor of the index, the rest)``; ``through`` clamps, which will do nothing."""
        if value is self.index:
            return 1, _Linear()
        if value in self.inner:
            return 0, _Linear(inner=((1, self.inner[value], None),))
        if self.invariant(value):
            return 0, _Linear(((1, value),))
        op = self.defs[value]
        if value not in op.results:
            return None
        if op.kind in ("kernel.add", "kernel.sub"):
            a, b = (self._linear(v, through) for v in op.operands)
            if a is None or b is None:
                return None
            sign = 1 if op.kind == "kernel.add" else -1
            return a[0] + sign * b[0], a[1].plus(sign, b[1])
        if op.kind == "kernel.mul":
            for mine, other in (op.operands, reversed(op.operands)):
                if mine in self.inner and self.invariant(other):
                    return 0, _Linear(inner=((1, self.inner[mine], other),))
        if through and op.kind in _CLAMPS:
            sides = self._sides(op)
            return None if sides is None else (1, sides[0])
        return None

    # -- emission ----------------------------------------------------------------------------------

    def emit(self, copier: Copier, op: Op) -> None:
        low, high = (copier[v] for v in op.operands[:2])
        self._range(copier, low, high, {})

    def _range(self, copier: Copier, low: Value, high: Value, truths: dict[Value, bool]) -> None:
        """Emit the iterations from ``low`` to ``high``, in which the conditions are known."""
        condition = self._open_condition(truths) if self.exact else None
        if condition is None and not self.unclamped:
            self._loop(copier, self._next(), low, high, truths, dropped=False)
            return
        if condition is None:
            self._within(copier, low, high, truths)
            return
        rest, limit = self._known_sides(condition)
        kb, kind = copier.kb, condition.kind.removeprefix("kernel.")
        # index + rest < limit: below the border, or from it on.
        border = kb.sub(self._value(copier, limit), self._extreme(copier, rest, 1))
        border = kb.add(border, 1) if kind in ("le", "gt") else border
        border = kb.min(kb.max(border, low), high)
        below = kind in ("lt", "le")
        self._range(copier, low, border, {**truths, condition.result: below})
        self._range(copier, border, high, {**truths, condition.result: not below})

    def _open_condition(self, truths: dict[Value, bool]) -> Op | None:
        """Return a condition without inner indices that decides what is stored, the first one."""
        known = self._known(truths)
        candidates = {
            o.result: o
            for o in self.conditions
            if o.result not in known and not self._known_sides(o)[0].inner
        }
        seen: set[Value] = set()

        def visit(value: Value) -> Op | None:
            if value in seen or value not in self.inside:
                return None
            seen.add(value)
            if value in candidates:
                return candidates[value]
            op = self.defs[value]
            operands = list(op.operands)
            if op.kind == "kernel.select" and operands[0] in known:
                operands = [operands[1 if known[operands[0]] else 2]]
            for region in op.regions:
                operands += region.outputs
            for operand in operands:
                found = visit(operand)
                if found is not None:
                    return found
            return None

        for store in self.op.walk():
            if store.kind == "kernel.store":
                for operand in store.operands:
                    found = visit(operand)
                    if found is not None:
                        return found
        return None

    def _known(self, truths: Mapping[Value, bool]) -> dict[Value, bool]:
        """Return the known conditions, with those that are made of them."""
        known = dict(truths)
        for op in self.op.walk():
            if op.kind in ("kernel.and", "kernel.or") and op.result.type is not INDEX:
                values = [known.get(v) for v in op.operands]
                absorbing = op.kind == "kernel.or"
                if absorbing in values:
                    known[op.result] = absorbing
                elif None not in values:
                    known[op.result] = not absorbing
            elif op.kind == "kernel.not" and op.operands[0] in known:
                known[op.result] = not known[op.operands[0]]
        return known

    def _within(self, copier: Copier, low: Value, high: Value, truths: dict[Value, bool]) -> None:
        """Emit a range in which no clamp does anything and the other conditions hold, and rests."""
        kb = copier.kb
        known = self._known(truths)
        live = self._live(known)
        start, end = low, high
        holding = dict(truths)
        for op in (*self.clamps, *self.conditions):
            if op.result in known or op.result not in live:
                continue
            rest, limit = self._known_sides(op)
            name, most = op.kind.removeprefix("kernel."), self._value(copier, limit)
            if name in ("max", "ge", "gt"):
                first = kb.sub(most, self._extreme(copier, rest, -1))
                start = kb.max(start, kb.add(first, 1) if name == "gt" else first)
            else:
                last = kb.sub(most, self._extreme(copier, rest, 1))
                end = kb.min(end, last if name == "lt" else kb.add(last, 1))
            if name not in ("max", "min"):
                holding[op.result] = True
        if start is low and end is high:
            self._loop(copier, self._next(), low, high, truths, dropped=False)
            return
        start, end = kb.min(start, high), kb.min(kb.max(end, kb.min(start, high)), high)
        self._loop(copier, self._next_rest(), low, start, truths, dropped=False)
        self._loop(copier, self._next(), start, end, holding, dropped=True)
        self._loop(copier, self._next_rest(), end, high, truths, dropped=False)

    def _live(self, known: Mapping[Value, bool]) -> set[Value]:
        """Return the values that the stores need once the known conditions have chosen."""
        needed: set[Value] = set()
        stack = [v for o in self.op.walk() if o.kind == "kernel.store" for v in o.operands]
        stack += [v for o in self.op.walk() if o.kind == "kernel.for" for v in For.of(o).bounds]
        stack += [v for o in self.op.walk() if o.kind == "kernel.if" for v in o.operands]
        while stack:
            value = stack.pop()
            if value in needed or value not in self.inside:
                continue
            needed.add(value)
            op = self.defs[value]
            operands = list(op.operands)
            if op.kind == "kernel.select" and operands[0] in known:
                operands = [operands[1 if known[operands[0]] else 2]]
            stack += operands
            stack += [v for r in op.regions for v in r.outputs]
        return needed

    def _loop(self, copier: Copier, name: str, low, high, truths, *, dropped: bool) -> None:
        kb, (region,) = copier.kb, self.op.regions
        saved, held, hooks = dict(copier.env), dict(copier.truths), dict(copier.hooks)
        known = self._known(truths)
        copier.truths.update(known)
        for op in self.op.walk():
            if op.kind in ("kernel.and", "kernel.or") and op.result not in known:
                left = [v for v in op.operands if v not in known]
                if len(left) == 1:  # the other one decides nothing
                    copier.hooks[op] = _replaced_by(left[0])
        if dropped:
            for op in self.clamps:
                copier.hooks[op] = _replaced_by(self._moving(op))
        with kb.loop(name, 0, kb.sub(high, low), loop=For.of(self.op).loop) as iv:
            copier.env[self.index] = kb.add(low, iv)
            copier.block(region)
        copier.env, copier.truths, copier.hooks = saved, held, hooks

    def _moving(self, clamp: Op) -> Value:
        a, b = clamp.operands
        return b if self.invariant(a) else a

    def _next(self) -> str:
        self.number += 1
        return f"{For.of(self.op).name}_{self.number - 1}"

    def _next_rest(self) -> str:
        self.rests += 1
        return f"{For.of(self.op).name}_rest{self.rests - 1}"

    # -- bounds ------------------------------------------------------------------------------------

    def _value(self, copier: Copier, value: Value) -> Value:
        """Emit an invariant value before the loop."""
        copier.ops(expression(value, self.defs, {v for v in self.defs if v not in self.inside}))
        return copier[value]

    def _extreme(self, copier: Copier, rest: _Linear, sign: int) -> Value:
        """Emit the largest (``sign`` 1) or smallest (-1) value of what is added to the index."""
        kb, total = copier.kb, copier.kb.index(0)
        for each, value in rest.terms:
            part = self._value(copier, value)
            total = kb.add(total, part) if each > 0 else kb.sub(total, part)
        for each, loop, factor in rest.inner:
            low, high = (self._value(copier, v) for v in loop.operands[:2])
            ends = [low, kb.sub(high, 1)]
            if factor is not None:
                ends = [kb.mul(end, self._value(copier, factor)) for end in ends]
            if each < 0:
                ends = [kb.sub(0, end) for end in ends]
            total = kb.add(total, (kb.max if sign > 0 else kb.min)(*ends))
        return total


def _replaced_by(value: Value):
    def hook(copier: Copier, op: Op) -> None:
        copier.env[op.result] = copier[value]

    return hook


_CLAMPS = ("kernel.max", "kernel.min")
_COMPARISONS = ("kernel.lt", "kernel.le", "kernel.ge", "kernel.gt")


def is_chosen_by(function: Function, loop: str) -> bool:
    """Return whether conditions on the index of ``loop`` choose between loads."""
    op, defs = find_loop(function, loop), producers(function)
    condition = _Split(op, defs)._open_condition({})
    if condition is None:
        return False
    loads = {o.result for o in op.walk() if o.kind == "kernel.load"}
    return any(
        depends_on([o.operands[0]], {condition.result}, defs)
        and all(depends_on([side], loads, defs) for side in o.operands[1:])
        for o in op.walk()
        if o.kind == "kernel.select"
    )


def ranges(function: Function, loop: str) -> list[str]:
    """Return the names of the ranges of ``loop`` that :func:`interior` left, without the rests."""
    names = [For.of(op).name for op in function.body.walk() if op.kind == "kernel.for"]
    return [n for n in names if n.startswith(f"{loop}_") and n.rpartition("_")[2].isdigit()]
