"""The loops of a chain of kernels: its parts, one after another, for a block of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments, parallel_nest
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.product import Product
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.chain_parts import Chain, Factors, Name
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    expression,
    need,
    producers,
    without_dead,
)


@dataclass
class Joiner:
    """The parts' loops inside two loops of work items, which are a batch and some of its rows."""

    name: str
    chain: Chain
    kb: KernelBuilder = field(init=False)
    #: The values of the index arguments of parts.
    values: dict[Name, Value] = field(init=False, default_factory=dict)
    buffers: dict[tuple[int, int], Value] = field(init=False, default_factory=dict)

    def __post_init__(self):
        self.kb = KernelBuilder(self.name)

    def declare(self) -> None:
        """Declare the arguments, and compute the sizes that are products of others."""
        chain, kb = self.chain, self.kb

        def named(number: int, entry: int | str) -> int | str:
            if isinstance(entry, int):
                return entry
            factors = chain.same.get((number, entry), ())
            part, argument = factors[0] if len(factors) == 1 else (number, entry)
            return f"{argument}_{part}"

        for number, place in chain.arguments:
            value = buffer_arguments(chain.parts[number].plain)[place]
            kind = value.type
            shape, strides, (offset,) = (
                tuple(named(number, e) for e in entries)
                for entries in (kind.shape, kind.strides, (kind.offset,))
            )
            self.buffers[number, place] = kb.buffer(
                f"{value.name}_{number}", shape, kind.dtype, strides, offset, kind.space
            )
        for number, argument in chain.sizes:
            self.values[number, argument] = kb.size(f"{argument}_{number}")
        for name, factors in chain.same.items():
            self.values[name] = self.product(factors)

    def product(self, factors: Factors) -> Value:
        total = self.kb.index(1)
        for name in factors:
            total = self.kb.mul(total, self.values[name])
        return total

    def environment(self, number: int, function: Function) -> dict[Value, Value]:
        """Return the values of a part's arguments but those between the parts."""
        part = self.chain.parts[number]
        known = {
            value: self.buffers[number, place]
            for place, value in enumerate(buffer_arguments(function))
            if place not in part.between
        }
        own = index_arguments(function)[: len(index_arguments(part.plain))]
        return known | {v: self.values[number, str(v.name)] for v in own}

    def memories(self, rows: int | Value) -> list[Value]:
        """Allocate the values between the parts, of a work item's ``rows`` rows."""
        made = []
        for number, part in enumerate(self.chain.parts[:-1]):
            assert part.writes is not None
            kind = buffer_arguments(part.plain)[part.writes].type
            width = self.values[number, str(kind.shape[-1])]
            shape, called = (f"rows_{number}", f"width_{number}"), f"between_{number}"
            made.append(self.kb.alloc(shape, kind.dtype, rows, width, name=called))
        return made

    @contextmanager
    def items(self, name: str, blocks: Value, block_rows: Value) -> Iterator[Value]:
        """Open the loops of work items, and yield the block's number."""
        kb, rows = self.kb, self.values[self.chain.rows[-1]]
        with (
            kb.loop("batch", 0, self.product(self.chain.rows[:-1]), loop="parallel") as b,
            kb.loop(name, 0, blocks, loop="parallel") as block,
        ):
            self.start = kb.mul(block, block_rows)
            self.count = kb.min(block_rows, kb.sub(rows, self.start))
            self.first = kb.add(kb.mul(b, rows), self.start)
            self.merged, rest = b, b
            batch: list[Value] = []
            for axis in reversed(self.chain.rows[1:-1]):
                batch.insert(0, kb.mod(rest, self.values[axis]))
                rest = kb.floordiv(rest, self.values[axis])
            self.batch = [rest, *batch] if self.chain.rows[:-1] else []
            yield block

    def indices(self, batch: Sequence[str]) -> dict[str, Value]:
        """Return the work item's index along each of a part's loops over batches."""
        if len(batch) == 1:
            return {batch[0]: self.merged}
        need(not batch or len(batch) == len(self.batch), "the parts have different batches")
        return dict(zip(batch, self.batch, strict=False))

    def redirect_all(
        self, number: int, copier: Copier, function: Function, memories: Sequence[Value]
    ) -> None:
        """Let ``copier`` access ``memories`` for all of a part's buffers between the parts."""
        part = self.chain.parts[number]
        for place in part.between:
            memory = memories[number if place == part.writes else number - 1]
            buffer = buffer_arguments(function)[place]
            self.redirect(copier, number, function, place, memory)
            users = {o for o in function.body.walk() if buffer in o.operands}
            need(users <= copier.hooks.keys(), f"{buffer.name} is used in another way")

    def rows(self, number: int, copier: Copier, function: Function) -> None:
        """Emit a program of rows, for those of the work item."""
        nest = parallel_nest(function)
        for place in self.chain.parts[number].between:
            buffer = buffer_arguments(function)[place]
            need(
                buffer.type.rank == len(nest) + 1 and _follows(function, buffer, nest),
                "the program does not run row by row",
            )
        for op in nest:
            need(_steps_from_zero(op, function), f"{For.of(op).name} is not a loop over rows")
        *batch, last = (For.of(op).name for op in nest)
        start = self.start if batch else self.first
        self.run_rows(copier, nest, self.indices(batch), last, start)

    def run_rows(self, copier, nest, at: dict[str, Value], loop: str, start: Value) -> None:
        _emit(copier, nest, at, {loop: (start, self.kb.add(start, self.count))})

    def redirect(
        self, copier: Copier, number: int, function: Function, place: int, memory: Value
    ) -> None:
        """Let ``copier`` access ``memory``, which has the work item's rows, for a buffer."""
        buffer = buffer_arguments(function)[place]
        rank = buffer.type.rank
        plain = buffer_arguments(self.chain.parts[number].plain)[place].type
        dims = [self.values[number, str(d)] for d in plain.shape[:-1]]

        def hook(copier: Copier, op: Op) -> None:
            kb, at = copier.kb, op.operands.index(buffer)
            *lead, last = (copier[v] for v in access(op)[1])
            row = lead[0]
            for index, extent in zip(lead[1:], dims[1:], strict=True):
                row = kb.add(kb.mul(row, extent), index)
            attributes = dict(op.attributes)
            axis = attributes.get("axis")
            if axis is not None:
                need(axis % rank == rank - 1, "a vector runs along rows of the value")
                attributes["axis"] = 1
            before, rest = op.operands[:at], op.operands[at + 1 + rank :]
            operands = [*(copier[v] for v in before), memory, self.local(row), last]
            operands += [copier[v] for v in rest]
            types = [v.type for v in op.results]
            kb.origin = op.origin
            made = kb._append(op.kind, operands, attributes, types)
            copier.env.update(zip(op.results, made, strict=True))

        for op in function.body.walk():
            if buffer in op.operands and op.kind in ("kernel.load", "kernel.store"):
                copier.hooks[op] = hook

    def local(self, row: Value) -> Value:
        """Return the place of a row among those of the work item."""
        return self.kb.sub(row, self.first)

    def finished(self) -> Function:
        made = self.kb.function(family="chain")
        return made.with_(body=without_dead(made.body))


