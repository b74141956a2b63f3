"""Quotients that the threads of a block need again and again, kept in registers."""

from __future__ import annotations

from core_compiler.ir import Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.views import For
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

_QUOTIENTS = ("kernel.floordiv", "kernel.mod")


def hold_quotients(function: Function, loop: str, before: str) -> Function:
    """Divide once, before the loop ``before``, what the nest ``loop`` inside it divides.

    Held are the quotients and remainders that change only along the loops of the nest: the row and
    the column of the pixel that a thread copies. Each thread has registers for its own.
    """
    outer, defs = find_loop(function, before), producers(function)
    top = find_loop(function, loop)
    nest = [op for op in top.walk() if op.kind == "kernel.for"]
    need(top in set(outer.walk()), f"{loop} is not inside {before}")
    ivs = [For.of(op).index for op in nest]
    inside = {v for op in outer.walk() for r in op.regions for v in r.arguments}
    changing = inside.difference(ivs)
    changing |= {op.result for op in outer.walk() if op.kind == "kernel.load"}
    chosen = [
        op
        for op in top.walk()
        if op.kind in _QUOTIENTS
        and op.result.type is INDEX
        and constant_of(op.operands[1], defs) is None
        and not depends_on([op.result], changing, defs)
    ]
    need(bool(chosen), f"{loop} has no quotients to hold")
    extents = [
        expect(constant_of(For.of(op).upper, defs), f"{For.of(op).name} has no constant extent")
        for op in nest
    ]
    held: dict[Op, Value] = {}

    def prologue(copier: Copier) -> None:
        for number, op in enumerate(chosen):
            held[op] = copier.kb.alloc(extents, "i64", space="register", name=f"{loop}_{number}")

    def divide(copier: Copier, depth: int = 0) -> None:
        if depth < len(nest):
            level = For.of(nest[depth])
            name = f"{level.name}_held"
            with copier.kb.loop(name, 0, extents[depth], loop=level.loop) as index:
                copier.env[level.index] = index
                divide(copier, depth + 1)
            return
        within = {v for op in outer.walk() if op is not outer for v in op.results}
        stop = {v for v in defs if v not in within}
        for op in chosen:
            copier.ops(expression(op.result, defs, stop))
            number = copier.kb.cast(copier[op.result], "i64")
            copier.kb.store(number, held[op], *(copier[v] for v in ivs))

    def first(copier: Copier, op: Op) -> None:
        saved = dict(copier.env)
        divide(copier)
        copier.env.clear()
        copier.env.update(saved)
        copier.hooks.update(dict.fromkeys(chosen, load))
        copier.copy(op)

    def load(copier: Copier, op: Op) -> None:
        number = copier.kb.load(held[op], *(copier[v] for v in ivs))
        copier.env[op.result] = copier.kb.cast(number, INDEX)

    return rebuild(function, {outer: first}, prologue)
