"""Schedules for GPUs: the loops that become blocks of the grid and threads of a block."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import parallel_nest, scratch_allocations
from core_compiler.scheduling.schedules.gpu import elements, product, rows
from core_compiler.scheduling.schedules.product import read_product
from core_compiler.scheduling.schedules.simd import reductions
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import Refused

PRODUCTS = ("contraction", "convolution")
#: The oldest compute capability that copies from global to shared memory by itself.
ASYNCHRONOUS = (8, 0)


def schedule(
    kernel: Function,
    launches: Sequence[Sequence[int]] = (),
    processors: int = 132,
    tiles: str = "default",
    capability: tuple[int, int] = (9, 0),
) -> Scheduled:
    """Return the kernel's schedule on a GPU.

    ``launches`` are the size arguments of its launches, by which a product's tiles are chosen.
    ``processors`` is the number of streaming multiprocessors that share the blocks (132 on an H100
    or H200). ``tiles`` names a row of :data:`product.TILINGS`. ``capability``: compute capability.
    """
    if kernel.attributes.get("family") in PRODUCTS:
        try:
            found = read_product(kernel)
            if not found.rows:  # a vector times a matrix: nothing is used twice
                return elements.schedule(kernel, elements.SUM_THREADS, together=False)
            chosen = product.choose(kernel, found, launches, processors, product.TILINGS[tiles])
            return product.schedule(kernel, found, chosen, capability >= ASYNCHRONOUS)
        except Refused:  # no columns to tile (a dot product, a depthwise convolution)
            if kernel.attributes["family"] == "contraction":  # or an operand that is computed
                return elements.schedule(kernel, elements.SUM_THREADS, together=False)
    if reductions(kernel) or _keeps_rows(kernel):
        return rows.schedule(kernel)
    return elements.schedule(kernel)


def _keeps_rows(kernel: Function) -> bool:
    """Return whether work items have memory of a size known only at run time.

    Examples are a sort's order and the row of a softmax along an axis other than the last. A block
    can have such memory, a single thread cannot.
    """
    nest = set(parallel_nest(kernel))
    inside = {op for loop in nest for op in loop.walk()}
    return any(op in inside for op in scratch_allocations(kernel))