class Plain(Joiner):
    """The parts' plain loops; a work item is a row."""

    def function(self) -> Function:
        self.declare()
        memories = self.memories(1)
        with self.items("row", self.values[self.chain.rows[-1]], self.kb.index(1)) as row:
            for number, part in enumerate(self.chain.parts):
                copier = Copier(self.kb)
                copier.env.update(self.environment(number, part.plain))
                self.redirect_all(number, copier, part.plain, memories)
                nest = parallel_nest(part.plain)
                copier.ops(op for op in part.plain.body.ops if op is not nest[0])
                product = Product.of(part.plain)
                if product is None:
                    self.rows(number, copier, part.plain)
                    continue
                need(len(product.rows) == 1, "the product has several axes of rows")
                at = {**self.indices(product.batch), product.rows[0]: row}
                # Later parts read what the first one writes: its columns are no parallel loop.
                _emit(copier, nest, at, loop="parallel" if part.writes is None else "sequential")
        return self.finished()

    @override
    def local(self, row: Value) -> Value:
        return self.kb.index(0)

    @override
    def run_rows(self, copier, nest, at: dict[str, Value], loop: str, start: Value) -> None:
        _emit(copier, nest, {**at, loop: start})


@dataclass
class Joined(Joiner):
    """The scheduled parts, a block of rows at a time; ``height``: rows of a register tile."""

    height: int = 0

    def function(self) -> Function:
        chain, kb = self.chain, self.kb
        self.declare()
        tiles = kb.size("mc")
        columns = {n: kb.size(f"nc_{n}") for n in (0, len(chain.parts) - 1)}
        block_rows = kb.mul(tiles, self.height)
        memories = self.memories(block_rows)
        copiers = []
        for number, part in enumerate(chain.parts):
            function = part.scheduled.function
            copier = Copier(kb)
            copier.env.update(self.environment(number, function))
            if number in columns:
                mc, nc = index_arguments(function)[-2:]
                need((mc.name, nc.name) == ("mc", "nc"), "the product has no blocks of rows")
                copier.env.update({mc: tiles, nc: columns[number]})
            nest = parallel_nest(function)
            need(bool(nest), f"{function.name} has no parallel loop")
            copier.ops(op for op in function.body.ops if op is not nest[0])
            copiers.append(copier)
        blocks = kb.ceildiv(kb.ceildiv(self.values[chain.rows[-1]], self.height), tiles)
        with self.items("block", blocks, block_rows) as block:
            for number, copier in enumerate(copiers):
                function = chain.parts[number].scheduled.function
                self.views(number, copier, function, memories)
                self.redirect_all(number, copier, function, memories)
                if number not in columns:
                    self.rows(number, copier, function)
                    continue
                nest = parallel_nest(function)
                *batch, rows, last = (For.of(loop).name for loop in nest)
                need([rows, last] == ["ib", "jb"], "the product has no blocks of rows and columns")
                _emit(copier, nest, {**self.indices(batch), rows: block})
        return self.finished()

    def views(self, number: int, copier: Copier, function: Function, memories) -> None:
        """Let the copies of a product's rows read ``memories``, whose first row is the block's."""
        views = [o for o in function.body.walk() if o.kind == "kernel.view"]
        copier.hooks.update(dict.fromkeys(views, _view))
        reads = self.chain.parts[number].reads
        if reads is not None:
            buffer = buffer_arguments(function)[reads]
            self._redirect_copies(copier, function, buffer, memories[number - 1])

    def _redirect_copies(
        self, copier: Copier, function: Function, buffer: Value, memory: Value
    ) -> None:
        """Let the kernels that copy rows of a product's operand copy them from ``memory``.

        Its first row is the block's, so that the copy is asked for the first block of as many rows.
        """
        nest, defs = parallel_nest(function), producers(function)
        views = [
            o for o in function.body.walk() if o.kind == "kernel.view" and buffer in o.operands
        ]
        sources = {buffer, *(view.result for view in views)}
        copies = [o for o in function.body.walk() if not sources.isdisjoint(o.operands)]
        copies = [o for o in copies if o.kind == "kernel.invoke"]
        if not copies:
            return
        need(For.of(nest[-2]).name == "ib", "the copied rows are in no block")
        block, rank = For.of(nest[-2]).index, buffer.type.rank
        batch = [For.of(loop).index for loop in nest[:-2]]
        for view in views:
            starts = view.operands[1:]
            need(
                tuple(view["dropped"]) == tuple(range(rank - 2))
                and list(starts[: rank - 2]) == batch
                and all(constant_of(v, defs) == 0 for v in starts[rank - 2 :]),
                f"the copies of {buffer.name} are of a part of its rows",
            )
            users = {o for o in function.body.walk() if view.result in o.operands}
            need(users <= set(copies), "rows are not copied by a kernel")
        plain = {v.name: v for v in index_arguments(function)}
        extent = plain[str(buffer.type.shape[-2])]
        moving = {block, extent}
        for op in function.body.walk():
            if not moving.isdisjoint(op.operands):
                moving.update(op.results)
        stop = {v for v in defs if v not in moving} | {block, extent}

        def copy(copier: Copier, op: Op) -> None:
            kb, kept = copier.kb, dict(copier.env)
            copier.env.update({block: kb.index(0), extent: self.count})
            copier.env.update(dict.fromkeys(sources, memory))
            for value in op.operands:
                if value.type is INDEX:
                    copier.ops(expression(value, defs, stop))
            operands = [copier[v] for v in op.operands]
            copier.env.clear()
            copier.env.update(kept)
            kb.origin = op.origin
            kb._append(op.kind, operands, op.attributes)

        copier.hooks.update(dict.fromkeys(views, lambda copier, op: None))
        copier.hooks.update(dict.fromkeys(copies, copy))


