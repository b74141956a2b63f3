"""The common part of matrix products and convolutions: the analysis of their loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from typing_extensions import override

from core_compiler.ir import DType, Function, Op, Value
from core_compiler.kernel_ir.abi import index_arguments
from core_compiler.kernel_ir.ops import definition
from core_compiler.kernel_ir.product import Product
from core_compiler.kernel_ir.views import Constant, For, loop_kind
from core_compiler.scheduling.schedules.steps import LaunchPlan, Scheduled
from core_compiler.scheduling.transforms import (
    Refused,
    interchange,
    mark,
    merge,
    never_empty,
    rename,
    rename_buffers,
    unit_loop,
)
from core_compiler.scheduling.transforms.edit import (
    expect,
    find_loop,
    loops,
    producers,
)


def read_product(kernel: Function) -> Product:
    """Return the product of a lowered kernel; raise :class:`Refused` if there is none."""
    return expect(Product.of(kernel), f"{kernel.name} has no product")


def accumulator(kernel: Function, product: Product) -> DType:
    """Return the dtype in which the product is summed."""
    return find_loop(kernel, product.chunk).results[0].type


def canonical(s: Scheduled, product: Product) -> Scheduled:
    """Return the kernel with its loops and operands in canonical order and names.

    The parallel loops are batch, ``i`` (rows merged), ``j`` (columns), the chunk loop is ``c``, and
    the operands are ``a`` and ``b``. A vector is a one-row matrix.
    """
    if not product.columns:
        raise Refused("no loop for the columns of a tile")
    j, rows = product.columns[-1], product.rows
    if not rows:
        s, rows = s.apply(unit_loop, j, "row"), ("row",)
    order = [*product.batch, *product.columns[:-1], *rows, j]
    s = reorder(s, order)
    i = rows[0]
    for number, other in enumerate(rows[1:]):
        s = s.apply(merge, i, other, f"rows{number}")
        i = f"rows{number}"
    names = {i: "i", j: "j", product.chunk: "c"}
    s = s.apply(rename, **{old: new for old, new in names.items() if old != new})
    s = s.apply(never_empty, "c")
    buffers = {product.a: "a", product.b: "b"}
    return s.apply(rename_buffers, **{old: new for old, new in buffers.items() if old != new})


@dataclass(frozen=True)
class ProductPlan(LaunchPlan):
    """The sizes of work items, and the packed layout of a constant ``b``.

    ``taps`` are the batch loops whose tiles are shared out like those of rows.
    ``taken`` has for each index argument of a packing kernel its position among the unscheduled
    kernel's sizes followed by the panels' sizes.
    """

    kernel: Function
    product: Product
    rows: int
    columns: int
    pack: Mapping[int, Function]
    taken: Mapping[int, tuple[int, ...]]
    blocked: bool = True
    taps: tuple[str, ...] = ()

    @override
    def more_sizes(self, sizes: Sequence[int], threads: int) -> list[int]:
        if not self.blocked:
            return self._panels(sizes) if self.pack else []
        batch, m, n, _ = extents(self.kernel, self.product, sizes)
        most = max(1, ITEM_ROWS // self.rows)
        taps = extent(self.kernel, self.taps, sizes)
        tiles = taps * -(-m // self.rows), -(-n // self.columns)
        rows, columns = work_item(batch // max(1, taps), *tiles, threads, most, bool(self.pack))
        chosen = (rows, columns) if self.product.rows else (columns,)
        return [*chosen, *(self._panels(sizes) if self.pack else ())]

    @override
    def pack_arguments(self, position: int, sizes: Sequence[int]) -> list[int]:
        known = [*sizes, *self._panels(sizes)]
        return [known[number] for number in self.taken[position]]

    def _panels(self, sizes: Sequence[int]) -> list[int]:
        """Return the number of panels of the packed operand, and the terms and elements of one."""
        _, _, n, terms = extents(self.kernel, self.product, sizes)
        return [-(-n // self.columns), terms, terms * self.columns]

    @override
    def packed_elements(self, sizes: Sequence[int]) -> int:
        panels, _, panel = self._panels(sizes)
        return panels * panel


def contiguous_terms(b: Value, product: Product) -> bool:
    """Return whether the terms of ``b``, and not its columns, are adjacent in memory."""
    return b.type.strides[product.axis] != 1


def extents(kernel: Function, product: Product, sizes: Sequence[int]) -> tuple[int, int, int, int]:
    """Return batch, rows, columns and terms of the whole product at these sizes."""
    taps = product.terms[1:-1] if len(product.terms) > 1 else ()
    batch = (*product.batch, *product.columns[:-1])
    groups = (batch, product.rows, product.columns[-1:], (product.chunk, *taps))
    batches, rows, columns, terms = (extent(kernel, names, sizes) for names in groups)
    return batches, rows, columns, terms


def extent(kernel: Function, names: Sequence[str], sizes: Sequence[int]) -> int:
    """Return the trip count of the loops ``names`` together at these sizes."""
    values = dict(zip(index_arguments(kernel), sizes, strict=True))
    defs, uppers = _loop_ends(kernel)
    return prod(evaluated(uppers[name], values, defs) or 1 for name in names)


@lru_cache(maxsize=256)
def _loop_ends(kernel: Function) -> tuple[Mapping[Value, Op], Mapping[str, Value]]:
    """Return the ops that define values, and the end of each loop by its name."""
    return producers(kernel), {For(op).name: For(op).upper for op in loops(kernel)}


def evaluated(value: Value, values: Mapping[Value, int], defs: Mapping[Value, Op]) -> int | None:
    """Return an index expression of arguments and constants, or None if it is of others."""
    if value in values:
        return values[value]
    op = defs.get(value)
    if op is None or value not in op.results or len(op.results) != 1:
        return None
    if op.kind == "kernel.constant":
        return Constant.of(op).index
    meaning = definition(op).on_indices
    operands = [evaluated(v, values, defs) for v in op.operands]
    return None if meaning is None or None in operands else meaning(*operands)


def longest_chunk(
    kernel: Function, sizes: Sequence[int], product: Product | None = None, taps: bool = True
) -> int:
    """Return the terms of the longest chunk at these sizes, which a packed row must hold.

    Without ``taps``, those of one tap.
    """
    product = product or read_product(kernel)
    values = dict(zip(index_arguments(kernel), sizes, strict=True))
    defs = producers(kernel)
    chunk = find_loop(kernel, product.chunk)
    length, size = (evaluated(v, values, defs) for v in (chunk.operands[2], chunk.operands[1]))
    length = expect(length, f"the chunks of {product.chunk} have no length at launch")
    size = expect(size, f"the sum over {product.chunk} has no length at launch")
    between = product.terms[1:-1] if taps and len(product.terms) > 1 else ()
    width = prod(values[For.of(find_loop(kernel, n)).upper] for n in between)
    return min(length, size) * width


#: The most rows of a work item: their packed chunks fit the second-level cache next to a panel.
ITEM_ROWS = 532
#: The most register tiles of a work item: its totals, as large as the second-level cache, are read
#: and written once for a chunk, and fewer panels are copied again than by smaller items.
ITEM_TILES = 608
#: Cycles for a term of the sum: of a register tile, of a copied row of tiles, of a copied panel of
#: ``b`` (whose rows are far apart in memory), and of a panel that was packed beforehand.
TILE_CYCLES, ROWS_CYCLES, PANEL_CYCLES, PACKED_CYCLES = 14, 2, 8, 2


def work_item(
    batch: int, rows: int, columns: int, threads: int, most_rows: int, packed: bool = False
) -> tuple[int, int]:
    """Return the rows and columns of a work item in register tiles.

    They are those of the shortest time of the thread with the most items: an item copies its rows
    and its panels once, so that small items copy more, and few items leave threads idle.
    """
    panel = PACKED_CYCLES if packed else PANEL_CYCLES

    def cost(item: tuple[int, int]) -> tuple[int, int]:
        height, width = item
        items = batch * -(-rows // height) * -(-columns // width)
        cycles = height * width * TILE_CYCLES + height * ROWS_CYCLES + width * panel
        return -(-items // threads) * cycles, height * width

    heights = [h for h in _parts(rows) if h <= most_rows] or [1]
    items = [(h, w) for h in heights for w in _parts(columns) if h * w <= max(ITEM_TILES, h)]
    return min(items, key=cost)


@lru_cache(maxsize=1024)
def _parts(size: int) -> tuple[int, ...]:
    """Return the sizes of the largest of 1, 2, ... equal parts of ``size``, without repeats."""
    return tuple(dict.fromkeys(-(-size // parts) for parts in range(1, size + 1))) or (1,)


def reorder(s: Scheduled, order: list[str]) -> Scheduled:
    """Reorder perfectly nested parallel loops, one exchange of neighbours at a time."""
    current = [
        For.of(op).name
        for op in s.function.body.walk()
        if op.kind == "kernel.for" and For.of(op).name in order
    ]
    for position, name in enumerate(order):
        at = current.index(name)
        while at > position:
            s = s.apply(interchange, current[at - 1], name)
            current[at - 1], current[at] = current[at], current[at - 1]
            at -= 1
    return s


def make_sequential(s: Scheduled) -> Scheduled:
    """Make the remaining independent loops inside a work item sequential."""
    for op in list(s.function.body.walk()):
        if op.kind == "kernel.for" and loop_kind(op) == "vector":
            s = s.apply(mark, For.of(op).name, "sequential")
    return s
