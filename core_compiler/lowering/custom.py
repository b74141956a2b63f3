"""Lowerings of ops that are always a separate kernel.

These are scans, sorts, scatters, random numbers, and sums over shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from math import prod

from core_compiler.ir import Block, Value, dtype
from core_compiler.ir.types import INDEX, ordered_strides
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.lowering.eigenvalues import eigh  # noqa: F401  (named by hooks)
from core_compiler.lowering.element_expressions import accumulator
from core_compiler.lowering.linear_algebra import (  # noqa: F401  (named by hooks)
    cholesky,
    lu,
    row_order,
    triangular_solve,
)
from core_compiler.lowering.lowered import Lowered
from core_compiler.lowering.orthogonal import (  # noqa: F401  (named by hooks)
    householder,
    orthogonal_columns,
    reflect,
)
from core_compiler.lowering.reduction_nests import COMBINE, identity
from core_compiler.lowering.sorting import sort, topk  # noqa: F401  (named by hooks)
from core_compiler.numerics.reference.collective import pairwise
from core_compiler.ops import hooks, typed
from core_compiler.ops.base import definition

CHUNK = 256


class Custom:
    """A kernel builder for the only op of a block.

    Its buffers are full-rank and strided, one for each of the block's arguments (each may be
    several operands of the op). ``extents[value]`` are the run-time sizes of a tensor's axes.
    """

    def __init__(self, block: Block, name: str):
        (op,) = block.ops
        self.family = "custom"
        self.op, self.kb = op, KernelBuilder(name, op.origin)
        self.roles: dict[Value, tuple[str, int]] = {}
        self.sizes: dict[Value, int] = {}
        self.counts: dict[str, int] = {}
        self.extents: dict[Value, list[Value]] = {}
        given = {v: self._buffer(v, ("operand", n)) for n, v in enumerate(block.arguments)}
        self.inputs = [given[v] for v in op.operands]
        self.outputs = [self._buffer(v, ("result", n)) for n, v in enumerate(op.results)]

    def _buffer(self, value: Value, role: tuple[str, int]) -> Value:
        t = value.type
        extents = [self.argument("n", d) for d in t.shape]
        strides = [
            s if s in (0, 1) else self.argument("s", s).name
            for s in ordered_strides(t.shape, t.order)
        ]
        letter = "x" if role[0] == "operand" else "y"
        made = self.kb.buffer(f"{letter}{role[1]}", [e.name for e in extents], t.dtype, strides)
        self.roles[made], self.extents[made] = role, extents
        return made

    def argument(self, letter: str, number: int) -> Value:
        index = self.counts[letter] = self.counts.get(letter, -1) + 1
        value = self.kb.size(f"{letter}{index}")
        self.sizes[value] = number
        return value

    @contextmanager
    def rows(self, buffer: Value, axis: int | None, name: str = "i"):
        """Emit parallel loops over all axes but ``axis``.

        Yield a function from an index along ``axis`` to the full index.
        """
        axes = [a for a in range(buffer.type.rank) if a != axis]
        with self.loops(buffer, axes, name) as ivs:
            yield lambda k=None: tuple(k if a == axis else ivs[a] for a in range(buffer.type.rank))

    @contextmanager
    def loops(self, buffer: Value, axes: Sequence[int], name: str, loop: str = "parallel"):
        """Emit a loop over each of ``axes``; yield their indices by axis."""
        if not axes:
            yield {}
            return
        first, rest = axes[0], axes[1:]
        extent = self.extents[buffer][first]
        with self.kb.loop(f"{name}{first}", 0, extent, loop=loop) as iv:  # noqa: SIM117
            with self.loops(buffer, rest, name, loop) as found:
                yield {first: iv, **found}

    def row_loop(self, name: str, size: Value):
        """Emit a loop along a row whose iterations may run in any order, within the row.

        For a single row, which is the whole kernel, the loop is ``vector`` instead of
        ``parallel``, because work items would not share scratch memory.
        """
        alone = self.inputs[0].type.rank == 1
        return self.kb.loop(name, 0, size, loop="vector" if alone else "parallel")

    def widen(self, value: Value) -> Value:
        """Return a loaded value in its arithmetic dtype: narrow floats as f32."""
        return self.kb.cast(value, "f32") if scalars.is_narrow(value.type) else value

    def narrow(self, value: Value, to) -> Value:
        return self.kb.cast(value, to)

    def lowered(self):
        function = self.kb.function(family=self.family)
        arguments = tuple(
            self.roles[v] if v in self.roles else ("size", self.sizes[v])
            for v in function.arguments
        )
        return Lowered(function, arguments)


def lower(block: Block, name: str):
    """Return the kernel of a block of one op, and the constants that are its operands."""
    custom = Custom(block, name)
    declared = definition(custom.op)
    hook, op = declared.lower, declared.view(custom.op)
    if isinstance(hook, hooks.Scan):
        _scan(custom, op, hook.kind)
    else:
        build = globals()[hook.build] if isinstance(hook.build, str) else hook.build
        build(custom, op)
    return custom.lowered()


# -- scans -----------------------------------------------------------------------------------------


def _scan(c: Custom, op: typed.Scan, kind: str) -> None:
    """Emit a scan in chunks of 256, each sequential from its first element.

    y = offset + local, and local itself in the first chunk.
    """
    kb, axis, c.family = c.kb, op.axis, "scan"
    (x,), (y,) = c.inputs, c.outputs
    size, combine = c.extents[x][axis], COMBINE[kind]
    lane = x.type.dtype if not scalars.is_narrow(x.type.dtype) else dtype("f32")
    start = identity(kb, kind, lane)
    with c.rows(x, axis) as at:

        def place(r):
            return kb.sub(kb.sub(size, 1), r) if op.reverse else r

        def put(value, r):
            kb.store(c.narrow(value, y.type.dtype), y, *at(place(r)))

        if op.exclusive:
            with kb.branch(kb.gt(size, kb.index(0))):
                put(start, kb.index(0))
        with kb.loop("chunk", 0, size, CHUNK, init=[start]) as (chunk, offset):
            end = kb.min(kb.add(chunk, CHUNK), size)
            first_chunk = kb.eq(chunk, kb.index(0))
            with kb.loop("r", chunk, end, init=[start]) as (r, local):
                value = c.widen(kb.load(x, *at(place(r))))
                joined = kb.op(combine, local, value)
                if kind in ("sum", "prod"):
                    joined = kb.select(kb.eq(r, chunk), value, joined)
                total = kb.select(first_chunk, joined, kb.op(combine, offset, joined))
                if op.exclusive:
                    with kb.branch(kb.lt(kb.add(r, 1), size)):
                        put(total, kb.add(r, 1))
                else:
                    put(total, r)
                kb.carry(joined)
            local = kb.results[0]
            kb.carry(kb.select(first_chunk, local, kb.op(combine, offset, local)))


# -- scatters --------------------------------------------------------------------------------------


def _scatter(c: Custom, op: typed.Scatter, depth: int, target: Callable) -> None:
    """Apply updates in row-major order.

    ``target(u, at)`` returns, for the update slice at index ``u``, the index of the destination's
    first ``depth`` axes.
    """
    kb, mode = c.kb, op.mode
    (x, _, updates), (y,) = c.inputs, c.outputs
    rank, width = x.type.rank, x.type.rank - depth
    lead = updates.type.rank - width
    every = range(rank)
    with c.loops(x, every, "copy", loop="vector") as at:
        where = [at[a] for a in every]
        kb.store(kb.load(x, *where), y, *where)
    table = None
    if mode in ("add", "mul"):
        table = _Totals(c, x, depth, mode, prod(op.updates.type.shape[:lead]))
    with c.loops(updates, range(lead), "u", loop="sequential") as u:
        row = target([u[a] for a in range(lead)])
        inside = None
        for value, extent in zip(row, c.extents[x], strict=False):
            test = kb.and_(kb.ge(value, kb.index(0)), kb.lt(value, extent))
            inside = test if inside is None else kb.and_(inside, test)
        inside = kb.number(True, "i1") if inside is None else inside
        with kb.branch(inside):
            if table is not None:
                table.hit(row)
            with c.loops(updates, range(lead, lead + width), "w", loop="vector") as w:
                rest = [w[a] for a in range(lead, lead + width)]
                update = kb.load(updates, *(u[a] for a in range(lead)), *rest)
                if table is not None:
                    table.add(rest, c.widen(update))
                elif mode == "set":
                    kb.store(update, y, *row, *rest)
                else:
                    old = c.widen(kb.load(y, *row, *rest))
                    made = kb.op(mode, old, c.widen(update))
                    kb.store(c.narrow(made, y.type.dtype), y, *row, *rest)
    if table is not None:
        table.finish(y)


class _Totals:
    """The totals of a destination's hits: chunks of 256 from the identity, then old + total.

    ``updates`` is their number. If few of many rows can be hit (a gradient of an embedding), there
    is memory for as many rows as updates, and a row gets its slot with its first hit.
    """

    def __init__(self, c: Custom, x: Value, depth: int, mode: str, updates: int):
        self.c, self.x, self.depth, self.mode = c, x, depth, mode
        kb, extents = c.kb, c.extents[x]
        self.lane = accumulator(x.type.dtype)
        self.start = identity(kb, "sum" if mode == "add" else "prod", self.lane)
        self.chunk = kb.number(CHUNK, "i64")
        shape = c.op.operands[0].type.shape
        rows, inside = prod(shape[:depth]), prod(shape[depth:])
        row_bytes = 2 * inside * self.lane.bytes
        self.slots = self.used = None
        sizes, names = extents, tuple(e.name for e in extents)
        if updates > 0 and updates * row_bytes + rows * 8 < rows * row_bytes:
            self.slots = kb.alloc(names[:depth], "i64", *extents[:depth], name="slots")
            self.used = kb.alloc((1,), "i64", name="used")
            kb.store(kb.number(0, "i64"), self.used, kb.index(0))
            sizes = [c.argument("n", updates), *extents[depth:]]
        held = tuple(e.name for e in sizes)
        self.part = kb.alloc(held, self.lane, *sizes, name="part")
        self.total = kb.alloc(held, self.lane, *sizes, name="total")
        self.hits = kb.alloc(names[:depth], "i64", *extents[:depth], name="hits")
        with c.loops(x, range(depth), "r", loop="vector") as r:
            kb.store(kb.number(0, "i64"), self.hits, *(r[a] for a in range(depth)))

    def hit(self, row) -> None:
        kb = self.c.kb
        self.seen = kb.load(self.hits, *row)
        kb.store(kb.add(self.seen, kb.number(1, "i64")), self.hits, *row)
        if self.slots is not None and self.used is not None:
            with kb.branch(kb.eq(self.seen, kb.number(0, "i64"))):
                slot = kb.load(self.used, kb.index(0))
                kb.store(slot, self.slots, *row)
                kb.store(kb.add(slot, kb.number(1, "i64")), self.used, kb.index(0))
        self.row = self._total_index(row)

    def _total_index(self, row) -> list[Value]:
        """Return the memory index of a row's total."""
        kb = self.c.kb
        return list(row) if self.slots is None else [kb.cast(kb.load(self.slots, *row), INDEX)]

    def add(self, rest, update: Value) -> None:
        """Add a hit: at the start of a chunk the previous chunk's part is added to the total."""
        kb, seen, where = self.c.kb, self.seen, [*self.row, *rest]
        place = kb.rem(seen, self.chunk)
        update = kb.cast(update, self.lane)
        with kb.branch(kb.eq(place, kb.number(0, "i64"))):
            with kb.branch(kb.gt(seen, kb.number(0, "i64"))):
                self._fold(where, seen)
            kb.store(kb.op(self.mode, self.start, update), self.part, *where)
        with kb.branch(kb.ne(place, kb.number(0, "i64"))):
            kb.store(kb.op(self.mode, kb.load(self.part, *where), update), self.part, *where)

    def _fold(self, where, seen) -> None:
        kb = self.c.kb
        first = kb.le(seen, self.chunk)
        part = kb.load(self.part, *where)
        with kb.branch(first):
            kb.store(part, self.total, *where)
        with kb.branch(kb.not_(first)):
            kb.store(kb.op(self.mode, kb.load(self.total, *where), part), self.total, *where)

    def finish(self, y: Value) -> None:
        kb, c, x = self.c.kb, self.c, self.x
        with c.loops(x, range(self.depth), "f", loop="sequential") as f:
            row = [f[a] for a in range(self.depth)]
            seen = kb.load(self.hits, *row)
            with kb.branch(kb.gt(seen, kb.number(0, "i64"))):
                held = self._total_index(row)
                with c.loops(x, range(self.depth, x.type.rank), "g", loop="vector") as g:
                    rest = [g[a] for a in range(self.depth, x.type.rank)]
                    self._fold([*held, *rest], seen)
                    old = kb.cast(c.widen(kb.load(x, *row, *rest)), self.lane)
                    made = kb.op(self.mode, old, kb.load(self.total, *held, *rest))
                    kb.store(c.narrow(made, y.type.dtype), y, *row, *rest)


