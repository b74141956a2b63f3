"""Splitting, interchanging and marking loops."""
from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernels.ops import LOOPS
from core_compiler.kernels.transforms.edit import (
    INDEPENDENT, constant_of, depends_on, expression, find_loop, need, nest, producers, rebuild,
)  # fmt: skip


def split(
    function: Function, loop: str, factor: int | str, outer: str, inner: str,
    inner_loop: str | None = None,
) -> Function:  # fmt: skip
    """``for i in [0, n)`` becomes ``for outer in [0, ceildiv(n, factor)): for inner in [0,
    min(factor, n - outer * factor))`` with ``i = outer * factor + inner``.

    ``factor`` is a number, or the name of an index argument (made where there is none), so that a
    tile's size can be chosen at run time.  The outer loop keeps its kind; the inner loop of
    independent iterations becomes ``vector`` (independent, inside one thread).  Carried values pass
    through both, so a reduction keeps its order.
    """
    op, made = find_loop(function, loop), producers(function)
    need(constant_of(op.operands[0], made) == 0, f"{loop} does not start at 0")
    need(constant_of(op.operands[2], made) == 1, f"{loop} does not step by 1")
    kind = op.get("loop", "sequential")
    inner_kind = inner_loop or ("vector" if kind in INDEPENDENT else "sequential")
    (region,) = op.regions

    def hook(copier, op):
        kb = copier.kb
        size = factor
        if isinstance(factor, str):
            size = next(v for v in kb.arguments if v.name == factor)
        upper = copier[op.operands[1]]
        init = [copier[v] for v in op.operands[3:]]
        with kb.loop(outer, 0, kb.op("ceildiv", upper, size), loop=kind, init=init) as got:
            io, *carried = got if init else (got,)
            base = kb.mul(io, size)
            known = kb.known(upper)
            whole = known is not None and isinstance(size, int) and known % size == 0
            count = kb.index(size) if whole else kb.min(kb.index(size), kb.sub(upper, base))
            with kb.loop(inner, 0, count, loop=inner_kind, init=carried) as got:
                ii, *values = got if init else (got,)
                copier.env.update(zip(region.arguments, (kb.add(base, ii), *values), strict=True))
                outputs = copier.block(region)
                if init:
                    kb.carry(*outputs)
            if init:
                kb.carry(*kb.results)
        copier.env.update(zip(op.results, kb.results, strict=True))

    return rebuild(function, {op: hook}, sizes=(factor,) if isinstance(factor, str) else ())


def interchange(function: Function, outer: str, inner: str) -> Function:
    """Exchange two perfectly nested loops of independent iterations."""
    first, second = nest(function, (outer, inner))
    made = producers(function)
    for op in (first, second):
        need(op.get("loop") in INDEPENDENT, f"iterations of {op['name']} are in order")
    own = {first.regions[0].arguments[0]}
    need(
        not depends_on(second.operands[:3], own, made),
        f"the bounds of {inner} depend on {outer}",
    )
    def hook(copier, op):
        bounds = [o for v in second.operands[:3] for o in expression(v, made, own)]
        inside = set(first.regions[0].ops)
        copier.ops(dict.fromkeys(o for o in bounds if o in inside))

        def body():
            copier.loop(first, body=inner_body)

        def inner_body():
            copier.ops(o for o in first.regions[0].ops if o is not second)
            copier.block(second.regions[0])

        copier.loop(second, body=body)

    return rebuild(function, {first: hook})


def mark(function: Function, loop: str, kind: str) -> Function:
    """Say how a loop runs.  Independent iterations may be put in order, not the other way round."""
    op = find_loop(function, loop)
    need(kind in LOOPS, f"{kind!r} is no kind of loop")
    need(
        kind in ("sequential", "unrolled") or op.get("loop") in INDEPENDENT,
        f"iterations of {loop} are in order",
    )
    return rebuild(function, {op: lambda copier, op: copier.loop(op, loop=kind)})
