"""The threads of a block: their number, and the registers of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import constant_of, producers
from core_compiler.support.errors import InternalError

#: Threads of a block without a thread loop.
ONE_THREAD = 1


def block_threads(function: Function) -> int:
    """Return the number of threads in a block of the kernel."""
    defs = producers(function)
    most = ONE_THREAD
    for op in function.body.walk():
        if loop_kind(op) == "thread":
            most = max(most, prod(most_threads(o, defs) for o in thread_nest(op)))
    return most


def thread_nest(loop: Op) -> list[Op]:
    """Return a thread loop and the thread loops directly nested at the end of its body."""
    nest = [loop]
    while (inner := nest[-1].regions[0].ops) and loop_kind(inner[-1]) == "thread":
        nest.append(inner[-1])
    return nest


def most_threads(loop: Op, defs: Mapping[Value, Op]) -> int:
    """Return the maximum trip count of a thread loop; InternalError if no constant bounds it."""
    upper = loop.operands[1]
    known = constant_of(upper, defs)
    op = defs.get(upper)
    if known is None and op is not None and op.kind == "kernel.min":
        found = [constant_of(v, defs) for v in op.operands]
        known = min((n for n in found if n is not None), default=None)
    if known is None or known < 1:
        raise InternalError(f"the thread loop {For.of(loop).name} has no constant bound")
    return known


def thread_axes(function: Function) -> dict[Value, int]:
    """Return the number of leading axes of each register buffer that index the threads.

    The remaining axes belong to a single thread. All accesses must be in thread loops of those
    extents and use their indices directly; otherwise raise InternalError, because no thread can
    access another's registers.
    """
    defs = producers(function)
    inside = {
        o
        for op in function.body.walk()
        if loop_kind(op) == "thread"
        for o in op.walk()
        if o.kind == "kernel.alloc"
    }
    block = {
        op.result
        for op in function.body.walk()
        if op.kind == "kernel.alloc" and op.result.type.space == "register" and op not in inside
    }
    axes: dict[Value, int] = {}
    for op in function.body.walk():
        if loop_kind(op) != "thread":
            continue
        nest = thread_nest(op)
        indices = tuple(For.of(loop).index for loop in nest)
        counts = tuple(most_threads(loop, defs) for loop in nest)
        for use in nest[-1].walk():
            memory, where = _access_of(use)
            if memory is None or memory not in block:
                continue
            own = where[: len(nest)] == indices
            if own and memory.type.shape[: len(nest)] == counts:
                axes.setdefault(memory, len(nest))
    _check(function, block, axes)
    return axes


def _access_of(op: Op) -> tuple[Value | None, tuple[Value, ...]]:
    if op.kind not in ("kernel.load", "kernel.store"):
        return None, ()
    return access(op)


def _check(function: Function, block: set[Value], axes: Mapping[Value, int]) -> None:
    """Check that every access to a block's registers is at the thread's own position."""

    def visit(ops, nest: tuple[Op, ...]) -> None:
        for op in ops:
            memory, where = _access_of(op)
            if memory in block:
                own = tuple(For.of(loop).index for loop in nest)
                if memory not in axes or where[: axes[memory]] != own:
                    raise InternalError(
                        f"{function.name}: {op} accesses elements not private to one thread"
                    )
            for region in op.regions:
                inner = (*nest, op) if loop_kind(op) == "thread" else nest
                visit(region.ops, inner)

    visit(function.body.ops, ())
