"""Costs of executing ops on a machine, for choices among forms of a program.

The unit is the *byte*: the time in which the machine's main memory moves one.  Compute and memory
times are added, not overlapped as under a roofline (limits.py): of two forms that move the same
bytes, the one with less arithmetic costs less.  Elementwise ops are assumed to be fused with their
operands (one operand comes in registers, the result leaves as the other op's would); fusion is not
modelled otherwise, and caches and layouts are not modelled at all.
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
#: f32 operations in the time of a byte, for machines without that figure: processors of 200 to
#: 4,000 GFLOP/s do 5 to 15.
DEFAULT_BALANCE = 8.0
#: A transpose or slice costs its bytes divided by this: most become addressing, some a copy.
_VIEW = 16
#: Ops that only index their operand differently.
_ADDRESSING = frozenset({"core.reshape", "core.broadcast"})


def _bytes(value: Value) -> int:
    return value.type.bytes


@dataclass(frozen=True)
class CostModel:
    """Costs of tensor-level ops; ``balance``: f32 operations in the time of a byte."""

    balance: float = DEFAULT_BALANCE

    @staticmethod
    def of(machine: Machine) -> CostModel:
        """Return the model of a machine with known clock, width and bandwidth; else the default."""
        limits = of_machine(machine)
        if limits is None:
            return CostModel()
        return CostModel(limits.peak_flops() / limits.bandwidth(1))

    def price(self, op: Op, read: Callable[[Value], int] = _bytes) -> int:
        """Return the cost of ``op`` in bytes, at least 1.

        ``read``: the bytes of an operand's elements in memory (fewer than its own if it repeats
        them).  A constant costs nothing; a reshape and a broadcast cost 1, and so do ops of unknown
        cost: ops with regions (their blocks are priced separately) and ops of unknown sizes.
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
    """Return the flops of a kernel that computes ``block``, and its compulsory bytes.

    A lookup table counts the elements that are looked up, and an operand that is replaced in part
    counts that part.
    """
    flops = sum(cost(o).flops for o in block.ops if o.kind != "core.constant")
    producers = block.producers()
    moved = 0
    for value, made in dict(zip(writes, block.outputs, strict=False)).items():
        producer = producers.get(made)
        part = (
            producer is not None
            and producer.kind == UPDATE
            and producer.operands[0] in block.arguments
        )
        moved += producer.operands[1].type.bytes if producer and part else value.type.bytes
    outer = dict(zip(block.arguments, reads, strict=False))
    for argument, users in block.users().items():
        if argument in outer:
            moved += min(outer[argument].type.bytes, sum(_bytes_read(o, argument) for o in users))
    return flops, moved


def _bytes_read(op: Op, argument: Value) -> int:
    if op.kind == UPDATE and op.operands[0] is argument:
        return 0
    if has_trait(op, "partial_read") and op.operands[0] is argument:
        return op.result.type.bytes
    return argument.type.bytes
