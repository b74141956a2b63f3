"""Products on a CPU: a register-tiled micro-kernel over packed operands.

The blocking is that of BLIS (Van Zee, van de Geijn: "BLIS: A Framework for Rapidly Instantiating
BLAS Functionality", 2015), except that rows of A are packed as rows (``[row][k]``, a plain copy
with vector loads for any source) and not as columns: elements of A are broadcast from memory, at
offsets known at compile time because a packed row has a fixed length.

The same steps serve convolutions, whose rows are copied through the taps (implicit im2col).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from core_compiler.ir import DType, Function
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.packing import pack_plan
from core_compiler.scheduling.schedules.product import (
    Product,
    ProductPlan,
    accumulator,
    canonical,
    contiguous_terms,
    extent,
    extents,
    longest_chunk,
    make_sequential,
    read_product,
)
from core_compiler.scheduling.schedules.simd import is_legal
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import (
    carry_division,
    collapse,
    dispatch,
    fission,
    four_terms,
    has_loop,
    hoist,
    interchange,
    lift,
    mark,
    merge,
    outline,
    pack_argument,
    prefetch_ahead,
    prefetch_behind,
    promote,
    round_up,
    share_loads,
    sink,
    specialise,
    split,
    stage,
    transpose_copy,
    turn_stores,
    unroll,
    unroll_by,
    unswitch,
    vectorise,
)
from core_compiler.scheduling.transforms.edit import (
    buffer_argument,
    constant_of,
    expect,
    find_loop,
    producers,
)
from core_compiler.scheduling.transforms.vectorise import strides

#: The least rows of a tile that is not slowed down by the latency of its additions.
LATENCY = 4
#: Words of a chunk of bytes along one axis, and bytes of a word.
WORDS, BYTES = 256, 4


@dataclass(frozen=True)
class Tiles:
    """The compile-time parameters of a product on a CPU, which do not affect the bits.

    rows         rows of a register tile
    vectors      vectors per row of the tile
    width        lanes of a vector, of 32 bits
    row_length   elements of a packed row: at least the longest chunk (an odd number of cache
                 lines keeps the rows of a tile in different sets of the first-level cache)
    unroll       unrolled steps of the sum in the inner loop (LLVM orders the loads of more than
                 one so that it runs out of registers: 1.2 to 1.8 times slower)
    partial      smaller tiles, for the last rows
    """

    rows: int = 14
    vectors: int = 2
    width: int = 16
    row_length: int = 304
    unroll: int = 1
    partial: tuple[int, ...] = (8, 2, 1)

    @property
    def columns(self) -> int:
        return self.vectors * self.width

    def of(self, dtype: DType) -> Tiles:
        """Return these tiles for sums in ``dtype``: as many bits, in fewer lanes if it is wide."""
        return self if dtype.bits <= 32 else replace(self, width=self.width // 2)

    def of_words(self, words: int) -> Tiles:
        """Return these tiles with packed rows of bytes that hold a chunk of ``words`` words."""
        return replace(self, row_length=64 * (-(-max(words, WORDS) // 16) | 1))

    def holding(self, terms: int) -> Tiles:
        """Return these tiles with packed rows that hold a chunk of ``terms`` terms."""
        if terms <= self.row_length:
            return self
        return replace(self, row_length=16 * (-(-terms // 16) | 1))

    def fitting(self, rows: Sequence[int]) -> Tiles:
        """Return these tiles with the height that computes products of ``rows`` rows soonest.

        Programs of other sizes share kernels only of the same height, so that it changes for a gain
        of a tenth only.
        """

        def cycles(height: int) -> int:
            return sum(replace(self, rows=height)._cycles(m) for m in rows)

        best = min((r for r in self.variants if r > LATENCY), key=cycles, default=self.rows)
        return replace(self, rows=best) if 10 * cycles(best) <= 9 * cycles(self.rows) else self

    def _cycles(self, rows: int) -> int:
        """Return the cycles for a term of a panel: of whole tiles and of the last, partial one."""
        whole, rest = divmod(rows, self.rows)
        last = min((r for r in self.variants if r >= rest), default=self.rows)
        return whole * (self.rows + 1) + (max(last, LATENCY) + 1 if rest else 0)

    @property
    def variants(self) -> tuple[int, ...]:
        return (self.rows, *(r for r in self.partial if r < self.rows))

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.vectors}x{self.width}"


AVX512 = Tiles()
AVX2 = Tiles(rows=6, width=8, partial=(4, 2, 1))

#: The colours of a picture, and the most elements that are copied one by one.
COLOURS, FEW = 3, 4
#: How far copies fetch ahead, further than memory takes to answer: copies of pixels, of rows, and
#: of the columns of consecutive terms; and, in elements, of tiles that are turned.
PIXELS_AHEAD, ROWS_AHEAD, TERMS_AHEAD, TURNED_AHEAD = 8, 2, 16, 64
#: The register tile's nests: fill with zeros, sum a chunk, add to the total.
PHASES = ("_init", "", "_add")


def schedule(
    kernel: Function,
    tiles: Tiles = AVX512,
    packed: bool = True,
    launches: Sequence[Sequence[int]] = (),
) -> Scheduled:
    """Schedule a lowered product ``y[i, j] = f(sum over k of a[i, k] * b[k, j])``.

    ``packed``: operand ``b`` is a constant, packed beforehand by the kernel in ``launch.pack`` (new
    index arguments ``b_panels``, ``b_terms``, ``b_panel``); otherwise each work item copies its
    panels. New index arguments ``mc`` and ``nc``: rows and columns of a work item, in register
    tiles. ``launches``: the size arguments of the launches that will use it. Raise :class:`Refused`
    if the kernel is not such a product.
    """
    product = read_product(kernel)
    s, lowered = Scheduled.of(kernel), kernel
    words = bool(product.columns) and is_legal(four_terms, kernel, product.chunk, product.terms)
    if words:
        s = s.apply(four_terms, product.chunk, product.terms)
        longest = max((longest_chunk(s.function, sizes, product) for sizes in launches), default=0)
        kernel, tiles = s.function, tiles.of_words(longest)
    last = None if words else adjacent_row_loop(kernel, product)
    taps = tuple(r for r in product.rows if r != last)
    # Runs shorter than a vector (the colours of a picture) are copied element by element; as a
    # batch, each tap would copy all of b again for those few rows.
    short_runs = copy_adjacent = False
    if last is not None:
        short_runs = bool(taps) and has_short_runs(kernel, product, last, tiles, launches)
        copy_adjacent = not short_runs
        order = (*taps, last) if short_runs else (last,)
        batch = product.batch if short_runs else (*product.batch, *taps)
        product = replace(product, rows=order, batch=batch)
    # Tiles of all taps share the copied columns of b; a tile has rows of one tap.
    shared_taps = taps if copy_adjacent and len(product.columns) == 1 else ()
    packed = packed and product.shared
    s = canonical(s, product)
    s = tile(s, tiles, not product.rows, shared_taps)
    terms = product.terms
    if copy_adjacent:
        lanes = -(-tiles.rows // tiles.width) * tiles.width
        shape = (None, tiles.row_length | 1, lanes)  # panels begin in different cache sets
        s = s.apply(stage, "a", "c", ("ip", terms, "ii"), "rows", shape, order=(*terms, "ip", "ii"))
        s = s.apply(vectorise, "ii_rows", tiles.width, lanes)
    else:
        rows = ("ip", "ii", terms)
        shape = (None, tiles.rows, tiles.row_length)
        if words:
            s = s.apply(stage, "a", "c", rows, "rows", shape, as_bytes=True)
        else:
            s = s.apply(stage, "a", "c", rows, "rows", shape)
        s = s.apply(round_up, "ii_rows")
        if not short_runs:
            lanes, lengths = BYTES if words else 1, (0, 0)
            if len(terms) > 1:
                block = block_of(s, terms) * lanes
                lengths = short_run(lowered, product, block, launches), block
            s = copy_by_vectors(s, terms, tiles, lengths, lanes)
    if packed:
        s = s.apply(pack_argument, "b", product.axis, tiles.columns, terms)
    staged = not packed or (not words and widens_for_many_rows(kernel, product, tiles, launches))
    turned = not packed and contiguous_terms(buffer_argument(s.function, "b"), product)
    streamed = staged and not turned
    if staged:
        panel = ("jp", terms, "jj")
        order = (*terms, "jp", "jj") if streamed else ()  # whole rows of b, one by one
        shape = (None, tiles.row_length, tiles.columns)
        s = s.apply(stage, "b", "c", panel, "cols", shape, order=order)
        columns = ("jj_cols", tiles.width, tiles.columns)
        if turned and not words and len(terms) == 1:
            s = s.apply(transpose_copy, f"{terms[0]}_cols", *columns)
        elif not words or is_legal(vectorise, s.function, *columns):  # else a word at a time
            s = s.apply(vectorise, *columns)
    s = s.apply(collapse, terms, "k")
    s = s.apply(fission, ("ii", "jj"), "k", "acc", space="register", suffix="_add")
    s = s.apply(hoist, "k", ("ii", "jj"))
    for phase in PHASES:
        s = s.apply(round_up, f"jj{phase}")
    s = s.apply(specialise, "ii_out", "jj_out", tiles.columns)
    s = s.each(vectorise, ("jj_out_full", "jj_out"), tiles.width)
    stored = ("ii_out_full", "jj_out_full", tiles.rows)
    if is_legal(turn_stores, s.function, *stored):
        s = s.apply(turn_stores, *stored)
    s = s.apply(lift)
    term = f"{terms[0]}_rows"
    copied = term if copy_adjacent else "ip_rows"
    s = s.split_off(outline, copied, f"pack_{tiles.name}")
    if staged:
        outer = f"{terms[0]}_cols" if streamed else "jp_cols"
        s = s.split_off(outline, outer, f"panels_{tiles.name}")
    s = s.split_off(outline, "ii_add", "register_tile", first="ii_init", streams=("b", "cols"))
    s = count_rows(
        make_sequential(register_tiles(s, tiles)),
        (*(("ip_rows",) if shared_taps else ()), term)
        if copy_adjacent or short_runs
        else ("ii_rows",),
    )
    ahead = PIXELS_AHEAD if len(terms) > 1 else TERMS_AHEAD if copy_adjacent else ROWS_AHEAD
    panels = (TERMS_AHEAD,) if streamed else (TURNED_AHEAD, True)
    for name, how in (("pack_", (ahead,)), ("panels_", panels)):
        for core in [n for n in s.cores if n.startswith(name)]:
            s = s.refine(core, prefetch_ahead, *how)
    plan = pack_plan(kernel, product, tiles.columns, packed)
    sizes = tiles.rows, tiles.columns
    return replace(s, launch=ProductPlan(kernel, product, *sizes, **plan, taps=shared_taps))


def adjacent_row_loop(kernel: Function, product: Product) -> str | None:
    """Return the only row loop whose elements of ``a`` are adjacent in memory.

    These elements are then copied like the columns of ``b``. Return None if the terms of ``a`` are
    adjacent, or neither are.
    """
    if len(product.terms) != 1 or not product.rows:
        return None
    buffer_ = buffer_argument(kernel, product.a)
    (load,) = [o for o in kernel.body.walk() if o.kind == "kernel.load" and access(o)[0] is buffer_]
    indices, defs = access(load)[1], producers(kernel)
    for row in product.rows:
        loop = find_loop(kernel, row)
        steps = strides(loop, For.of(loop).index, defs)
        advance = [steps.get(index, 0) for index in indices]
        if advance == [int(stride == 1) for stride in buffer_.type.strides]:
            return row
    return None


def widens_for_many_rows(
    kernel: Function, product: Product, tiles: Tiles, launches: Sequence[Sequence[int]]
) -> bool:
    """Return whether each work item widens its panels of a narrow ``b`` first.

    It does if more than four register tiles use them. Fewer rows widen what they load: memory then
    is the limit, and the narrow panels are half of its traffic or less.
    """
    total = accumulator(kernel, product)
    rows = [extents(kernel, product, sizes)[1] for sizes in launches]
    return buffer_argument(kernel, product.b).type.dtype is not total and (
        not rows or max(rows) > 4 * tiles.rows
    )


def has_short_runs(
    kernel: Function, product: Product, last: str, tiles: Tiles, launches: Sequence[Sequence[int]]
) -> bool:
    """Return whether most rows of the launches have runs along ``last`` shorter than a vector.

    Rows are weighted by their work. (One kernel serves layers of three channels and of many.)
    """
    work = [(extent(kernel, [last], n), prod(extents(kernel, product, n))) for n in launches]
    return 2 * sum(w for run, w in work if run < tiles.width) > sum(w for _, w in work)


def short_run(
    kernel: Function, product: Product, block: int, launches: Sequence[Sequence[int]]
) -> int:
    """Return the length of the short runs of channels that a tap copies, less than a ``block``.

    It is that of the launch with the shortest ones: colours, or the channels of a group.
    """
    runs = [longest_chunk(kernel, sizes, product, taps=False) for sizes in launches]
    return min([run for run in runs if run < block], default=COLOURS)


def block_of(s: Scheduled, terms: tuple[str, ...]) -> int:
    """Return the terms of a channel block in the copy of a row."""
    blocks = For.of(find_loop(s.function, f"{terms[0]}_rows"))
    step = constant_of(blocks.step, producers(s.function))
    return expect(step, f"{blocks.name} has no constant step")


def copy_by_vectors(
    s: Scheduled, terms: tuple[str, ...], tiles: Tiles, lengths: tuple[int, int], lanes: int = 1
) -> Scheduled:
    """Schedule the copy of a row with long vectors.

    Between taps it copies ``lengths``: short runs (of a few elements one by one, which is faster
    than a masked vector) and runs of a whole channel block, or runs of any length. Vectors are
    ``lanes`` times as wide as a tile's.
    """
    last, width = f"{terms[-1]}_rows", tiles.width * lanes
    if len(terms) == 1:
        return s.apply(vectorise, last, width, rest=True)
    first = f"{terms[1]}_rows"
    run, block = lengths
    for length in lengths:
        s = s.apply(specialise, first, last, length, f"_{length}")
    if run == 1 and is_legal(vectorise, s.function, f"{terms[-2]}_rows_1", tiles.width):
        s = s.apply(vectorise, f"{terms[-2]}_rows_1", tiles.width)  # the taps of a row are adjacent
    if run > FEW and (run & (run - 1) == 0 or lanes > 1):  # a vector of fewer lanes
        s = s.apply(vectorise, f"{last}_{run}", min(width, 1 << (run - 1).bit_length()))
    return s.apply(vectorise, f"{last}_{block}", min(width, block)).apply(vectorise, last, width)


def count_rows(s: Scheduled, copied: Sequence[str]) -> Scheduled:
    """Replace divisions by counting in the copy of merged rows (loops ``copied``) and after it."""
    stores = [name for name in ("ii_out_full", "ii_out") if has_loop(s.function, name)]
    s = s.each(carry_division, stores)
    (pack,) = (name for name, core in s.cores.items() if has_loop(core, copied[0]))
    for loop in copied:
        s = s.refine(pack, mark, loop, "sequential").refine(pack, carry_division, loop)
    return s


def tile(s: Scheduled, tiles: Tiles, single_row: bool, taps: Sequence[str] = ()) -> Scheduled:
    """Tile work items into register tiles; chunks of the sum are outside an item's tiles.

    ``taps``: loops outside of the rows whose tiles are shared out as if they were rows too.
    """
    s = s.apply(split, "i", tiles.rows, "ip", "ii")
    for tap in reversed(taps):
        s = s.apply(merge, tap, "ip", "ip")
    s = s.apply(split, "j", tiles.columns, "jp", "jj")
    if not single_row:
        s = s.apply(split, "ip", "mc", "ib", "ip")
    s = s.apply(split, "jp", "nc", "jb", "jp")
    for outer, inner in (("ii", "jb"), ("ip", "jb"), ("ii", "jp"), ("ip", "jp")):
        s = s.apply(interchange, outer, inner)
    s = s.apply(fission, ("jp", "ip", "ii", "jj"), "c", "total")
    s = s.apply(hoist, "c", ("jp", "ip", "ii", "jj"), "select")
    return s.apply(sink, "c", ("jp", "ip"))


def register_tiles(s: Scheduled, tiles: Tiles) -> Scheduled:
    """Create variants of the outlined register tile for full and for partial tiles."""
    (core,) = (c for name, c in s.cores.items() if name.startswith("register_tile"))
    named = []
    for rows in tiles.variants:
        variant = _variant(core, tiles, rows)
        s = s.with_core(variant.function, variant.steps)
        named.append((rows, variant.function.name))
    s = s.apply(dispatch, core.name, _row_count(core), tuple(named))
    return s.without_core(core.name)


#: Cached tiles, by the core's name (which ends in the digest of its structure), because the
#: products of a network share them.
_VARIANTS: dict[tuple[str, Tiles, int], Scheduled] = {}


def _variant(core: Function, tiles: Tiles, rows: int) -> Scheduled:
    """Return the register tile for exactly ``rows`` rows, unrolled."""
    key = core.name, tiles, rows
    if key in _VARIANTS:
        return _VARIANTS[key]
    digest = core.name.rsplit("_", 1)[1]
    name = f"tile_{rows}x{tiles.vectors}x{tiles.width}_{digest}"
    variant = Scheduled.of(core.with_(name=name))
    for phase in PHASES:
        variant = variant.apply(round_up, f"ii{phase}", rows)
    variant = variant.apply(unswitch, "ii_add")
    for phase in (*PHASES, "_add_first"):
        variant = variant.apply(vectorise, f"jj{phase}", tiles.width)
        variant = variant.apply(unroll, f"jj{phase}").apply(unroll, f"ii{phase}")
    variant = variant.apply(promote, "acc").apply(share_loads)
    if tiles.unroll > 1:
        variant = variant.apply(unroll_by, "k", tiles.unroll).apply(lift).apply(share_loads)
    variant = variant.apply(prefetch_behind, "k")
    _VARIANTS[key] = variant
    return variant


def _row_count(core: Function) -> int:
    """Return the position of the outlined tile's argument that is its number of valid rows."""
    return core.arguments.index(For.of(find_loop(core, "ii")).upper)
