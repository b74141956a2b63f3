"""Numbering of a reduction's iterations, and a single loop over these numbers.

A sum over several loops (channel blocks, taps, channels) becomes a sum over one when its operands
are laid out by the number of the term: then only the number matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from core_compiler.ir import Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.ops import is_pure
from core_compiler.kernel_ir.views import Constant, For
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    expect,
    find_loop,
    need,
    producers,
    rebuild,
)
from core_compiler.scheduling.transforms.reduction import is_same_index


class Numbering:
    """The number of an iteration of nested loops, in execution order, from 0.

    The loops are: optionally one over blocks ``for block in [lower, upper) step s``, then loops
    from 0 with invariant extents, then optionally one over the elements of the block, ``for c in
    [block, min(block + s, ...))``. All blocks but the last are full, so the number is ``(block -
    lower) * taps + tap * (length of the block) + (c - block)``.
    """

    def __init__(self, function: Function, loops: Sequence[str]):
        self.loops = [find_loop(function, name) for name in loops]
        self.defs = defs = producers(function)
        first, last = self.loops[0], self.loops[-1]
        self.blocked = len(self.loops) > 1 and last.operands[0] is For.of(first).index
        self.middle = self.loops[1:-1] if self.blocked else self.loops[1:]
        own = {For.of(op).index for op in self.loops}
        for op in self.middle:
            need(constant_of(For.of(op).lower, defs) == 0, f"{For.of(op).name} does not start at 0")
            need(constant_of(For.of(op).step, defs) == 1, f"{For.of(op).name} does not step by 1")
            need(
                not depends_on([op.operands[1]], own, defs),
                f"the extent of {For.of(op).name} varies",
            )
        need(constant_of(For.of(last).step, defs) == 1, f"{For.of(last).name} does not step by 1")
        if self.blocked:
            self._check_block(first, last)
        else:
            need(
                constant_of(For.of(first).step, defs) == 1,
                f"{For.of(first).name} does not step by 1",
            )

    def _check_block(self, first: Op, last: Op) -> None:
        """Check that ``last`` runs to min(block + step, ...): every block but the last is full."""
        defs, block = self.defs, For.of(first).index
        end = expect(defs.get(last.operands[1]), f"{For.of(last).name} does not end with its block")
        need(end.kind == "kernel.min", f"{For.of(last).name} does not end with its block")
        full = [
            v
            for v in end.operands
            if v in defs
            and defs[v].kind == "kernel.add"
            and block in defs[v].operands
            and all(
                x is block or is_same_index(first.operands[2], x, defs, {})
                for x in defs[v].operands
            )
        ]
        need(bool(full), f"a block of {For.of(first).name} may be ragged before the last one")

    def taps(self, copier: Copier) -> Value:
        """Return the product of the middle extents."""
        count = copier.kb.index(1)
        for op in self.middle:
            count = copier.kb.mul(count, copier[For.of(op).upper])
        return count

    def number(self, copier: Copier) -> Value:
        """Return the number of the iteration that ``copier`` is in."""
        kb = copier.kb
        first, last = self.loops[0], self.loops[-1]
        start = kb.sub(copier[For.of(first).index], copier[first.operands[0]])
        number = kb.index(0)
        for op in self.middle:
            index = copier[For.of(op).index]
            number = kb.add(kb.mul(number, copier[For.of(op).upper]), index)
        if not self.blocked:
            return kb.add(kb.mul(start, self.taps(copier)), number)
        block = copier[For.of(first).index]
        width = kb.sub(copier[For.of(last).upper], block)
        lane = kb.sub(copier[For.of(last).index], block)
        inside = kb.add(kb.mul(number, width), lane)
        return kb.add(kb.mul(start, self.taps(copier)), inside)

    def count(self, copier: Copier) -> Value:
        """Return the number of iterations."""
        first = self.loops[0]
        span = copier.kb.sub(copier[For.of(first).upper], copier[For.of(first).lower])
        return copier.kb.mul(span, self.taps(copier))


def collapse(function: Function, loops: Sequence[str], name: str) -> Function:
    """Run a nest of reduction loops as one loop over the numbers of their iterations.

    Legal if the innermost body uses the loops' indices only through that number: its operands were
    staged and packed by :class:`Numbering` before. The order of the terms is the same. A single
    loop is only shifted to start at 0.
    """
    numbering = Numbering(function, loops)
    chain, defs = numbering.loops, numbering.defs
    for outer, inner in itertools.pairwise(chain):
        body = outer.regions[0]
        others = [o for o in body.ops if o is not inner and not is_pure(o)]
        need(
            inner in body.ops and not others,
            f"{For.of(outer).name} does more than {For.of(inner).name}",
        )
        need(
            body.outputs == inner.results,
            f"{For.of(outer).name} changes what {For.of(inner).name} carries",
        )
        need(
            For.of(inner).init == body.arguments[1:],
            f"{For.of(inner).name} starts from other values",
        )
    region = chain[-1].regions[0]
    own = {For.of(op).index for op in chain}

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        for inner in chain[:-1]:  # the extents of the inner loops, computed between the headers
            pure = [o for o in inner.regions[0].ops if is_pure(o)]
            copier.ops(o for o in pure if not depends_on(o.operands, own, defs))
        init = [copier[v] for v in For.of(op).init]
        with kb.loop(name, 0, numbering.count(copier), init=init) as (index, *carried):
            copier.env.update(zip(region.arguments[1:], carried, strict=True))
            if len(chain) == 1:
                lower = copier[op.operands[0]]
                copier.env[region.arguments[0]] = kb.add(lower, index)
            for inner in region.ops:
                if is_pure(inner) and _is_number(inner.result, numbering):
                    copier.env[inner.result] = index
                else:
                    copier.ops((inner,))
            kb.carry(*(copier[v] for v in region.outputs))
        copier.env.update(zip(op.results, kb.results, strict=True))

    result = rebuild(function, {chain[0]: hook})
    left = {v for op in result.body.walk() for v in op.operands}
    need(
        left.isdisjoint(own), f"the sum uses indices of {', '.join(loops)} other than their number"
    )
    return result


def _is_number(value: Value, numbering: Numbering) -> bool:
    """Return whether ``value`` has exactly the form that :meth:`Numbering.number` emits."""
    if value.type is not INDEX:
        return False
    kb = KernelBuilder()
    for v, op in numbering.defs.items():
        if op.kind == "kernel.constant" and v.type is INDEX:
            kb._constants[v] = Constant.of(op).index
    wanted = numbering.number(Copier(kb))
    defs = {**numbering.defs, **{v: o for o in kb._blocks[0] for v in o.results}}
    return is_same_index(value, wanted, defs, {})
