"""Kernel IR to the Python source of a CUDA kernel, one function of buffers' addresses and sizes.

A ``block`` nest is the grid, flattened into one dimension.  Code between it and the ``thread``
loops runs alike in all threads of a block, but for stores, which the first thread does; a
``thread`` loop's iteration is this thread's, where it has one.  What one of these leaves in the
block's memory (shared, or scratch: a part of global memory for each block) the next may read: a
barrier stands between.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from core_compiler.codegen.expressions import dense, index_text, total, wrap
from core_compiler.codegen.source import SYMBOL, Source, Writer, closure
from core_compiler.errors import InternalError
from core_compiler.ir import Block, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernels import scalars
from core_compiler.kernels.abi import (
    ALIGN,
    buffer_arguments,
    parallel_nest,
    scratch_allocations,
)
from core_compiler.kernels.ops import access, element
from core_compiler.kernels.transforms.edit import constant_of, producers

#: Threads of a block that has no thread loop.
ALONE = 1


def generate(function: Function) -> Source:
    """The source of a kernel that was scheduled for a GPU; InternalError where its thread loops
    have no constant number of threads."""
    part = _Writer(function)
    part.write()
    text = [
        f'"""Kernel {function.name}: generated, compiled by numba-cuda."""',
        f"NAME = {function.name!r}",
        f"BUFFERS = {part.buffers}  # told apart by number: no two overlap",
        f"ARGUMENTS = {len(function.arguments) + bool(scratch_allocations(function))}",
        f"THREADS = {block_threads(function)}  # of a block",
        "", "", *part.lines,
    ]  # fmt: skip
    start = len(text) - len(part.lines)
    rows = [(start + n, function.name, number, kind) for n, number, kind in part.map]
    return Source(function.name, "\n".join(text).rstrip() + "\n", tuple(rows))


def block_threads(function: Function) -> int:
    """How many threads a block of the kernel needs."""
    made = producers(function)
    most = ALONE
    for op in function.body.walk():
        if op.get("loop") == "thread":
            inside = [o for o in op.walk() if o.get("loop") == "thread"]
            most = max(most, prod(_most_threads(o, made) for o in inside))
    return most


def _most_threads(loop: Op, made) -> int:
    """The largest number of iterations of a thread loop, which a constant bounds."""
    upper = loop.operands[1]
    known = constant_of(upper, made)
    op = made.get(upper)
    if known is None and op is not None and op.kind == "kernel.min":
        found = [constant_of(v, made) for v in op.operands]
        known = min((n for n in found if n is not None), default=None)
    if known is None or known < 1:
        raise InternalError(f"the thread loop {loop['name']} has no constant bound")
    return known


def _touched(ops: Iterable[Op]) -> set[Value]:
    """The block's own memory that ``ops`` read or write."""
    moves = (o for op in ops for o in op.walk() if o.kind in ("kernel.load", "kernel.store"))
    return {b for b in (access(o)[0] for o in moves) if b.type.space in ("shared", "scratch")}


