"""Check of machine code at sizes other than those of its launches, with one and several threads.

A kernel takes its extents as arguments, and every launch of it is divided into slices of work
items: correct launches of one model say little about others.  Here each compiled kernel becomes a
program of its own, executed on the parts on which its schedule was checked (`launch_cases`), with
one thread and with a number that does not divide its items evenly.  Its results are compared, bit
for bit, with its plain loops in the interpreter, and nothing after its results may change.  CPU
code is executed in a subprocess: a wrong address is reported as the kernel's fault, not as a crash.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.debug.bits import differing, same_bits
from core_compiler.debug.check import numbers, worst_error
from core_compiler.debug.isolated_execution import CannotExecute, ProcessDied, execute
from core_compiler.debug.kernels import KernelCheck
from core_compiler.debug.launch_cases import LaunchCase, cases, first_launches
from core_compiler.debug.remembered import KERNEL_SOURCES, PassedChecks
from core_compiler.ir import Block, Function, Module, Op, Value, buffer, dense
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.target import ALLOC, CONSTANT, COPY, INPUT, OUTPUT, OVER, Launch
from core_compiler.kernel_ir.interpreter import KernelFault
from core_compiler.passes.outline_kernels import is_exchange

#: Numbers of threads that each part is executed with.
THREADS = (1, 3)
#: Elements after each result that must keep their bits.
GUARD = 256
_SOURCES = (
    "codegen/**/*.py",
    *KERNEL_SOURCES,
    "targets/*.py",
    "runtime/*.py",
    "debug/extents.py",
    "debug/flips.py",
    "debug/launch_cases.py",
    "debug/hurtful.py",
    "debug/machine_code.py",
    "debug/isolated_execution.py",
)


def check_code(
    module: Module, facts: Mapping[str, Any], target: Any, loops: Mapping[str, Sequence]
) -> Iterator[KernelCheck]:
    """Yield one check per kernel, for its first launch: ``bitwise`` or ``failed``.

    ``loops`` are the results of the plain loops, from
    :func:`~core_compiler.debug.steps.check_schedules`; they are computed here if missing.
    """
    passed = PassedChecks("code", _SOURCES)
    for launch in first_launches(module, facts["schedules"]):
        if is_exchange(launch):
            continue  # shards execute it together
        started = time.perf_counter()
        kernel = Launch.of(launch).kernel
        scheduled = facts["schedules"][kernel]
        value = Launch.of(launch).written[0]
        key = _key(launch, facts)
        threads = _list_threads(THREADS)
        note = f"kernel {kernel}: machine code on parts of its launch, {threads} threads"
        fault = None
        if key not in passed:
            fault = _fault(launch, scheduled, module, facts, target, loops.get(kernel, ()))
            if fault is None:
                passed.add(key)
        spent = time.perf_counter() - started
        record = CheckRecord(None, "bitwise", 0.0, 0.0, value, (), spent, note)
        if fault is not None:
            record = CheckRecord(None, "failed", seconds=spent, **fault)
        yield KernelCheck(launch, kernel, record)


def _list_threads(threads: Sequence[int]) -> str:
    return " and ".join(map(str, threads))


def _fault(
    launch, scheduled, module, facts, target, precomputed: Sequence
) -> dict[str, Any] | None:
    """Return the fault on the first wrong part, or None."""
    kernel = Launch.of(launch).kernel
    for number, case in enumerate(cases(launch, scheduled)):
        wanted = precomputed[number] if number < len(precomputed) else case.loops()
        if isinstance(wanted, KernelFault):
            return None  # the schedule's check reports it
        program = IsolatedLaunch(case, module)
        for threads in THREADS:
            subject = f"kernel {kernel}: its machine code on {case.extents()}, on {threads} "
            subject += "thread" if threads == 1 else "threads"
            try:
                got, guards = program.executed(facts, target, threads)
            except ProcessDied as how:
                value = case.buffers[case.outputs[0]]
                return {"worst_error": float("inf"), "value": value, "note": f"{subject}, {how}"}
            for index, want, actual in zip(case.outputs, wanted, got, strict=True):
                buffer_ = case.buffers[index]
                if not same_bits(want, actual):
                    return _differ(
                        want, actual, buffer_, f"{subject}, differs from its plain loops"
                    )
            for index, guard in zip(case.outputs, guards, strict=True):
                if not guard:
                    note = f"{subject}, writes past the end of its result"
                    return {"worst_error": float("inf"), "value": case.buffers[index], "note": note}
    return None


def _differ(want: np.ndarray, got: np.ndarray, value: Value, note: str) -> dict[str, Any]:
    error, index = worst_error(want, got)
    if error == 0.0:
        index = tuple(map(int, np.argwhere(differing(want, got))[0]))
    return {
        "worst_error": error,
        "value": value,
        "index": index,
        "note": note,
        **numbers(want, got, index),
    }


class IsolatedLaunch:
    """A launch as a planned module of its own.

    Everything that it reads is an input (data packed by its schedule: a constant), and each result
    is first copied from an input, followed by a guard area.
    """

    def __init__(self, case: LaunchCase, module: Module):
        launch = case.launch
        given = Launch.of(launch)
        packed = case.scheduled.launch.pack if case.scheduled.launch is not None else ()
        constants = {case.buffers[position] for position in packed}
        self.case, self.ops = case, []
        self.inputs: list[np.ndarray] = []
        self.arguments: list[Value] = []
        self.results: list[Value] = []
        copies: dict[Value, Value] = {}
        for value in given.read:
            if value not in copies:
                array = case.memory[value]
                copies[value] = self._constant(array) if value in constants else self._input(array)
        made = {value: self._result(value) for value in given.written}
        operands = [*(copies[v] for v in given.read), *(made[v] for v in given.written)]
        sizes = iter(case.sizes)
        arguments = tuple(
            (kind, next(sizes) if kind == "size" else number) for kind, number in given.arguments
        )
        attributes = {k: v for k, v in launch.attributes.items() if k != OVER}
        self.ops.append(
            launch.with_(
                operands=tuple(operands), attributes={**attributes, "arguments": arguments}
            )
        )
        self.positions = [self.results.index(made[case.buffers[i]]) for i in case.outputs]
        for index, value in enumerate(self.results):
            self.ops.append(Op(OUTPUT, (value,), (), {"index": index}))
        body = Block(tuple(self.arguments), tuple(self.ops), tuple(self.results))
        main = Function("main", body, level="target")
        self.module = Module({**module.functions, "main": main})

    def _input(self, array: np.ndarray) -> Value:
        index, value = len(self.inputs), _flat(array)
        self.inputs.append(array)
        self.arguments.append(_flat(array))
        self.ops.append(Op(INPUT, (), (value,), {"index": index}))
        return value

    def _constant(self, array: np.ndarray) -> Value:
        value = _flat(array)
        self.ops.append(Op(CONSTANT, (), (value,), {"value": dense(array)}))
        return value

    def _result(self, value: Value) -> Value:
        before = self.case.fresh(value)
        guard = np.full(GUARD * before.itemsize, 0xA5, np.uint8).view(before.dtype)
        given = np.concatenate([before, guard])
        held, made = self._input(given), _flat(given)
        index = len(self.results)
        self.ops.append(Op(ALLOC, (), (made,), {"size": given.nbytes, "output": index}))
        self.ops.append(Op(COPY, (held, made), (), {"reason": "what it holds beforehand"}))
        self.results.append(made)
        return made

    def executed(self, facts: Mapping[str, Any], target: Any, threads: int):
        """Return each output's memory, and whether its guard area kept its bits."""
        program = target.link(self.module, facts, {"threads": threads})
        if target.runs_in_subprocess:
            linked, constants = program[:2]
            try:
                found = execute(linked, constants, self.inputs, threads, target.cache.folder.root)
            except CannotExecute:
                device = target.device(threads=threads)
                device.spreads = True
                found = device.load(linked, constants)(*self.inputs)
        else:
            load = target.load(self.module, {**facts, "program": program}, threads=threads)
            found = load(*self.inputs)
        arrays = [found[position] for position in self.positions]
        kept = [np.all(a[-GUARD:].view(np.uint8) == 0xA5) for a in arrays]
        return [a[:-GUARD] for a in arrays], kept


def _flat(array: np.ndarray) -> Value:
    return Value(buffer(array.shape, array.dtype, (1,)))


def _key(launch: Op, facts: Mapping[str, Any]) -> str:
    """Return the cache key of a launch.

    It covers the code of its kernels and packers, its sizes and its buffers.
    """
    given = Launch.of(launch)
    compiled, scheduled = facts["compiled"], facts["schedules"][given.kernel]
    packed = scheduled.launch.pack if scheduled.launch is not None else ()
    packers = [facts["packers"][given.kernel, index] for index in packed]
    names = (given.kernel, *scheduled.cores, *packers)
    keys = [compiled[name].ref.key for name in names if name in compiled]
    types = [str(v.type) for v in launch.operands]
    text = repr((keys, given.arguments, given.over, types))
    return hashlib.sha256(text.encode()).hexdigest()
