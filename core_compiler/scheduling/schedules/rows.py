"""Row programs (softmax, normalisations, reductions): a work item is a row.

The 32 lanes of a row's sums are in vectors, and the loops over the row run in vectors. Reductions
along an axis other than the last run over several adjacent rows at once instead. So do channels of
a batch with channels last: there the 32 lanes of each row are next to those of its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Function, Op
from core_compiler.kernel_ir.abi import buffer_arguments, parallel_nest
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.schedules.product import extent
from core_compiler.scheduling.schedules.simd import (
    is_legal,
    lanes_in_vectors,
    reductions,
    vectors,
    vectors_at_once,
)
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import carry_division, split
from core_compiler.scheduling.transforms.edit import loops

#: Rows of a work item if rows run in vectors, and the number of their vectors that run together if
#: each row has lanes: two cache lines, and 32 of them for each sum.
ROW_BLOCK, NEIGHBOURS = 64, 2
#: Vectors of a product's sums that run together, if its matrix is computed.
SUMS = 8


def schedule(
    kernel: Function,
    width: int = 16,
    rows: int = ROW_BLOCK,
    launches: Sequence[Sequence[int]] = (),
) -> Scheduled:
    """Schedule a row program with vectors of ``width`` lanes; ``launches``: its launches' sizes."""
    s = Scheduled.of(kernel)
    nest = [For.of(loop).name for loop in parallel_nest(kernel)]
    if not reductions(kernel) and nest:
        most = max((extent(kernel, nest, sizes) for sizes in launches), default=2 * rows)
        if most < 2 * rows:  # else a single thread would have all of them
            rows = min(rows, NEIGHBOURS * width)
        made = s.apply(split, nest[-1], rows, f"{nest[-1]}_block", nest[-1])
        # Together they read whole cache lines of the operand, each once.
        together = min(vectors_at_once(kernel), -(-rows // width))
        if is_legal(vectors, made.function, nest[-1], width, together):
            return made.apply(vectors, nest[-1], width, together)
    if nest and are_neighbours(kernel, nest[-1]):
        last, together = nest[-1], NEIGHBOURS * width
        made = s.apply(split, last, min(rows, together), f"{last}_block", last)
        if is_legal(vectors, made.function, last, width, NEIGHBOURS):
            return made.apply(vectors, last, width, NEIGHBOURS)
    for name in reductions(kernel):
        if is_legal(lanes_in_vectors, s.function, name, width):
            s = s.apply(lanes_in_vectors, name, width)
    return in_vectors(s, width, vectors_at_once(kernel))


def schedule_product(kernel: Function, width: int) -> Scheduled:
    """Schedule a product of which nothing is read often enough to be copied: a few rows.

    There is nothing to keep in registers but the sums, of as many columns as hide their latency.
    """
    s = Scheduled.of(kernel)
    nest = [For.of(loop).name for loop in parallel_nest(kernel)]
    if not nest or not is_legal(vectors, kernel, nest[-1], width):
        return s
    terms = [name for op in loops(kernel) if (name := For.of(op).name) not in nest]
    s = s.each(carry_division, [n for n in terms if is_legal(carry_division, s.function, n)])
    together = vectors_at_once(kernel, SUMS)
    s = s.apply(split, nest[-1], together * width, f"{nest[-1]}_block", nest[-1])
    return s.apply(vectors, nest[-1], width, together)


def in_vectors(s: Scheduled, width: int, together: int) -> Scheduled:
    """Run the loops inside a work item in vectors, ``together`` at a time.

    Of loops inside one another the innermost one, whose elements are neighbours.
    """
    kernel = s.function
    nest = [For.of(loop).name for loop in parallel_nest(kernel)]
    done: set[Op] = set()
    for op in reversed(list(loops(kernel))):
        name = For.of(op).name
        if loop_kind(op) != "parallel" or name in nest or not done.isdisjoint(op.walk()):
            continue
        if is_legal(vectors, s.function, name, width):
            s = s.apply(vectors, name, width, together)
            done.add(op)
    return s


def are_neighbours(kernel: Function, loop: str) -> bool:
    """Return whether adjacent rows are adjacent in all buffers that are read along a row."""
    (found,) = (op for op in parallel_nest(kernel) if For.of(op).name == loop)
    row = For.of(found).index
    given, along = set(buffer_arguments(kernel)), False
    for op in kernel.body.walk():
        if op.kind in ("kernel.load", "kernel.store") and access(op)[0] in given:
            buffer, indices = access(op)
            if row in indices and buffer.type.strides[indices.index(row)] != 1:
                return False
            along |= row in indices and buffer.type.rank > 1
    return along
