"""Execution of the steps of a kernel's schedule in the interpreter, to find a wrong step.

The interpreter takes microseconds per element, so a launch is tried on a part of its iteration
space: kernels take their extents as arguments, and with smaller ones and the same strides the same
kernel computes a corner of its results.  The part is chosen to contain full tiles and edge tiles of
every loop, and more than one chunk of a sum.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import worst_error
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.extents import launch_sizes
from core_compiler.debug.launch_cases import LaunchCase, cases, first_launches, states
from core_compiler.debug.remembered import KERNEL_SOURCES, PassedChecks
from core_compiler.ir import Module, Op
from core_compiler.ir.core import structure_key
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.target import Launch
from core_compiler.kernel_ir.interpreter import KernelFault
from core_compiler.ops.costs import cost

#: A wrong launch with at most this many operations is tried whole, to find wrong plain loops.
MOST_FLOPS = 2_000_000
#: Our own files that affect the check of a schedule.
_SOURCES = (
    *KERNEL_SOURCES,
    "debug/steps.py",
    "debug/extents.py",
    "debug/launch_cases.py",
    "debug/flips.py",
    "debug/hurtful.py",
)
#: The name of the step if the unscheduled loops are wrong already.
PLAIN_LOOPS = "the plain loops"


def check_schedules(
    module: Module, schedules: Mapping[str, Any], loops: dict[str, list] | None = None
) -> Iterator[CheckRecord]:
    """Check each scheduled kernel against its plain loops, on parts of its first launch.

    Yields one record per kernel; a failed one names the first step that changed a bit.  ``loops``
    is filled with the results of the plain loops: for each kernel a list, one entry per part.
    """
    passed = PassedChecks("schedules", _SOURCES)
    for launch in first_launches(module, schedules):
        kernel = Launch.of(launch).kernel
        started = time.perf_counter()
        scheduled = schedules[kernel]
        tried = list(cases(launch, scheduled))
        key = _key(launch, scheduled, tried)
        found = None
        for case in tried if key not in passed else ():
            wanted = case.loops()
            if loops is not None:
                loops.setdefault(kernel, []).append(wanted)
            found = _first_bad(case, wanted)
            if found is not None:
                break
        value = Launch.of(launch).written[0]
        spent = time.perf_counter() - started
        if found is None:
            if key not in passed:
                passed.add(key)
            note = f"kernel {kernel}: {len(scheduled.steps) - 1} schedule steps, "
            note += "; ".join(case.extents() for case in tried)
            yield CheckRecord(None, "bitwise", 0.0, 0.0, value, (), spent, note)
        else:
            yield CheckRecord(None, "failed", found.error, 0.0, value, (), spent, found.note)


def _key(launch: Op, scheduled: Any, tried: Sequence[LaunchCase]) -> str:
    """Return the cache key of a schedule's check.

    It covers the kernel before and after scheduling, the kernels that it invokes and that pack for
    it, the sizes and the buffers.
    """
    first, plan = scheduled.steps[0].function, scheduled.launch
    parts = [("plain", first), ("scheduled", scheduled.function), *scheduled.cores.items()]
    if plan is not None:
        parts += [(f"pack {index}", pack) for index, pack in plan.pack.items()]
    kernels = Module({name: function.with_(name=name) for name, function in parts})
    sizes = [
        (c.sizes, c.kind, plan.more_sizes(c.sizes, 1) if plan is not None else ()) for c in tried
    ]
    types, given = [str(v.type) for v in launch.operands], Launch.of(launch)
    text = repr((structure_key(kernels), sizes, types, given.arguments, given.over))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class BadStep:
    """The first wrong step of a kernel's schedule: its number and the fault.

    Also the error of its results, relative to the largest right one (NaN if it has none).
    """

    number: int
    note: str
    error: float = math.nan


def first_bad_step(
    launch: Op, scheduled: Any, evaluator: Evaluator | None = None
) -> BadStep | None:
    """Return the first step whose kernel differs bitwise from its plain loops, or None.

    The comparison uses a part of the launch; if the launch is small enough to be tried whole and
    there is an ``evaluator``, it is also compared with the launch's region (number 0: the plain
    loops are wrong already).  None if all steps are right.  The search is binary, as a step that
    changed bits is rarely undone by a later one.  Floats are seeded random values, integers 0 and
    1.
    """
    flops = sum(cost(op).flops for op in launch.regions[0].ops if op.kind != "core.constant")
    if evaluator is not None and flops <= MOST_FLOPS:
        case = LaunchCase(launch, scheduled, launch_sizes(launch))
        return _first_bad(case, case.meaning(evaluator))
    tried = (_first_bad(case, case.loops()) for case in cases(launch, scheduled))
    return next((found for found in tried if found is not None), None)


def _first_bad(case: LaunchCase, wanted: list[np.ndarray] | KernelFault) -> BadStep | None:
    scheduled = case.scheduled
    after = states(scheduled)
    subject = f"kernel {scheduled.function.name}"
    if isinstance(wanted, KernelFault):
        return BadStep(0, f"{subject}: {PLAIN_LOOPS}: {wanted}")

    def fault(position: int) -> BadStep | None:
        number = min(position, len(scheduled.steps) - 1)
        try:
            results = case.interpreted(*after[position])
        except KernelFault as error:
            return BadStep(number, f"{subject}: {error}")
        if all(map(same_bits, wanted, results)):
            return None
        worst = max(worst_error(a, b)[0] for a, b in zip(wanted, results, strict=True))
        name = PLAIN_LOOPS if position == 0 else scheduled.steps[number].name
        return BadStep(number, f"{subject}: {name} changed the bits of its results", worst)

    good, bad = -1, len(after) - 1
    found = fault(bad)
    if found is None:
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        middle_fault = fault(middle)
        if middle_fault is None:
            good = middle
        else:
            bad, found = middle, middle_fault
    return found
