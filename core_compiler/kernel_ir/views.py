"""Views of the kernel level's ops: names and types for operands and attributes (`ops.py`)."""

from __future__ import annotations

from core_compiler.ir import Block, DType, Op, Value
from core_compiler.ir.types import INDEX, IndexType
from core_compiler.ir.views import Attribute, Operand, Operands, OpView


class For(OpView):
    kind = "kernel.for"
    lower = Operand(0)
    upper = Operand(1)
    step = Operand(2)
    bounds = Operands(0, 3)
    init = Operands(3)
    name = Attribute[str]("")
    loop = Attribute[str]("sequential")

    @property
    def body(self) -> Block:
        return self.op.regions[0]

    @property
    def index(self) -> Value:
        """The induction variable."""
        return self.body.arguments[0]

    @property
    def carried(self) -> tuple[Value, ...]:
        return self.body.arguments[1:]


class View(OpView):
    kind = "kernel.view"
    buffer = Operand(0)
    starts = Operands(1)
    dropped = Attribute[tuple[int, ...]](())
    merged = Attribute[int](1)


class Constant(OpView):
    kind = "kernel.constant"
    value = Attribute[bool | int | float]()

    @property
    def index(self) -> int:
        """The value of an index."""
        assert self.op.result.type is INDEX
        return int(self.value)


class Extract(OpView):
    kind = "kernel.extract"
    vector = Operand(0)
    lane = Attribute[int]()


class Shuffle(OpView):
    kind = "kernel.shuffle"
    mask = Attribute[tuple[int, ...]]()


class Cast(OpView):
    kind = "kernel.cast"
    x = Operand(0)
    dtype = Attribute[DType | IndexType]()


class Call(OpView):
    kind = "kernel.call"
    callee = Attribute[str]()
    dtype = Attribute[DType]()


class Invoke(OpView):
    kind = "kernel.invoke"
    callee = Attribute[str]()


def loop_kind(op: Op) -> str | None:
    """Return how the iterations of a loop run; None for other ops."""
    found = For.match(op)
    return None if found is None else found.loop
