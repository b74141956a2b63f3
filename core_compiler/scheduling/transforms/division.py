"""Strength reduction of divisions: quotients and remainders of an advancing index are carried."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import is_pure
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    find_loop,
    need,
    producers,
    rebuild,
)


def carry_division(function: Function, loop: str) -> Function:
    """Carry ``e // d`` and ``e % d`` through a loop in which ``e`` grows by at most one.

    Row-major pixel numbers are decomposed in this way, because a 64-bit division costs as much as
    the products of a row. ``e`` must be ``x + i`` or ``x + min(i, y)`` with the loop's index ``i``,
    or a carried quotient (the image, given the row of a pixel). Return the function unchanged if
    the loop contains no division.
    """
    defs, op = producers(function), find_loop(function, loop)
    (region,) = op.regions
    iv = region.arguments[0]
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    need(loop_kind(op) == "sequential", f"iterations of {loop} are not sequential")
    pairs = _divisions(region.ops, iv, defs)
    if not pairs:
        return function
    inside = {v for o in op.walk() if o is not op for v in o.results}
    stop = {v for v in defs if v not in inside}

    def at(copier: Copier, value: Value, index: Value) -> Value:
        """Return ``value`` in the iteration ``index``."""
        return copier.at([value], {iv: index}, defs, stop)[0]

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        lower, upper, step = (copier[v] for v in For.of(op).bounds)
        own = [copier[v] for v in For.of(op).init]
        init = list(own)
        for pair in pairs:
            first = at(copier, pair.dividend, lower)
            if pair.of is not None:
                first = init[len(own) + 2 * pair.of]
            init += [kb.floordiv(first, copier[pair.divisor]), kb.mod(first, copier[pair.divisor])]
        with kb.loop(loop, lower, upper, step, init=init) as (index, *carried):
            copier.env.update(zip(region.arguments, (index, *carried), strict=False))
            counts = carried[len(own) :]
            for pair, quotient, remainder in zip(pairs, counts[::2], counts[1::2], strict=True):
                for division in pair.ops:
                    which = quotient if division.kind == "kernel.floordiv" else remainder
                    copier.hooks[division] = _replace_by(which)
            outputs = list(copier.block(region))
            wrapped: list[Value] = []
            for pair, quotient, remainder in zip(pairs, counts[::2], counts[1::2], strict=True):
                if pair.of is not None:
                    growth = kb.select(wrapped[pair.of], kb.index(1), kb.index(0))
                else:
                    here, there = (at(copier, pair.dividend, i) for i in (index, kb.add(index, 1)))
                    growth = kb.sub(there, here)
                next_remainder = kb.add(remainder, growth)
                wrapped.append(kb.ge(next_remainder, copier[pair.divisor]))
                outputs.append(kb.select(wrapped[-1], kb.add(quotient, 1), quotient))
                outputs.append(kb.select(wrapped[-1], kb.index(0), next_remainder))
            kb.carry(*outputs)
        copier.env.update(zip(op.results, kb.results, strict=False))

    return rebuild(function, {op: hook})


def _replace_by(value: Value):
    def hook(copier: Copier, op: Op) -> None:
        copier.env[op.result] = value

    return hook


@dataclass(frozen=True)
class _Pair:
    """A dividend and divisor in ``ops``; ``of``: the dividend is the quotient of that pair."""

    dividend: Value
    divisor: Value
    ops: list[Op]
    of: int | None


def _divisions(ops, iv: Value, defs) -> list[_Pair]:
    """Return the divisions among a loop's own ops whose dividend grows with the index."""
    found: dict[tuple[Value, Value], _Pair] = {}
    quotients: dict[Value, int] = {}
    for op in ops:
        if op.kind in ("kernel.floordiv", "kernel.mod") and is_pure(op):
            dividend, divisor = op.operands
            of = quotients.get(dividend)
            if depends_on([divisor], {iv}, defs) or (
                of is None and not advances_with(dividend, iv, defs)
            ):
                continue
            pair = found.setdefault((dividend, divisor), _Pair(dividend, divisor, [], of))
            pair.ops.append(op)
            if op.kind == "kernel.floordiv":
                quotients[op.result] = list(found).index((dividend, divisor))
    return list(found.values())


def advances_with(value: Value, iv: Value, defs) -> bool:
    """Return whether ``value`` is ``x + iv`` or ``x + min(iv, y)`` with invariant x and y."""
    if value is iv:
        return True
    op = defs.get(value)
    if op is None or op.kind not in ("kernel.add", "kernel.min") or value not in op.results:
        return False
    for moving, invariant in (op.operands, tuple(reversed(op.operands))):
        if not depends_on([invariant], {iv}, defs) and advances_with(moving, iv, defs):
            return True
    return False
