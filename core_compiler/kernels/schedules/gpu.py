"""Schedules for GPUs: which loops are blocks of the grid and which are threads of a block."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernels.abi import parallel_nest
from core_compiler.kernels.schedules.steps import Scheduled
from core_compiler.kernels.transforms import lift, mark, merge, split

#: Threads of a block where a thread computes one element.
THREADS = 256


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
    s = s.apply(split, item, threads, "block", "thread", inner_loop="thread")
    return s.apply(mark, "block", "block").apply(lift)
