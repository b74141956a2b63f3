"""Ragged tiles: executing a full tile when only a part of it is valid."""

from __future__ import annotations

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import INDEPENDENT, SPACES, access
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


def round_up(function: Function, loop: str, to: int | None = None) -> Function:
    """Run a loop of ``min(to, n)`` iterations ``to`` times; the extra ones repeat the last one.

    An extra iteration reads the same elements as the last valid one and stores into its own
    position of a private tile, which is never read. So the iterations must be independent and may
    only store to private buffers, at the loop's own index. Requires n >= 1 (the loop is never
    entered with zero iterations). ``to`` defaults to the constant in the bound.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {loop} are sequential")
    need(constant_of(For.of(op).lower, defs) == 0, f"{loop} does not start at 0")
    bound = _constant_bound(op, defs)
    size = expect(bound if to is None else to, f"the bound of {loop} is not min(constant, n)")
    iv = For.of(op).index
    for inner in op.walk():
        if inner.kind == "kernel.store":
            memory = access(inner)[0]
            need(memory.type.space in SPACES, f"{loop} stores to {memory.name}")
            need(
                _has_room(inner, iv, size),
                f"{memory.name} has no room for {size} iterations of {loop}",
            )
    stop = {v for v in defs if v not in {r for o in op.walk() for r in o.results}}

    def access_at_own_index(copier: Copier, inner: Op) -> None:
        """Access a tile with room for every iteration at the iteration's own position."""
        clamped = dict(copier.env)
        copier.env[iv] = raw[0]
        for index in access(inner)[1]:
            copier.ops(expression(index, defs, stop))
        where = {v: copier[v] for v in access(inner)[1]}
        copier.env.clear()
        copier.env.update(clamped)
        copier.env.update(where)
        copier.copy(inner)
        results = {v: copier.env[v] for v in inner.results}
        copier.env.clear()
        copier.env.update({**clamped, **results})

    raw: list = []

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        count = copier[For.of(op).upper]
        with kb.loop(For.of(op).name, 0, size, loop=For.of(op).loop) as index:
            raw[:] = [index]
            real = kb.known(count) == size
            copier.env[iv] = index if real else kb.min(index, kb.sub(count, 1))
            copier.block(op.regions[0])

    hooks: dict = {op: hook}
    for inner in op.walk():
        if inner.kind in ("kernel.load", "kernel.store") and _has_room(inner, iv, size):
            hooks[inner] = access_at_own_index
    return rebuild(function, hooks)


def cover(function: Function, loop: str, size: int, outer: str, inner: str) -> Function:
    """Split a loop into whole tiles, all of which run ``size`` iterations of ``inner``.

    Iterations beyond the end repeat the last one and store nothing to ordinary memory, so that the
    bounds inside a tile are constants. Values needed only by such a store are computed under its
    condition too.
    """
    defs, op = producers(function), find_loop(function, loop)
    kind = For.of(op).loop
    need(kind in INDEPENDENT, f"iterations of {loop} are sequential")
    need(constant_of(For.of(op).lower, defs) == 0, f"{loop} does not start at 0")
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    iv = For.of(op).index
    within = {v for o in op.walk() if o is not op and not o.regions for v in o.results}
    stop = {v for v in defs if v not in within}
    stores = [o for o in op.walk() if o.kind == "kernel.store"]
    outside = [o for o in stores if access(o)[0].type.space == "dram"]
    _check_not_read(op, {access(o)[0] for o in outside})
    position: list[Value] = []

    def store_if_valid(copier: Copier, store: Op) -> None:
        """Emit the store at its own index, under its condition."""
        kb = copier.kb
        with kb.branch(kb.lt(position[0], copier[For.of(op).upper])):
            saved, copier.env = copier.env, {**copier.env, iv: position[0]}
            for value in store.operands:
                copier.ops(expression(value, defs, stop))
            copier.copy(store)
            copier.env = saved

    def hook(copier: Copier, op: Op) -> None:
        kb, count = copier.kb, copier[For.of(op).upper]
        known = kb.known(count)
        whole = known is not None and known % size == 0
        with (
            kb.loop(outer, 0, kb.ceildiv(count, size), loop=kind) as tile,
            kb.loop(inner, 0, size, loop="vector") as index,
        ):
            position[:] = [kb.add(kb.mul(tile, size), index)]
            copier.env[iv] = position[0] if whole else kb.min(position[0], kb.sub(count, 1))
            if not whole:
                copier.hooks |= dict.fromkeys(outside, store_if_valid)
            copier.block(op.regions[0])

    return rebuild(function, {op: hook})


