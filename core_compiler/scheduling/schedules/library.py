"""The choice of a schedule for a kernel: one table row per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import buffer_arguments
from core_compiler.scheduling.schedules import convolution, elementwise, rows, scans
from core_compiler.scheduling.schedules.contraction import AVX2, AVX512, Tiles
from core_compiler.scheduling.schedules.product import (
    accumulator,
    extents,
    longest_chunk,
    read_product,
)
from core_compiler.scheduling.schedules.simd import vectors_at_once
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import Refused
from core_compiler.scheduling.transforms.edit import need


@dataclass(frozen=True)
class Tiling:
    """The sizes of tiles and work items, which do not affect the bits.

    ``products``: register tiles by vector width; ``block``: elements of an elementwise work item;
    ``rows``: rows of a work item if rows run in vectors.
    """

    products: Mapping[int, Tiles]
    block: int
    rows: int


TILINGS = {
    "default": Tiling({16: AVX512, 8: AVX2}, elementwise.BLOCK, rows.ROW_BLOCK),
    # For tests of tile edges and of bits: fine tiles.
    "small": Tiling(
        {w: Tiles(rows=3, vectors=1, width=w, unroll=1, partial=(2, 1)) for w in (16, 8)}, 128, 8
    ),
}
WIDTHS = tuple(TILINGS["default"].products)

#: The schedule of each family, which the lowering stores in the kernel's attributes.
FAMILIES: Mapping[str, Callable[..., Scheduled]] = {
    "elementwise": lambda kernel, width, t, launches: elementwise.schedule(
        kernel, width, t.block, launches
    ),
    "window": lambda kernel, width, t, launches: elementwise.schedule(
        kernel, width, t.block, launches
    ),
    "scan": lambda kernel, width, t, launches: scans.schedule(kernel, width),
    "rows": lambda kernel, width, t, launches: rows.schedule(kernel, width, t.rows, launches),
    "matrices": lambda kernel, width, t, launches: rows.in_vectors(
        Scheduled.of(kernel), width, vectors_at_once(kernel)
    ),
}
PRODUCTS = frozenset({"contraction", "convolution"})


def schedule(
    kernel: Function,
    width: int = 16,
    launches: Sequence[Sequence[int]] = (),
    tiles: str = "default",
) -> Scheduled:
    """Return the kernel's CPU schedule with vectors of ``width`` lanes (of any dtype).

    ``launches`` are the size arguments of its launches (packed rows must hold the longest chunk of
    their sums). ``tiles`` names a row of :data:`TILINGS`. The kernel's attribute ``constants``
    names the buffer arguments that are constants of the model, whose layout may be chosen
    beforehand.
    """
    family, tiling = kernel.attributes.get("family", ""), TILINGS[tiles]
    if family in PRODUCTS:
        return _product(kernel, tiling.products[width], launches)
    make = FAMILIES.get(family)
    return Scheduled.of(kernel) if make is None else make(kernel, width, tiling, launches)


def _product(kernel: Function, tiles: Tiles, launches) -> Scheduled:
    try:
        product = read_product(kernel)
        # A dot product has no columns, and columns behind a reshape or slice are not a plain index.
        need(bool(product.batch) or bool(product.columns), "no loop can be vectorised")
        need(not product.columns or product.axis is not None, "the columns are not an index of b")
        position = [v.name for v in buffer_arguments(kernel)].index(product.b)
        packed = position in kernel.attributes.get("constants", ())
        tiles = tiles.of(accumulator(kernel, product))
        tiles = tiles.fitting([extents(kernel, product, sizes)[1] for sizes in launches])
        terms = max((longest_chunk(kernel, sizes, product) for sizes in launches), default=0)
        return convolution.schedule(kernel, tiles.holding(terms), packed, launches)
    except Refused:
        # A product without rows or columns to tile (a dot product, an operand that is computed).
        return rows.schedule_product(kernel, tiles.width)
