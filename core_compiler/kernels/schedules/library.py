"""Which schedule a kernel gets: one row a family."""
from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Function
from core_compiler.kernels.abi import buffer_arguments
from core_compiler.kernels.schedules import contraction, convolution, elementwise, rows
from core_compiler.kernels.schedules.contraction import AVX2, AVX512
from core_compiler.kernels.schedules.product import longest_chunk, read_product
from core_compiler.kernels.schedules.steps import Scheduled
from core_compiler.kernels.transforms import Refused
from core_compiler.kernels.transforms.edit import need

#: The lowering writes the family into the kernel's attributes.
FAMILIES = {
    "elementwise": elementwise.schedule,
    "window": elementwise.schedule,
    "rows": rows.schedule,
}
PRODUCTS = {"contraction": contraction.schedule, "convolution": convolution.schedule}
#: Register tiles by vector width.
TILES = {16: AVX512, 8: AVX2}


def schedule(
    kernel: Function, width: int = 16, launches: Sequence[Sequence[int]] = ()
) -> Scheduled:
    """The kernel's CPU schedule with vectors of ``width`` lanes (of f32; others take as many).

    ``launches`` are the size arguments of the launches that will use it (packed rows must hold the
    longest chunk of their sums).  The attribute ``constants`` names the buffer arguments that are
    constants of the model, whose layout may be chosen beforehand.
    """
    family = kernel.attributes.get("family")
    if family in PRODUCTS:
        return _product(kernel, width, launches)
    make = FAMILIES.get(family)
    return Scheduled.of(kernel) if make is None else make(kernel, width)


def _product(kernel: Function, width: int, launches) -> Scheduled:
    try:
        product = read_product(kernel)
        # A dot product has no columns; columns that a reshape or slice addresses are no plain index.
        need(bool(product.batch) or bool(product.columns), "nothing to run along in vectors")
        need(not product.columns or product.axis is not None, "the columns are not an index of b")
        place = [v.name for v in buffer_arguments(kernel)].index(product.b)
        packed = place in kernel.attributes.get("constants", ())
        terms = max((longest_chunk(kernel, sizes) for sizes in launches), default=0)
        tiles = TILES[width].holding(terms)
        return PRODUCTS[kernel.attributes["family"]](kernel, tiles, packed)
    except Refused:
        # A product without rows or columns to tile (a dot product): the plain loops run.
        return Scheduled.of(kernel)
