"""Find lifetimes: the live interval of each buffer, from launch to launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Block, Op, Value
from core_compiler.ir.target import (
    ALLOC,
    CONSTANT,
    INPUT,
    LOOP,
    REPEAT,
    VIEW,
    Input,
    Loop,
    Output,
    Repeat,
)
from core_compiler.ir.types import is_sized
from core_compiler.passes.base import Pass
from core_compiler.passes.layouts import is_free_view


@dataclass(frozen=True)
class LiveInterval:
    """The live interval [start, end) of a piece of memory, in program positions, and its space.

    The space is ``arena``, ``output``, ``input`` or ``constant``; ``index`` numbers the output or
    input.
    """

    value: Value
    op: Op
    size: int
    start: int
    end: int
    space: str
    index: int = -1


@dataclass(frozen=True)
class FindLifetimes(Pass):
    """Mark every allocation with the first and the last step that needs it (views followed).

    Steps count the ops of main; two buffers with disjoint live intervals may share memory.  Values
    that a loop reads from outside are live to the loop's end.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"buffers"})
    ensures = frozenset({"lifetimes"})

    @override
    def run(self, module, context):
        def edit(rw):
            for interval in lifetimes(rw.ops):
                if interval.op.kind == ALLOC:
                    marks = {"start": interval.start, "end": interval.end}
                    op = interval.op.with_(
                        attributes={**interval.op.attributes, **marks}, origin=None
                    )
                    rw.replace(
                        interval.op,
                        op,
                        rule="first and last use",
                        note=f"{interval.start} to {interval.end}",
                    )

        return context.rewrite(module, edit, level="target")


def memory_owners(ops) -> dict[Value, Value]:
    """Map each buffer to the buffer that owns its memory (views are followed to the end)."""
    roots: dict[Value, Value] = {}
    for op in ops:
        if op.kind == VIEW:
            roots[op.result] = roots[op.operands[0]]
        else:
            for value in op.results:
                roots[value] = value
    return roots


def loop_extents(ops: Sequence[Op]) -> list[tuple[int, int]]:
    """Return the positions of the first and last op of each loop of a bufferized block.

    Inner loops come before those around them.
    """
    begins = {Loop(op).loop: i for i, op in enumerate(ops) if op.kind == LOOP}
    return [(begins[Repeat(op).loop], i) for i, op in enumerate(ops) if op.kind == REPEAT]


def lifetimes(ops) -> list[LiveInterval]:
    """Return the live intervals of all allocations, inputs and constants of a bufferized block.

    They are in program order.
    """
    ops = list(ops)
    roots = memory_owners(ops)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    results: dict[Value, int] = {}
    for i, op in enumerate(ops):
        if output := Output.match(op):
            results[roots[output.buffer]] = output.index
        if op.kind in (ALLOC, VIEW):
            continue
        for value in op.operands:
            if value in roots:
                first.setdefault(roots[value], i)
                last[roots[value]] = i
    for begin, end in loop_extents(ops):
        for root, at in last.items():
            if first[root] < begin < at < end:  # the next iteration reads it again
                last[root] = end
    intervals = []
    for op in ops:
        if op.kind not in (ALLOC, INPUT, CONSTANT):
            continue
        value = op.result
        size = value.type.bytes
        if op.kind != ALLOC:
            index = Input(op).index if op.kind == INPUT else -1
            intervals.append(
                LiveInterval(value, op, size, 0, len(ops), op.kind.split(".")[1], index)
            )
        elif value in results:
            intervals.append(
                LiveInterval(value, op, size, first[value], len(ops), "output", results[value])
            )
        else:
            intervals.append(LiveInterval(value, op, size, first[value], last[value] + 1, "arena"))
    return intervals


def values_alive(block: Block) -> list[LiveInterval]:
    """Return the live intervals of a block of any stage, as if its ops were executed one by one.

    Before ``bufferize`` every result has memory of its own from its op through its last use (free
    views have none); afterwards these are the buffers' :func:`lifetimes`.  Values of a frontend's
    level whose size is unknown are left out.
    """
    if any(op.kind == ALLOC for op in block.ops):
        return lifetimes(block.ops)
    end = len(block.ops)
    roots: dict[Value, Value] = {}
    made: dict[Value, tuple[Op, int]] = {}
    last: dict[Value, int] = {}
    for i, op in enumerate(block.ops):
        for value in op.uses():
            last[roots.get(value, value)] = i
        if is_free_view(op):
            roots[op.result] = roots.get(op.operands[0], op.operands[0])
            continue
        for value in op.results:
            if is_sized(value.type):
                made[value] = op, i
    results = {roots.get(v, v): n for n, v in enumerate(block.outputs)}
    return [
        LiveInterval(
            value,
            op,
            value.type.bytes,
            i,
            end if value in results else last.get(value, i) + 1,
            _space(op, value in results),
            results.get(value, -1),
        )
        for value, (op, i) in made.items()
    ]


def _space(op: Op, result: bool) -> str:
    if op.kind.endswith(".constant"):
        return "constant"
    return "output" if result else "arena"


def live_peak(intervals: Sequence[LiveInterval], space: str = "arena") -> tuple[int, int]:
    """Return the peak of live bytes in ``space``, and the first step that reaches it."""
    change: dict[int, int] = {}
    for interval in intervals:
        if interval.space == space:
            change[interval.start] = change.get(interval.start, 0) + interval.size
            change[interval.end] = change.get(interval.end, 0) - interval.size
    most = at = total = 0
    for step in sorted(change):
        total += change[step]
        if total > most:
            most, at = total, step
    return most, at
