"""Check of the plain loops of outlined kernels against the regions that they implement.

A kernel is interpreted before it is scheduled, so the check needs neither a device nor a compiler.
The interpreter takes microseconds per term: extents of parallel loops that serve only as bounds are
made small, reductions keep all their terms.  The elements that the kernel then writes are compared,
bit for bit, with the same elements of its region, evaluated at full size by the references.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from core_compiler.debug.bits import differing, same_bits
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.extents import launch_sizes, only_parallel, points
from core_compiler.debug.launch_cases import (
    CHOSEN_INTEGERS,
    LaunchCase,
    adversarial_cases,
    first_launches,
)
from core_compiler.debug.metric import distance
from core_compiler.debug.remembered import KERNEL_SOURCES, PassedChecks
from core_compiler.ir import Block, Function, Module, Op, Value
from core_compiler.ir.core import structure_key
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.target import Launch
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments
from core_compiler.kernel_ir.interpreter import KernelFault
from core_compiler.kernel_ir.ops import access
from core_compiler.scheduling.transforms.edit import constant_of, depends_on, producers

#: Maximum number of terms of an interpreted launch, once its parallel extents are small.
MOST_TERMS = 60_000
#: Fill patterns that distinguish elements written by the kernel from earlier contents.
_PATTERNS = (0xA5, 0x3C)
_SOURCES = (
    *KERNEL_SOURCES,
    "ops/**/*.py",
    "debug/loops.py",
    "debug/extents.py",
    "debug/launch_cases.py",
    "debug/flips.py",
    "debug/hurtful.py",
)


def check_loops(
    module: Module,
    schedules: Mapping[str, Any],
    evaluator: Evaluator,
    tensor_of_buffer: Callable[[Value], np.ndarray | None] = lambda buffer: None,
) -> Iterator[CheckRecord]:
    """Yield one record per kernel, for its first launch.

    The verdict is ``bitwise``, ``failed``, or ``unchecked`` if it has too many terms to interpret.
    ``tensor_of_buffer`` returns the tensor that a buffer holds in the model, if known.  Integers
    are taken from there (an op may accept only positions that another one computes), floats are
    random.  A kernel that only calculates with integers is also tried on integers of all sizes.
    """
    passed = PassedChecks("loops", _SOURCES)
    for launch in first_launches(module, schedules):
        kernel = Launch.of(launch).kernel
        started = time.perf_counter()
        scheduled = schedules[kernel]
        value = Launch.of(launch).written[0]
        integers = _integers(launch, tensor_of_buffer)
        key = _key(launch, scheduled.steps[0].function, integers)
        verdict, note, off = (
            "bitwise",
            f"kernel {kernel}: its plain loops, against its region",
            None,
        )
        if key not in passed:
            try:
                verdict, note, off = _check_launch(launch, scheduled, evaluator, integers, note)
            except Exception as error:  # a malformed kernel raises any kind of exception
                verdict = "failed"
                note = f"kernel {kernel}: its plain loops: {type(error).__name__}: {error}"
            if verdict == "bitwise":
                passed.add(key)
        spent = time.perf_counter() - started
        yield CheckRecord(
            None,
            verdict,
            0.0 if off is None else off.relative,
            0.0,
            value,
            () if off is None else off.index,
            spent,
            note,
            None if off is None else off.want,
            None if off is None else off.got,
            "loops",
        )


def _integers(launch: Op, tensor_of_buffer: Callable[[Value], Any]) -> dict[Value, np.ndarray]:
    """Return the integer tensors that a launch reads, if known."""
    read = Launch.of(launch).read
    found = {v: tensor_of_buffer(v) for v in read if v.type.dtype.is_integer}
    return {v: a for v, a in found.items() if a is not None and a.shape == v.type.shape}


def _check_launch(launch: Op, scheduled: Any, evaluator: Evaluator, integers: Mapping, note: str):
    kernel = Launch.of(launch).kernel
    sizes = _small(scheduled.steps[0].function, launch_sizes(launch))
    if sizes is None:
        return "unchecked", f"kernel {kernel}: too many terms for the interpreter", None
    found = "bitwise", note, None
    unwritten = _unwritten_elements(LaunchCase(launch, scheduled, sizes))
    if unwritten:
        return "failed", f"kernel {kernel}: {unwritten}", None
    for case in (
        LaunchCase(launch, scheduled, sizes),
        *adversarial_cases(launch, scheduled, sizes),
    ):
        for value, array in integers.items() if case.kind not in CHOSEN_INTEGERS else ():
            case.set_contents(value, array)
        found = _compare_case(case, evaluator, note)
        if found[0] != "bitwise":
            break
    return found


def _compare_case(case: LaunchCase, evaluator: Evaluator, note: str):
    kernel = Launch.of(case.launch).kernel
    try:
        runs = [case.loops_over(pattern) for pattern in _PATTERNS]
    except KernelFault as fault:
        return "failed", f"kernel {kernel}: its plain loops: {fault}", None
    with np.errstate(all="ignore"):
        wanted = case.meaning(evaluator)
    results = [case.buffers[i] for i in case.outputs]
    for buffer, first, second, want in zip(results, *runs, wanted, strict=True):
        bits = np.dtype(f"u{first.dtype.itemsize}")
        written = first.view(bits) == second.view(bits)
        unwritten = ~written & case.elements(buffer)
        if case.sizes == case.full_sizes and buffer not in case.over and unwritten.any():
            index = int(np.argmax(unwritten))
            return "failed", f"kernel {kernel}: its plain loops do not write element {index}", None
        want, got = want[written], first[written]
        if not same_bits(want, got):
            off = distance(want, got)
            index = int(np.argmax(differing(want, got)))
            message = f"kernel {kernel}: its plain loops differ bitwise from its region"
            message += f" ({case.kind})" if case.kind else ""
            if not off.relative:
                off = type(off)(0.0, (index,), float(want[index]), float(got[index]), 0)
            return "failed", message, off
    return "bitwise", note, None


def _unwritten_elements(case: LaunchCase) -> str:
    """Return which elements the launch's loops at its own sizes do not write; "" if none.

    A store reaches as many elements as the loops that its indices depend on have iterations.
    Results that are written by stores with computed bounds, or only in part, are not checked.
    """
    function = case.first
    made, loops = producers(function), {}
    known = dict(zip(index_arguments(function), case.full_sizes, strict=False))
    results = {buffer_arguments(function)[i]: case.buffers[i] for i in case.outputs}
    reached: dict[Value, float] = dict.fromkeys(results, 0)
    for op in function.body.walk():
        if op.kind == "kernel.for":
            lower, upper, step = (known.get(v, constant_of(v, made)) for v in op.operands[:3])
            plain = lower == 0 and step == 1 and upper is not None
            loops[op.regions[0].arguments[0]] = upper if plain else math.inf
        elif op.kind == "kernel.store" and access(op)[0] in reached:
            buffer, indices = access(op)
            count = op.get("width", 1)
            for counter, extent in loops.items():
                count *= extent if depends_on(indices, {counter}, made) else 1
            reached[buffer] += count
    for buffer, count in reached.items():
        wanted = results[buffer].type.elements
        if count < wanted and results[buffer] not in case.over:
            return f"its loops write {count} of {wanted} elements of a result"
    return ""


def _small(function: Function, full_sizes: list[int]) -> list[int] | None:
    """Return the sizes of a launch with small parallel extents; None if too many terms remain."""
    sizes = list(full_sizes)
    for least in (7, 3, 2, 1):
        for i in only_parallel(function):
            if points(function, sizes) > MOST_TERMS:
                sizes[i] = min(sizes[i], least)
    return sizes if points(function, sizes) <= MOST_TERMS else None


def _key(launch: Op, function: Function, integers: Mapping[Value, np.ndarray]) -> str:
    """Return the cache key of a launch: the plain kernel, its region, types and sizes."""
    body = Block(launch.regions[0].arguments, launch.regions[0].ops, launch.regions[0].outputs)
    plain = Module({"main": Function("main", body), "kernel": function.with_(name="kernel")})
    state = hashlib.sha256(structure_key(plain).encode())
    state.update(repr([v.type for v in launch.operands]).encode())
    state.update(
        repr(sorted((k, repr(v)) for k, v in launch.attributes.items() if k != "kernel")).encode()
    )
    for array in integers.values():
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()
