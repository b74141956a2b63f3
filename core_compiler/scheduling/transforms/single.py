"""Sums of a single term along an axis: the kernel tests for it, and runs without its loops."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import INDEPENDENT
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    expect,
    expression,
    find_loop,
    need,
    producers,
    rebuild,
)


def single_term(function: Function, loop: str, chunk: str, terms: Sequence[str]) -> Function:
    """Version the loop ``loop`` for the case that the sum along an axis has one term.

    That copy has no loops ``chunk``, ``terms[0]`` and ``terms[-1]`` over the axis (a depthwise
    convolution has one channel in a group); loops over taps between them are as before. The other
    copy is sequential, and its loops have their names and ``_many``.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {loop} are sequential")
    names = dict.fromkeys((chunk, terms[0], terms[-1]))
    axis = [find_loop(function, name) for name in names]
    need(all(each in list(op.walk()) for each in axis), f"{chunk} is not inside {loop}")
    size = size_of_axis(axis, defs)
    inside = {v for o in op.walk() if o is not op for v in o.results}
    need(size not in inside, f"the length of the sum varies inside {loop}")

    def once(copier: Copier, o: Op) -> None:
        (region,) = o.regions
        copier.env[For.of(o).index] = copier.kb.index(0)
        init = (copier[v] for v in For.of(o).init)
        copier.env.update(zip(region.arguments[1:], init, strict=True))
        copier.env.update(zip(o.results, copier.block(region), strict=True))

    def one(copier: Copier) -> tuple:
        saved = dict(copier.hooks), dict(copier.env)
        copier.hooks |= dict.fromkeys(axis, once)
        copier.env[size] = copier.kb.index(1)
        copier.loop(op)
        copier.hooks, copier.env = saved
        return ()

    def many(copier: Copier) -> tuple:
        def renamed(copier: Copier, o: Op) -> None:
            kind = "sequential" if o is op else None
            copier.loop(o, loop=kind, name=f"{For.of(o).name}_many")

        saved = dict(copier.hooks)
        copier.hooks |= {o: renamed for o in op.walk() if o.kind == "kernel.for"}
        renamed(copier, op)
        copier.hooks = saved
        return ()

    def hook(copier: Copier, op: Op) -> None:
        copier.ops(expression(size, defs, set()))
        is_one = copier.kb.eq(copier[size], 1)
        copier.kb.choose(is_one, lambda: one(copier), lambda: many(copier))

    return rebuild(function, {op: hook})


def size_of_axis(loops: Sequence[Op], defs: Mapping[Value, Op]) -> Value:
    """Return the length of the axis that nested loops sum: chunks, blocks of a chunk, elements.

    They start at 0, and each inner one runs through a block of the next outer one.
    """
    size = For.of(loops[0]).upper
    need(
        constant_of(For.of(loops[0]).lower, defs) == 0, f"{For.of(loops[0]).name} starts elsewhere"
    )
    for outer, op in itertools.pairwise(loops):
        name, start = For.of(op).name, For.of(outer).index
        need(For.of(op).lower is start, f"{name} does not start with {For.of(outer).name}")
        end = expect(defs.get(For.of(op).upper), f"{name} is not a block")
        need(end.kind == "kernel.min", f"{name} is not a block")
        need(size in end.operands, f"{name} does not end with the axis")
    need(constant_of(For.of(loops[-1]).step, defs) == 1, f"{For.of(loops[-1]).name} skips terms")
    return size