def _check_not_read(loop: Op, memories: set[Value]) -> None:
    """Check that the loop does not read what it stores to ``memories``, so that loads may move."""
    for op in loop.walk():
        if op.kind == "kernel.load":
            need(access(op)[0] not in memories, f"{access(op)[0].name} is both read and stored to")


def specialise(
    function: Function, loop: str, inner: str, size: int, suffix: str = "_full"
) -> Function:
    """Version a nest: one copy for the case that ``inner`` runs exactly ``size`` times.

    That copy has the trip count as a constant (its loops have their name and ``suffix``; of one
    iteration it has the body only); the other copy is unchanged.
    """
    defs, op, target = producers(function), find_loop(function, loop), find_loop(function, inner)
    need(target in list(op.walk()), f"{inner} is not inside {loop}")
    need(not For.of(op).init, f"{loop} carries values")
    upper = target.operands[1]
    own = {v for o in op.walk() for r in o.regions for v in r.arguments}
    need(not depends_on([upper], own, defs), f"the extent of {inner} varies inside {loop}")
    lower = target.operands[0]
    span = (upper, lower)
    need(not depends_on([lower], own, defs), f"the start of {inner} varies inside {loop}")
    inside = {v for o in op.walk() if o is not op for v in o.results}
    stop = {v for v in defs if v not in inside}
    counts = [
        o for o in dict.fromkeys(defs.values()) if o.kind == "kernel.sub" and o.operands == span
    ]

    def full(copier: Copier) -> tuple:
        saved = dict(copier.hooks), dict(copier.env)

        def renamed(copier: Copier, o: Op) -> None:
            if o is target and size == 1 and not For.of(o).init:
                copier.env[For.of(o).index] = copier[lower]
                copier.block(o.regions[0])
                return
            bound = copier.kb.add(copier[lower], size) if o is target else None
            copier.loop(o, name=f"{For.of(o).name}{suffix}", upper=bound)

        def counted(copier: Copier, o: Op) -> None:
            copier.env[o.result] = copier.kb.index(size)

        for count in counts:
            counted(copier, count)
        copier.hooks |= {o: renamed for o in op.walk() if o.kind == "kernel.for"}
        copier.hooks |= dict.fromkeys(counts, counted)
        renamed(copier, op)
        copier.hooks, copier.env = saved
        return ()

    def rest(copier: Copier) -> tuple:
        copier.loop(op)
        return ()

    def hook(copier: Copier, op: Op) -> None:
        copier.ops(expression(upper, defs, stop))
        copier.ops(expression(lower, defs, stop))
        count = copier.kb.sub(copier[upper], copier[lower])
        is_full = copier.kb.eq(count, copier.kb.index(size))
        copier.kb.choose(is_full, lambda: full(copier), lambda: rest(copier))

    return rebuild(function, {op: hook})


def _has_room(op: Op, iv, size: int) -> bool:
    """Return whether ``op`` indexes a dimension of at least ``size`` by the loop's index."""
    buffer, where = access(op)
    extents = [d for d, index in zip(buffer.type.shape, where, strict=True) if index is iv]
    return len(extents) == 1 and isinstance(extents[0], int) and extents[0] >= size


def _constant_bound(op: Op, defs) -> int | None:
    upper = op.operands[1]
    if constant_of(upper, defs) is not None:
        return constant_of(upper, defs)
    producer = defs.get(upper)
    if producer is not None and producer.kind == "kernel.min":
        found = [c for c in (constant_of(v, defs) for v in producer.operands) if c is not None]
        return min(found, default=None)
    return None
