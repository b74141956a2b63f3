"""One thread for each element: elementwise chains, copies, gathers, and whatever has no schedule of
its own."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernels.abi import parallel_nest
from core_compiler.kernels.schedules.steps import Scheduled
from core_compiler.kernels.transforms import lift, mark, merge, split

#: Threads of a block.
THREADS = 256
#: Threads of a block where each has a whole sum to compute: few elements, more blocks.
VECTOR_THREADS = 64


def schedule(kernel: Function, threads: int = THREADS) -> Scheduled:
    """One thread for each iteration of the parallel nest, merged into one loop, row-major."""
    s = Scheduled.of(kernel)
    nest = [loop["name"] for loop in parallel_nest(kernel)]
    if not nest:
        return s
    item = nest[0]
    for number, inner in enumerate(nest[1:]):
        s = s.apply(merge, item, inner, f"item{number}")
        item = f"item{number}"
    block, thread = f"{item}_block", f"{item}_thread"
    s = s.apply(split, item, threads, block, thread, inner_loop="thread")
    return s.apply(mark, block, "block").apply(lift)
