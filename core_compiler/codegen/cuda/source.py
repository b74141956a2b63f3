"""Kernel IR to the Python source of a CUDA kernel, a function of buffer addresses and sizes.

A ``block`` nest is the grid, flattened into one dimension. Code between it and the ``thread`` loops
runs identically in all threads of a block, except for stores, which only the first thread does;
each thread runs its own iteration of a ``thread`` loop, if it has one. A barrier separates writes
to the block's memory (shared, or scratch: a part of global memory for each block) from later reads.
Before it, each thread waits for its asynchronous copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, prod

from typing_extensions import override

from core_compiler.codegen.cuda.threads import (
    block_threads,
    most_threads,
    thread_axes,
    thread_nest,
)
from core_compiler.codegen.expressions import dense, index_text, total, vector_code, wrap
from core_compiler.codegen.source import SYMBOL, Source, Writer
from core_compiler.ir import Block, Function, Op, Value, VectorType
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.abi import buffer_arguments, parallel_nest, scratch_allocations
from core_compiler.kernel_ir.ops import access, count_operand, element, lane_axis
from core_compiler.kernel_ir.views import Constant, For, loop_kind
from core_compiler.scheduling.transforms.edit import producers
from core_compiler.support.errors import InternalError


def generate(function: Function) -> Source:
    """Return the source of a kernel that was scheduled for a GPU.

    Raise InternalError if its thread loops have no constant number of threads.
    """
    part = _Writer(function)
    part.write()
    text = [
        f'"""Kernel {function.name}: generated, compiled by numba-cuda."""',
        f"NAME = {function.name!r}",
        f"BUFFERS = {part.buffers}  # told apart by number: no two overlap",
        f"ARGUMENTS = {len(function.arguments) + bool(scratch_allocations(function))}",
        f"THREADS = {part.threads}  # of a block",
        "",
        "",
        *part.lines,
    ]
    start = len(text) - len(part.lines)
    rows = [(start + n, function.name, number, kind) for n, number, kind in part.map]
    return Source(function.name, "\n".join(text).rstrip() + "\n", tuple(rows))


#: Memory of a block, and the first index of an access to it (None: any).
Part = tuple[Value, Value | None]


def _accesses(ops: Iterable[Op]) -> tuple[set[Part], set[Part]]:
    """Return the block's own memory that ``ops`` read, and that they write."""
    found: tuple[set[Part], set[Part]] = set(), set()
    for op in (o for outer in ops for o in outer.walk()):
        if op.kind in ("kernel.load", "kernel.store"):
            memory, where = access(op)
            if memory.type.space in ("shared", "scratch"):
                found[op.kind == "kernel.store"].add((memory, where[0] if where else None))
    return found


def _whole(parts: Iterable[Part]) -> set[Part]:
    """Return the memories of parts: what holds of an index ends with its iteration."""
    return {(memory, None) for memory, _ in parts}


def _is_asynchronous(op: Op) -> bool:
    return op.kind == "kernel.store" and bool(op.get("asynchronous"))


