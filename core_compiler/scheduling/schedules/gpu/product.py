"""Products on a GPU: a block's tile in shared memory, and thread tiles in registers.

The blocking is the usual one of SGEMM kernels (V. Volkov, J. Demmel: "Benchmarking GPUs to tune
dense linear algebra", 2008; CUTLASS): a block computes ``rows x columns`` outputs and visits the
terms in slabs of ``depth`` that its threads copy to shared memory, and each thread adds a slab's
products to its own tile. A convolution is the same with pixels for rows and channels for terms, one
tap at a time: the copy of a slab reads the image at the tap (implicit im2col).

The sum of a chunk and the total stay in registers; their order is the unscheduled kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core_compiler.ir import Function
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.product import Product, canonical, extents, reorder
from core_compiler.scheduling.schedules.simd import is_legal
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import (
    cover,
    double_buffer,
    fission,
    hoist,
    hold_quotients,
    interchange,
    lift,
    mark,
    permute_dimensions,
    round_up,
    specialise,
    split,
    split_dimension,
    stage,
    unswitch,
    vectorise,
)
from core_compiler.scheduling.transforms.edit import (
    buffer_argument,
    depends_on,
    find_loop,
    producers,
)

#: Lanes of a load from shared memory.
LANES = 4


@dataclass(frozen=True)
class Tiles:
    """The compile-time parameters of a product on a GPU, which do not affect the bits.

    rows, columns   of a block's tile
    depth           terms of a slab in shared memory
    row_tile        rows of a thread's tile, adjacent
    column_tile     columns of it: groups of four, spread evenly over the block's
    """

    rows: int = 128
    columns: int = 128
    depth: int = 8
    row_tile: int = 8
    column_tile: int = 8

    @property
    def efficiency(self) -> float:
        """The share of the peak that a thread's tile can reach.

        It compares the products that a load from shared memory feeds with the 16 that keep the
        units busy.
        """
        loads = self.row_tile / LANES + self.column_tile / LANES
        return min(1.0, self.row_tile * self.column_tile / loads / 16)

    @property
    def threads(self) -> int:
        return (self.rows // self.row_tile) * (self.columns // self.column_tile)

    @property
    def groups(self) -> int:
        return self.column_tile // LANES


TILINGS = {
    "default": (Tiles(), Tiles(64, 64, 16, 4, 4), Tiles(16, 64, 16, 4, 4)),
    # For tests of tile edges and of bits: fine tiles.
    "small": (Tiles(8, 16, 4, 4, 8),),
}

#: The most products of a thread in a slab for which a full slab has straight code of its own.
UNROLLED = 256
#: Lanes of a multiprocessor; instructions for each product and each copied element, and the
#: cycles between two products of a thread that is alone: fitted to predicted times of these kernels
#: (hardware/prediction.py). Threads that keep a multiprocessor busy.
LANES_OF_ALL, PER_PRODUCT, PER_COPY, ALONE, BUSY = 128, 1.25, 25, 2.8, 512
#: The thread's number in the block's tile, and its own rows, groups of columns and lanes.
TILE = ("ti", "tj", "r", "h", "v")
#: Nests over the tile: fill with zeros, sum a slab, add to the total (which the first chunk is).
PHASES = ("_init", "", "_add", "_add_first", "_out")


def choose(
    kernel: Function,
    product: Product,
    launches: Sequence[Sequence[int]],
    processors: int,
    tilings: Sequence[Tiles],
) -> Tiles:
    """Return the tiles with the least estimated time for these launches."""

    def cycles(tiles: Tiles) -> float:
        sizes = (extents(kernel, product, launch) for launch in launches)
        return sum(Work.of(tiles, *each).cycles(processors) for each in sizes)

    return min(tilings, key=cycles)


@dataclass(frozen=True)
class Work:
    """A product in blocks of some ``tiles``, each with so many ``terms``."""

    tiles: Tiles
    blocks: int
    terms: int

    @staticmethod
    def of(tiles: Tiles, batch: int, rows: int, columns: int, terms: int) -> Work:
        return Work(tiles, batch * -(-rows // tiles.rows) * -(-columns // tiles.columns), terms)

    def cycles(self, processors: int) -> float:
        """Return the estimated cycles of the processor with the most blocks.

        They are those of its instructions, or, if it has few blocks, of a block that waits for its
        own results.
        """
        tiles, each = self.tiles, -(-self.blocks // processors)
        area, copied = tiles.rows * tiles.columns, tiles.rows + tiles.columns
        busy = each * (PER_PRODUCT * area + PER_COPY * copied) / LANES_OF_ALL
        alone = ALONE * area / tiles.threads / tiles.efficiency**0.5
        return self.terms * max(busy, alone)

    def share(self, processors: int) -> float:
        """Return the blocks' threads as a share of those that keep all processors busy."""
        return self.blocks * self.tiles.threads / (processors * BUSY)


