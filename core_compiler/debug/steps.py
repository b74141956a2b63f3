"""Running the steps of a kernel's schedule in the interpreter: the first that changes a bit.

The interpreter takes microseconds for each number, so a launch is tried on a part of its iteration
space: kernels take their extents as arguments, and with smaller ones and the same strides the same
kernel computes a corner of its results.  The part is chosen to hold full tiles and edge tiles of
every loop, and more than one chunk of a sum.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from core_compiler.debug.check import same_bits, worst_error
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.remembered import Remembered
from core_compiler.ir import Function, Module, Op, Value
from core_compiler.ir.core import structure_key
from core_compiler.ir.events import CheckRecord
from core_compiler.kernels.abi import buffer_arguments, index_arguments
from core_compiler.kernels.interpreter import KernelFault, interpret
from core_compiler.kernels.ops import element
from core_compiler.ops.base import cost
from core_compiler.passes.bufferize import OVER

#: Points of the iteration space that are tried at the most, unless the least extents have more.
MOST_POINTS = 150_000
#: A wrong launch with at most this many operations is tried whole, to tell wrong plain loops.
MOST_FLOPS = 2_000_000
#: Least extents that a part keeps: of rows in all (the longest register tile has 14), of columns
#: (vectors and their tiles have up to 32), of a sum alone (chunks of 256 terms) and of one that
#: has taps too (channel blocks of 32).
ROWS, COLUMNS, TERMS, CHANNELS = 17, 37, 261, 37
#: Our own files that decide about the check of a schedule.
_SOURCES = ("kernels/**/*.py", "debug/steps.py")
#: Stands for a step's name where the unscheduled loops are wrong already.
NOT_THE_MEANING = "the plain loops"


_COMPARISONS = {"kernel.lt", "kernel.le", "kernel.gt", "kernel.ge"}


def check_schedules(
    module: Module, schedules: Mapping[str, Any], loops: dict[str, list] | None = None
) -> Iterator[CheckRecord]:
    """Each scheduled kernel against its plain loops, on parts of its first launch.

    One record a kernel; a failed one names the first step that changed a bit.  ``loops`` gets what
    the plain loops computed: for each kernel a list, one entry a part.
    """
    remembered = Remembered("schedules", _SOURCES)
    for launch in first_launches(module, schedules):
        kernel = launch["kernel"]
        started = time.perf_counter()
        scheduled = schedules[kernel]
        tried = list(cases(launch, scheduled))
        key = _key(launch, scheduled, tried)
        found = None
        for case in tried if key not in remembered else ():
            wanted = case.loops()
            if loops is not None:
                loops.setdefault(kernel, []).append(wanted)
            found = _first_bad(case, wanted)
            if found is not None:
                break
        value = launch.operands[launch["reads"]]
        spent = time.perf_counter() - started
        if found is None:
            if key not in remembered:
                remembered.add(key)
            note = f"kernel {kernel}: {len(scheduled.steps) - 1} schedule steps, "
            note += "; ".join(case.extents() for case in tried)
            yield CheckRecord(None, "bitwise", 0.0, 0.0, value, (), spent, note)
        else:
            yield CheckRecord(None, "failed", found.error, 0.0, value, (), spent, found.note)


def _key(launch: Op, scheduled: Any, tried: Sequence[LaunchCase]) -> str:
    """What decides about a schedule's check: the kernel before and after it, what it invokes and
    what packs for it, the sizes and the buffers."""
    first, plan = scheduled.steps[0].function, scheduled.launch
    parts = [("plain", first), ("scheduled", scheduled.function), *scheduled.cores.items()]
    if plan is not None:
        parts += [(f"pack {place}", pack) for place, pack in plan.pack.items()]
    kernels = Module({name: function.with_(name=name) for name, function in parts})
    sizes = [(c.sizes, c.negated, plan.more_sizes(c.sizes, 1) if plan is not None else ())
             for c in tried]  # fmt: skip
    types = [str(v.type) for v in launch.operands]
    said = repr((structure_key(kernels), sizes, types, launch["arguments"], launch.get(OVER, ())))
    return hashlib.sha256(said.encode()).hexdigest()


def cases(launch: Op, scheduled: Any) -> Iterator[LaunchCase]:
    """The parts of a launch that a kernel is tried on: one with full tiles and their edges, and one
    so small that edges are all there is; where a result depends on which of two floats is larger,
    that once more with all floats negated."""
    first = LaunchCase(launch, scheduled)
    yield first
    sizes = least(first.first, first.sizes)
    if sizes != first.sizes:
        yield LaunchCase(launch, scheduled, sizes)
    if _compares(first.first):
        yield LaunchCase(launch, scheduled, sizes, negated=True)


def _compares(function: Function) -> bool:
    """Whether a kernel compares floats."""
    return any(
        op.kind in _COMPARISONS and getattr(element(op.operands[0].type), "is_float", False)
        for op in function.body.walk()
    )


def first_launches(module: Module, schedules: Mapping[str, Any]) -> list[Op]:
    """The first launch of each scheduled kernel, in program order."""
    found: dict[str, Op] = {}
    for op in module.main.body.ops:
        if op.kind == "target.launch" and op["kernel"] in schedules:
            found.setdefault(op["kernel"], op)
    return list(found.values())


@dataclass(frozen=True)
class BadStep:
    """The first step of a kernel's schedule that is wrong: its number, what is wrong, and how far
    its results are off, relative to the largest right one (NaN where it has none)."""

    number: int
    note: str
    error: float = math.nan


def first_bad_step(
    launch: Op, scheduled: Any, evaluator: Evaluator | None = None
) -> BadStep | None:
    """The first step with which ``launch``'s kernel does not give the bits of its plain loops on a
    part of the launch, or, where the launch is small enough to be tried whole and there is an
    ``evaluator``, of the launch's meaning (number 0: the plain loops are wrong already).  None
    where all steps are right.

    Binary search, as a step that changed bits is seldom undone by a later one.  Floats are seeded
    random numbers, integers 0 and 1.
    """
    flops = sum(cost(op).flops for op in launch.regions[0].ops if op.kind != "core.constant")
    if evaluator is not None and flops <= MOST_FLOPS:
        case = LaunchCase(launch, scheduled, whole(launch))
        return _first_bad(case, case.meaning(evaluator))
    tried = (_first_bad(case, case.loops()) for case in cases(launch, scheduled))
    return next((found for found in tried if found is not None), None)


def _first_bad(case: LaunchCase, wanted: list[np.ndarray] | KernelFault) -> BadStep | None:
    scheduled = case.scheduled
    states = _states(scheduled)
    told = f"kernel {scheduled.function.name}"
    if isinstance(wanted, KernelFault):
        return BadStep(0, f"{told}: {NOT_THE_MEANING}: {wanted}")

    def fault(place: int) -> BadStep | None:
        number = min(place, len(scheduled.steps) - 1)
        try:
            results = case.interpreted(*states[place])
        except KernelFault as error:
            return BadStep(number, f"{told}: {error}")
        if all(map(same_bits, wanted, results)):
            return None
        worst = max(worst_error(a, b)[0] for a, b in zip(wanted, results, strict=True))
        name = NOT_THE_MEANING if place == 0 else scheduled.steps[number].name
        return BadStep(number, f"{told}: {name} changed the bits of its results", worst)

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
    return found


def part(kernel: Function, sizes: Sequence[int]) -> list[int]:
    """Values for an unscheduled kernel's index arguments that leave few points to compute.

    Extents of loops get smaller, strides and bounds stay, so every access stays inside the buffers.
    """
    bounds, capped, other = read_extents(kernel)
    bounds.update(dict.fromkeys(capped - other - bounds.keys(), "sequential"))
    given, sizes = sizes, list(sizes)
    parallel = [i for i, loop in bounds.items() if loop == "parallel"]
    terms = [i for i, loop in bounds.items() if loop != "parallel"]

    def points() -> int:
        return math.prod(max(sizes[i], 1) for i in bounds)

    def shrink(places: Sequence[int], least: int) -> None:
        """Make extents smaller while need be: outer ones to 2, the last so that ``least`` points
        are left in all."""
        for i in places:
            rest = math.prod(max(sizes[j], 1) for j in places if j != i)
            if points() > MOST_POINTS:
                sizes[i] = min(sizes[i], 2 if i != places[-1] else -(-least // rest))

    shrink(parallel[:-1], ROWS)
    # A tap's extent is small and stays; what is left is the channels, or the terms of a sum alone.
    shrink([max(terms, key=lambda i: sizes[i])] if terms else [], CHANNELS if terms[1:] else TERMS)
    shrink(parallel[-1:], COLUMNS)
    # Scratch memory of a size that got smaller holds less for the loops that read a part of it.
    place = {v: i for i, v in enumerate(index_arguments(kernel))}
    for a in {place[v] for op in kernel.body.walk() if op.kind == "kernel.alloc"
              for v in op.operands if v in place}:  # fmt: skip
        for i in bounds:
            if sizes[a] < given[a] and given[i] <= given[a]:
                sizes[i] = min(sizes[i], sizes[a])
    return sizes


def least(kernel: Function, sizes: Sequence[int]) -> list[int]:
    """``sizes`` with the extents of parallel loops that are nothing else at 3 or less."""
    free = only_parallel(kernel)
    return [min(n, 3) if i in free else n for i, n in enumerate(sizes)]


def read_extents(kernel: Function) -> tuple[dict[int, str], set[int], set[int]]:
    """How an unscheduled kernel reads its index arguments, by their numbers: those that bound loops
    with the kind of loop (the first one), those that a ``kernel.min`` reads (it cuts off the last
    chunk of a sum), and those that decide something else or bound loops of several kinds."""
    place = {v: i for i, v in enumerate(index_arguments(kernel))}
    bounds: dict[int, str] = {}
    capped: set[int] = set()
    other: set[int] = set()
    for op in kernel.body.walk():
        for number, value in enumerate(op.operands):
            if value not in place:
                continue
            if op.kind != "kernel.for" or number != 1:
                (capped if op.kind == "kernel.min" else other).add(place[value])
            elif bounds.setdefault(place[value], op["loop"]) != op["loop"]:
                other.add(place[value])
    return bounds, capped, other


def only_parallel(kernel: Function) -> list[int]:
    """The index arguments that bound parallel loops and decide nothing else: with smaller ones the
    kernel computes fewer of the same results."""
    bounds, capped, other = read_extents(kernel)
    return [i for i, loop in bounds.items() if loop == "parallel" and i not in capped | other]


def whole(launch: Op) -> list[int]:
    """The sizes that a launch has."""
    return [n for kind, n in launch["arguments"] if kind == "size"]


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


class LaunchCase:
    """The data of one launch: each buffer's memory in its own layout.  ``sizes``: the values of its
    index arguments, at most those that the launch has; by default those of a ``part``.
    ``negated``: floats have the other sign."""

    def __init__(
        self, launch: Op, scheduled, sizes: Sequence[int] | None = None, negated: bool = False
    ):
        self.launch, self.scheduled, self.negated = launch, scheduled, negated
        self.first = scheduled.steps[0].function
        self.given = whole(launch)
        self.sizes = part(self.first, self.given) if sizes is None else list(sizes)
        reads = launch["reads"]
        places = [
            (kind, n if kind == "operand" else reads + n)
            for kind, n in launch["arguments"]
            if kind != "size"
        ]
        self.buffers = [launch.operands[n] for _, n in places]
        self.outputs = [i for i, (kind, _) in enumerate(places) if kind == "result"]
        #: Results that a kernel writes a part of -> what they hold beforehand.
        self.over = {
            launch.operands[reads + result]: launch.operands[number]
            for result, number in launch.get(OVER, ())
        }

    def hold(self, value: Value, array: np.ndarray) -> None:
        """Let a buffer that the launch reads hold a tensor."""
        _view(self.memory[value], value.type)[...] = array

    def extents(self) -> str:
        """What was made smaller, for people."""
        names = [v.name for v in index_arguments(self.first)]
        changed = zip(names, self.given, self.sizes, strict=True)
        smaller = [f"{name} = {new} of {old}" for name, old, new in changed if new != old]
        smaller += ["floats negated"] if self.negated else []
        return ", ".join(smaller) or "whole launch"

    @cached_property
    def memory(self) -> dict[Value, np.ndarray]:
        """Each buffer's elements, in the order of its memory."""
        random = np.random.default_rng(7)
        made = {v: _filled(v.type, random) for v in self.launch.operands}
        if self.negated:
            made = {v: -a if v.type.dtype.is_float else a for v, a in made.items()}
        return made

    def loops(self) -> list[np.ndarray] | KernelFault:
        """The results by the plain loops."""
        try:
            return self.interpreted(*_states(self.scheduled)[0])
        except KernelFault as error:
            return error

    def loops_over(self, pattern: int) -> list[np.ndarray]:
        """The results by the plain loops, in memory that holds bytes of ``pattern`` beforehand."""
        buffers = [
            np.full(self.memory[v].nbytes, pattern, np.uint8).view(self.memory[v].dtype)
            if i in self.outputs and v not in self.over else self.fresh(v)
            if i in self.outputs else self.memory[v]
            for i, v in enumerate(self.buffers)
        ]  # fmt: skip
        interpret(self.first, buffers, self.sizes[: len(index_arguments(self.first))])
        return [buffers[i] for i in self.outputs]

    def meaning(self, evaluator: Evaluator) -> list[np.ndarray]:
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
        return [made[self.buffers[i]] for i in self.outputs]

    def fresh(self, value: Value) -> np.ndarray:
        """A result's memory before the kernel runs."""
        old = self.over.get(value)
        return np.zeros_like(self.memory[value]) if old is None else self.memory[old].copy()

    def interpreted(self, function, known) -> list[np.ndarray]:
        """The results by one step of the schedule."""
        sizes, plan = list(self.sizes), self.scheduled.launch
        if plan is not None:
            sizes += plan.more_sizes(self.sizes, 1)
        buffers = [
            self.fresh(v) if i in self.outputs else self.memory[v]
            for i, v in enumerate(self.buffers)
        ]
        for place, pack in plan.pack.items() if plan is not None else ():
            if buffer_arguments(function)[place].type != buffer_arguments(self.first)[place].type:
                packed = np.zeros(plan.packed_elements(self.sizes), buffers[place].dtype)
                interpret(pack, [buffers[place], packed], plan.pack_arguments(place, self.sizes))
                buffers[place] = packed
        interpret(function, buffers, sizes[: len(index_arguments(function))], functions=known)
        return [buffers[i] for i in self.outputs]


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
