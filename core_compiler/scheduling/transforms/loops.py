"""Splitting, interchanging and marking loops."""

from __future__ import annotations

from core_compiler.ir import Block, Function, Op, Value, attributes_key
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.ops import INDEPENDENT, LOOPS, is_pure
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    buffer_argument,
    constant_of,
    depends_on,
    expect,
    expression,
    find_loop,
    has_loop,
    need,
    nest,
    producers,
    rebuild,
    replaced,
)


def split(
    function: Function,
    loop: str,
    factor: int | str,
    outer: str,
    inner: str,
    inner_loop: str | None = None,
) -> Function:
    """Split a loop in two.

    ``for i in [low, low + n)`` becomes ``for outer in [0, ceildiv(n, factor)): for inner in [0,
    min(factor, n - outer * factor))`` with ``i = low + outer * factor + inner``.

    ``factor`` is a number, or the name of an index argument (created if missing), so that a tile's
    size can be chosen at run time. The outer loop keeps its kind; the inner loop of independent
    iterations becomes ``vector`` (independent, inside one thread). Carried values pass through
    both, so a reduction keeps its order.
    """
    op, defs = find_loop(function, loop), producers(function)
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    kind = For.of(op).loop
    inner_kind = inner_loop or ("vector" if kind in INDEPENDENT else "sequential")
    (region,) = op.regions

    def hook(copier, op):
        kb = copier.kb
        size = factor
        if isinstance(factor, str):
            size = next(v for v in kb.arguments if v.name == factor)
        low, extent = (
            copier[op.operands[0]],
            kb.sub(copier[For.of(op).upper], copier[For.of(op).lower]),
        )
        init = [copier[v] for v in For.of(op).init]
        with kb.loop(outer, 0, kb.op("ceildiv", extent, size), loop=kind, init=init) as got:
            io, *carried = got if init else (got,)
            base = kb.mul(io, size)
            known = kb.known(extent)
            whole = known is not None and isinstance(size, int) and known % size == 0
            count = kb.index(size) if whole else kb.min(kb.index(size), kb.sub(extent, base))
            with kb.loop(inner, 0, count, loop=inner_kind, init=carried) as got:
                ii, *values = got if init else (got,)
                index = kb.add(low, kb.add(base, ii))
                copier.env.update(zip(region.arguments, (index, *values), strict=True))
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
    defs = producers(function)
    for op in (first, second):
        need(loop_kind(op) in INDEPENDENT, f"iterations of {For.of(op).name} are sequential")
    own = {For.of(first).index}
    need(
        not depends_on(For.of(second).bounds, own, defs),
        f"the bounds of {inner} depend on {outer}",
    )

    def hook(copier, op):
        bounds = [o for v in For.of(second).bounds for o in expression(v, defs, own)]
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
    """Mark how a loop runs; independent iterations may become sequential, but not vice versa."""
    op = find_loop(function, loop)
    need(kind in LOOPS, f"unknown kind of loop {kind!r}")
    need(
        kind in ("sequential", "unrolled") or loop_kind(op) in INDEPENDENT,
        f"iterations of {loop} are sequential",
    )
    marked = op.with_(attributes={**op.attributes, "loop": kind})
    return function.with_(body=replaced(function.body, op, marked))


