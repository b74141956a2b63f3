"""Reduced sizes of a launch, with few iterations, on which a kernel is tried.

Kernels take their extents as arguments: with smaller ones and the same strides, the same kernel
computes a corner of its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core_compiler.ir import Function, Op
from core_compiler.ir.target import Launch
from core_compiler.kernel_ir.abi import index_arguments, parallel_nest
from core_compiler.kernel_ir.views import Constant, For

#: Maximum number of points of the iteration space, unless the minimum extents need more.
MOST_POINTS = 150_000
#: Minimum extents of a reduced launch: rows in total (the longest register tile has 14), columns
#: (vectors and their tiles have up to 32), the terms of a sum alone (chunks of 256 terms) and of a
#: sum with taps (channel blocks of 32).
ROWS, COLUMNS, TERMS, CHANNELS = 17, 37, 261, 37
#: Maximum rows and columns of a matrix that is factored: a vector and an edge.
MATRIX = 20
#: Number of points of the iteration space that are tried on special values.
FEW_POINTS = 4096


def reduced_sizes(kernel: Function, sizes: Sequence[int]) -> list[int]:
    """Return values for an unscheduled kernel's index arguments that leave few points to compute.

    Extents of loops shrink; strides and bounds stay, so every access stays inside the buffers.
    """
    if _has_tied_extents(kernel):
        return _corners(kernel, sizes)
    bounds, capped, other = read_extents(kernel)
    bounds.update(dict.fromkeys(capped - other - bounds.keys(), "sequential"))
    full_sizes, sizes = sizes, list(sizes)
    parallel = [i for i, loop in bounds.items() if loop == "parallel"]
    terms = [i for i, loop in bounds.items() if loop != "parallel"]

    def points() -> int:
        return math.prod(max(sizes[i], 1) for i in bounds)

    def shrink(positions: Sequence[int], count: int) -> None:
        """Shrink extents while necessary: outer ones to 2, the last to leave ``count`` points."""
        for i in positions:
            rest = math.prod(max(sizes[j], 1) for j in positions if j != i)
            if points() > MOST_POINTS:
                sizes[i] = min(sizes[i], 2 if i != positions[-1] else -(-count // rest))

    shrink(parallel[:-1], ROWS)
    # A tap's extent is small and stays; the remaining terms are channels, or those of a sum alone.
    shrink([max(terms, key=lambda i: sizes[i])] if terms else [], CHANNELS if terms[1:] else TERMS)
    shrink(parallel[-1:], COLUMNS)
    # A shorter sum has fewer chunks: none may begin after its end.
    for count, end, chunk in _chunked(kernel):
        sizes[count] = min(sizes[count], -(-sizes[end] // chunk))
    # Scratch memory of a reduced size holds less for the loops that read a part of it.
    position_of = {v: i for i, v in enumerate(index_arguments(kernel))}
    for a in {
        position_of[v]
        for op in kernel.body.walk()
        if op.kind == "kernel.alloc"
        for v in op.operands
        if v in position_of
    }:
        for i in bounds:
            if sizes[a] < full_sizes[a] and full_sizes[i] <= full_sizes[a]:
                sizes[i] = min(sizes[i], sizes[a])
    return sizes


def _has_tied_extents(kernel: Function) -> bool:
    """Return whether extents of one buffer bound loops over another: those of matrices."""
    return kernel.attributes.get("family") == "matrices"


def _batch(kernel: Function) -> list[int]:
    """Return the index arguments that are the numbers of matrices along an axis."""
    upper = {For.of(loop).upper for loop in parallel_nest(kernel)}
    return [i for i, v in enumerate(index_arguments(kernel)) if v in upper]


def _corners(kernel: Function, sizes: Sequence[int]) -> list[int]:
    """Return the sizes of corners of at most two matrices along each axis of a batch.

    All extents have the same limit: those that are equal, or the smaller of two, stay so.
    """
    batch = _batch(kernel)
    return [min(n, 2 if i in batch else MATRIX) for i, n in enumerate(sizes)]


def _chunked(kernel: Function) -> list[tuple[int, int, int]]:
    """Return the chunked sums of a kernel.

    Each is (index argument of the number of chunks, index argument of the end of the last chunk,
    terms of a chunk).
    """
    position_of = {v: i for i, v in enumerate(index_arguments(kernel))}
    ops = list(kernel.body.walk())
    makers = {v: op for op in ops for v in op.results}
    counted = {
        For.of(op).index: position_of[op.operands[1]]
        for op in ops
        if op.kind == "kernel.for" and op.operands[1] in position_of
    }
    found = []
    for op in ops:
        if op.kind != "kernel.min" or op.operands[1] not in position_of:
            continue
        next_start = makers.get(op.operands[0])  # the start of the next chunk
        start = (
            makers.get(next_start.operands[0])
            if next_start and next_start.kind == "kernel.add"
            else None
        )
        if start and start.kind == "kernel.mul" and start.operands[0] in counted:
            chunk = makers.get(start.operands[1])
            if chunk and chunk.kind == "kernel.constant":
                count = counted[start.operands[0]]
                found.append((count, position_of[op.operands[1]], Constant.of(chunk).index))
    return found


def minimal_sizes(kernel: Function, sizes: Sequence[int]) -> list[int]:
    """Return ``sizes`` with the extents of purely parallel loops reduced to at most 3."""
    free = only_parallel(kernel)
    return [min(n, 3) if i in free else n for i, n in enumerate(sizes)]


def smaller_sizes(kernel: Function, sizes: Sequence[int]) -> list[int]:
    """Return ``sizes`` with smaller extents (3 or more) of purely parallel loops.

    At most :data:`FEW_POINTS` points remain if that is possible.
    """
    sizes = list(sizes)
    for i in only_parallel(kernel):
        rest = points(kernel, sizes) // max(sizes[i], 1)
        sizes[i] = min(sizes[i], max(3, FEW_POINTS // max(rest, 1)))
    return sizes


def points(kernel: Function, sizes: Sequence[int]) -> int:
    """Return the number of iterations of the loops of an unscheduled kernel."""
    if _has_tied_extents(kernel):
        batch = _batch(kernel)
        rows = max((n for i, n in enumerate(sizes) if i not in batch), default=1)
        return math.prod(sizes[i] for i in batch) * rows**3
    return math.prod(max(sizes[i], 1) for i in read_extents(kernel)[0])


def read_extents(kernel: Function) -> tuple[dict[int, str], set[int], set[int]]:
    """Classify an unscheduled kernel's index arguments by their use.

    Returns those that bound loops, with the kind of the first loop; those that a ``kernel.min``
    reads (it cuts the last chunk of a sum); and those that are used otherwise or bound loops of
    several kinds.
    """
    position_of = {v: i for i, v in enumerate(index_arguments(kernel))}
    bounds: dict[int, str] = {}
    capped: set[int] = set()
    other: set[int] = set()
    for op in kernel.body.walk():
        for number, value in enumerate(op.operands):
            if value not in position_of:
                continue
            if op.kind != "kernel.for" or number != 1:
                (capped if op.kind == "kernel.min" else other).add(position_of[value])
            elif bounds.setdefault(position_of[value], For.of(op).loop) != For.of(op).loop:
                other.add(position_of[value])
    return bounds, capped, other


def only_parallel(kernel: Function) -> list[int]:
    """Return the index arguments that only bound parallel loops.

    With smaller ones the kernel computes fewer of the same results.
    """
    if _has_tied_extents(kernel):
        return _batch(kernel)
    bounds, capped, other = read_extents(kernel)
    return [i for i, loop in bounds.items() if loop == "parallel" and i not in capped | other]


def launch_sizes(launch: Op) -> list[int]:
    """Return the sizes of a launch."""
    return list(Launch.of(launch).sizes)
