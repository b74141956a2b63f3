"""Hints that fetch memory before it is read."""

from __future__ import annotations

from core_compiler.ir import Function, Op, VectorType
from core_compiler.kernel_ir.abi import index_arguments
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.transforms.edit import Copier, find_loop, need, rebuild

#: Bytes of a cache line.
LINE = 64


def prefetch_behind(function: Function, loop: str) -> Function:
    """Let each iteration of ``loop`` prefetch a row of the block behind the one that it reads.

    The loop reads vectors of the rows of one buffer, from the first row on. What begins behind its
    last row is read by another call of this kernel: without the hint that call waits for memory, as
    processors fetch ahead only within a stream that has begun. The block need not exist.
    """
    op = find_loop(function, loop)
    loads = [o for o in op.walk() if o.kind == "kernel.load"]
    read = {access(o)[0] for o in loads if isinstance(o.result.type, VectorType)}
    sizes = {v.name: v for v in index_arguments(function)}
    found = [b for b in read if len(b.type.shape) == 2 and b.type.shape[0] in sizes]
    need(len(found) == 1, f"{loop} reads rows up to a size of {len(found)} buffers")
    (memory,) = found
    rows, columns = memory.type.shape
    step = LINE * 8 // memory.type.dtype.bits
    first = op.regions[0].ops[0]

    def hook(copier: Copier, op_: Op) -> None:
        behind = copier.kb.add(copier[For.of(op).index], sizes[rows])
        for element in range(0, columns, step):
            copier.kb.prefetch(memory, behind, element)
        copier.copy(op_)

    return rebuild(function, {first: hook})
