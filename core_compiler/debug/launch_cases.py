"""Test data of launches: parts of their iteration space, with values of many kinds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from core_compiler.debug import hurtful
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.extents import (
    launch_sizes,
    minimal_sizes,
    only_parallel,
    points,
    read_extents,
    reduced_sizes,
    smaller_sizes,
)
from core_compiler.debug.flips import flip
from core_compiler.ir import Function, Module, Op, Value
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ir.target import Launch
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments
from core_compiler.kernel_ir.interpreter import KernelFault, interpret
from core_compiler.kernel_ir.ops import element
from core_compiler.ops.traits import has_trait
from core_compiler.support.arrays import strided

#: The values of a case as reported to the user, besides seeded random floats and the integers 0 and
#: 1.
NEGATED, ADVERSARIAL = "floats negated", "NaN, infinities and other special values among the floats"
LOWEST, HIGHEST = "nearly all floats -inf", "nearly all floats inf"
INTEGERS = "integers of all sizes"
LEAST, LARGEST = "integers near the minimum", "integers near the maximum"
SEEDS, _SEED = "a seed with bits in every byte", 0x1234_5678_9ABC_DEF0
#: Kinds that choose the integers, too.
CHOSEN_INTEGERS = frozenset({INTEGERS, LEAST, LARGEST, SEEDS})
#: A result of at most ``MAX_CONDITIONS`` truth values says little about the floats that it depends
#: on. It is tried on floats on both sides of the point where it changes, if finding them takes at
#: most ``MAX_CONDITION_TERMS`` terms at a time.
BEFORE, AFTER = "the last floats before a result changes", "the first floats after"
MAX_CONDITIONS, MAX_CONDITION_TERMS = 16, 5000
_COMPARISONS = frozenset({"kernel.lt", "kernel.le", "kernel.gt", "kernel.ge"})
_EXTREMES = _COMPARISONS | {"kernel.max", "kernel.min"}


def cases(launch: Op, scheduled: Any) -> Iterator[LaunchCase]:
    """Yield the parts of a launch that a kernel is tried on.

    The first has full tiles and their edges, the second is so small that it consists of edges.  If
    a result depends on which of two floats is larger, the smaller part is repeated with all floats
    negated.  Then come those of :func:`adversarial_cases`.
    """
    first = LaunchCase(launch, scheduled)
    yield first
    sizes = minimal_sizes(first.first, first.sizes)
    if sizes != first.sizes:
        yield LaunchCase(launch, scheduled, sizes)
    if _has(first.first, _COMPARISONS, "is_float"):
        yield LaunchCase(launch, scheduled, sizes, NEGATED)
    yield from adversarial_cases(launch, scheduled, first.sizes)


def adversarial_cases(launch: Op, scheduled: Any, sizes: Sequence[int]) -> Iterator[LaunchCase]:
    """Yield adversarial cases of at most ``sizes``.

    If a launch reads floats: special values among them, and for a maximum or minimum, almost all of
    them infinite.  If it only calculates with integers: any integers, and for a maximum or minimum,
    all of them near one limit.  If it draws random numbers: a large seed.
    """
    kernel = scheduled.steps[0].function
    few = smaller_sizes(kernel, sizes)
    reduces = len(only_parallel(kernel)) < len(read_extents(kernel)[0])
    if _seeds(launch):
        yield LaunchCase(launch, scheduled, few, SEEDS)
    if _calculates(launch):
        yield LaunchCase(launch, scheduled, few, INTEGERS)
        if reduces and _has(kernel, _EXTREMES, "is_integer"):
            for kind in (LEAST, LARGEST):
                yield LaunchCase(launch, scheduled, minimal_sizes(kernel, few), kind)
    if not any(v.type.dtype.is_float for v in Launch.of(launch).read):
        return
    yield LaunchCase(launch, scheduled, few, ADVERSARIAL)
    if any(map(_is_condition, Launch.of(launch).written)) and (
        points(kernel, sizes) <= MAX_CONDITION_TERMS
    ):
        for kind in (BEFORE, AFTER):
            yield LaunchCase(launch, scheduled, sizes, kind)
    if reduces and _has(kernel, _EXTREMES, "is_float"):
        for kind in (LOWEST, HIGHEST):
            yield LaunchCase(launch, scheduled, minimal_sizes(kernel, few), kind)


def _is_condition(value: Value) -> bool:
    """Return whether a result is a few truth values (a loop's condition)."""
    return value.type.dtype.name == "i1" and value.type.elements <= MAX_CONDITIONS


def _has(function: Function, kinds: frozenset[str], of: str) -> bool:
    """Return whether a kernel has an op of ``kinds`` on values of a kind: ``is_float``..."""
    return any(
        op.kind in kinds and getattr(element(op.operands[0].type), of, False)
        for op in function.body.walk()
    )


#: Integer ops that are defined for all integers and use none as a position.
_CALCULATE = frozenset(f"core.{name}" for name in (
    "add", "sub", "mul", "neg", "abs", "sign", "max", "min", "and", "or", "xor", "not", "eq", "ne",
    "lt", "le", "gt", "ge", "select", "matmul", "contract", "reduce_sum", "reduce_max",
    "reduce_min", "reduce_prod", "cumsum", "reshape", "transpose", "broadcast", "slice", "concat",
    "constant", "clamp", "div", "mod", "rem", "pow", "shl", "shr", "bitnot", "relu", "pad",
    "reverse", "argmax", "argmin",
))  # fmt: skip


def _calculates(launch: Op) -> bool:
    """Return whether a launch reads integers and only calculates with them."""
    read = [v for v in Launch.of(launch).read if v.type.dtype.is_integer]
    return bool(read) and all(
        op.kind in _CALCULATE or (op.kind == "core.cast" and op.operands[0].type.dtype.is_integer)
        for region in launch.regions
        for op in region.walk()
        if op.kind not in MEANING_IN_REGION
    )


def _seeds(launch: Op) -> list[Value]:
    """Return the operands of a launch that random numbers are drawn from."""
    region = launch.regions[0]
    position_of = {v: i for i, v in enumerate(region.arguments)}
    drawn = (op.operands[0] for op in region.walk() if has_trait(op, "random"))
    return [launch.operands[position_of[seed]] for seed in drawn if seed in position_of]


def first_launches(module: Module, schedules: Mapping[str, Any]) -> list[Op]:
    """Return the first launch of each scheduled kernel, in program order."""
    found: dict[str, Op] = {}
    for op in module.main.body.ops:
        if (launch := Launch.match(op)) and launch.kernel in schedules:
            found.setdefault(launch.kernel, op)
    return list(found.values())


class LaunchCase:
    """The data of one launch: each buffer's memory in its own layout.

    ``sizes``: the values of its index arguments, at most those of the launch; by default those of a
    ``reduced_sizes``.  ``kind``: the kind of values (:data:`NEGATED`, :data:`ADVERSARIAL`...; "":
    ordinary ones).
    """

    def __init__(self, launch: Op, scheduled, sizes: Sequence[int] | None = None, kind: str = ""):
        self.launch, self.scheduled, self.kind = launch, scheduled, kind
        self.first = scheduled.steps[0].function
        self.full_sizes = launch_sizes(launch)
        self.sizes = reduced_sizes(self.first, self.full_sizes) if sizes is None else list(sizes)
        given = Launch.of(launch)
        kinds = [kind for kind, _ in given.arguments if kind != "size"]
        self.buffers = list(given.buffers)
        self.outputs = [i for i, kind in enumerate(kinds) if kind == "result"]
        #: Maps results that a kernel writes only in part to their earlier contents.
        self.over = {
            given.written[result]: launch.operands[number] for result, number in given.over
        }

    def set_contents(self, value: Value, array: np.ndarray) -> None:
        """Set the contents of a buffer that the launch reads."""
        _tensor(self.memory[value], value.type)[...] = array

    def extents(self) -> str:
        """Return the reduced extents as text for the user."""
        names = [v.name for v in index_arguments(self.first)]
        changed = zip(names, self.full_sizes, self.sizes, strict=True)
        smaller = [f"{name} = {new} of {old}" for name, old, new in changed if new != old]
        smaller += [self.kind] if self.kind else []
        return ", ".join(smaller) or "whole launch"

    @cached_property
    def memory(self) -> dict[Value, np.ndarray]:
        """Return each buffer's elements, in the order of its memory."""
        random = np.random.default_rng(7)
        made = {v: _filled(v.type, random) for v in self.launch.operands}
        for value, array in made.items():
            dtype = value.type.dtype
            if dtype.is_float and self.kind:
                made[value] = self._floats(array, random)
            elif dtype.is_integer and self.kind in CHOSEN_INTEGERS - {SEEDS}:
                made[value] = _chosen_integers(self.kind, array, random)
        for value in _seeds(self.launch) if self.kind == SEEDS else ():
            made[value][...] = np.array(_SEED, np.uint64).astype(made[value].dtype)
        if self.kind in (BEFORE, AFTER):
            made.update(self._near_flip(made))
        return made

    def _floats(self, array: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Replace some random floats by special values.

        A rare value occurs once among the terms of a result.
        """
        if self.kind in (*CHOSEN_INTEGERS, BEFORE, AFTER):
            return array
        if self.kind == NEGATED:
            return -array
        free = math.prod(max(self.sizes[i], 1) for i in only_parallel(self.first))
        rare = random.random(array.shape) < min(0.5, free / points(self.first, self.sizes))
        if self.kind == ADVERSARIAL:
            return np.where(rare, hurtful.floats("mixed", array.shape, array.dtype, random), array)
        return np.where(rare, array, array.dtype.type(-np.inf if self.kind == LOWEST else np.inf))

    def _near_flip(self, made: dict[Value, np.ndarray]) -> dict[Value, np.ndarray]:
        """Return floats of one buffer close to where a few truth values change.

        The truth values are those of the plain loops; the smallest buffer that they depend on is
        varied. Empty if they do not change.
        """
        reads = Launch.of(self.launch).read
        conditions = [i for i in self.outputs if _is_condition(self.buffers[i])]
        sizes = self.sizes[: len(index_arguments(self.first))]
        for value in sorted(dict.fromkeys(reads), key=lambda v: made[v].size):
            if not value.type.dtype.is_float or value in self.over.values():
                continue

            def evaluate_conditions(array: np.ndarray, value: Value = value) -> list[bytes]:
                buffers = [
                    np.zeros_like(made[v])
                    if i in self.outputs
                    else array
                    if v is value
                    else made[v]
                    for i, v in enumerate(self.buffers)
                ]
                interpret(self.first, buffers, sizes)
                return [buffers[i].tobytes() for i in conditions]

            with np.errstate(all="ignore"):
                found = flip(evaluate_conditions, made[value])
            if found is not None:
                return {value: found[self.kind == AFTER]}
        return {}

    def loops(self) -> list[np.ndarray] | KernelFault:
        """Return the results of the plain loops."""
        try:
            return self.interpreted(*states(self.scheduled)[0])
        except KernelFault as error:
            return error

    def loops_over(self, pattern: int) -> list[np.ndarray]:
        """Return the results of the plain loops in memory filled with the byte ``pattern``."""
        buffers = [
            np.full(self.memory[v].nbytes, pattern, np.uint8).view(self.memory[v].dtype)
            if i in self.outputs and v not in self.over
            else self.fresh(v)
            if i in self.outputs
            else self.memory[v]
            for i, v in enumerate(self.buffers)
        ]
        interpret(self.first, buffers, self.sizes[: len(index_arguments(self.first))])
        return [buffers[i] for i in self.outputs]

    def elements(self, buffer: Value) -> np.ndarray:
        """Return which elements of a buffer's memory are elements of its tensor."""
        found = np.zeros(self.memory[buffer].shape, bool)
        _tensor(found, buffer.type)[...] = True
        return found

    def meaning(self, evaluator: Evaluator) -> list[np.ndarray]:
        """Return the results of the launch's region, laid out as in memory."""
        launch = Launch.of(self.launch)
        arrays = [np.array(_tensor(self.memory[v], v.type), order="C") for v in launch.read]
        results = evaluator.block(self.launch.regions[0], arrays)
        made = {}
        for value, array in zip(launch.written, results, strict=True):
            flat = np.zeros_like(self.memory[value])
            _tensor(flat, value.type)[...] = array
            made[value] = flat
        return [made[self.buffers[i]] for i in self.outputs]

    def fresh(self, value: Value) -> np.ndarray:
        """Return a result's memory before the kernel runs."""
        old = self.over.get(value)
        return np.zeros_like(self.memory[value]) if old is None else self.memory[old].copy()

    def interpreted(self, function, known) -> list[np.ndarray]:
        """Return the results of one step of the schedule."""
        sizes, plan = list(self.sizes), self.scheduled.launch
        if plan is not None:
            sizes += plan.more_sizes(self.sizes, 1)
        buffers = [
            self.fresh(v) if i in self.outputs else self.memory[v]
            for i, v in enumerate(self.buffers)
        ]
        for index, pack in plan.pack.items() if plan is not None else ():
            if buffer_arguments(function)[index].type != buffer_arguments(self.first)[index].type:
                kind = plan.packed_dtype(index).numpy
                packed = np.zeros(plan.packed_elements(self.sizes), kind)
                interpret(pack, [buffers[index], packed], plan.pack_arguments(index, self.sizes))
                buffers[index] = packed
        interpret(function, buffers, sizes[: len(index_arguments(function))], functions=known)
        return [buffers[i] for i in self.outputs]


def _filled(kind: Any, random) -> np.ndarray:
    """Return memory with values for a ``BufferType``, as large as its strides reach."""
    count = (
        1 + sum((n - 1) * s for n, s in zip(kind.shape, kind.strides, strict=True))
        if (all(kind.shape))
        else 0
    )
    if kind.dtype.is_float:
        return random.standard_normal(count).astype(kind.dtype.numpy)
    return random.integers(0, 2, count).astype(kind.dtype.numpy)


def _chosen_integers(kind: str, array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return integers from the least to the largest, half of them those of ``array``.

    Or all of them from the quarter of the range next to a limit.
    """
    import ml_dtypes

    limits = ml_dtypes.iinfo(array.dtype)  # supports NumPy's own dtypes too
    low, high = int(limits.min), int(limits.max)
    quarter = (high - low) // 4
    if kind != INTEGERS:
        low, high = (low, low + quarter) if kind == LEAST else (high - quarter, high)
    drawn = array.dtype if array.dtype.kind in "iu" else np.dtype(np.int8)  # for 4-bit integers
    made = random.integers(low, high, array.shape, drawn, endpoint=True).astype(array.dtype)
    return np.where(random.random(array.shape) < 0.5, made, array) if kind == INTEGERS else made


def _tensor(flat: np.ndarray, kind: Any) -> np.ndarray:
    """Return the tensor that a buffer's memory holds."""
    return strided(flat, kind.shape, kind.strides)


def states(scheduled) -> list[tuple[Function, dict[str, Function]]]:
    """Return the kernel and the kernels that it invokes after each step, and at the end."""
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
