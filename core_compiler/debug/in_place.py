"""An independent check of state that is updated in place.

It finds when the state is written and by which launch, and whether that launch computes the same in
one memory as in two.  It shares no code with `update_in_place`, which decides from the text of a
kernel; here the kernel is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core_compiler.debug.bits import same_bits
from core_compiler.debug.launch_cases import LaunchCase
from core_compiler.debug.memory import loops, roots
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.target import (
    ALLOC,
    COPY,
    INPUT,
    LAUNCH,
    OUTPUT,
    Input,
    Launch,
    Output,
    buffers_written,
)
from core_compiler.kernel_ir.abi import index_arguments
from core_compiler.kernel_ir.interpreter import KernelFault, interpret
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.training.graph.roles import Roles


def complaints(module: Module, facts: Mapping[str, Any]) -> list[str]:
    """Return the errors of results that reuse the memory of an argument, one line each."""
    reusing = [
        op
        for op in module.main.body.ops
        if (output := Output.match(op)) and output.takes is not None
    ]
    if not reusing:
        return []
    state = _State(module, facts["schedules"])
    return [line for op in reusing for line in state.complaints(op)]


class _State:
    """The reads and writes of each memory, in program order."""

    def __init__(self, module: Module, schedules: Mapping[str, Any]):
        self.ops, self.schedules = module.main.body.ops, schedules
        #: Complaints of kernels that have been executed: many parameters share one.
        self.executed: dict[tuple, list[str]] = {}
        self.root = roots(self.ops)
        self.inputs = {Input(op).index: op.result for op in self.ops if op.kind == INPUT}
        self.loop_ranges = loops(self.ops)
        loss = Roles.of(module.main).results.index(("loss", -1))
        (loss_op,) = [op for op in self.ops if op.kind == OUTPUT and Output(op).index == loss]
        writers = [
            at
            for at, op in enumerate(self.ops)
            if self._of(loss_op.operands[0]) in self._written_buffers(op)
        ]
        exchanges = [at for at, op in enumerate(self.ops) if op.kind == LAUNCH and is_exchange(op)]
        #: The launch after which the iteration can no longer be abandoned.
        self.commit_point = max([*(writers or [len(self.ops)]), *exchanges])

    def _of(self, value: Value) -> Value:
        return self.root.get(value, value)

    def _written_buffers(self, op: Op) -> set[Value]:
        if op.kind not in (LAUNCH, COPY):
            return set()
        return {self._of(v) for v in buffers_written(op)}

    def complaints(self, op: Op) -> Iterator[str]:
        result = Output.of(op)
        to, old = self._of(result.buffer), None
        if result.takes is not None:
            old = self.inputs.get(result.takes)
        what = f"result {result.index} in the memory of argument {result.takes}"
        if old is None:
            yield f"{what}: unknown argument"
            return
        if to.type.bytes != old.type.bytes or to.type.dtype is not old.type.dtype:
            yield f"{what}: {to.type} does not fit {old.type}"
        if not any(o.kind == ALLOC and o.result is to for o in self.ops):
            yield f"{what}: {to} is not an allocation"
        writers = [at for at, o in enumerate(self.ops) if to in self._written_buffers(o)]
        if len(writers) != 1:
            yield f"{what}: {len(writers)} launches write to it"
            return
        (at,) = writers
        accesses = (LAUNCH, COPY)
        readers = [
            i
            for i, o in enumerate(self.ops)
            if o.kind in accesses and old in map(self._of, o.operands)
        ]
        if any(i > at for i in readers):
            yield f"{what}: {old} is read after it is written"
        if at <= self.commit_point:
            yield f"{what}: it is written before the loss is known"
        if any(begin < at < end for begin, end in self.loop_ranges):
            yield f"{what}: it is written in a loop"
        launch = self.ops[at]
        if at in readers and launch.kind == LAUNCH:
            yield from (f"{what}: {line}" for line in self._check_shared_memory(launch, to, old))

    def _check_shared_memory(self, launch: Op, to: Value, old: Value) -> list[str]:
        """Check that the launch's kernel computes the same with ``to`` in the memory of ``old``."""
        case = LaunchCase(launch, self.schedules[Launch.of(launch).kernel])
        read = [i for i, v in enumerate(case.buffers) if self._of(v) is old]
        wrote = [i for i in case.outputs if self._of(case.buffers[i]) is to]
        both = [case.buffers[i].type for i in (*read, *wrote)]
        kinds = {(kind.shape, kind.strides) for kind in both}
        if len(read) != 1 or len(wrote) != 1 or len(kinds) != 1:
            return [f"{case.first.name} reads {old} {len(read)} times, in {len(kinds)} layouts"]
        key = case.first.name, read[0], wrote[0], tuple(case.sizes)
        if key not in self.executed:
            self.executed[key] = list(_executed(case, read[0], wrote[0]))
        return self.executed[key]


def _executed(case: LaunchCase, read: int, wrote: int) -> Iterator[str]:
    """Execute a kernel with two of its buffers in one memory and in two, forwards and backwards."""
    sizes = case.sizes[: len(index_arguments(case.first))]
    made = []
    for shared in (False, True):
        for backwards in (False, True):
            buffers = [
                case.fresh(v) if i in case.outputs else case.memory[v].copy()
                for i, v in enumerate(case.buffers)
            ]
            # A launch that writes a part leaves the other elements unchanged: the same in both.
            buffers[wrote] = buffers[read] if shared else buffers[read].copy()
            try:
                interpret(case.first, buffers, sizes, backwards)
            except KernelFault as fault:
                yield str(fault)
                return
            made.append([buffers[i] for i in case.outputs])
    if not all(map(same_bits, [a for found in made[1:] for a in found], 3 * made[0])):
        yield (
            f"{case.first.name} computes other values in one buffer than in two: "
            "it writes elements that it reads later"
        )
