"""Unroll and jam: several iterations of an outer loop at once, inside its inner loops."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Block, Function, Op, Value
from core_compiler.kernel_ir.ops import INDEPENDENT
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    find_loop,
    has_loop,
    need,
    producers,
    rebuild,
)


def jam(function: Function, loop: str, factor: int) -> Function:
    """Run ``factor`` iterations of an independent loop at once, op by op.

    Loops inside run once for all of them and carry the values of each; what does not depend on the
    loop's index is computed and loaded once. The remainder is the loop ``<loop>_rest``. Refused are
    loops and branches inside that differ between iterations, and private memory.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {loop} are sequential")
    need(constant_of(For.of(op).lower, defs) == 0, f"{loop} does not start at 0")
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    need(not For.of(op).init, f"{loop} carries values")
    need(not has_loop(function, f"{loop}_rest"), f"{loop} was already split")
    moving = _moving(op)
    for inner in op.walk():
        need(inner.kind != "kernel.alloc", f"{loop} has private memory")
        if inner is not op and inner.kind == "kernel.for":
            same = moving.isdisjoint(For.of(inner).bounds)
            need(same, f"the bounds of {For.of(inner).name} depend on {loop}")
        if inner.kind == "kernel.if":
            same = inner.operands[0] not in moving and not inner.results
            need(same, f"a branch inside {loop} differs between iterations")
    (region,) = op.regions

    def hook(copier: Copier, op: Op) -> None:
        kb, count = copier.kb, copier[For.of(op).upper]
        main = kb.mul(kb.floordiv(count, factor), factor)
        with kb.loop(loop, 0, main, factor, loop=For.of(op).loop) as first:
            own = [{region.arguments[0]: kb.add(first, i)} for i in range(factor)]
            _Jam(copier, moving, own).block(region)
        with kb.loop(f"{loop}_rest", main, count, loop=For.of(op).loop) as index:
            copier.env[region.arguments[0]] = index
            copier.block(region)

    return rebuild(function, {op: hook})


def _moving(loop: Op) -> set[Value]:
    """Return the values inside ``loop`` that depend on its index."""
    found = {For.of(loop).index}
    before = 0
    while before != len(found):  # what a loop carries may depend on it from the second turn on
        before = len(found)
        for op in loop.walk():
            if op is loop:
                continue
            if op.kind == "kernel.for":
                (region,) = op.regions
                carried = zip(
                    region.arguments[1:], For.of(op).init, region.outputs, op.results, strict=True
                )
                for group in carried:
                    if not found.isdisjoint(group):
                        found.update((group[0], group[3]))
            elif not found.isdisjoint(op.operands):
                found.update(op.results)
    return found


class _Jam:
    """Emission of a block for several iterations: ``own`` has the values of each."""

    def __init__(self, copier: Copier, moving: set[Value], own: Sequence[dict[Value, Value]]):
        self.copier, self.moving, self.own = copier, moving, own

    def block(self, block: Block) -> None:
        for op in block.ops:
            if op.kind == "kernel.for":
                self._loop(op)
            elif op.kind == "kernel.if":
                self._branch(op)
            elif self.moving.isdisjoint(op.operands):
                self.copier.copy(op)
            else:
                for values in self.own:
                    self.copier.env.update(values)
                    self.copier.copy(op)
                    values.update({v: self.copier.env[v] for v in op.results})

    def _spread(self, values: Sequence[Value], carried: Sequence[Value]) -> list[Value]:
        """Return the new values: where the carried value differs, one for each iteration."""
        found = []
        for value, inside in zip(values, carried, strict=True):
            each = self.own if inside in self.moving else self.own[:1]
            found += [own.get(value, self.copier[value]) for own in each]
        return found

    def _bind(self, values: Sequence[Value], new: Sequence[Value]) -> None:
        """Let ``values`` have the new values, in the order of :meth:`_spread`."""
        rest = iter(new)
        for value in values:
            if value in self.moving:
                for own in self.own:
                    own[value] = next(rest)
            else:
                self.copier.env[value] = next(rest)

    def _loop(self, op: Op) -> None:
        kb, loop, (region,) = self.copier.kb, For.of(op), op.regions
        lower, upper, step = (self.copier[v] for v in loop.bounds)
        carried = region.arguments[1:]
        init = self._spread(loop.init, carried)
        with kb.loop(loop.name, lower, upper, step, loop=loop_kind(op), init=init) as got:
            index, *values = got if init else (got,)
            self.copier.env[region.arguments[0]] = index
            self._bind(carried, values)
            self.block(region)
            if init:
                kb.carry(*self._spread(region.outputs, carried))
        self._bind(op.results, kb.results if init else ())

    def _branch(self, op: Op) -> None:
        kb, (then, otherwise) = self.copier.kb, op.regions
        kb.choose(
            self.copier[op.operands[0]],
            lambda: self._inside(then),
            lambda: self._inside(otherwise),
        )

    def _inside(self, block: Block) -> tuple[Value, ...]:
        saved = dict(self.copier.env), [dict(own) for own in self.own]
        self.block(block)
        self.copier.env.clear()
        self.copier.env.update(saved[0])
        for own, before in zip(self.own, saved[1], strict=True):
            own.clear()
            own.update(before)
        return ()