def scatter_along(c: Custom, op: typed.ScatterAlong) -> None:
    indices, axis = c.inputs[1], op.axis

    def target(u):
        found = c.kb.cast(c.kb.load(indices, *u), INDEX)
        return [*u[:axis], found, *u[axis + 1 :]]

    _scatter(c, op, c.inputs[0].type.rank, target)


def scatter_nd(c: Custom, op: typed.ScatterNd) -> None:
    indices = c.inputs[1]
    depth = op.indices.type.shape[-1]

    def target(u):
        return [c.kb.cast(c.kb.load(indices, *u, k), INDEX) for k in range(depth)]

    _scatter(c, op, depth, target)


# -- random numbers --------------------------------------------------------------------------------


def _philox(kb: KernelBuilder, counter: list[Value], key: list[Value]) -> list[Value]:
    """Emit ten rounds of Philox4x32 (Salmon et al., SC 2011) and return four u32."""
    u32 = dtype("ui32")

    def product(constant: int, x: Value):
        wide_product = kb.mul(kb.number(constant, "ui64"), kb.cast(x, "ui64"))
        return kb.cast(kb.shr(wide_product, kb.number(32, "ui64")), u32), kb.cast(wide_product, u32)

    c, k = list(counter), list(key)
    for _ in range(10):
        h0, l0 = product(0xD2511F53, c[0])
        h1, l1 = product(0xCD9E8D57, c[2])
        c = [kb.xor(kb.xor(h1, c[1]), k[0]), l1, kb.xor(kb.xor(h0, c[3]), k[1]), l0]
        k = [kb.add(k[0], kb.number(0x9E3779B9, u32)), kb.add(k[1], kb.number(0xBB67AE85, u32))]
    return c


