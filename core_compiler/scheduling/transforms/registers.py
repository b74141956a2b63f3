"""Unrolling, and scalar replacement of register buffers."""

from __future__ import annotations

from core_compiler.ir import Block, Function, Op, Value, VectorType, attributes_key
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    expect,
    find_loop,
    has_loop,
    need,
    producers,
    rebuild,
)


def unroll(function: Function, loop: str) -> Function:
    """Unroll a loop whose bounds are constants."""
    defs, op = producers(function), find_loop(function, loop)
    bounds = [
        expect(constant_of(v, defs), f"the bounds of {loop} are not constants")
        for v in For.of(op).bounds
    ]
    (region,) = op.regions

    def hook(copier: Copier, op: Op) -> None:
        values = [copier[v] for v in For.of(op).init]
        for i in range(*bounds):
            copier.env.update(zip(region.arguments, (copier.kb.index(i), *values), strict=True))
            values = list(copier.block(region))
        copier.env.update(zip(op.results, values, strict=True))

    return rebuild(function, {op: hook})


def unroll_by(function: Function, loop: str, factor: int) -> Function:
    """Unroll a loop by ``factor``, with the remainder in the loop ``<loop>_rest``.

    The order of the iterations, and so of a carried sum, is kept.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(constant_of(For.of(op).lower, defs) == 0, f"{loop} does not start at 0")
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    (region,) = op.regions

    def hook(copier: Copier, op: Op) -> None:
        kb, count = copier.kb, copier[For.of(op).upper]
        kind = For.of(op).loop
        main = kb.mul(kb.floordiv(count, factor), factor)
        values = [copier[v] for v in For.of(op).init]
        for name, low, high, step in (
            (loop, kb.index(0), main, factor),
            (f"{loop}_rest", main, count, 1),
        ):
            with kb.loop(name, low, high, step, loop=kind, init=values) as got:
                iv, *carried = got if values else (got,)
                for i in range(step):
                    copier.env.update(zip(region.arguments, (kb.add(iv, i), *carried), strict=True))
                    carried = list(copier.block(region))
                if values:
                    kb.carry(*carried)
            values = list(kb.results) if values else []
        copier.env.update(zip(op.results, values, strict=True))

    need(not has_loop(function, f"{loop}_rest"), f"{loop} was already unrolled")
    return rebuild(function, {op: hook})


def promote(function: Function, buffer: str) -> Function:
    """Replace a register buffer by values (scalar replacement, "mem2reg").

    Each of its elements becomes a value in straight-line code and a carried value of the loops that
    change it. All accesses must be at constant indices, each element always as a part of the same
    vector.
    """
    defs = producers(function)
    allocated = [o.result for o in function.body.walk() if o.kind == "kernel.alloc"]
    (memory,) = [v for v in allocated if v.name == buffer and v.type.space == "register"] or (None,)
    need(memory is not None, f"{function.name} has no register buffer {buffer!r}")
    keys: dict[Op, tuple] = {}
    for op in function.body.walk():
        if op.kind in ("kernel.load", "kernel.store") and access(op)[0] is memory:
            why = f"{buffer} is accessed at an index that is not a constant"
            where = tuple(expect(constant_of(v, defs), why) for v in access(op)[1])
            accessed = op.result if op.kind == "kernel.load" else op.operands[0]
            width = accessed.type.width if isinstance(accessed.type, VectorType) else 1
            need(where[-1] % width == 0, f"accesses to {buffer} overlap")
            keys[op] = (where, width)
    need(len({w for _, w in keys.values()}) == 1, f"{buffer} is accessed at different widths")
    state: dict[tuple, Value] = {}

    def load(copier: Copier, op: Op) -> None:
        need(keys[op] in state, f"{buffer}{list(keys[op][0])} is read before it is written")
        copier.env[op.result] = state[keys[op]]

    def store(copier: Copier, op: Op) -> None:
        state[keys[op]] = copier[op.operands[0]]

    def loop(copier: Copier, op: Op) -> None:
        kb, (region,) = copier.kb, op.regions
        changed = dict.fromkeys(
            keys[o] for o in op.walk() if o in keys and o.kind == "kernel.store"
        )
        inside = [key for key in changed if key in state]  # the others begin and end in the body
        bounds = [copier[v] for v in For.of(op).bounds]
        init = [*(copier[v] for v in For.of(op).init), *(state[k] for k in inside)]
        with kb.loop(For.of(op).name, *bounds, loop=For.of(op).loop, init=init) as got:
            got = got if init else (got,)
            own = len(region.arguments)
            copier.env.update(zip(region.arguments, got[:own], strict=True))
            state.update(zip(inside, got[own:], strict=True))
            outputs = copier.block(region)
            if init:
                kb.carry(*outputs, *(state[k] for k in inside))
        copier.env.update(zip(op.results, kb.results[: own - 1], strict=True))
        for key in changed:
            state.pop(key, None)
        state.update(zip(inside, kb.results[own - 1 :], strict=True))

    hooks: dict = {op: load if op.kind == "kernel.load" else store for op in keys}
    for op in function.body.walk():
        touches = any(o in keys for o in op.walk() if o is not op)
        if op.kind == "kernel.for" and touches:
            hooks[op] = loop
        if op.kind == "kernel.if":
            stores = any(o in keys and o.kind == "kernel.store" for o in op.walk())
            need(not stores, f"{buffer} is stored to under a condition")
    return rebuild(function, hooks)


def share_loads(function: Function) -> Function:
    """Load an element once if a block loads it several times without a store in between.

    A store, and a nested loop or branch that stores, invalidates the elements it may change: those
    of the same private buffer, or of all buffers in ordinary memory. A called kernel invalidates
    all.
    """

    def clean(block: Block, outer: dict) -> Block:
        known = dict(outer)
        renamed: dict[Value, Value] = {}
        kept: list[Op] = []
        for op in block.ops:
            op = op.substitute(renamed)
            if op.regions:
                _invalidate(known, op)
                # A loop's body runs again after its own stores, which were just invalidated.
                op = op.with_(regions=tuple(clean(r, known) for r in op.regions))
            elif op.kind == "kernel.load":
                key = (op.operands, op.result.type, attributes_key(op.attributes.items()))
                if key in known:
                    renamed[op.result] = known[key]
                    continue
                known[key] = op.result
            else:
                _invalidate(known, op)
            kept.append(op)
        outputs = tuple(renamed.get(v, v) for v in block.outputs)
        return block.with_(ops=tuple(kept), outputs=outputs)

    return function.with_(body=clean(function.body, {}))


def _invalidate(known: dict, op: Op) -> None:
    stored = {access(o)[0] for o in op.walk() if o.kind == "kernel.store"}
    if any(o.kind == "kernel.invoke" for o in op.walk()):
        known.clear()
    ordinary = any(getattr(v.type, "space", None) == "dram" for v in stored)
    for key in list(known):
        memory = key[0][0]
        if memory in stored or (ordinary and memory.type.space == "dram"):
            del known[key]