class _Writer(Writer):
    infix = False  # NVVM would contract a product and a sum

    def __init__(self, function: Function):
        super().__init__(function)
        self.used |= {"item", "block", "thread", "barrier", "quotient", "remainder"}
        self.defs = producers(function)
        self.threads, self.thread_axes = block_threads(function), thread_axes(function)
        self.in_thread_loop = False  # inside a thread loop
        # The block's memory that was read and written since the last barrier.
        self.read: set[Part] = set()
        self.written: set[Part] = set()
        self.sides: list[tuple[set[Part], set[Part], bool]] = []
        self.copying = False  # asynchronous copies run since the last barrier
        copies = [op.operands[0] for op in function.body.walk() if _is_asynchronous(op)]
        #: Values that only asynchronous copies read.
        self.copied = {v for each in copies for v in self._copied_values(each)}
        self.loads: dict[Value, Value] = {}  # loads from the block's memory -> their buffer
        self.users = {value: op for op in function.body.walk() for value in op.operands}

    def _copied_values(self, value: Value) -> list[Value]:
        """Return the element that is copied, and its selection from it and 0 if there is one."""
        op = self.defs[value]
        return [value, op.operands[1]] if op.kind == "kernel.select" else [value]

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
        """Write this block's indices: the grid's number decomposed, last loop fastest."""
        levels = [self.function.body, *(loop.regions[0] for loop in nest[:-1])]
        self.prologue(levels, nest)
        self._allocations()
        rest = "block()"
        for depth in range(len(nest) - 1, -1, -1):
            loop = nest[depth]
            name = self.fresh(For.of(loop).name)
            lower, _, step = map(self.name, For.of(loop).bounds)
            index = rest
            if depth:
                count = self.fresh(f"{For.of(loop).name}_count")
                self.line(f"{count} = {self.trip_count(loop)}")
                index, rest = f"remainder({rest}, {count})", f"quotient({rest}, {count})"
            if step != "1":
                index = f"{wrap(index)} * {wrap(step)}"
            self.line(f"{name} = {total(lower, index)}", loop)
            self.names[For.of(loop).index] = name
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
            thread_rank = self.thread_axes.get(value, 0)
            shape = value.type.shape[thread_rank:]
            self.line(f"{self.name(value)} = {form}_{code}_{prod(shape)}_{number}()", op)
            self.strides[value] = ["0"] * thread_rank + dense([str(d) for d in shape])
        self._scratch()

    def _scratch(self) -> None:
        """Write scratch buffers one after another, in this block's part of global memory."""
        found = scratch_allocations(self.function)
        threads = [o for o in self.function.body.walk() if loop_kind(o) == "thread"]
        if any(op in set(loop.walk()) for loop in threads for op in found):
            raise InternalError(f"{self.function.name}: each thread would need scratch memory")
        offsets: list[tuple[Op, str]] = []
        offset = "0"
        for op in found:
            offsets.append((op, offset))
            offset = self.scratch_end(op, offset)
        for op, start in offsets:
            code, number = scalars.code_name(op.result.type.dtype), self.buffer_number()
            where = total(f"scratch + block() * {offset}", start)
            self.line(f"{self.name(op.result)} = buffer_{code}_{number}({where})", op)

    # -- threads -----------------------------------------------------------------------------------

    @override
    def _for(self, op: Op) -> None:
        if loop_kind(op) != "thread":
            self._uniform_loop(op)
            return
        self._synchronise(op)
        self.in_thread_loop, indent = True, self.indent
        nest = thread_nest(op)
        counts = [most_threads(loop, self.defs) for loop in nest]
        rest = "thread()"
        names = []
        for depth in range(len(nest) - 1, -1, -1):
            index = rest
            if depth:
                count = counts[depth]
                index, rest = f"remainder({rest}, {count})", f"quotient({rest}, {count})"
            names.append((self.fresh(For.of(nest[depth]).name), index))
        for depth, (loop, (name, index)) in enumerate(zip(nest, reversed(names), strict=True)):
            if depth:  # code between this loop and the one around it
                self.block(Block(ops=nest[depth - 1].regions[0].ops[:-1]))
            self.line(f"{name} = {index}", loop)
            self.names[For.of(loop).index] = name
            upper = self.name(loop.operands[1])
            everyone = depth > 0 or prod(counts) == self.threads
            if not (everyone and upper == str(counts[depth])):
                self.line(f"if {name} < {wrap(upper)}:", loop)
                self.indent += 1
        before = len(self.lines)
        self.block(nest[-1].regions[0])
        if len(self.lines) == before:
            self.line("pass")
        self.indent = indent
        self.comment = ""
        self.in_thread_loop = False
        if any(map(_is_asynchronous, op.walk())):
            self.line("commit_copies()", op)
            self.copying = True

    def _uniform_loop(self, op: Op) -> None:
        """Write a loop that all threads of a block run together, or that one thread runs.

        It may have no iterations, so earlier reads and writes remain pending after it.
        """
        # The end may write what the next iteration reads: add a barrier to both.
        if not self.in_thread_loop:
            touched, changed = map(_whole, _accesses((op,)))
            self._emit_barrier_if_needed(touched, changed, op)
        read, written, copying = set(self.read), set(self.written), self.copying
        lower, upper = map(self.name, op.operands[:2])
        super()._for(op)
        if self.in_thread_loop:
            return
        self.read, self.written = _whole(self.read), _whole(self.written)
        if not (lower.isdigit() and upper.isdigit() and int(lower) < int(upper)):
            self.read, self.written = self.read | read, self.written | written
            self.copying |= copying

    @override
    def counted(self, op: Op, bounds: tuple[str, str, str], carried: list[str]) -> None:
        """Write a counted while loop: NVVM keeps all state of a range iterator in registers."""
        lower, upper, step = bounds
        (body,) = op.regions
        name = self.names[body.arguments[0]]
        if not upper.isdigit() and (not upper.isidentifier() or upper in self.changing):
            end = self.fresh(f"{name}_end")
            self.line(f"{end} = {upper}", op)
            upper = end
        self.line(f"{name} = {lower}", op)
        self.line(f"while {name} < {upper}:", op)
        self.indent += 1
        self.block(body)
        self._assign_carried(body, carried)
        self.line(f"{name} = {name} + {wrap(step)}", op)
        self.indent -= 1
        self.comment = ""

    @override
    def _assign_carried(self, body: Block, carried: list[str]) -> None:
        super()._assign_carried(body, carried)
        if not self.in_thread_loop:
            # Nothing inside it is carried out of it.
            read, written = map(_whole, _accesses(body.ops))
            self._emit_barrier_if_needed(read, written)

    @override
    def _if(self, op: Op) -> None:
        """Write a branch; reads and writes of both sides are pending after it.

        Only one side has run.
        """
        start, self.sides = (self.read, self.written, self.copying), []
        super()._if(op)
        for read, written, copying in (start, *self.sides):
            self.read, self.written = self.read | read, self.written | written
            self.copying |= copying

    @override
    def branch(self, region: Block) -> None:
        sides, before = self.sides, (self.read, self.written, self.copying)
        super().branch(region)
        self.sides = [*sides, (self.read, self.written, self.copying)]
        self.read, self.written, self.copying = before

    def _synchronise(self, op: Op) -> None:
        """Write a barrier if a thread may access what another has written or still reads."""
        read, written = _accesses((op,))
        self._emit_barrier_if_needed(read, written, op)
        self.read |= read
        self.written |= written

    def _emit_barrier_if_needed(
        self, read: set[Part], written: set[Part], op: Op | None = None
    ) -> None:
        if self._meet(read | written, self.written) or self._meet(written, self.read):
            if self.copying:
                self.line("wait_for_copies()")
                self.copying = False
            self.line("barrier()")
            late = (m for v, m in self.loads.items() if op and self._is_emitted_later(v, op))
            self.read, self.written = {(m, None) for m in late}, set()

    def _meet(self, first: set[Part], second: set[Part]) -> bool:
        """Return whether two sets may have an element in common."""
        return any(a is b and not self._are_halves(i, j) for a, i in first for b, j in second)

    def _are_halves(self, first: Value | None, second: Value | None) -> bool:
        """Return whether two indices are ``i`` and ``1 - i``."""
        for one, other in ((first, second), (second, first)):
            op = None if one is None else self.defs.get(one)
            if op is not None and op.kind == "kernel.sub" and op.operands[1] is other:
                base = self.defs.get(op.operands[0])
                if base is not None and base.kind == "kernel.constant":
                    return Constant.of(base).index == 1
        return False

    def _is_emitted_later(self, value: Value, op: Op) -> bool:
        """Return whether a load is emitted at its use, and the use is at ``op`` or later."""
        while value in self.inlined:
            user = self.users[value]
            if self.numbers[user] >= self.numbers[op]:
                return True
            if len(user.results) != 1:
                return False
            value = user.result
        return False

    @override
    def _load(self, op: Op) -> str:
        if not self.in_thread_loop:
            self._synchronise(op)
            memory = access(op)[0]
            if memory.type.space in ("shared", "scratch"):
                self.loads[op.result] = memory
        return super()._load(op)

    @override
    def op(self, op: Op, block: Block | None = None, position: int = 0) -> None:
        if self.copied.isdisjoint(op.results):
            super().op(op, block, position)

    def _copy(self, op: Op) -> None:
        """Write an asynchronous copy of an element, or of +0 where a condition is false."""
        (memory, _), made = access(op), self.defs[op.operands[0]]
        condition = [self.name(made.operands[0])] if made.kind == "kernel.select" else []
        load = self.defs[made.operands[1]] if condition else made
        source = access(load)[0]
        parts = [self.name(memory), self.element_index(op)]
        parts += [self.name(source), self.element_index(load), *condition]
        form = "copy_some" if condition else "copy"
        self.line(f"{form}_{scalars.code_name(memory.type.dtype)}({', '.join(parts)})", op)

    @override
    def _store(self, op: Op) -> None:
        if _is_asynchronous(op):
            self._copy(op)
            return
        if self.in_thread_loop:
            super()._store(op)
            return
        self._synchronise(op)
        self.line("if thread() == 0:", op)
        self.indent += 1
        super()._store(op)
        self.indent -= 1

    # -- memory and values -------------------------------------------------------------------------

    @override
    def element_text(self, buffer: Value, element_index: str) -> str:
        return f"load_{scalars.code_name(buffer.type.dtype)}({self.name(buffer)}, {element_index})"

    @override
    def assignment(self, buffer: Value, element_index: str, value: str) -> str:
        code = scalars.code_name(buffer.type.dtype)
        return f"store_{code}({self.name(buffer)}, {element_index}, {value})"

    @override
    def _vector_access(
        self, contiguous: str, strided: str, op: Op, kind: VectorType, value: tuple
    ) -> str:
        """Access a vector at once if it is known to be aligned, else lane by lane."""
        buffer, where = access(op)
        near_by = self.strides[buffer][lane_axis(op)] == "1"
        if near_by and count_operand(op) is None and not self._aligned(buffer, where, kind.width):
            head = [self.name(buffer), self.element_index(op), *value, str(kind.width)]
            return f"{contiguous}_some_{vector_code(kind)}({', '.join(head)})"
        return super()._vector_access(contiguous, strided, op, kind, value)

    def _aligned(self, buffer: Value, where, width: int) -> bool:
        """Return whether the index is a multiple of ``width`` elements from the buffer's start."""
        if buffer.type.offset != 0 and not isinstance(buffer.type.offset, int):
            return False
        if buffer.type.offset % width:
            return False
        pairs = zip(where, self.strides[buffer], strict=True)
        return all(s.isdigit() and int(s) * self._factor(v) % width == 0 for v, s in pairs)

    def _factor(self, value: Value) -> int:
        """Return a number that divides an index."""
        op = self.defs.get(value)
        if op is None:
            return 1
        if op.kind == "kernel.constant":
            return Constant.of(op).index
        if value not in op.results:
            return gcd(self._factor(op.operands[0]), self._factor(op.operands[2]))
        parts = [self._factor(v) for v in op.operands if v.type is INDEX]
        if op.kind == "kernel.mul":
            return prod(parts)
        return gcd(*parts) if op.kind in ("kernel.add", "kernel.sub") else 1

    @override
    def scalar(self, op: Op) -> str:
        """Return the expression of a scalar op; divisions of non-negative indices use 32 bits."""
        name = op.kind.removeprefix("kernel.")
        if element(op.operands[-1].type) is INDEX and name in ("floordiv", "mod"):
            if all(self._is_non_negative(v) for v in op.operands):
                a, b = (self.name(v) for v in op.operands)
                return f"{'quotient' if name == 'floordiv' else 'remainder'}({a}, {b})"
            return index_text(name, [self.name(v) for v in op.operands])
        return super().scalar(op)

    def _is_non_negative(self, value: Value, depth: int = 0) -> bool:
        """Return whether an index is known to be non-negative, from loop indices and sizes."""
        op = self.defs.get(value)
        if op is None:
            return True  # a loop's index from 0 on, or a size
        if op.kind == "kernel.constant":
            return Constant.of(op).index >= 0
        if op.kind in ("kernel.add", "kernel.mul", "kernel.floordiv", "kernel.mod", "kernel.min"):
            return depth < 20 and all(self._is_non_negative(v, depth + 1) for v in op.operands)
        return False
