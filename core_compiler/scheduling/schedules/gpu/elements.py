"""One thread for each element, or for four in a row: elementwise chains, copies, gathers, and
whatever has no schedule of its own."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import parallel_nest
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
#: Threads of a block where each has a whole sum to compute: few elements, more blocks.
SUM_THREADS = 64
#: Elements of a thread where they lie in a row: 16 bytes of f32 are one access.
LANES = 4


def schedule(kernel: Function, threads: int = THREADS, together: bool = True) -> Scheduled:
    """Threads for the iterations of the parallel nest, merged into one loop, row-major; several
    elements ``together`` in a thread where they lie in a row."""
    s = Scheduled.of(kernel)
    nest = [loop["name"] for loop in parallel_nest(kernel)]
    if not nest:
        return s
    if len(nest) == 1 and together:
        try:
            return in_vectors(s, nest[0], threads)
        except Refused:
            pass  # elements that do not lie in a row, or functions that run one at a time
    item = nest[0]
    for number, inner in enumerate(nest[1:]):
        s = s.apply(merge, item, inner, f"item{number}")
        item = f"item{number}"
    return blocks(s, item, threads)


def in_vectors(s: Scheduled, item: str, threads: int) -> Scheduled:
    """Four elements a thread, in one access each where there are four."""
    quad, lane = f"{item}_quad", f"{item}_lane"
    s = s.apply(split, item, LANES, quad, lane).apply(specialise, lane, lane, LANES)
    s = s.apply(vectorise, f"{lane}_full", LANES)
    s = s.apply(mark, f"{lane}_full", "unrolled").apply(mark, lane, "sequential")
    return blocks(s, quad, threads)


def blocks(s: Scheduled, item: str, threads: int) -> Scheduled:
    """The iterations of a loop shared out among blocks of threads."""
    block, thread = f"{item}_block", f"{item}_thread"
    s = s.apply(split, item, threads, block, thread, inner_loop="thread")
    return s.apply(mark, block, "block").apply(lift)