def lift(function: Function) -> Function:
    """Move index arithmetic out of the loops that it does not depend on, and share equal results.

    Divisions move only if the divisor is a constant or an index argument (extents and tile sizes,
    at least one), so that no new division by zero is possible.
    """
    defs = producers(function)

    def movable(op: Op) -> bool:
        if not is_pure(op) or op.regions or op.kind == "kernel.constant":
            return False
        if any(v.type is not INDEX for v in (*op.operands, *op.results)):
            return False
        if op.kind in ("kernel.floordiv", "kernel.ceildiv", "kernel.mod", "kernel.div"):
            divisor = op.operands[1]
            return bool(constant_of(divisor, defs)) or divisor in function.arguments
        return True

    def clean(block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if op.regions:
                op = op.with_(regions=tuple(clean(r) for r in op.regions))
            if op.kind == "kernel.for":
                (region,) = op.regions
                own, kept = set(region.arguments), []
                for inner in region.ops:
                    constant = inner.kind == "kernel.constant"
                    if constant or (movable(inner) and own.isdisjoint(inner.operands)):
                        ops.append(inner)
                    else:
                        own.update(inner.results)
                        kept.append(inner)
                op = op.with_(regions=(region.with_(ops=tuple(kept)),))
            ops.append(op)
        return block.with_(ops=tuple(ops))

    return rebuild(function.with_(body=clean(function.body)), {})


def unswitch(function: Function, loop: str, suffix: str = "_first") -> Function:
    """Move a branch with an invariant condition out of a nest.

    ``for: if p: x else: y`` becomes ``if p: for: x else: for: y``; the loops of the first copy get
    ``suffix``.
    """
    op, defs = find_loop(function, loop), producers(function)
    branches = [o for o in op.walk() if o.kind == "kernel.if"]
    need(len(branches) == 1, f"{loop} holds {len(branches)} branches, not one")
    (branch,) = branches
    need(not For.of(op).init, f"{loop} carries values")
    own = {v for o in op.walk() for r in o.regions for v in r.arguments}
    own |= {v for o in op.walk() if o.regions or not is_pure(o) for v in o.results}
    condition = branch.operands[0]
    need(not depends_on([condition], own, defs), f"the condition changes inside {loop}")

    def side(copier: Copier, which: int) -> tuple:
        copier.truths[condition] = which == 0

        def taken(copier: Copier, branch: Op) -> None:
            outputs = copier.block(branch.regions[which])
            copier.env.update(zip(branch.results, outputs, strict=True))

        def nested(copier: Copier, inner: Op) -> None:
            copier.loop(inner, name=For.of(inner).name + (suffix if which == 0 else ""))

        saved = dict(copier.hooks)
        copier.hooks[branch] = taken
        for inner in op.walk():
            if inner.kind == "kernel.for":
                copier.hooks[inner] = nested
        nested(copier, op)
        copier.hooks = saved
        del copier.truths[condition]
        return ()

    def hook(copier: Copier, op: Op) -> None:
        inside = {v for o in op.walk() if o is not op for v in o.results}
        stop = {v for v in defs if v not in inside}
        copier.ops(expression(condition, defs, stop))
        copier.kb.choose(copier[condition], lambda: side(copier, 0), lambda: side(copier, 1))

    return rebuild(function, {op: hook})


def rename(function: Function, **names: str) -> Function:
    """Rename loops: ``rename(f, m="i")``."""
    for new in names.values():
        need(new in names or not has_loop(function, new), f"loop {new!r} already exists")
    hooks = {}
    for old, new in names.items():
        hooks[find_loop(function, old)] = _renamed(new)
    return rebuild(function, hooks)


def _renamed(new: str):
    return lambda copier, op: copier.loop(op, name=new)


def rename_buffers(function: Function, **names: str) -> Function:
    """Rename buffer arguments."""
    taken = {v.name for v in function.arguments} - set(names)
    need(taken.isdisjoint(names.values()), "duplicate argument name")
    swapped = {
        buffer_argument(function, old): Value(buffer_argument(function, old).type, new)
        for old, new in names.items()
    }
    arguments = tuple(swapped.get(v, v) for v in function.arguments)
    body = function.body.substitute(swapped).with_(arguments=arguments)
    return function.with_(body=body)


def merge(function: Function, outer: str, inner: str, name: str) -> Function:
    """Merge two perfectly nested loops of independent iterations into one, row-major.

    The old indices are the quotient and the remainder by the inner extent, which must not depend on
    the outer loop.
    """
    first, second = nest(function, (outer, inner))
    defs = producers(function)
    for op in (first, second):
        need(loop_kind(op) in INDEPENDENT, f"iterations of {For.of(op).name} are sequential")
        need(constant_of(For.of(op).lower, defs) == 0, f"{For.of(op).name} does not start at 0")
        need(constant_of(For.of(op).step, defs) == 1, f"{For.of(op).name} does not step by 1")
    (row,), (column,) = first.regions[0].arguments, second.regions[0].arguments
    need(not depends_on([second.operands[1]], {row}, defs), f"{inner} depends on {outer}")

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        inside = {v for o in first.walk() if o is not first for v in o.results}
        copier.ops(expression(second.operands[1], defs, {v for v in defs if v not in inside}))
        width = copier[For.of(second).upper]
        total = kb.mul(copier[For.of(first).upper], width)
        with kb.loop(name, 0, total, loop=For.of(first).loop) as linear_index:
            copier.env[row] = kb.floordiv(linear_index, width)
            copier.env[column] = kb.mod(linear_index, width)
            copier.ops(o for o in first.regions[0].ops if o is not second)
            copier.block(second.regions[0])

    return rebuild(function, {first: hook})


def unit_loop(function: Function, inside: str, name: str) -> Function:
    """Put the body of a loop of independent iterations into a loop of one iteration."""
    op = find_loop(function, inside)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {inside} are sequential")
    need(not has_loop(function, name), f"loop {name!r} already exists")

    def hook(copier: Copier, op: Op) -> None:
        def body() -> None:
            with copier.kb.loop(name, 0, 1, loop="vector"):
                copier.block(op.regions[0])

        copier.loop(op, body=body)

    return rebuild(function, {op: hook})


def never_empty(function: Function, chunk: str) -> Function:
    """Run the loop over the chunks of a sum at least once: no terms are one empty chunk.

    Legal if the first chunk's sum is used directly and an empty chunk yields the initial value of
    the loop.
    """
    op, defs = find_loop(function, chunk), producers(function)
    (region,) = op.regions
    need(constant_of(For.of(op).lower, defs) == 0, f"{chunk} does not start at 0")
    need(len(op.results) == 1, f"{chunk} carries {len(op.results)} values, not one")
    taken = defs[region.outputs[0]]
    if taken.kind == "kernel.select":
        need(
            _is_first(taken.operands[0], region.arguments[0], defs),
            "the select does not test for the first chunk",
        )
        part = defs[taken.operands[1]]
    else:
        need(taken.kind == "kernel.add" and not taken.result.type.is_float, "not a sum of chunks")
        part = defs[next(v for v in taken.operands if v is not region.arguments[1])]
    need(part.kind == "kernel.for" and len(part.operands) == 4, "a chunk is not a loop")
    start, inner = defs.get(op.operands[3]), defs.get(part.operands[3])
    other = "a chunk starts from another value"
    start, inner = expect(start, other), expect(inner, other)
    need(start.kind == inner.kind == "kernel.constant", other)
    starts = (attributes_key(o.attributes.items()) for o in (start, inner))
    need(len(set(starts)) == 1, other)

    def hook(copier: Copier, op: Op) -> None:
        copier.loop(op, upper=copier.kb.max(copier[For.of(op).upper], 1))

    return rebuild(function, {op: hook})


def _is_first(condition: Value, iv: Value, defs) -> bool:
    op = defs.get(condition)
    return (
        op is not None
        and op.kind == "kernel.eq"
        and iv in op.operands
        and any(constant_of(v, defs) == 0 for v in op.operands)
    )
