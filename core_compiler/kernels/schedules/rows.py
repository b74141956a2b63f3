"""Row programs (softmax, normalisations, reductions): a work item is a row.

The 32 lanes of a row's sums live in vectors and the sweeps over the row run in vectors.  Reductions
along an axis that is not the last run over several rows at once instead: their rows lie next to one
another in memory.
"""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernels.abi import parallel_nest
from core_compiler.kernels.schedules.simd import (
    attempt,
    lanes_in_vectors,
    reductions,
    side_by_side,
    vectors,
)
from core_compiler.kernels.schedules.steps import Scheduled
from core_compiler.kernels.transforms import split, vectorise
from core_compiler.kernels.transforms.edit import loops

#: Rows of a work item where rows run in vectors.
ROW_BLOCK = 64


def schedule(kernel: Function, width: int = 16, rows: int = ROW_BLOCK) -> Scheduled:
    """Schedule a row program with vectors of ``width`` lanes."""
    s = Scheduled.of(kernel)
    nest = [loop["name"] for loop in parallel_nest(kernel)]
    if not reductions(kernel) and nest:
        made = s.apply(split, nest[-1], rows, f"{nest[-1]}_block", nest[-1])
        if attempt(vectorise, made.function, nest[-1], width):
            return made.apply(vectorise, nest[-1], width)
    for name in reductions(kernel):
        if attempt(lanes_in_vectors, s.function, name, width):
            s = s.apply(lanes_in_vectors, name, width)
    inner = [
        op["name"]
        for op in loops(kernel)
        if op.get("loop") == "parallel" and op["name"] not in nest
    ]
    for name in inner:
        if attempt(vectors, s.function, name, width):
            s = s.apply(vectors, name, width, side_by_side(kernel))
    return s