class _Writer(Writer):
    infix = False  # NVVM would contract a product and a sum

    def __init__(self, function: Function):
        super().__init__(function)
        self.used |= {"item", "block", "thread", "barrier", "quotient", "remainder"}
        self.made = producers(function)
        self.threads_apart = False  # inside a thread loop
        self.unsynchronised: set[Value] = set()

    def write(self) -> None:
        function = self.function
        arguments = [self.name(v) for v in function.arguments]
        if scratch_allocations(function):
            self.used.add("scratch")
            arguments.append("scratch")
        self.lines.append(f"def {SYMBOL}({', '.join(arguments)}):")
        for value in buffer_arguments(function):
            code, number = scalars.code_name(value.type.dtype), self.buffer_number()
            self.strides[value] = [str(s) for s in value.type.strides]
            shape = ", ".join(map(str, value.type.shape))
            name = self.name(value)
            self.line(f"{name} = buffer_{code}_{number}({name})  # [{shape}]")
            if value.type.offset != 0:
                self.line(f"{name} = offset_{code}({name}, {value.type.offset})")
        nest = parallel_nest(function)
        if not nest:
            self._allocations()
            self.block(function.body)
        else:
            self._grid(nest)
        if self.lines[-1].endswith(":"):
            self.line("return")

    def _grid(self, nest: list[Op]) -> None:
        """This block's indices: the grid's number taken apart, last loop fastest."""
        levels = [self.function.body, *(loop.regions[0] for loop in nest[:-1])]
        self.block(levels[0], only_pure=True)
        needed = {v for loop in nest[1:] for v in loop.operands[:3]}
        for level in levels[1:]:
            wanted = closure(level, needed)
            for op in level.ops:
                if op in wanted:
                    self.op(op)
        self._allocations()
        rest = "block()"
        for depth in range(len(nest) - 1, -1, -1):
            loop = nest[depth]
            name = self.fresh(loop["name"])
            lower, _, step = map(self.name, loop.operands[:3])
            place = rest
            if depth:
                count = self.fresh(f"{loop['name']}_count")
                self.line(f"{count} = {self.trip_count(loop)}")
                place, rest = f"remainder({rest}, {count})", f"quotient({rest}, {count})"
            if step != "1":
                place = f"{wrap(place)} * {wrap(step)}"
            self.line(f"{name} = {total(lower, place)}", loop)
            self.names[loop.regions[0].arguments[0]] = name
        for level in levels[1:]:
            self.block(level, only_pure=True)
        self.block(nest[-1].regions[0])

    def _allocations(self) -> None:
        for op in self.function.body.walk():
            if op.kind != "kernel.alloc":
                continue
            value, space = op.result, op.result.type.space
            if space == "scratch":
                continue
            code, number = scalars.code_name(value.type.dtype), self.buffer_number()
            form = {"register": "registers", "shared": "shared"}[space]
            self.line(f"{self.name(value)} = {form}_{code}_{value.type.elements}_{number}()", op)
            self.strides[value] = dense([str(d) for d in value.type.shape])
        self._scratch()

    def _scratch(self) -> None:
        """Scratch buffers one after another, in this block's part of global memory."""
        found = scratch_allocations(self.function)
        threads = [o for o in self.function.body.walk() if o.get("loop") == "thread"]
        if any(op in set(loop.walk()) for loop in threads for op in found):
            raise InternalError(f"{self.function.name}: each thread would need scratch memory")
        places: list[tuple[Op, str]] = []
        offset = "0"
        for op in found:
            value = op.result
            sizes = iter(op.operands)
            dims = [self.name(next(sizes)) if isinstance(d, str) else str(d)
                    for d in value.type.shape]  # fmt: skip
            self.strides[value] = dense(dims)
            places.append((op, offset))
            amount = " * ".join([*map(wrap, dims), str(value.type.dtype.bytes)])
            end = self.fresh(f"{self.name(value)}_end")
            self.line(f"{end} = {total(offset, f'({amount} + {ALIGN - 1}) // {ALIGN} * {ALIGN}')}")
            offset = end
        for op, start in places:
            code, number = scalars.code_name(op.result.type.dtype), self.buffer_number()
            where = total(f"scratch + block() * {offset}", start)
            self.line(f"{self.name(op.result)} = buffer_{code}_{number}({where})", op)

    # -- threads -----------------------------------------------------------------------------------

    def _for(self, op: Op) -> None:
        if op.get("loop") != "thread":
            self._uniform_loop(op)
            return
        self._synchronise(op)
        self.threads_apart = True
        nest = [op]
        while len(inner := nest[-1].regions[0].ops) and inner[-1].get("loop") == "thread":
            nest.append(inner[-1])
        counts = [_most_threads(loop, self.made) for loop in nest]
        rest = "thread()"
        names = []
        for depth in range(len(nest) - 1, -1, -1):
            place = rest
            if depth:
                count = counts[depth]
                place, rest = f"remainder({rest}, {count})", f"quotient({rest}, {count})"
            names.append((self.fresh(nest[depth]["name"]), place))
        for depth, (loop, (name, place)) in enumerate(zip(nest, reversed(names), strict=True)):
            if depth:  # what stands between this loop and the one around it
                self.block(Block(ops=nest[depth - 1].regions[0].ops[:-1]))
            self.line(f"{name} = {place}", loop)
            self.names[loop.regions[0].arguments[0]] = name
            self.line(f"if {name} < {wrap(self.name(loop.operands[1]))}:", loop)
            self.indent += 1
        before = len(self.lines)
        self.block(nest[-1].regions[0])
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= len(nest)
        self.comment = ""
        self.threads_apart = False

    def _uniform_loop(self, op: Op) -> None:
        """A loop that all threads of a block go through together, or one that a thread does."""
        touched = set() if self.threads_apart else _touched((op,))
        if touched:  # what its end leaves its begin may read: both sides meet a barrier
            self._meet(touched)
        super()._for(op)

    def _hand_on(self, body: Block, carried: list[str]) -> None:
        super()._hand_on(body, carried)
        if not self.threads_apart and self.unsynchronised & _touched(body.ops):
            self.line("barrier()")
            self.unsynchronised = set()

    def _synchronise(self, op: Op) -> None:
        """A barrier where a thread may read or overwrite what another has left or still reads."""
        touched = _touched((op,))
        self._meet(touched)
        self.unsynchronised |= touched

    def _meet(self, touched: set[Value]) -> None:
        if touched & self.unsynchronised:
            self.line("barrier()")
            self.unsynchronised = set()

    def _load(self, op: Op) -> str:
        if not self.threads_apart:
            self._synchronise(op)
        return super()._load(op)

    def _store(self, op: Op) -> None:
        if self.threads_apart:
            super()._store(op)
            return
        self._synchronise(op)
        self.line("if thread() == 0:", op)
        self.indent += 1
        super()._store(op)
        self.indent -= 1

    # -- memory and values -------------------------------------------------------------------------

    def element_text(self, buffer: Value, place: str) -> str:
        return f"load_{scalars.code_name(buffer.type.dtype)}({self.name(buffer)}, {place})"

    def assignment(self, buffer: Value, place: str, value: str) -> str:
        code = scalars.code_name(buffer.type.dtype)
        return f"store_{code}({self.name(buffer)}, {place}, {value})"

    def scalar(self, op: Op) -> str:
        """Divisions of indices in 32 bits where both are no less than 0, as loops count."""
        name = op.kind.removeprefix("kernel.")
        if element(op.operands[-1].type) is INDEX and name in ("floordiv", "mod"):
            if all(self._counts(v) for v in op.operands):
                a, b = (self.name(v) for v in op.operands)
                return f"{'quotient' if name == 'floordiv' else 'remainder'}({a}, {b})"
            return index_text(name, [self.name(v) for v in op.operands])
        return super().scalar(op)

    def _counts(self, value: Value, depth: int = 0) -> bool:
        """Whether an index is known to be no less than 0: made of loops' indices and sizes."""
        op = self.made.get(value)
        if op is None:
            return True  # a loop's index from 0 on, or a size
        if op.kind == "kernel.constant":
            return op["value"] >= 0
        if op.kind in ("kernel.add", "kernel.mul", "kernel.floordiv", "kernel.mod", "kernel.min"):
            return depth < 20 and all(self._counts(v, depth + 1) for v in op.operands)
        return False
