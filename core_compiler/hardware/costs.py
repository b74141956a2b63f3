"""What executing an op costs on a machine, for choices among forms of a program.

The unit is the *byte*: the time in which the machine's main memory moves one.  Work on data and the
data's way are added, not overlapped as under a roof (limits.py): of two forms that move the same
bytes the one with less arithmetic costs less.  Elementwise ops are taken to be fused with what they
read (one operand comes in registers, the result leaves as the other op's would); nothing else is
known here of fusion, and nothing of caches or layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core_compiler.hardware.limits import of_machine
from core_compiler.hardware.machine import Machine
from core_compiler.ir import Block, Op, TensorType, Value
from core_compiler.ops.base import definition
from core_compiler.ops.costs import cost
from core_compiler.ops.traits import has_trait

#: The op that replaces a part of its first operand.
UPDATE = "core.dynamic_update_slice"
#: f32 operations in the time of a byte, for machines that do not say: processors of 200 to 4,000
#: GFLOP/s do 5 to 15.
DEFAULT_BALANCE = 8.0
#: A transpose or slice costs this part of its bytes: most become addressing, some a copy.
_VIEW = 16
#: Ops that are only another way to index their operand.
_ADDRESSING = frozenset({"core.reshape", "core.broadcast"})


def _bytes(value: Value) -> int:
    return value.type.bytes


@dataclass(frozen=True)
class CostModel:
    """Costs of tensor-level ops; ``balance``: f32 operations in the time of a byte."""

    balance: float = DEFAULT_BALANCE

    @staticmethod
    def of(machine: Machine) -> CostModel:
        """The model of a machine that says its clock, width and bandwidth; else the default."""
        limits = of_machine(machine)
        if limits is None:
            return CostModel()
        return CostModel(limits.peak_flops() / limits.bandwidth(1))

    def price(self, op: Op, read: Callable[[Value], int] = _bytes) -> int:
        """The cost of ``op`` in bytes, at least 1; ``read``: bytes that an operand's elements take
        where they lie (fewer than its own where it repeats them).

        A constant costs nothing; a reshape and a broadcast 1, and so does what cannot be told: ops
        with regions (their blocks are priced alone) and of sizes that are not known.
        """
        if op.kind == "core.constant":
            return 0
        values = (*op.uses(), *op.results)
        known = all(isinstance(v.type, TensorType) and v.type.is_static for v in values)
        if op.regions or not known or op.kind in _ADDRESSING:
            return 1
        written = sum(v.type.bytes for v in op.results)
        traits = definition(op).traits
        if "view" in traits:
            return 1 + written // _VIEW
        operands = dict.fromkeys(op.operands)
        if "elementwise" in traits:
            reads = sorted(map(read, operands))
            moved = sum(reads[:-1])
        else:
            moved = written + sum(self._read(op, v) for v in operands)
        return 1 + moved + int(cost(op).flops / self.balance)

    @staticmethod
    def _read(op: Op, value: Value) -> int:
        if has_trait(op, "partial_read") and value is op.operands[0]:
            return min(value.type.bytes, op.result.type.bytes)
        return value.type.bytes


def kernel_cost(block: Block, reads: Sequence[Value], writes: Sequence[Value]) -> tuple[int, int]:
    """Flops of a kernel that computes ``block``, and the bytes it must read and write at least
    once: of a table that is only looked up in, the elements that are, and of an operand of which a
    part is replaced, the part."""
    flops = sum(cost(o).flops for o in block.ops if o.kind != "core.constant")
    makers = block.producers()
    moved = 0
    for value, made in dict(zip(writes, block.outputs, strict=False)).items():
        maker = makers.get(made)
        part = maker is not None and maker.kind == UPDATE and maker.operands[0] in block.arguments
        moved += maker.operands[1].type.bytes if maker and part else value.type.bytes
    outer = dict(zip(block.arguments, reads, strict=False))
    for argument, users in block.users().items():
        if argument in outer:
            moved += min(outer[argument].type.bytes, sum(_looked_up(o, argument) for o in users))
    return flops, moved


def _looked_up(op: Op, argument: Value) -> int:
    if op.kind == UPDATE and op.operands[0] is argument:
        return 0
    if has_trait(op, "partial_read") and op.operands[0] is argument:
        return op.result.type.bytes
    return argument.type.bytes
