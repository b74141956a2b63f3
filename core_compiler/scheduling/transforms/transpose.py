"""A copy that transposes, in blocks of registers."""

from __future__ import annotations

from collections.abc import Mapping

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import INDEPENDENT, access, is_pure
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


def transpose_copy(function: Function, outer: str, inner: str, width: int, pad: int) -> Function:
    """Run the copy ``for k: for j: to[.., k, j] = from[.., j, .., k]`` by squares of ``width``.

    Vectors are loaded along ``k``, cast if the copy does, transposed by shuffles and stored along
    ``j``, where both memories are contiguous. ``pad`` is the extent written along ``j`` (a multiple
    of ``width``): elements beyond the loop's bound are +0. With 0, only those are written that
    share a vector with elements of the loop.
    """
    defs = producers(function)
    op, nested = find_loop(function, outer), find_loop(function, inner)
    for loop in (op, nested):
        need(loop_kind(loop) in INDEPENDENT, f"iterations of {For.of(loop).name} are sequential")
        need(constant_of(For.of(loop).step, defs) == 1, f"{For.of(loop).name} does not step by 1")
    need(constant_of(For.of(nested).lower, defs) == 0, f"{inner} does not start at 0")
    need(pad % width == 0 and width & (width - 1) == 0, "widths must be powers of two")
    others = [o for o in op.regions[0].ops if o is not nested]
    need(all(is_pure(o) for o in others), f"{outer} does more than {inner}")
    acting = [o for o in nested.regions[0].ops if not is_pure(o)]
    need(
        [o.kind for o in acting] == ["kernel.load", "kernel.store"], f"{inner} is not a plain copy"
    )
    load, store = acting
    casts = expect(
        casts_between(load.result, store.operands[0], defs), f"{inner} does not store what it loads"
    )
    k, j = For.of(op).index, For.of(nested).index
    need(not depends_on(nested.operands[:2], {k}, defs), f"the extent of {inner} varies")
    source, read = access(load)
    target, written = access(store)
    along = [i for i, v in enumerate(read) if depends_on([v], {k}, defs)]
    across = [i for i, v in enumerate(read) if depends_on([v], {j}, defs)]
    need(len(along) == len(across) == 1 and along != across, f"{source.name} is not transposed")
    need(
        along[0] == len(read) - 1 and source.type.strides[-1] == 1,
        f"{source.name} is not contiguous along {outer}",
    )
    need(read[along[0]] is k or _plus(read[along[0]], k, defs), f"{outer} is scaled")
    need(written[-1] is j and isinstance(target.type.shape[-1], int), f"{inner} is not last")
    need(target.type.shape[-1] >= pad, f"{target.name} has no room for {pad}")
    need(target.type.shape[-1] % width == 0, f"{target.name} ends within a vector")
    inside = {v for o in op.walk() if o is not op for v in o.results}
    stop = {v for v in defs if v not in inside}

    def indices_at(copier: Copier, at_k, at_j, indices) -> list[Value]:
        copier.env[k], copier.env[j] = copier.kb.index(at_k), copier.kb.index(at_j)
        for value in indices:
            copier.ops(expression(value, defs, stop))
        return [copier[v] for v in indices]

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        low, high = copier[For.of(op).lower], copier[For.of(op).upper]
        copier.ops(expression(nested.operands[1], defs, stop))
        extent = copier[For.of(nested).upper]
        with kb.loop(outer, low, high, width, loop=For.of(op).loop) as k0:
            length = kb.min(width, kb.sub(high, k0))
            with kb.loop(inner, 0, pad or extent, width, loop=For.of(nested).loop) as j0:
                rows = []
                for row in range(width):
                    at = kb.add(j0, row)
                    count = kb.select(kb.lt(at, extent), length, kb.index(0))
                    where = indices_at(copier, k0, at, read)
                    loaded = kb.load(copier[source], *where, width=width, count=count)
                    for cast in casts:
                        (loaded,) = kb._append(cast.kind, [loaded], cast.attributes)
                    rows.append(loaded)
                for lane, column in enumerate(transposed(kb, rows, width)):
                    at = kb.add(k0, lane)
                    count = kb.select(kb.lt(at, high), kb.index(width), kb.index(0))
                    kb.store(
                        column, copier[target], *indices_at(copier, at, j0, written), count=count
                    )

    return rebuild(function, {op: hook})


def casts_between(loaded: Value, stored: Value, defs: Mapping[Value, Op]) -> list[Op] | None:
    """Return the casts that lead from a loaded to a stored value; None if other ops do."""
    found: list[Op] = []
    while stored is not loaded:
        op = defs.get(stored)
        if op is None or op.kind != "kernel.cast":
            return None
        found.insert(0, op)
        (stored,) = op.operands
    return found


def _plus(value: Value, k: Value, defs) -> bool:
    op = defs.get(value)
    return op is not None and op.kind == "kernel.add" and k in op.operands


def transposed(kb, rows: list[Value], width: int) -> list[Value]:
    """Return the columns of a square of registers: log2(width) rounds of interleaving halves."""
    half = width // 2
    low = tuple(lane for i in range(half) for lane in (i, width + i))
    high = tuple(lane for i in range(half, width) for lane in (i, width + i))
    for _ in range(width.bit_length() - 1):
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [
            v for a, b in pairs for v in (kb.shuffle(a, b, mask=low), kb.shuffle(a, b, mask=high))
        ]
    return rows
