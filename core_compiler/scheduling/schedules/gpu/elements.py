"""Schedules with one thread per element, or per four adjacent ones.

They serve elementwise chains, copies, gathers, and kernels without a schedule of their own.
"""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import parallel_nest
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import (
    Refused,
    lift,
    mark,
    merge,
    specialise,
    split,
    vectorise,
)

#: Threads of a block.
THREADS = 256
#: Threads of a block if each computes a whole sum: few elements, more blocks.
SUM_THREADS = 64
#: Elements of a thread if they are adjacent: 16 bytes of f32 are one access.
LANES = 4


def schedule(kernel: Function, threads: int = THREADS, together: bool = True) -> Scheduled:
    """Map the iterations of the parallel nest to threads, merged into one loop, row-major.

    With ``together`` a thread has several elements if they are adjacent.
    """
    s = Scheduled.of(kernel)
    nest = [For.of(loop).name for loop in parallel_nest(kernel)]
    if not nest:
        return s
    if len(nest) == 1 and together:
        try:
            return in_vectors(s, nest[0], threads)
        except Refused:
            pass  # elements are not adjacent, or functions run one at a time
    item = nest[0]
    for number, inner in enumerate(nest[1:]):
        s = s.apply(merge, item, inner, f"item{number}")
        item = f"item{number}"
    return blocks(s, item, threads)


def in_vectors(s: Scheduled, item: str, threads: int) -> Scheduled:
    """Give each thread four elements, with one access each if there are four."""
    quad, lane = f"{item}_quad", f"{item}_lane"
    s = s.apply(split, item, LANES, quad, lane).apply(specialise, lane, lane, LANES)
    s = s.apply(vectorise, f"{lane}_full", LANES)
    s = s.apply(mark, f"{lane}_full", "unrolled").apply(mark, lane, "sequential")
    return blocks(s, quad, threads)


def blocks(s: Scheduled, item: str, threads: int) -> Scheduled:
    """Distribute the iterations of a loop over blocks of threads."""
    block, thread = f"{item}_block", f"{item}_thread"
    s = s.apply(split, item, threads, block, thread, inner_loop="thread")
    return s.apply(mark, block, "block").apply(lift)