def random(c: Custom, op: typed.Random) -> None:
    """Emit a work item per counter, with up to four elements.

    A shard's elements follow those of the previous shards and may begin and end inside a counter.
    """
    kb, (y,) = c.kb, c.outputs
    u32, f32 = dtype("ui32"), dtype("f32")
    shape = op.result.type.shape
    total = c.argument("total", prod(shape))
    sharded = len(c.inputs) > 2
    blocks = c.argument("blocks", -(-prod(shape) // 4) + sharded)
    seed = kb.cast(kb.load(c.inputs[0]), "ui64")
    key = [kb.cast(seed, u32), kb.cast(kb.shr(seed, kb.number(32, "ui64")), u32)]
    zero = kb.number(0, u32)
    iteration, trip = (
        kb.cast(kb.cast(kb.load(c.inputs[i]), "i64"), u32) if len(c.inputs) > i else zero
        for i in (1, 3)
    )
    first = kb.mul(kb.cast(kb.load(c.inputs[2]), INDEX), total) if sharded else None
    with kb.loop("block", 0, blocks, loop="parallel") as block:
        count = block if first is None else kb.add(kb.floordiv(first, 4), block)
        counter = [
            kb.cast(kb.cast(count, "i64"), u32),
            kb.number(op.stream, u32),
            iteration,
            trip,
        ]
        words = _philox(kb, counter, key)
        for number, value in enumerate(_values_from_words(kb, op.kind, words, f32)):
            place = kb.add(kb.mul(count, 4), number)
            if first is not None:
                place = kb.sub(place, first)
            inside = kb.lt(place, total)
            if first is not None:
                inside = kb.and_(inside, kb.ge(place, kb.index(0)))
            with kb.branch(inside):
                kb.store(kb.cast(value, y.type.dtype), y, *_unravel(c, y, place))


def _values_from_words(kb: KernelBuilder, kind: str, words: list[Value], f32) -> list[Value]:
    if kind.endswith("bits"):
        return words
    scale = kb.number(2.0**-24, f32)
    eight, one = kb.number(8, "ui32"), kb.number(1, "ui32")

    def unit(u):
        return kb.mul(kb.cast(kb.shr(u, eight), f32), scale)

    if kind.endswith("uniform"):
        return [unit(u) for u in words]
    made = []
    for u, v in (words[:2], words[2:]):
        u1 = kb.mul(kb.cast(kb.add(kb.shr(u, eight), one), f32), scale)
        angle = kb.mul(kb.number(6.2831853071795864, f32), unit(v))
        r = kb.sqrt(kb.mul(kb.number(-2.0, f32), kb.log(u1)))
        made += [kb.mul(r, kb.cos(angle)), kb.mul(r, kb.sin(angle))]
    return made


def _unravel(c: Custom, y: Value, place: Value) -> list[Value]:
    kb, index = c.kb, []
    for number, extent in reversed(list(enumerate(c.extents[y]))):
        index.append(kb.mod(place, extent) if number else place)
        place = kb.floordiv(place, extent)
    return index[::-1]


# -- collectives -----------------------------------------------------------------------------------


def all_reduce(c: Custom, op: typed.AllReduce) -> None:
    """Emit the reduction for a single worker, as if every shard held the same values.

    It uses the tree over the shards.
    """
    kb = c.kb
    (x,), (y,) = c.inputs, c.outputs
    with c.rows(x, None) as at:
        where = at()
        total = pairwise([c.widen(kb.load(x, *where))] * op.shards, kb.add)
        kb.store(c.narrow(total, y.type.dtype), y, *where)
