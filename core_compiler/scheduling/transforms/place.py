"""The memory space of a private buffer."""

from __future__ import annotations

from core_compiler.ir import Block, Function, Op, Value
from core_compiler.kernel_ir.ops import SPACES, access
from core_compiler.scheduling.transforms.edit import Copier, need, private_buffer, rebuild


def place(function: Function, buffer: str, space: str) -> Function:
    """Move a private buffer into another memory space.

    Data that a block's threads share on a GPU are in ``shared`` memory, those of a single CPU
    thread in registers or scratch.
    """
    alloc = private_buffer(function, buffer)
    need(space in SPACES, f"unknown space {space!r}: {', '.join(SPACES)}")
    kind = alloc.result.type
    static = all(isinstance(d, int) for d in kind.shape)
    need(static or space == "scratch", f"the size of {buffer} is known only at run time")

    def hook(copier: Copier, op: Op) -> None:
        sizes = [copier[v] for v in op.operands]
        made = copier.kb.alloc(kind.shape, kind.dtype, *sizes, space=space, name=buffer)
        copier.env[op.result] = made

    return rebuild(function, {alloc: hook})


def publish(function: Function, buffer: str) -> Function:
    """Fill and add to a private buffer in its own memory, then continue in a ``shared`` copy.

    The buffer has one dimension, the lanes of a sum: a loop fills it, a second one adds to it, and
    later ops combine the lanes. On a GPU each thread then keeps its lane in a register while it
    adds, and reads other threads' lanes only after that.
    """
    alloc = private_buffer(function, buffer)
    old = alloc.result
    need(old.type.rank == 1, f"{buffer} has {old.type.rank} dimensions")
    block, touching = _phases(function.body, old)
    need(
        len(touching) >= 3, f"expected at least three loops that fill, add to and combine {buffer}"
    )
    last = touching[1]
    index = block.ops.index(last)
    later = {o for op in block.ops[index + 1 :] for o in op.walk()}
    later |= {o for op in touching[:2] for o in op.walk()}
    for op in function.body.walk():
        need(not _touches(op, old) or op in later, f"{buffer} is used outside of its sum")

    def hook(copier: Copier, op: Op) -> None:
        copier.copy(op)
        kb, (extent,) = copier.kb, old.type.shape
        name = f"{buffer}_shared"
        shared = kb.alloc(old.type.shape, old.type.dtype, space="shared", name=name)
        with kb.loop(f"{buffer}_publish", 0, extent, loop="vector") as lane:
            kb.store(kb.load(copier[old], lane), shared, lane)
        copier.env[old] = shared

    return rebuild(function, {last: hook})


def _touches(op: Op, memory: Value) -> bool:
    return op.kind in ("kernel.load", "kernel.store") and access(op)[0] is memory


def _phases(block: Block, memory: Value) -> tuple[Block, list[Op]]:
    """Return the block that directly contains most loops using ``memory``, and these loops."""
    mine = [
        op
        for op in block.ops
        if op.kind == "kernel.for" and any(_touches(o, memory) for o in op.walk())
    ]
    best = block, mine
    for op in mine:
        inner = _phases(op.regions[0], memory)
        best = max(best, inner, key=lambda found: len(found[1]))
    return best
