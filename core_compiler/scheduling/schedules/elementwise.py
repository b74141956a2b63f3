"""Elementwise and data-movement kernels, and windows: blocks of the last axis, in vectors.

The last axis is contiguous in the output. A work item is one block of it. If an input is contiguous
along another axis (a transpose), a work item is a tile of both, so that each cache line that a
gather touches is used completely while it is cached.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import parallel_nest
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.product import extent, reorder
from core_compiler.scheduling.schedules.simd import is_legal, vectors, vectors_at_once
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import (
    Refused,
    find_loop,
    interchange,
    interior,
    is_chosen_by,
    mark,
    ranges,
    single_term,
    split,
    stage,
    transpose_copy,
    vectorise,
)

#: Elements of the last axis in a work item: large enough to hide a launch, small enough to share.
BLOCK = 4096
#: Most parts of a concatenation that have loops without clamps: those of many parts take seconds
#: to compile, and copies of many parts are no faster for it.
FEW_PARTS = 4
#: A transposing tile: lanes of whole cache lines on one side, a few vectors on the other.
TILE_ROWS, TILE_COLUMNS = 16, 64
#: Rows of a work item that has few columns.
NARROW_ROWS = 1024
#: Rows of a work item if their number chooses between operands.
CHOSEN_ROWS = 16


def schedule(
    kernel: Function,
    width: int = 16,
    block: int = BLOCK,
    launches: Sequence[Sequence[int]] = (),
    single: tuple[str, tuple[str, ...]] | None = None,
) -> Scheduled:
    """Schedule a kernel whose work items are independent elements (``width`` lanes).

    ``launches``: the sizes of its launches; ``single``: the loops of a sum (its chunks and terms)
    that has one term in all of them.
    """
    s = Scheduled.of(kernel)
    nest = [For.of(loop).name for loop in parallel_nest(kernel)]
    if not nest:
        return s
    last = nest[-1]
    if _is_narrow(kernel, nest, width, launches):
        return _narrow(s, nest[-2], last, width)
    other, operands = _transposed(kernel, last)
    if other is not None and is_legal(vectorise, kernel, last, width):
        s = reorder(s, [*(n for n in nest if n not in (other, last)), other, last])
        extents = [extent(kernel, (last,), sizes) for sizes in launches]
        columns = min(TILE_COLUMNS, width * -(-max(extents, default=TILE_COLUMNS) // width))
        return _tiled(s, other, last, width, operands, max(columns, width))
    chosen = next((name for name in nest[:-1] if is_chosen_by(kernel, name)), None)
    together = vectors_at_once(kernel), _at_the_end(kernel, last, width, launches)
    s = s.apply(split, last, block, f"{last}_block", last)
    if single is not None and is_legal(single_term, s.function, last, *single):
        s = s.apply(single_term, last, *single)
    if chosen is not None:
        s = _in_blocks(s, [*nest[:-1], f"{last}_block"], chosen)
    if is_legal(interior, s.function, last):
        s = s.apply(interior, last)
        for name in ranges(s.function, last):
            if is_legal(vectors, s.function, name, width):
                s = s.apply(vectors, name, width, *together)
    elif is_legal(vectors, s.function, last, width):
        s = s.apply(vectors, last, width, *together)
    if chosen is not None and is_legal(interior, s.function, chosen, FEW_PARTS):
        s = s.apply(interior, chosen, FEW_PARTS)
    return s


def _at_the_end(kernel: Function, last: str, width: int, launches: Sequence[Sequence[int]]) -> int:
    """Return how many vectors of the last part of a row run together.

    Where each element is a chain of arithmetic in a loop, several hide its latency, as far as rows
    have as many.
    """
    loop = find_loop(kernel, last)
    if not any(For(op).init for op in loop.walk() if op.kind == "kernel.for" and op is not loop):
        return 1
    longest = max((extent(kernel, (last,), sizes) for sizes in launches), default=width)
    return max(1, min(vectors_at_once(kernel), -(-longest // width)))


def _in_blocks(s: Scheduled, outer: Sequence[str], chosen: str) -> Scheduled:
    """Return the schedule with rows of the loop ``chosen`` in blocks, inside the loops ``outer``.

    Its index chooses between operands. Inside a block, most rows are of one operand.
    """
    try:
        made = s.apply(split, chosen, CHOSEN_ROWS, f"{chosen}_block", chosen)
        for inner in outer[outer.index(chosen) + 1 :]:
            made = made.apply(interchange, chosen, inner)
        return made.apply(mark, chosen, "vector")
    except Refused:
        return s


def _is_narrow(
    kernel: Function, nest: Sequence[str], width: int, launches: Sequence[Sequence[int]]
) -> bool:
    """Return whether the last axis has too few elements for vectors, and the one before is long."""
    if len(nest) < 2 or not launches or not is_legal(vectorise, kernel, nest[-2], width):
        return False
    rows, columns = ([extent(kernel, (n,), sizes) for sizes in launches] for n in nest[-2:])
    return max(columns) <= width // 4 and max(rows) >= width


def _narrow(s: Scheduled, row: str, column: str, width: int) -> Scheduled:
    """Return the schedule of few columns (colours): vectors along the rows, one column at a time.

    The lanes of a vector are stored apart, in lines that the other columns complete.
    """
    s = s.apply(split, row, NARROW_ROWS, f"{row}_block", row).apply(interchange, row, column)
    s = s.apply(vectors, row, width)
    if is_legal(interior, s.function, column):
        return s.apply(interior, column)
    return s.apply(mark, column, "sequential")


def _tiled(
    s: Scheduled, row: str, column: str, width: int, operands: Sequence[str], columns: int
) -> Scheduled:
    s = s.apply(split, row, TILE_ROWS, f"{row}_block", row)
    s = s.apply(split, column, columns, f"{column}_block", column)
    s = s.apply(interchange, row, f"{column}_block")
    copied = [made for name in operands if (made := _turned(s, row, column, width, name, columns))]
    if len(operands) == 1 and copied:
        (s,) = copied
        return s.apply(vectorise, column, width).each(mark, (row, column), "sequential")
    s = s.apply(interchange, row, column)
    return s.apply(vectorise, column, width).apply(mark, column, "sequential")


def _turned(
    s: Scheduled, row: str, column: str, width: int, operand: str, columns: int
) -> Scheduled | None:
    """Return the schedule with a tile of ``operand`` transposed in registers first, or None.

    A tile is a copy with contiguous columns; None if the operand is more than copied.
    """
    name = f"{operand}_tile"
    shape = (TILE_ROWS, columns)
    try:
        s = s.apply(stage, operand, f"{column}_block", (row, column), name, shape)
        copy = (f"{row}_{name}", f"{column}_{name}", width, 0)
        return s.apply(transpose_copy, *copy)
    except Refused:
        return None


def _transposed(kernel: Function, last: str) -> tuple[str | None, list[str]]:
    """Return the loop along which inputs are contiguous although ``last`` indexes them too.

    And the names of these inputs.
    """
    ivs = {For.of(loop).index: For.of(loop).name for loop in parallel_nest(kernel)}
    found: dict[str, list[str]] = {}
    for op in kernel.body.walk():
        if op.kind != "kernel.load":
            continue
        buffer, indices = access(op)
        moving = [ivs.get(i) for i in indices]
        if last in moving:
            for index, stride in zip(indices, buffer.type.strides, strict=True):
                if stride == 1 and ivs.get(index) not in (None, last):
                    found.setdefault(ivs[index], []).append(str(buffer.name))
    if not found:
        return None, []
    loop = next(iter(found))
    return loop, list(dict.fromkeys(found[loop]))
