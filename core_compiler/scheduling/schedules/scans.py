"""Scans: each row is a chain, so that adjacent rows run in the lanes of a vector."""

from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import parallel_nest
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.rows import are_neighbours
from core_compiler.scheduling.schedules.simd import is_legal
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import split, vectorise


def schedule(kernel: Function, width: int = 16) -> Scheduled:
    """Schedule a scan with vectors of ``width`` rows; a work item is one of them."""
    s = Scheduled.of(kernel)
    nest = parallel_nest(kernel)
    if not nest:
        return s
    last = For.of(nest[-1]).name
    if not are_neighbours(kernel, last):
        return s
    made = s.apply(split, last, width, f"{last}_block", last)
    return (
        made.apply(vectorise, last, width) if is_legal(vectorise, made.function, last, width) else s
    )
