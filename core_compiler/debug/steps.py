"""Running the steps of a kernel's schedule in the interpreter: the first that changes a bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.debug.evaluate import Evaluator
from core_compiler.ir import Function, Op
from core_compiler.kernels.abi import buffer_arguments, index_arguments
from core_compiler.kernels.interpreter import KernelFault, interpret
from core_compiler.ops.base import cost

#: Launches with more operations than this are not interpreted (some microseconds each).
MOST_FLOPS = 2_000_000
#: Stands for a step's name where the unscheduled loops are wrong already.
NOT_THE_MEANING = "the plain loops"


def first_bad_step(launch: Op, scheduled, evaluator: Evaluator) -> tuple[int, str] | None:
    """(number, what is wrong) of the first step with which ``launch``'s kernel does not give the
    bits of the launch's meaning; 0 stands for the unscheduled loops.  None where all steps are
    right, or the launch is too large to interpret.

    Binary search, as a step that changed bits is seldom undone by a later one.  Floats are seeded
    random numbers, integers 0 and 1.
    """
    flops = sum(cost(op).flops for op in launch.regions[0].ops if op.kind != "core.constant")
    if flops > MOST_FLOPS:
        return None
    case = _Case(launch, scheduled)
    wanted = case.meaning(evaluator)
    states = _states(scheduled)

    def fault(place: int) -> str | None:
        try:
            same = case.interpreted(*states[place]) == wanted
        except KernelFault as error:
            return str(error)
        return None if same else f"{_name(scheduled, place)} changed the bits of its results"

    good, bad = -1, len(states) - 1
    found = fault(bad)
    if found is None:
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        here = fault(middle)
        if here is None:
            good = middle
        else:
            bad, found = middle, here
    return min(bad, len(scheduled.steps) - 1), f"kernel {scheduled.function.name}: {found}"


def _name(scheduled, place: int) -> str:
    if place == 0:
        return NOT_THE_MEANING
    return scheduled.steps[min(place, len(scheduled.steps) - 1)].name


def _states(scheduled) -> list[tuple[Function, dict[str, Function]]]:
    """The kernel and the kernels that it invokes after each step, and as they are in the end."""
    first = scheduled.steps[0].function
    function, known = first, dict(scheduled.cores)
    states = []
    for step in scheduled.steps:
        if step.kernel == first.name:
            function = step.function
        else:
            known = {**known, step.kernel: step.function}
        states.append((function, known))
    return [*states, (scheduled.function, dict(scheduled.cores))]


class _Case:
    """The data of one launch: each buffer's memory in its own layout."""

    def __init__(self, launch: Op, scheduled):
        self.launch, self.scheduled = launch, scheduled
        self.first = scheduled.steps[0].function
        self.sizes = [n for kind, n in launch["arguments"] if kind == "size"]
        reads = launch["reads"]
        places = [
            (kind, n if kind == "operand" else reads + n)
            for kind, n in launch["arguments"]
            if kind != "size"
        ]
        random = np.random.default_rng(7)
        self.memory = {v: _filled(v.type, random) for v in launch.operands}
        self.buffers = [launch.operands[n] for _, n in places]
        self.outputs = [i for i, (kind, _) in enumerate(places) if kind == "result"]

    def meaning(self, evaluator: Evaluator) -> bytes:
        """The results by the launch's region, as they would lie in memory."""
        reads = self.launch["reads"]
        arrays = [
            np.array(_view(self.memory[v], v.type), order="C") for v in self.launch.operands[:reads]
        ]
        results = evaluator.block(self.launch.regions[0], arrays)
        made = {}
        for value, array in zip(self.launch.operands[reads:], results, strict=True):
            flat = np.zeros_like(self.memory[value])
            _view(flat, value.type)[...] = array
            made[value] = flat
        return b"".join(made[self.buffers[i]].tobytes() for i in self.outputs)

    def interpreted(self, function, known) -> bytes:
        """The results by one step of the schedule."""
        sizes, plan = list(self.sizes), self.scheduled.launch
        if plan is not None:
            sizes += plan.more_sizes(self.sizes, 1)
        buffers = [
            np.zeros_like(self.memory[v]) if i in self.outputs else self.memory[v]
            for i, v in enumerate(self.buffers)
        ]
        for place, pack in plan.pack.items() if plan is not None else ():
            if buffer_arguments(function)[place].type != buffer_arguments(self.first)[place].type:
                packed = np.zeros(plan.packed_elements(self.sizes), buffers[place].dtype)
                interpret(pack, [buffers[place], packed], plan.pack_arguments(place, self.sizes))
                buffers[place] = packed
        interpret(function, buffers, sizes[: len(index_arguments(function))], functions=known)
        return b"".join(buffers[i].tobytes() for i in self.outputs)


def _filled(kind: Any, random) -> np.ndarray:
    """Memory for a ``BufferType`` of numbers: as many elements as its strides reach."""
    count = (
        1 + sum((n - 1) * s for n, s in zip(kind.shape, kind.strides, strict=True))
        if (all(kind.shape))
        else 0
    )
    if kind.dtype.is_float:
        return random.standard_normal(count).astype(kind.dtype.numpy)
    return random.integers(0, 2, count).astype(kind.dtype.numpy)


def _view(flat: np.ndarray, kind: Any) -> np.ndarray:
    strides = [s * flat.itemsize for s in kind.strides]
    return np.lib.stride_tricks.as_strided(flat, kind.shape, strides)
