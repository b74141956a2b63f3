"""Where a private buffer lies."""

from __future__ import annotations

from core_compiler.ir import Function, Op
from core_compiler.kernels.ops import SPACES
from core_compiler.kernels.transforms.edit import Copier, need, rebuild


def place(function: Function, buffer: str, space: str) -> Function:
    """Put a private buffer into another memory: what a block's threads do together on a GPU they
    do in ``shared`` memory, what a thread of a CPU does alone in registers or scratch."""
    found = [
        op for op in function.body.walk()
        if op.kind == "kernel.alloc" and op.result.name == buffer
    ]  # fmt: skip
    need(len(found) == 1, f"{function.name} has {len(found)} private buffers called {buffer!r}")
    need(space in SPACES, f"{space!r} is no memory: {', '.join(SPACES)}")
    kind = found[0].result.type
    static = all(isinstance(d, int) for d in kind.shape)
    need(static or space == "scratch", f"the size of {buffer} is known at run time only")

    def hook(copier: Copier, op: Op) -> None:
        sizes = [copier[v] for v in op.operands]
        made = copier.kb.alloc(kind.shape, kind.dtype, *sizes, space=space, name=buffer)
        copier.env[op.result] = made

    return rebuild(function, {found[0]: hook})
