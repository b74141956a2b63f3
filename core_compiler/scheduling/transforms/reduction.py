"""Reduction motion: distributing a nest, hoisting a reduction out of it, sinking what follows.

Together they turn "for each output element, sum" into "for each chunk of the sum, for each output
tile", the form in which operands are reused. The order of accumulation never changes: partial
results are stored and loaded again, which is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_compiler.ir import Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.ops import INDEPENDENT, access, is_pure
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    bound_at_top,
    constant_of,
    depends_on,
    expression,
    find_loop,
    need,
    nest,
    producers,
    rebuild,
    requires,
)


def fission(
    function: Function,
    loops: Sequence[str],
    after: str,
    buffer: str,
    tile: int = 2,
    space: str = "scratch",
    suffix: str = "_out",
) -> Function:
    """Distribute a nest: the part up to loop ``after`` in one nest, the rest in a second one.

    Values used by both are kept in a private buffer ``buffer``: one dimension for each of the last
    ``tile`` loops (their extents are bounded by constants) after one for all loops around those.
    The loops of the second nest have the names of the first's with ``suffix``. Legal because the
    iterations are independent.
    """
    chain, defs = nest(function, loops), producers(function)
    for op in chain:
        need(
            loop_kind(op) == "vector",
            f"iterations of {For.of(op).name} are not private to a thread",
        )
        need(constant_of(For.of(op).lower, defs) == 0, f"{For.of(op).name} does not start at 0")
        need(constant_of(For.of(op).step, defs) == 1, f"{For.of(op).name} does not step by 1")
    body = chain[-1].regions[0].ops
    positions = [i for i, o in enumerate(body) if o is find_loop(function, after)]
    need(bool(positions), f"loop {after} is not directly in {loops[-1]}")
    (cut,) = positions
    first, second = body[: cut + 1], body[cut + 1 :]
    effects = {v for o in first if not is_pure(o) for v in o.results}
    crossing = [v for v in dict.fromkeys(v for o in second for v in o.uses()) if v in effects]
    need(bool(crossing), f"no value of {after} is used after it")
    need(
        all(v.type is not INDEX for v in crossing),
        "an index computed from memory is used after the split",
    )
    buffers: dict[Value, Value] = {}

    def prologue(copier: Copier) -> None:
        kb = copier.kb
        extents = [bound_at_top(kb, op.operands[1], defs) for op in chain]
        outer, inner = extents[: len(chain) - tile], extents[len(chain) - tile :]
        shape = [kb.known(e) for e in inner]
        need(None not in shape, "a tile's extent is not bounded by a constant")
        total = kb.index(1)
        for extent in outer:
            total = kb.mul(total, extent)
        known = kb.known(total)
        for number, value in enumerate(crossing):
            name = buffer if len(crossing) == 1 else f"{buffer}{number}"
            lead = [] if not outer else [known if known is not None else f"{name}_tiles"]
            sizes = [total] if lead and known is None else []
            buffers[value] = kb.alloc((*lead, *shape), value.type, *sizes, space=space, name=name)

    def address(copier: Copier) -> list[Value]:
        kb, ivs = copier.kb, [copier[For.of(op).index] for op in chain]
        extents = [copier[For.of(op).upper] for op in chain]
        lead: Any = 0  # an index, or the initial number
        for iv, extent in zip(ivs[: len(chain) - tile], extents, strict=False):
            lead = kb.add(kb.mul(lead, extent), iv) if lead != 0 else iv
        outer = [lead] if len(chain) > tile else []
        return [*outer, *ivs[len(chain) - tile :]]

    def hook(copier: Copier, op: Op) -> None:
        def first_nest() -> None:
            copier.ops(first)
            for value in crossing:
                copier.kb.store(copier[value], buffers[value], *address(copier))

        def second_nest() -> None:
            copier.ops(o for o in first if is_pure(o))
            for value in crossing:
                copier.env[value] = copier.kb.load(
                    buffers[value], *address(copier), name=value.name
                )
            copier.ops(second)

        emit_nest(copier, chain, first_nest)
        emit_nest(copier, chain, second_nest, suffix)

    return rebuild(function, {chain[0]: hook}, prologue)


def emit_nest(copier: Copier, chain: Sequence[Op], inside, suffix: str = "") -> None:
    """Emit the loops of ``chain`` with the pure ops between; ``inside`` emits the innermost."""
    if not chain:
        inside()
        return
    op, rest = chain[0], chain[1:]

    def body() -> None:
        if rest:
            copier.ops(o for o in op.regions[0].ops if o is not rest[0])
        emit_nest(copier, rest, inside, suffix)

    copier.loop(op, name=For.of(op).name + suffix, body=body)


def hoist(
    function: Function, reduction: str, loops: Sequence[str], start: str = "store"
) -> Function:
    """Move a reduction loop outside a nest of independent loops; its carried values go to memory.

    The innermost body must be the reduction followed by a store of its result to a private buffer.
    ``start`` is how that memory is initialised: ``store`` writes the initial values in a nest
    before the reduction (also correct for zero iterations); ``select`` chooses them over the loaded
    values in the first iteration, and needs at least one (recorded in the attribute ``requires``);
    ``there`` is for a reduction that continues from the existing contents (it was hoisted out of a
    part of the nest before).
    """
    chain, defs = nest(function, loops), producers(function)
    inner = find_loop(function, reduction)
    body = chain[-1].regions[0].ops
    need(inner in body, f"{reduction} is not directly in {loops[-1]}")
    need(len(inner.results) == 1, f"{reduction} carries {len(inner.results)} values, not one")
    initial = inner.operands[3]
    before = defs.get(initial) if start == "there" else None
    effects = [o for o in body if not is_pure(o) and o is not inner and o is not before]
    need(
        len(effects) == 1
        and effects[0].kind == "kernel.store"
        and effects[0].operands[0] is inner.result,
        f"expected one store of the result after {reduction}",
    )
    (save,) = effects
    memory, where = access(save)
    need(memory.type.space in ("scratch", "register"), f"{memory} is not a private buffer")
    own = {For.of(op).index for op in chain}
    need(
        not depends_on(For.of(inner).bounds, own, defs), f"bounds of {reduction} depend on the nest"
    )
    for op in chain:
        need(loop_kind(op) in INDEPENDENT, f"iterations of {For.of(op).name} are sequential")
    pure = [o for o in body if is_pure(o)]
    carried, (iv,) = inner.regions[0].arguments[1], inner.regions[0].arguments[:1]
    if start == "there":
        start_access = before is not None and before.kind == "kernel.load" and access(before)
        need(
            start_access == (memory, where),
            f"{reduction} does not start from the contents of {memory.name}",
        )

    def address(copier: Copier) -> list[Value]:
        return [copier[v] for v in where]

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        for bound in For.of(inner).bounds:
            copier.ops(expression(bound, defs, _defined_outside(chain[0], defs)))
        if start == "store":

            def begin() -> None:
                copier.ops(pure)
                kb.store(copier[initial], copier[memory], *address(copier))

            emit_nest(copier, chain, begin, "_init")

        def step() -> None:
            copier.ops(pure)
            ops = inner.regions[0].ops
            used = next((i for i, o in enumerate(ops) if carried in o.uses()), len(ops))
            copier.ops(ops[:used])  # as late as possible, so that the rest can be distributed
            if start != "select":
                copier.env[carried] = kb.load(copier[memory], *address(copier))
            else:
                is_first = kb.eq(copier[iv], copier[inner.operands[0]])
                (copier.env[carried],) = kb.choose(
                    is_first,
                    lambda: copier[initial],
                    lambda: kb.load(copier[memory], *address(copier)),
                )
            copier.ops(ops[used:])
            kb.store(copier[inner.regions[0].outputs[0]], copier[memory], *address(copier))

        bounds = [copier[v] for v in For.of(inner).bounds]
        with kb.loop(reduction, *bounds, loop=For.of(inner).loop) as index:
            copier.env[iv] = index
            emit_nest(copier, chain, step)

    runs = start != "select" or _runs_at_least_once(inner, defs)
    notes = [] if runs else [f"{reduction} runs at least once"]
    return requires(rebuild(function, {chain[0]: hook}), *notes)


def _runs_at_least_once(loop: Op, defs) -> bool:
    """Return whether a loop runs at least once: from 0 to the larger of 1 and something."""
    upper = defs.get(loop.operands[1])
    return (
        constant_of(For.of(loop).lower, defs) == 0
        and upper is not None
        and upper.kind == "kernel.max"
        and any(constant_of(v, defs) == 1 for v in upper.operands)
    )


def _defined_outside(loop: Op, defs) -> set[Value]:
    """Return the values defined outside ``loop`` (where an expression's copy may stop)."""
    within = {v for op in loop.walk() for v in op.results}
    within |= {v for op in loop.walk() for r in op.regions for v in r.arguments}
    return {v for v in defs if v not in within}


def sink(
    function: Function, reduction: str, loops: Sequence[str], suffix: str = "_out"
) -> Function:
    """Move the nest that follows a hoisted reduction into its last iteration, tile by tile.

    ``reduction`` contains the nest ``loops``; directly after it comes the nest ``loops`` +
    ``suffix`` that reads the finished tiles. Each tile is then read while it is still in the cache.
    """
    defs = producers(function)
    outer = find_loop(function, reduction)
    chain = [find_loop(function, name) for name in loops]
    after = nest(function, [name + suffix for name in loops])
    rename = {For.of(b).index: For.of(a).index for a, b in zip(chain, after, strict=True)}
    for a, b in zip(chain, after, strict=True):
        for x, y in zip(For.of(a).bounds, For.of(b).bounds, strict=True):
            need(
                is_same_index(x, y, defs, rename),
                f"bounds of {For.of(a).name} and {For.of(b).name} differ",
            )
    _same_tiles(outer, after[-1], defs, rename)
    iv, (_, upper, step) = For.of(outer).index, For.of(outer).bounds
    tail = after[-1].regions[0]

    def drop(copier: Copier, op: Op) -> None:
        """Skip the second nest, which is emitted inside the first."""

    def at_tile(copier: Copier, op: Op) -> None:
        kb = copier.kb

        def body() -> None:
            copier.block(op.regions[0])
            last = kb.ge(kb.add(copier[iv], copier[step]), copier[upper])
            with kb.branch(last):
                for b in after:
                    index = For.of(b).index
                    copier.env[index] = copier[rename[index]]
                for b in after[:-1]:
                    copier.ops(o for o in b.regions[0].ops if is_pure(o))
                copier.block(tail)

        copier.loop(op, body=body)

    result = rebuild(function, {chain[-1]: at_tile, after[0]: drop})
    return (
        result
        if _runs_at_least_once(outer, defs)
        else requires(result, f"{reduction} runs at least once")
    )


def _same_tiles(first: Op, second: Op, defs, rename) -> None:
    """Check that the loads of ``second`` from stored buffers are in the tile it moves to."""
    written: dict[Value, list] = {}
    for op in first.walk():
        if op.kind == "kernel.store":
            memory, where = access(op)
            written.setdefault(memory, []).append(where)
    for op in second.walk():
        if op.kind == "kernel.load":
            memory, where = access(op)
            for other in written.get(memory, ()):
                need(
                    is_same_index(other[0], where[0], defs, rename),
                    f"the second nest reads {memory} outside the tile just finished",
                )
        if op.kind == "kernel.store":
            need(access(op)[0] not in written, "both nests store to one buffer")


def is_same_index(a: Value, b: Value, defs, rename) -> bool:
    """Return whether two index expressions are equal once ``rename`` maps values of ``b``."""
    if a is b or rename.get(b) is a:
        return True
    x, y = defs.get(a), defs.get(b)
    if x is None or y is None or a not in x.results or b not in y.results:
        return False
    return (
        x.kind == y.kind
        and x.attributes == y.attributes
        and is_pure(x)
        and len(x.operands) == len(y.operands)
        and all(
            is_same_index(p, q, defs, rename) for p, q in zip(x.operands, y.operands, strict=True)
        )
    )
