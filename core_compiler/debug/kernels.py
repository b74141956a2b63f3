"""Check of machine code: every launch of a compiled program against its region.

The program is linked once more with unshared memory for every buffer and run.  Each launch's
results are compared, bit for bit, with its region, evaluated by the reference on the same arrays
that the launch has read.  A wrong kernel is therefore named even if an earlier one is wrong too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core_compiler.debug.bits import differing, same_bits
from core_compiler.debug.check import numbers, worst_error
from core_compiler.debug.evaluate import Evaluator
from core_compiler.ir import Module, Op, Value, as_array
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.target import (
    ALLOC,
    COPY,
    LAUNCH,
    LOOP,
    REPEAT,
    TAKES,
    TEST,
    Alloc,
    Constant,
    Input,
    Launch,
    Output,
    View,
)
from core_compiler.support.arrays import strided

ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class KernelCheck:
    """The check of one launch; ``record.value`` is the buffer that differs."""

    launch: Op
    kernel: str
    record: CheckRecord


def with_unshared_buffers(module: Module) -> Module:
    """Return the planned module with unshared temporaries: nothing is overwritten.

    The ops inside loops run once and loop-carried buffers keep their initial values, so that every
    launch has defined inputs.
    """
    offset, ops = 0, []
    carried: set[Value] = set()
    output_numbers = _output_numbers(module)
    for op in module.main.body.ops:
        if op.kind == LOOP:
            carried.update(op.operands)
        if op.kind in (LOOP, TEST, REPEAT) or (op.kind == COPY and op.operands[1] in carried):
            continue
        if op.kind == ALLOC or TAKES in op.attributes:
            size = op.result.type.bytes
            location = (
                {"output": output_numbers[op.result]}
                if op.result in output_numbers
                else {"offset": offset}
            )
            ops.append(Op(ALLOC, (), op.results, {"size": size, **location}, (), op.origin))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        if TAKES in op.attributes:
            ops.append(Op(COPY, (*op.operands, *op.results), (), {"reason": op[TAKES]}))
        elif op.kind != ALLOC:
            ops.append(op)
    return module.with_main(module.main.body.with_(ops=tuple(ops)))


def _output_numbers(module: Module) -> dict[Value, int]:
    """Return the output buffers with their numbers.

    A view that takes over memory (``takes``) counts as a buffer of its own.
    """
    owner: dict[Value, Value] = {}
    given = {}
    for op in module.main.body.ops:
        if (view := View.match(op)) and view.takes is None:
            owner[op.result] = owner.get(view.buffer, view.buffer)
        elif output := Output.match(op):
            given[owner.get(output.buffer, output.buffer)] = output.index
    return given


def check_kernels(
    module: Module,
    facts: Mapping[str, Any],
    target,
    inputs: Sequence[np.ndarray],
    evaluator: Evaluator,
    threads: int = 0,
) -> list[KernelCheck]:
    """Run the program once and compare every launch, in program order."""
    separate = with_unshared_buffers(module)
    program = target.link(separate, facts, {})
    executable = target.load(separate, {**facts, "program": program}, threads)
    executable.loop_evaluations = evaluator.loop_evaluations or None
    outputs = executable(*inputs)
    memory = _Contents(separate, executable, inputs, outputs)
    found = []
    for op in separate.main.body.ops:
        if op.kind == LAUNCH:
            found.append(_compare(op, memory, evaluator))
    return found


def _compare(op: Op, memory: _Contents, evaluator: Evaluator) -> KernelCheck:
    started = time.perf_counter()
    launch = Launch.of(op)
    arrays = [evaluator.shared(np.array(memory[v], order="C")) for v in launch.read]
    expected = evaluator.block(op.regions[0], arrays)
    record = CheckRecord(None, "bitwise", note=f"kernel {launch.kernel}")
    for value, want in zip(launch.written, expected, strict=True):
        got = memory[value]
        if same_bits(want, got):
            continue
        error, index = worst_error(want, got)
        if error == 0.0:
            index = tuple(map(int, np.argwhere(differing(want, got))[0]))
        note = f"kernel {launch.kernel} differs bitwise from its semantics"
        elements = numbers(want, got, index)
        record = CheckRecord(
            None,
            "failed",
            error,
            0.0,
            value,
            index,
            0.0,
            note,
            elements.get("old"),
            elements.get("new"),
        )
        break
    spent = time.perf_counter() - started
    return KernelCheck(op, launch.kernel, _timed(record, spent))


def _timed(record: CheckRecord, seconds: float) -> CheckRecord:
    return replace(record, seconds=seconds)


class _Contents:
    """The contents of every buffer after a run in which nothing was overwritten."""

    def __init__(self, module: Module, executable, inputs, outputs):
        self.arrays: dict[Value, np.ndarray] = {}
        self.bytes: dict[Value, np.ndarray] = {}
        arena = executable.arena
        for op in module.main.body.ops:
            if given := Input.match(op):
                self._put(op.result, inputs[given.index])
            elif constant := Constant.match(op):
                self._put(op.result, as_array(constant.value, module.weights))
            elif (alloc := Alloc.match(op)) and alloc.output is not None:
                self._put(op.result, outputs[alloc.output])
            elif alloc is not None:
                self.bytes[op.result] = arena[alloc.offset :][: op.result.type.bytes]
            elif view := View.match(op):
                self.bytes[op.result] = self.bytes[view.buffer]

    def _put(self, value: Value, array: np.ndarray) -> None:
        self.bytes[value] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def __getitem__(self, value: Value) -> np.ndarray:
        kind = value.type
        flat = self.bytes[value].view(kind.dtype.numpy)
        return strided(flat, kind.shape, kind.strides)
