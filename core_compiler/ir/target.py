"""The ops of main once its values have memory, and of the launches before that; with their views.

==================  ==============================================================================
``target.launch``   ``(*operands) {kernel, arguments[, over]} region`` -> results: runs a kernel,
                    which computes the region.  ``arguments``, a pair for each argument of the
                    kernel: ``("operand", n)``, ``("result", n)`` or ``("size", the number)``.
                    ``over``: (result, operand) pairs; the result's memory holds the operand's
                    contents beforehand, and the launch writes parts of it.  With memory the
                    launch has no results: ``reads`` operands, then ``writes`` buffers.
``target.input``    ``(value) {index}`` -> the memory of an input, the caller's.
``target.constant`` ``{value}`` -> the memory of a constant.
``target.alloc``    ``{size, offset}`` (in the arena) or ``{size, output}`` (of a result of main),
                    once memory is planned; ``start``, ``end``: the ops that need it.
``target.view``     ``(buffer) [{takes}]`` -> the same memory.  ``takes``, the reason: it is
                    written next, and its old contents are not read again.
``target.copy``     ``(from, to) {reason}``.
``target.loop``     ``(*carried) {loop[, trips]}`` begins a loop and lists the buffers it carries;
``target.test``     ``(flag) {loop}`` exits it if its flag is false (not if ``trips`` is known);
``target.repeat``   ``(*carried) {loop}`` jumps to the op after ``target.loop``.  The three share
                    the number ``loop``.
``target.output``   ``(buffer) {index[, takes]}`` -> result ``index`` of main.  ``takes``: the
                    input whose memory it is given.
==================  ==============================================================================
"""

from __future__ import annotations

from core_compiler.ir.attributes import Dense, Resource
from core_compiler.ir.core import Op, Value
from core_compiler.ir.views import Attribute, Operand, Operands, OpView


class Launch(OpView):
    kind = "target.launch"
    kernel = Attribute[str]()
    arguments = Attribute[tuple[tuple[str, int], ...]]()
    over = Attribute[tuple[tuple[int, int], ...]](())
    reads = Attribute[int | None](None)
    writes = Attribute[int](0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The kernel's index arguments."""
        return tuple(number for kind, number in self.arguments if kind == "size")

    @property
    def read(self) -> tuple[Value, ...]:
        """The values or buffers that it reads."""
        return self.op.operands[: self.reads]

    @property
    def written(self) -> tuple[Value, ...]:
        """The values or buffers that it writes."""
        return self.op.results if self.reads is None else self.op.operands[self.reads :]

    @property
    def buffers(self) -> tuple[Value, ...]:
        """The kernel's buffer arguments, in its order."""
        given = {"operand": self.read, "result": self.written}
        return tuple(given[kind][number] for kind, number in self.arguments if kind != "size")


class Input(OpView):
    kind = "target.input"
    value = Operand(0)
    index = Attribute[int]()


class Constant(OpView):
    kind = "target.constant"
    value = Attribute[Dense | Resource]()


class Alloc(OpView):
    kind = "target.alloc"
    size = Attribute[int | None](None)
    offset = Attribute[int | None](None)
    output = Attribute[int | None](None)
    start = Attribute[int | None](None)
    end = Attribute[int | None](None)


class View(OpView):
    kind = "target.view"
    buffer = Operand(0)
    takes = Attribute[str | None](None)


class Copy(OpView):
    kind = "target.copy"
    source = Operand(0)
    to = Operand(1)
    reason = Attribute[str]("")


class Loop(OpView):
    kind = "target.loop"
    carried = Operands(0)
    loop = Attribute[int]()
    trips = Attribute[int | None](None)


class Test(OpView):
    kind = "target.test"
    flag = Operand(0)
    loop = Attribute[int]()


class Repeat(OpView):
    kind = "target.repeat"
    carried = Operands(0)
    loop = Attribute[int]()


class Output(OpView):
    kind = "target.output"
    buffer = Operand(0)
    index = Attribute[int]()
    takes = Attribute[int | None](None)


KINDS = (Launch, Input, Constant, Alloc, View, Copy, Loop, Test, Repeat, Output)


def buffers_written(op: Op) -> tuple[Value, ...]:
    """Return the buffers that a launch or a copy writes."""
    return Launch(op).written if op.kind == LAUNCH else (Copy.of(op).to,)


LAUNCH, INPUT, CONSTANT, ALLOC, VIEW, COPY, LOOP, TEST, REPEAT, OUTPUT = (k.kind for k in KINDS)
OVER, TAKES = "over", "takes"
