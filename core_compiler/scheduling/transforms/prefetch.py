"""Hints that fetch memory before it is read."""

from __future__ import annotations

from core_compiler.ir import Function, Op, VectorType
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments
from core_compiler.kernel_ir.ops import access, lane_axis
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.transforms.edit import (
    Copier,
    depends_on,
    find_loop,
    loops,
    need,
    producers,
    rebuild,
)

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


def prefetch_ahead(function: Function, distance: int, along: bool = False) -> Function:
    """Prefetch, with each vector that a copy loads, the one ``distance`` rows ahead.

    Rows are along the last axis but that of the lanes on which the loops move; with ``along`` it is
    the one ``distance`` elements ahead in the same row, as copies that turn tiles read next. Copies
    of short runs (the channels of a pixel, tap by tap; pieces of many rows) wait for memory
    otherwise: their runs are no stream that processors fetch ahead, and too few of them overlap.
    What is prefetched need not exist.
    """
    memory, defs = buffer_arguments(function), producers(function)
    moving = {v for op in loops(function) for v in op.regions[0].arguments}

    def load(copier: Copier, op: Op) -> None:
        copier.copy(op)
        buffer_, indices = access(op)
        lanes = lane_axis(op)
        across = [i for i, v in enumerate(indices) if i != lanes and depends_on([v], moving, defs)]
        if buffer_.type.strides[lanes] == 1 and across:
            ahead = [copier[v] for v in indices]
            axis = lanes if along else across[-1]
            ahead[axis] = copier.kb.add(ahead[axis], distance)
            copier.kb.prefetch(copier[buffer_], *ahead)

    reads = [o for o in function.body.walk() if o.kind == "kernel.load"]
    vectors = [o for o in reads if isinstance(o.result.type, VectorType)]
    return rebuild(function, {o: load for o in vectors if access(o)[0] in memory})
