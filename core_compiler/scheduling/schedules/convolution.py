"""Convolutions on a CPU: products whose rows are pixels and whose terms are channels and taps.

Dense and grouped convolutions are scheduled like any product (:mod:`contraction`): the copy of a
tile's rows visits the taps, so no im2col matrix is ever in memory. A depthwise convolution has no
columns that share an input; its channels are the lanes, or the pixels of a row if these are the
ones that are adjacent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core_compiler.ir import Function
from core_compiler.kernel_ir.ops import access
from core_compiler.scheduling.schedules import contraction, elementwise
from core_compiler.scheduling.schedules.contraction import AVX512, Tiles
from core_compiler.scheduling.schedules.packing import pack_plan
from core_compiler.scheduling.schedules.product import (
    Product,
    ProductPlan,
    contiguous_terms,
    extent,
    extents,
    make_sequential,
    read_product,
    reorder,
)
from core_compiler.scheduling.schedules.simd import is_legal, vectors
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import (
    find_loop,
    interior,
    jam,
    lift,
    mark,
    pack_argument,
    ranges,
    rename,
    rename_buffers,
    single_term,
    split,
)
from core_compiler.scheduling.transforms.edit import buffer_argument

#: The most columns of a short row.
SHORT = 128
#: Vectors of channels of a work item of a depthwise convolution, those summed at once, and the
#: pixels of a row that share the taps' weights.
LANES, TOGETHER, PIXELS = 8, 2, 4


def schedule(
    kernel: Function,
    tiles: Tiles = AVX512,
    packed: bool = True,
    launches: Sequence[Sequence[int]] = (),
) -> Scheduled:
    """Schedule a lowered convolution or product (see :func:`contraction.schedule`).

    ``packed``: the weights are a constant.
    """
    product = read_product(kernel)
    if product.columns and (packed or not is_short_row(kernel, product, launches)):
        return contraction.schedule(kernel, tiles, packed, launches)
    sums = [extent(kernel, (product.chunk,), sizes) for sizes in launches]
    single = (product.chunk, product.terms) if sums and max(sums) == 1 else None
    if product.columns or not lanes_are_adjacent(kernel, product):
        return elementwise.schedule(kernel, tiles.width, launches=launches, single=single)
    return depthwise(kernel, product, tiles, packed, single is not None)


def is_short_row(kernel: Function, product: Product, launches: Sequence[Sequence[int]]) -> bool:
    """Return whether the launches multiply one row with few columns, which are adjacent.

    Each element of ``b`` is then used once, so that it is read where it is: the values of a head in
    a decoding step.
    """
    if len(product.terms) != 1 or contiguous_terms(buffer_argument(kernel, product.b), product):
        return False
    sizes = [extents(kernel, product, each) for each in launches]
    return all(rows == 1 and columns <= SHORT for _, rows, columns, _ in sizes) and bool(sizes)


def lanes_are_adjacent(kernel: Function, product: Product) -> bool:
    """Return whether the channels of the images, the last loop of both operands, are adjacent."""
    images = buffer_argument(kernel, product.a)
    channel = find_loop(kernel, product.batch[-1]).regions[0].arguments[0]
    loads = [o for o in kernel.body.walk() if o.kind == "kernel.load" and access(o)[0] is images]
    strides = zip(access(loads[0])[1], images.type.strides, strict=True)
    return any(index is channel and stride == 1 for index, stride in strides)


def depthwise(
    kernel: Function, product: Product, tiles: Tiles, packed: bool, is_single: bool
) -> Scheduled:
    """Schedule a depthwise convolution with channels as lanes: the last loop of both operands.

    ``is_single``: the groups of all launches have one channel.
    """
    lanes, chunk, width = product.batch[-1], product.chunk, LANES * tiles.width
    outer, pixels = list(product.batch[:-1]), list(product.rows)
    s = reorder(Scheduled.of(kernel), [*outer, *pixels, lanes])
    s = s.apply(rename, **{lanes: "channel"})
    s = s.apply(split, "channel", width, "channels", "lane")
    s = reorder(s, [*outer, *pixels[:-1], "channels", *pixels[-1:], "lane"])
    buffers = {product.a: "a", product.b: "b"}
    s = s.apply(rename_buffers, **{old: new for old, new in buffers.items() if old != new})
    product = replace(product, columns=(lanes,), batch=product.batch[:-1])
    packed, widened = packed and product.axis is not None, False
    if packed:
        held = buffer_argument(s.function, "b").type.dtype
        # Bytes stay bytes: the processor has an instruction for their products.
        widened = held.is_float and held.bits < 32
        s = s.apply(pack_argument, "b", product.axis, width, product.terms, widened)
    if is_single:
        s = s.apply(single_term, "lane", chunk, product.terms)
    s = make_sequential(s.apply(vectors, "lane", tiles.width, TOGETHER))
    if pixels:
        s = _several_pixels(s, pixels[-1])
    s = make_sequential(s).apply(lift)
    plan = pack_plan(kernel, product, width, packed, widened)
    return replace(s, launch=ProductPlan(kernel, product, 1, width, **plan, blocked=False))


def _several_pixels(s: Scheduled, pixels: str) -> Scheduled:
    """Return the schedule with several pixels of a row at a time, those within the image alone."""
    s, names = s.apply(mark, pixels, "vector"), [pixels]
    if is_legal(interior, s.function, pixels):
        s = s.apply(interior, pixels)
        names = ranges(s.function, pixels)
    return s.each(jam, [n for n in names if is_legal(jam, s.function, n, PIXELS)], PIXELS)