def schedule(
    kernel: Function, product: Product, tiles: Tiles, asynchronous: bool = True
) -> Scheduled:
    """Schedule a lowered product ``y[i, j] = f(sum over k of a[i, k] * b[k, j])``.

    The copy of the next slab overlaps the arithmetic on the present one; ``asynchronous``: the GPU
    can copy to shared memory by itself (compute capability 8.0 and newer).

    Raise ``Refused`` if it has no columns.
    """
    s = canonical(Scheduled.of(kernel), product)
    s = s.apply(cover, "i", tiles.rows, "ib", "ii").apply(cover, "j", tiles.columns, "jb", "jj")
    s = s.apply(interchange, "ii", "jb")
    s = hoist_sums(s, product.terms, tiles)
    s = slab(s, "a", "ii", tiles.rows, tiles)
    s = slab(s, "b", "jj", tiles.columns, tiles)
    s = s.apply(unswitch, "ii_add")
    for phase in PHASES:
        s = thread_tiles(s, phase, tiles)
    for sums in ("acc", "total"):
        s = s.apply(split_dimension, sums, 0, tiles.row_tile)
        s = s.apply(split_dimension, sums, 2, tiles.columns // tiles.groups)
        s = s.apply(split_dimension, sums, 3, LANES).apply(
            permute_dimensions, sums, (0, 3, 1, 2, 4)
        )
    s = s.apply(hoist, "kk", TILE[2:], "there")
    phases: tuple[str, ...] = PHASES
    if tiles.depth * tiles.row_tile * tiles.column_tile <= UNROLLED:
        s, phases = s.apply(specialise, "kk", "kk", tiles.depth), (*PHASES, "_full")
    for phase in phases:
        # Results that are not adjacent (a transposed one) are stored one by one.
        if phase != "_out" or is_legal(vectorise, s.function, f"v{phase}", LANES):
            s = s.apply(vectorise, f"v{phase}", LANES)
        s = s.each(mark, (f"r{phase}", f"h{phase}", f"v{phase}"), "unrolled")
    for phase in PHASES:
        s = s.each(mark, (f"ti{phase}", f"tj{phase}"), "thread")
    for copied in ("b_slab", "a_slab"):
        nest = first_loop(s.function, copied)
        if is_legal(hold_quotients, s.function, nest, "c"):
            s = s.apply(hold_quotients, nest, "c")
    pipelined = ("c", *sum_loops(product.terms)), ("b_slab", "a_slab"), asynchronous
    if is_legal(double_buffer, s.function, *pipelined):  # not if a copy has branches
        s = s.apply(double_buffer, *pipelined)
    outer = (*product.batch, *product.columns[:-1], "ib", "jb")
    return s.each(mark, outer, "block").apply(lift)


def hoist_sums(s: Scheduled, terms: tuple[str, ...], tiles: Tiles) -> Scheduled:
    """Move loops over chunks, taps and slabs around the block's tile; keep sums in registers."""
    nest = ("ii", "jj")
    s = s.apply(fission, nest, "c", "total", space="register").apply(hoist, "c", nest, "select")
    s = s.apply(split, terms[-1], tiles.depth, "slab", "kk")
    inside = sum_loops(terms)
    s = s.apply(fission, nest, inside[0], "acc", space="register", suffix="_add")
    for number, loop in enumerate(inside):
        s = s.apply(hoist, loop, nest, "there" if number else "store")
    return s


def sum_loops(terms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the loops of a chunk around the work on a slab, outermost first."""
    return (*terms[:-1], "slab")


def slab(s: Scheduled, operand: str, along: str, extent: int, tiles: Tiles) -> Scheduled:
    """Stage a slab of an operand in shared memory as ``[term][row or column]``.

    Its elements are distributed over the threads so that adjacent threads read adjacent elements.
    """
    name = f"{operand}_slab"
    terms_first = has_contiguous_terms(s.function, operand)
    shape = tiles.depth, extent + (LANES if terms_first else 0)  # its rows are in different banks
    order = (along, "kk") if terms_first else ("kk", along)
    s = s.apply(stage, operand, "slab", ("kk", along), name, shape, space="shared", order=order)
    s = s.apply(round_up, f"kk_{name}")
    own, part = f"{along}_{name}", f"{along}_part_{name}"
    s = s.apply(split, own, tiles.threads // tiles.depth, part, own)
    if terms_first:
        s = s.apply(interchange, part, own).apply(interchange, part, f"kk_{name}")
    else:
        s = s.apply(interchange, part, own)
    s = s.each(mark, (own, f"kk_{name}"), "thread")
    return s.apply(mark, part, "unrolled")


def first_loop(function: Function, memory: str) -> str:
    """Return the outermost loop of the nest that fills a slab."""
    names = (For.of(op).name for op in function.body.walk() if op.kind == "kernel.for")
    return next(name for name in names if name.endswith(f"_{memory}"))


def thread_tiles(s: Scheduled, phase: str, tiles: Tiles) -> Scheduled:
    """Turn a nest over the block's tile into one over the threads' tiles."""
    ti, tj, r, h, v = (f"{loop}{phase}" for loop in TILE)
    s = s.apply(split, f"ii{phase}", tiles.row_tile, ti, r)
    s = s.apply(split, f"jj{phase}", tiles.columns // tiles.groups, h, tj)
    s = s.apply(split, tj, LANES, tj, v)
    return reorder(s, [ti, tj, r, h, v])


def has_contiguous_terms(function: Function, operand: str) -> bool:
    """Return whether the operand's terms are adjacent in memory."""
    memory, defs = buffer_argument(function, operand), producers(function)
    term = find_loop(function, "kk").regions[0].arguments[0]
    (load,) = (
        o for o in function.body.walk() if o.kind == "kernel.load" and access(o)[0] is memory
    )
    where = zip(memory.type.strides, access(load)[1], strict=True)
    return any(stride == 1 and depends_on([index], {term}, defs) for stride, index in where)