def _view(copier: Copier, op: Op) -> None:
    """Copy a view, whose type follows from that of its buffer here."""
    operands = [copier[v] for v in op.operands]
    (made,) = copier.kb._append(op.kind, operands, op.attributes, name=op.result.name)
    copier.env[op.result] = made


def _emit(
    copier: Copier,
    nest: Sequence[Op],
    at: Mapping[str, Value],
    inside: Mapping[str, tuple[Value, Value]] | None = None,
    loop: str = "sequential",
) -> None:
    """Emit a perfect nest; the index of some loops is given, others run ``inside`` bounds."""
    op, *deeper = nest
    name, bounds = For.of(op).name, (inside or {}).get(For.of(op).name, (None, None))

    def body() -> None:
        for inner in op.regions[0].ops:
            if deeper and inner is deeper[0]:
                _emit(copier, deeper, at, inside, loop)
            else:
                copier.ops([inner])

    if name in at:
        copier.env[For.of(op).index] = at[name]
        body()
    else:
        copier.loop(op, loop=loop, lower=bounds[0], upper=bounds[1], body=body)


def _follows(function: Function, buffer: Value, nest: Sequence[Op]) -> bool:
    """Return whether all accesses of a buffer are at the row that the nest is at."""
    rows = [For.of(loop).index for loop in nest]
    users = [op for op in function.body.walk() if buffer in op.operands]
    return all(
        op.kind in ("kernel.load", "kernel.store") and list(access(op)[1][:-1]) == rows
        for op in users
    )


def _steps_from_zero(loop: Op, function: Function) -> bool:
    defs = producers(function)
    lower, _, step = For.of(loop).bounds
    return constant_of(lower, defs) == 0 and constant_of(step, defs) == 1
