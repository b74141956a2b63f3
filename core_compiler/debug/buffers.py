"""Execution of a bufferized stage on real memory, for the check of buffer passes against values.

Every buffer is a range of bytes: views share them, and once offsets are planned all temporaries lie
in one arena.  A plan that overlaps live buffers, or a view with wrong strides, therefore shows as
wrong values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.memory import loops
from core_compiler.ir import BufferType, Module, Op, Value, as_array
from core_compiler.ir.target import LOOP, Alloc, Constant, Launch, Loop, Repeat, Test
from core_compiler.support.arrays import strided
from core_compiler.support.errors import InternalError

Seen = Callable[[Value, np.ndarray], None]


class BufferMachine:
    """An interpreter of the ``target.*`` ops of main; a launch is executed by its region.

    ``seen(buffer, array)`` is called with a buffer's logical contents right after an op has written
    it; in a loop for the first iteration, and for loop-carried buffers also with the final
    contents.
    """

    def __init__(
        self, module: Module, evaluator: Evaluator, seen: Seen = lambda value, array: None
    ):
        self.module, self.evaluator, self.seen = module, evaluator, seen
        self.memory: dict[Value, np.ndarray] = {}
        ends = [
            alloc.offset + (alloc.size or 0)
            for alloc in map(Alloc.match, module.main.body.ops)
            if alloc is not None and alloc.offset is not None
        ]
        # The bytes are not a plausible value in any dtype, so reading uninitialised memory shows.
        self.arena = np.full(max(ends, default=0), 0xA5, np.uint8)

    def run(self, inputs: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
        """Return the outputs of main for arrays of its arguments."""
        self.inputs = inputs
        self.outputs: dict[Value, np.ndarray] = {}
        ops = self.module.main.body.ops
        extents = {Loop.of(ops[begin]).loop: (begin, end) for begin, end in loops(ops)}
        #: The enclosing loops of the current op that are in a second or later iteration.
        self.again: set[int] = set()
        remaining_trips: dict[int, int] = {}  # remaining iterations of the counted loops
        position = tests = repeated = 0
        while position < len(ops):
            op = ops[position]
            if test := Test.match(op):
                tests += 1
                self._bound(tests)
                go = bool(self.array(test.flag).item())
                position = position + 1 if go else self._leave_loop(*extents[test.loop])
            elif (loop := Loop.match(op)) and loop.trips is not None:
                remaining_trips[loop.loop] = loop.trips
                position = position + 1 if loop.trips else self._leave_loop(*extents[loop.loop])
            elif repeat := Repeat.match(op):
                number = repeat.loop
                begin, end = extents[number]
                self.again.add(number)
                if Loop.of(ops[begin]).trips is None:
                    repeated += 1
                    self._bound(repeated)
                remaining_trips[number] = remaining_trips.get(number, 0) - 1
                position = (
                    self._leave_loop(begin, end) if remaining_trips[number] == 0 else begin + 1
                )
            else:
                if op.kind != LOOP:
                    getattr(self, "_" + op.kind.split(".")[1])(op)
                position += 1
        return [self.outputs[v] for v in self.module.main.outputs]

    def _bound(self, rounds: int) -> None:
        """Raise InternalError if a `while` loop ran more iterations than in the reference."""
        if 0 < self.evaluator.loop_evaluations < rounds:
            raise InternalError("a loop runs more iterations than in the reference")

    def array(self, value: Value) -> np.ndarray:
        """Return a buffer's contents as an array of its logical shape (a view, not a copy)."""
        kind: BufferType = value.type
        flat = self.memory[value].view(kind.dtype.numpy)
        shape, strides = cast("Any", (kind.shape, kind.strides))  # a plan's buffers are static
        return strided(flat, shape, strides)

    def _fill(self, value: Value, array: np.ndarray) -> None:
        self.array(value)[...] = array
        self._report(value, array)

    def _report(self, value: Value, array: np.ndarray) -> None:
        if not self.again:
            self.seen(value, array)

    def _leave_loop(self, begin: int, end: int) -> int:
        """Leave a loop and return the position of the next op."""
        op = self.module.main.body.ops[begin]
        self.again.discard(Loop.of(op).loop)
        for value in op.operands:
            self._report(value, self.array(value))
        return end + 1

    def _allocate(self, value: Value) -> None:
        self.memory[value] = np.full(value.type.bytes, 0xA5, np.uint8)

    def _input(self, op: Op) -> None:
        self._allocate(op.result)
        self._fill(op.result, self.inputs[op.operands[0]])

    def _constant(self, op: Op) -> None:
        self._allocate(op.result)
        self._fill(op.result, as_array(Constant.of(op).value, self.module.weights))

    def _alloc(self, op: Op) -> None:
        start = Alloc.of(op).offset
        if start is not None:
            self.memory[op.result] = self.arena[start : start + op.result.type.bytes]
        else:
            self._allocate(op.result)

    def _view(self, op: Op) -> None:
        self.memory[op.result] = self.memory[op.operands[0]]
        self._report(op.result, self.array(op.result))

    def _copy(self, op: Op) -> None:
        source, to = op.operands
        self._fill(to, self.array(source))

    def _launch(self, op: Op) -> None:
        launch = Launch.of(op)
        # A kernel may write before it has read everything, so a result must not overlap an operand.
        # The exception is an operand that it updates in part and does not read.
        over = {number: self.array(op.operands[number]).copy() for _, number in launch.over}
        for value in launch.written:
            self.memory[value][...] = 0xA5
        shared = self.evaluator.shared
        arrays = [
            shared(over[i] if i in over else np.array(self.array(v), order="C"))
            for i, v in enumerate(launch.read)
        ]
        results = self.evaluator.block(op.regions[0], arrays)
        for value, array in zip(launch.written, results, strict=True):
            self._fill(value, array)

    def _output(self, op: Op) -> None:
        self.outputs[op.result] = self.array(op.operands[0]).copy()
        self.seen(op.result, self.outputs[op.result])


def contents(
    module: Module,
    inputs: Mapping[Value, np.ndarray],
    evaluator: Evaluator,
    wanted: Sequence[Value],
) -> tuple[dict[Value, np.ndarray], list[np.ndarray]]:
    """Return the contents of each of ``wanted`` when written, and main's outputs, from one run."""
    kept: dict[Value, np.ndarray] = {}
    targets = set(wanted)

    def seen(value: Value, array: np.ndarray) -> None:
        if value in targets:
            kept[value] = array.copy() if array.base is not None else array

    outputs = BufferMachine(module, evaluator, seen).run(inputs)
    return kept, outputs
