"""An independent check of planned memory: live intervals from the stage's ops, then overlaps.

It shares no code with `find_lifetimes` and the planners and does not trust their facts: all
positions are read from the ops of ``main``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_compiler.ir import Module, Op, Value
from core_compiler.ir.target import (
    ALLOC,
    CONSTANT,
    COPY,
    INPUT,
    LAUNCH,
    OUTPUT,
    VIEW,
    Alloc,
    Launch,
    Loop,
    Output,
    Repeat,
)
from core_compiler.ir.types import row_major
from core_compiler.placement.problem import Lifetime, Plan
from core_compiler.placement.verify import verify


def complaints(module: Module, facts: Mapping[str, Any]) -> list[str]:
    """Return the memory errors of a stage at the target level, one line each.

    Offsets are checked only if memory is planned.
    """
    ops = module.main.body.ops
    wrong = [*_not_received(ops), *_overwritten(ops)]
    allocated = [Alloc(op) for op in ops if op.kind == ALLOC]
    if all(alloc.size is None for alloc in allocated):
        return wrong
    spans = _spans(ops)
    lifetimes, offsets = [], []
    for alloc in allocated:
        if alloc.offset is None:
            continue
        value, size = alloc.result, alloc.result.type.bytes
        if (alloc.size or 0) < size:
            wrong.append(f"{value} needs {size} bytes, got {alloc.size}")
        start, end = spans.get(value, (0, 0))
        lifetimes.append(Lifetime(str(value), size, start, end, 1))
        offsets.append(alloc.offset)
    wrong += _results(ops)
    peak = max((o + b.size for o, b in zip(offsets, lifetimes, strict=True)), default=0)
    wrong += verify(Plan(tuple(lifetimes), tuple(offsets), peak, 0, "ops of main"))
    return wrong + _program(facts, peak)


def unplaced(module: Module) -> list[str]:
    """Return the allocations without memory after planning, one line each.

    They have neither an offset nor the memory of a result.
    """
    return [
        f"{op.result} has no memory: neither an offset nor the memory of a result"
        for op in module.main.body.ops
        if (alloc := Alloc.match(op))
        and (alloc.size is None or (alloc.offset is None and alloc.output is None))
    ]


def mismarked(module: Module) -> list[str]:
    """Return the allocations whose live interval is marked wrongly, one line each.

    The memory of results is live to the end.
    """
    ops = module.main.body.ops
    spans, root = _spans(ops), roots(ops)
    results = {root.get(op.operands[0], op.operands[0]) for op in ops if op.kind == OUTPUT}
    wrong = []
    for op in ops:
        alloc = Alloc.match(op)
        if alloc is None or op.result not in spans:
            continue
        start, end = spans[op.result]
        needed = start, len(ops) if op.result in results else end
        if (alloc.start, alloc.end) != needed:
            wrong.append(
                f"{op.result} is live from step {needed[0]} to {needed[1]}, but is marked "
                f"{alloc.start} to {alloc.end}"
            )
    return wrong


def _program(facts: Mapping[str, Any], peak: int) -> list[str]:
    """Check that the linked program's arena is large enough for the ops."""
    linked = facts.get("program")
    if linked is None:
        return []
    reserved = linked[0].arena_bytes
    return [f"the arena has {reserved} bytes, the ops need {peak}"] if reserved < peak else []


def _not_received(ops: tuple[Op, ...]) -> list[str]:
    """Check that the caller gets each result in its own memory, in the order of its elements."""
    root, wrong = roots(ops), []
    taken: dict[Value, int] = {}
    allocated = {op.result for op in ops if op.kind == ALLOC}
    for op in ops:
        output = Output.match(op)
        if output is None:
            continue
        source, index = output.buffer, output.index
        value = root.get(source, source)
        if value not in allocated:
            wrong.append(f"result {index} is in the memory of {value}, which is never allocated")
        elif value in taken:
            wrong.append(f"results {taken[value]} and {index} are both in the memory of {value}")
        elif source.type.strides != row_major(source.type.shape):
            wrong.append(
                f"result {index} has strides {source.type.strides} in memory, the caller "
                f"expects {row_major(source.type.shape)}"
            )
        taken[value] = index
    return wrong


def _overwritten(ops: tuple[Op, ...]) -> list[str]:
    """Check that inputs (the caller's) and constants (shared by all calls) are not written."""
    root = roots(ops)
    read_only = {
        op.result: op.kind.rpartition(".")[2] for op in ops if op.kind in (INPUT, CONSTANT)
    }
    wrong = []
    for op in ops:
        written: Sequence[Value] = ()
        if op.kind == LAUNCH:
            written = Launch.of(op).written
        elif op.kind == COPY:
            written = op.operands[1:]
        for value in written:
            source = root.get(value, value)
            if source in read_only:
                wrong.append(
                    f"{op.kind} writes to {value}, which is the memory of the "
                    f"{read_only[source]} {source}"
                )
    return wrong


def _results(ops: tuple[Op, ...]) -> list[str]:
    """Check that each result lies in memory that the caller gets as that result alone.

    Allocations without an offset (yet) are not checked.
    """
    root = roots(ops)
    allocated = [Alloc(op) for op in ops if op.kind == ALLOC]
    given = {alloc.result: alloc.output for alloc in allocated if alloc.size is not None}
    waiting = {alloc.result for alloc in allocated} - given.keys()
    wrong, named = [], set()
    for op in ops:
        output = Output.match(op)
        if output is None:
            continue
        value = root.get(output.buffer, output.buffer)
        named.add(value)
        if value not in waiting and given.get(value) != output.index:
            wrong.append(f"result {output.index} is {value}, which is not the caller's memory")
    for value, index in given.items():
        if index is not None and value not in named:
            wrong.append(f"{value} has the caller's memory of result {index} but is not a result")
    return wrong


def roots(ops: Sequence[Op]) -> dict[Value, Value]:
    """Map each view to the value whose memory it shares."""
    root: dict[Value, Value] = {}
    for op in ops:
        if op.kind == VIEW:
            root[op.result] = root.get(op.operands[0], op.operands[0])
    return root


def _spans(ops: tuple[Op, ...]) -> dict[Value, tuple[int, int]]:
    """Return, for each allocation, the first and one past the last op that accesses its memory.

    An unused view is not an access.
    """
    root = roots(ops)
    uses: dict[Value, list[int]] = {}
    for at, op in enumerate(ops):
        if op.kind == VIEW:
            continue
        accessed = (*op.operands, *(() if op.kind == ALLOC else op.results))
        for value in accessed:
            uses.setdefault(root.get(value, value), []).append(at)
    loop_ranges = loops(ops)
    found = {}
    for value, positions in uses.items():
        first, last = min(positions), max(positions)
        for (
            begin,
            end,
        ) in loop_ranges:  # inner loops first: an outer one may extend the span further
            inside = any(begin <= p <= end for p in positions)
            if inside and (first < begin or last > end or _carried(ops[begin], value, root)):
                first, last = min(first, begin), max(last, end)
        found[value] = first, last + 1
    return found


def _carried(loop: Op, value: Value, root: Mapping[Value, Value]) -> bool:
    return any(root.get(v, v) is value for v in loop.operands)


def loops(ops: tuple[Op, ...]) -> list[tuple[int, int]]:
    """Return the first and last op of each loop, inner loops first."""
    begins: dict[int, int] = {}
    found = []
    for at, op in enumerate(ops):
        if loop := Loop.match(op):
            begins[loop.loop] = at
        elif repeat := Repeat.match(op):
            found.append((begins[repeat.loop], at))
    return found
