"""Row programs (softmax, normalisations, reductions) on a GPU: one block for each row."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import parallel_nest
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.schedules.simd import is_legal, reductions
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import lift, mark, place, publish, split
from core_compiler.scheduling.transforms.edit import loops

#: Threads of a block: the lanes of a sum.
LANES = 32


def schedule(kernel: Function) -> Scheduled:
    """Schedule one block per row, even for a single row.

    Its threads are the lanes of the row's sums. They keep the sums in registers, combine them in
    shared memory, and share the other loops along the row.
    """
    s = Scheduled.of(kernel)
    nest = [For.of(loop).name for loop in parallel_nest(kernel)]
    for name in reductions(kernel):
        if is_legal(publish, s.function, name):
            s = s.apply(publish, name)
        else:
            s = s.apply(place, name, "shared")
    inner = [op for op in loops(s.function) if For.of(op).name not in nest]
    shared = [op for op in inner if loop_kind(op) in ("vector", "parallel")]
    for op in inner:
        name = For.of(op).name
        if op in shared and any(o in shared for o in op.walk() if o is not op):
            s = s.apply(mark, name, "sequential")  # threads share the loops inside it
        elif loop_kind(op) == "vector":
            s = s.apply(mark, name, "thread")
        elif loop_kind(op) == "parallel":
            s = s.apply(split, name, LANES, f"{name}_group", name, inner_loop="thread")
            s = s.apply(mark, f"{name}_group", "sequential")
    for name in nest:
        s = s.apply(mark, name, "block")
    return s.apply(lift)
