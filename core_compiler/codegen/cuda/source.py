"""Kernel IR to the Python source of a CUDA kernel, one function of buffers' addresses and sizes.

A ``block`` nest is the grid, flattened into one dimension.  Code between it and the ``thread``
loops runs alike in all threads of a block; a ``thread`` loop's iteration is this thread's, where it
has one.  What one thread loop leaves in shared memory the next may read: a barrier stands between.
"""

from __future__ import annotations

from math import prod

from core_compiler.codegen.expressions import dense, index_text, total, wrap
from core_compiler.codegen.source import SYMBOL, Source, Writer, closure
from core_compiler.errors import InternalError
from core_compiler.ir import Block, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernels import scalars
from core_compiler.kernels.abi import buffer_arguments, parallel_nest
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
        f"ARGUMENTS = {len(function.arguments)}",
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


class _Writer(Writer):
    infix = False  # NVVM would contract a product and a sum

    def __init__(self, function: Function):
        super().__init__(function)
        self.used |= {"item", "block", "thread", "barrier", "quotient", "remainder"}
        self.made = producers(function)
        self.unsynchronised: set[Value] = set()

    def write(self) -> None:
        function = self.function
        arguments = [self.name(v) for v in function.arguments]
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
                self.line(f"{count} = {self._trip_count(loop)}")
                place, rest = f"remainder({rest}, {count})", f"quotient({rest}, {count})"
            if step != "1":
                place = f"{wrap(place)} * {wrap(step)}"
            self.line(f"{name} = {total(lower, place)}", loop)
            self.names[loop.regions[0].arguments[0]] = name
        for level in levels[1:]:
            self.block(level, only_pure=True)
        self.block(nest[-1].regions[0])

    def _trip_count(self, loop: Op) -> str:
        lower, upper, step = map(self.name, loop.operands[:3])
        span = upper if lower == "0" else f"{upper} - {wrap(lower)}"
        return span if step == "1" else f"({wrap(span)} + {wrap(step)} - 1) // {wrap(step)}"

    def _allocations(self) -> None:
        for op in self.function.body.walk():
            if op.kind != "kernel.alloc":
                continue
            value, space = op.result, op.result.type.space
            if space == "scratch":
                raise InternalError(f"{self.function.name}: scratch memory in a CUDA kernel")
            code, number = scalars.code_name(value.type.dtype), self.buffer_number()
            form = {"register": "registers", "shared": "shared"}[space]
            self.line(f"{self.name(value)} = {form}_{code}_{value.type.elements}_{number}()", op)
            self.strides[value] = dense([str(d) for d in value.type.shape])

    # -- threads -----------------------------------------------------------------------------------

    def _for(self, op: Op) -> None:
        if op.get("loop") != "thread":
            super()._for(op)
            return
        self._synchronise(op)
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

    def _synchronise(self, loop: Op) -> None:
        """A barrier where a thread may read or overwrite what another has left or still reads."""
        touched = {
            access(o)[0] for o in loop.walk() if o.kind in ("kernel.load", "kernel.store")
        }  # fmt: skip
        shared = {v for v in touched if v.type.space == "shared"}
        if shared & self.unsynchronised:
            self.line("barrier()")
            self.unsynchronised = set()
        self.unsynchronised |= shared

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
