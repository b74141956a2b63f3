"""Kernel IR to the Python source of a CPU kernel: ``kernel(args, lo, hi, scratch)``."""

from __future__ import annotations

from typing import TypeVar

from typing_extensions import override

from core_compiler.codegen.cpu.clamps import clamps
from core_compiler.codegen.expressions import dense, total
from core_compiler.codegen.source import SYMBOL, Source, Writer
from core_compiler.ir import Block, BufferType, Function, Op, Value, VectorType
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.abi import (
    buffer_arguments,
    callees,
    parallel_nest,
    scratch_allocations,
)
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For, Invoke

T = TypeVar("T")

#: The most arguments of a call: of more than 30 Python makes a list, which Numba does not compile.
ARGUMENTS = 28


def argument_groups(arguments: list[T]) -> list[list[T]]:
    """Return the arguments of a call in groups of at most :data:`ARGUMENTS`."""
    starts = range(0, len(arguments), ARGUMENTS)
    return [arguments[start : start + ARGUMENTS] for start in starts]


def generate(function: Function) -> Source:
    """Return the source of a kernel.

    The kernels that it invokes are compiled separately, once for all their callers: their addresses
    follow the arguments in the argument block, in the order of ``abi.callees``.
    """
    part = _Writer(function)
    part.write()
    text = [
        f'"""Kernel {function.name}: generated, compiled by Numba."""',
        f"NAME = {function.name!r}",
        f"BUFFERS = {part.buffers}  # told apart by number: no two overlap",
        "",
        "",
        *part.lines,
    ]
    start = len(text) - len(part.lines)
    rows = [(start + n, function.name, number, kind) for n, number, kind in part.map]
    return Source(function.name, "\n".join(text).rstrip() + "\n", tuple(rows))


class _Writer(Writer):
    """Writes one function of the module."""

    def __init__(self, function: Function):
        super().__init__(function)
        self.used |= {"args", "lo", "hi", "scratch", "item"}
        self.clamps = clamps(function)
        self.uses |= {op.result: 0 for each in self.clamps.values() for op in each.inner}

    # -- the function ----------------------------------------------------------------------------

    def write(self) -> None:
        function = self.function
        self.lines.append(f"def {SYMBOL}(args, lo, hi, scratch):")
        for number, value in enumerate(function.arguments):
            if isinstance(value.type, BufferType):
                self._argument(value, number)
            else:
                self.line(f"{self.name(value)} = size(args, {number})")
        for number, callee in enumerate(callees(function), len(function.arguments)):
            self.line(f"{callee} = size(args, {number})  # its address")
        for value in buffer_arguments(function):
            if value.type.offset != 0:
                code = scalars.code_name(value.type.dtype)
                name = self.name(value)
                self.line(f"{name} = offset_{code}({name}, {value.type.offset})")
        nest = parallel_nest(function)
        if not nest:
            self._allocations(function.body)
            self.block(function.body)
        else:
            self._items(nest)
        if self.lines[-1].endswith(":"):
            self.line("return")

    def _argument(self, value: Value, number: int) -> None:
        self.strides[value] = [str(s) for s in value.type.strides]
        code, place = scalars.code_name(value.type.dtype), self.buffer_number()
        shape = ", ".join(map(str, value.type.shape))
        self.line(f"{self.name(value)} = buffer_{code}(args, {number}, {place})  # [{shape}]")

    def _items(self, nest: list[Op]) -> None:
        """Write the work items: the flattened parallel nest with indices like an odometer."""
        levels = [self.function.body, *(loop.regions[0] for loop in nest[:-1])]
        self.prologue(levels, nest)
        self._allocations(self.function.body)
        counts = [self.trip_count(loop) for loop in nest]
        for count, loop in zip(counts[1:], nest[1:], strict=True):
            self.line(f"{self._count_name(loop)} = {count}")
        names = [self.fresh(For.of(loop).name) for loop in nest]
        simple = [self._is_plain(loop) for loop in nest]
        places = [n if s else self.fresh(f"{n}_item") for n, s in zip(names, simple, strict=True)]
        if len(nest) == 1:
            self.line(f"for {places[0]} in range(lo, hi):", nest[0])
            self.indent += 1
        else:
            rest = "lo"
            for place, loop in zip(reversed(places[1:]), reversed(nest[1:]), strict=True):
                count = self._count_name(loop)
                self.line(f"{place} = {rest} % {count}")
                rest = f"{rest} // {count}"
            self.line(f"{places[0]} = {rest}")
            self.line("for item in range(lo, hi):", nest[0])
            self.indent += 1
        for name, place, loop, plain in zip(names, places, nest, simple, strict=True):
            if not plain:
                lower, step = self.name(loop.operands[0]), self.name(loop.operands[2])
                self.line(f"{name} = {total(lower, f'{place} * {step}')}")
            self.names[For.of(loop).index] = name
        for level in levels[1:]:
            self.block(level, only_pure=True)
        self.block(nest[-1].regions[0])
        for depth in range(len(nest) - 1, 0, -1):
            self.line(f"{places[depth]} += 1")
            self.line(f"if {places[depth]} == {self._count_name(nest[depth])}:")
            self.indent += 1
            self.line(f"{places[depth]} = 0")
            if depth == 1:
                self.line(f"{places[0]} += 1")
        self.indent = 1

    def _is_plain(self, loop: Op) -> bool:
        return self.name(loop.operands[0]) == "0" and self.name(loop.operands[2]) == "1"

    def _count_name(self, loop: Op) -> str:
        key = ("count", loop)
        if key not in self.names:
            self.names[key] = self.fresh(f"{For.of(loop).name}_count")
        return self.names[key]

    def _allocations(self, body: Block) -> None:
        """Write scratch buffers one after another, and register arrays on the stack."""
        offset = "0"
        for op in scratch_allocations(self.function):
            value = op.result
            code, name = scalars.code_name(value.type.dtype), self.name(value)
            number = self.buffer_number()
            self.line(f"{name} = scratch_{code}(scratch, {offset}, {number})", op)
            offset = self.scratch_end(op, offset)
        self.behind = offset
        for op in self.function.body.walk():
            if op.kind == "kernel.alloc" and op.result.type.space == "register":
                value = op.result
                code, name = scalars.code_name(value.type.dtype), self.name(value)
                number = self.buffer_number()
                self.line(f"{name} = registers_{code}({value.type.elements}, {number})", op)
                self.strides[value] = dense([str(d) for d in value.type.shape])

    @override
    def _cast(self, op: Op) -> str:
        clamp = self.clamps.get(op)
        if clamp is None:
            return super()._cast(op)
        kind = op.result.type
        suffix = f"x{kind.width}" if isinstance(kind, VectorType) else ""
        given = ", ".join(map(self.name, (clamp.x, clamp.low, clamp.high)))
        return f"clamp_to_i32{suffix}({given})"

    def _prefetch(self, op: Op) -> None:
        memory, _ = access(op)
        code = scalars.code_name(memory.type.dtype)
        self.line(f"prefetch_{code}({self.name(memory)}, {self.element_index(op)})", op)

    def _invoke(self, op: Op) -> None:
        names = [self.name(v) for v in op.operands]
        if len(names) > ARGUMENTS:
            names = [f"({', '.join(part)},)" for part in argument_groups(names)]
        arguments, scratch = ", ".join(names), total("scratch", self.behind)
        self.line(f"invoke_{len(op.operands)}({Invoke.of(op).callee}, {scratch}, {arguments})", op)
