"""The judge of the stages of a compile: the engine of ``--check``, bisection and reduction.

A stage is right if the log of its pass is proven (`ir.replay`), every rewrite keeps its values
(`debug.check`), its memory holds the right contents (`debug.buffers`, `debug.memory`), its kernels
compute their regions (`debug.steps`, `debug.kernels`), the linked program computes the results of
the stage, and the results of the whole stage are those of the import:

- for an exact pass, bit for bit;
- for others by arithmetic.  (a) In f64 both stages agree to 1e-9 of the largest value, or to the
  change caused by moving inputs and weights by an ulp of f64, or constants that the pass computed
  by an ulp of their own dtype: the algebra is right.  (b) The error of the stage's own results
  against f64 is at most 4 times that of the import: only rounding changed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from core_compiler.debug import in_place
from core_compiler.debug.adversarial import ALGEBRA, MOVED
from core_compiler.debug.bits import differing, same_bits
from core_compiler.debug.check import SEEDS, Checker
from core_compiler.debug.claims import check_next_state
from core_compiler.debug.facts import (
    layout_mismatches,
    malformed,
    not_constants,
    schedule_errors,
    unfulfilled,
    unlowerable,
)
from core_compiler.debug.kernels import KernelCheck, check_kernels
from core_compiler.debug.loops import check_loops
from core_compiler.debug.loss_slope import check_loss
from core_compiler.debug.machine_code import check_code
from core_compiler.debug.memory import complaints, mismarked, unplaced
from core_compiler.debug.metric import Distance, distance, epsilon, largest, masks
from core_compiler.debug.results import counting, matched, reference
from core_compiler.debug.steps import check_schedules
from core_compiler.debug.wide import F64Evaluator, moved_by_an_ulp, nudged, rerounded, widened
from core_compiler.ir import Function, Module, Op, Rewrite, TensorType, Value
from core_compiler.ir.core import structure_key
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.numerics.reference.collective import tree_sum
from core_compiler.ops import typed
from core_compiler.passes.base import is_builtin
from core_compiler.runtime.device import Executable, LoopLimitExceeded
from core_compiler.runtime.shards import Shards
from core_compiler.scheduling.schedules.steps import Scheduled, Step
from core_compiler.support.errors import InternalError, UserError

#: Maximum ratio of a stage's error against f64 to the import's.
GROWTH = 4.0
#: The time at which the results of a linked program are checked.
_AFTER_ANOTHER = " after a call on other inputs"
_TIMES = (" at first", " when it is executed again", _AFTER_ANOTHER)
#: Stages with more operations are evaluated in f64 as a whole only at the end of the meaning half;
#: single rewrites are checked before (`Checker`).
MOST_WIDE = 2_000_000_000


@dataclass(frozen=True, eq=False)
class PassEffect:
    """The effect of a pass, in the form in which it is judged.

    The ``module`` made from ``before``, its log, its facts, and the ``flops`` of the module.
    ``last``: the meaning half ends with this pass.  ``whole``: no limit stopped its rewrites.
    """

    before: Module
    module: Module
    pass_: Any
    rewrites: Sequence[Rewrite] = ()
    facts: Mapping[str, Any] | None = None
    flops: float = 0.0
    last: bool = False
    whole: bool = True

    @property
    def changed(self) -> bool:
        return self.module is not self.before or bool(self.rewrites)

    @property
    def changes_semantics(self) -> bool:
        return bool(self.pass_.changes_semantics) and bool(self.rewrites)

    @property
    def exact(self) -> bool:
        return bool(self.pass_.exact) or not self.rewrites


def pass_effect(compilation: Any, stage: Any) -> PassEffect:
    """Return the description of a compilation's stage for the judge."""
    later = compilation.steps[stage.index : stage.index + 1]
    ends = stage.step.half == "meaning" and not (later and later[0].half == "meaning")
    return PassEffect(
        stage.before,
        stage.module,
        stage.step.pass_,
        stage.rewrites,
        compilation.facts,
        stage.figures.get("flops", 0.0),
        ends,
        stage.step.limit is None,
    )


class Judge:
    """The judge of stages in order, beginning with ``module`` and the arrays of its arguments.

    ``error`` is the relative error of the results of the stage judged last against those of the
    import; ``condition`` is the change of the results when the inputs move by an ulp (None: not
    measured). ``kernels`` are the checks of machine code, one per launch; ``parts`` are those on
    parts of launches, one per kernel.
    """

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        target: Any = None,
        threads: int = 0,
        keep_bytes: int = 2 << 30,
    ):
        self.inputs, self.target, self.threads = list(inputs), target, threads
        self.keep_bytes = keep_bytes
        self.kernels: list[KernelCheck] = []
        self.parts: list[KernelCheck] = []
        #: The results of the kernels' plain loops on parts of their launches.
        self._loops: dict[str, list] = {}
        #: Whether kernels were wrong before they became machine code.
        self._misses = False
        self._begin(module)

    def fork(self) -> Judge:
        """Return a copy of this judge that judges independently from here on."""
        duplicate = copy.copy(self)
        duplicate.checker = copy.copy(self.checker)
        duplicate.checker.value_of_buffer = dict(self.checker.value_of_buffer)
        duplicate._folded = dict(self._folded)
        return duplicate

    def _begin(self, module: Module) -> None:
        """Compare later stages with the results of ``module``."""
        self.checker = Checker(module, self.inputs, self.keep_bytes)
        self.outputs: list[np.ndarray] = list(self.checker.reference)
        self.reference: list[np.ndarray] = list(self.checker.reference)
        self._imported: list[np.ndarray] = list(self.checker.reference)
        self.error: float | None = None
        self.condition: float | None = None
        #: For each result of the reference, the module and position that it comes from.
        self._sources = [(module, index) for index in range(len(self.reference))]
        self._wide: dict[int, tuple[Module, list[np.ndarray]]] = {}
        self._folded: dict[Value, tuple[Rewrite, Value]] = {}

    # -- stages ----------------------------------------------------------------------------------

    def follow(self, made: PassEffect) -> None:
        """Take over a stage that was made before judging begins."""
        if made.changes_semantics:
            self._begin(made.module)
            return
        if made.module.main.level == "target":
            self.checker.stage(made.rewrites, True, made.before, made.module)
        self.checker.follow(made.rewrites)
        self._note_constants(made.rewrites)
        outputs = self._evaluated(made.module)
        if isinstance(outputs, list):
            self._advance(made, outputs)

    def stage(self, made: PassEffect) -> list[CheckRecord]:
        """Return all checks of a stage, the first cause first."""
        found = list(self._records(made))
        if made.changes_semantics:
            self._begin(made.module)
        return found

    def _records(self, made: PassEffect) -> Iterator[CheckRecord]:
        failed = False
        if made.changed:
            for record in self._rewrites(made):
                failed |= record.verdict == "failed"
                yield record
        try:
            for record in self._of_target(made):
                failed |= record.verdict == "failed"
                yield record
        except UserError:
            raise
        except Exception as error:  # a broken program raises any kind of exception
            failed = True
            yield replace(_evaluation_failure(error), kind="program")
        if "updated" in made.pass_.ensures and made.changed:
            yield from check_next_state(made.rewrites, made.module.main)
        if made.changed:
            yield from self._results(made, failed)
        if "gradients" in made.pass_.ensures and made.changed and not failed:
            yield from self._gradients(made)

    def _gradients(self, made: PassEffect) -> Iterator[CheckRecord]:
        """Check the backward pass as a whole if two more evaluations in f64 are affordable."""
        if made.flops > MOST_WIDE:
            note = "the slope of the loss is not compared: evaluating it in f64 takes too long"
            yield CheckRecord(None, "unchecked", note=note, kind="results")
            return
        yield from check_loss(made.before, made.module, self.inputs, self.checker.evaluator)

    def _rewrites(self, made: PassEffect) -> Iterator[CheckRecord]:
        exact, is_own = bool(made.pass_.exact), is_builtin(made.pass_)
        try:
            found = self.checker.stage(
                made.rewrites, exact, made.before, made.module, made.pass_.changes_semantics
            )
        except Exception as error:  # a module that cannot be evaluated raises any kind of exception
            yield _evaluation_failure(error)
            return
        self._note_constants(made.rewrites)
        for record in found:
            if record.kind == "unlogged" and is_own and record.verdict != "failed":
                yield replace(record, verdict="failed")  # for a user's pass it is a finding
            else:
                yield record

    # -- what targets make -----------------------------------------------------------------------

    def _of_target(self, made: PassEffect) -> Iterator[CheckRecord]:
        """Check memory, schedules and machine code."""
        facts, name = made.facts or {}, made.pass_.name()
        if made.whole:
            for complaint in unfulfilled(made.module, made.pass_.ensures, self.target):
                yield CheckRecord(None, "failed", note=complaint, kind="results")
        wrong = [
            complaint
            for check in (malformed, layout_mismatches, not_constants)
            for complaint in check(made.before, made.module)
        ]
        wrong += unlowerable(made.before, made.module, self.target) if made.changed else []
        for complaint in wrong:
            yield CheckRecord(None, "failed", note=complaint, kind="results")
        if made.module.main.level == "target":
            wrong = complaints(made.module, facts) if made.changed else []
            if name == "plan_memory" and made.whole:
                wrong += unplaced(made.module)
            if name == "find_lifetimes" and made.whole:
                wrong += mismarked(made.module)
            if made.changed:
                wrong += in_place.complaints(made.module, facts)
            for complaint in wrong:
                yield CheckRecord(None, "failed", note=complaint, kind="memory")
        yield from self._edited_kernels(made, facts)
        if name == "schedule_kernels":
            for complaint in schedule_errors(made.module, facts):
                yield CheckRecord(None, "failed", note=complaint, kind="results")
            self._loops, self._misses = {}, False
            yield from self._schedules(made.module, facts["schedules"])
        elif made.changed:
            before = made.before.functions
            added = {n: s for n, s in facts.get("schedules", {}).items() if n not in before}
            yield from self._schedules(made.module, added)
        if name == "generate_code" and self.target is not None and not self.target.available():
            yield from self._machine_code(made, facts)

    def _schedules(self, module: Module, schedules: Mapping[str, Any]) -> Iterator[CheckRecord]:
        """Check kernels' plain loops against their regions, and their schedules against those."""
        checker = self.checker
        loops = list(check_loops(module, schedules, checker.evaluator, checker.tensor_of_buffer))
        yield from loops
        steps = list(check_schedules(module, schedules, self._loops))
        for record in steps:
            yield replace(record, kind="schedule")
        self._misses |= any(r.verdict == "failed" for r in (*loops, *steps))

    def _edited_kernels(self, made: PassEffect, facts: Mapping[str, Any]) -> Iterator[CheckRecord]:
        """Check kernels changed by a pass that makes no schedules."""
        old_functions, schedules = made.before.functions, facts.get("schedules")
        edited = {
            name: function
            for name, function in made.module.functions.items()
            if function.level == "kernel" and _has_changed(function, old_functions.get(name))
        }
        if not edited or "schedules" in made.pass_.ensures:
            return
        if schedules is None:
            plain = {name: Scheduled.of(function) for name, function in edited.items()}
            found = check_loops(
                made.module, plain, self.checker.evaluator, self.checker.tensor_of_buffer
            )
        else:
            found = check_schedules(
                made.module,
                {
                    name: _with_step(schedules[name], function, made.pass_.name())
                    for name, function in edited.items()
                    if name in schedules
                },
            )
        for record in found:
            yield replace(record, kind="results")

    def _machine_code(self, made: PassEffect, facts: Mapping[str, Any]) -> Iterator[CheckRecord]:
        for complaint in complaints(made.module, facts):
            yield CheckRecord(None, "failed", note=complaint, kind="memory")
        # If the code is wrong on a part, or the kernel was wrong before code generation, it must
        # not run on this process's memory.
        self.parts = list(check_code(made.module, facts, self.target, self._loops))
        for part in self.parts:
            yield replace(part.record, kind="code")
        if _any_failed(self.parts) or self._misses:
            return
        self.kernels = check_kernels(
            made.module, facts, self.target, self.inputs, self.checker.evaluator, self.threads
        )
        for found in self.kernels:
            yield replace(found.record, kind="kernel")
        wrong = _any_failed(self.kernels)
        if not wrong:
            yield from self._program(made, facts)

    def _program(self, made: PassEffect, facts: Mapping[str, Any]) -> Iterator[CheckRecord]:
        """Check the linked program, executed as a caller does.

        It runs once, a second time, and after a call on other inputs.  One of several shards runs
        as if the others held the same values.
        """
        started = time.perf_counter()
        loaded = self.target.load(made.module, facts, threads=self.threads)
        loaded.loop_evaluations = self.checker.evaluator.loop_evaluations or None
        shards = {one.shards for op in made.module.walk() if (one := typed.AllReduce.match(op))}
        execute = _as_single_shard(shards.pop(), loaded) if shards else loaded
        outputs: Sequence[np.ndarray] = ()
        for time_ in _TIMES:
            if time_ is _AFTER_ANOTHER:
                # Memory used before may contain the right values, which must not hide a missing
                # write.
                others = (np.ascontiguousarray(np.roll(a, 1)).reshape(a.shape) for a in self.inputs)
                with suppress(LoopLimitExceeded):  # loops may run longer there
                    execute(*others)
            for output in outputs:  # a result that is not written is then wrong
                output_bytes = output.reshape(-1).view(np.uint8)
                np.invert(output_bytes, out=output_bytes)
            # Copies, because a training step updates its state in place.
            outputs = execute(*(np.array(a) for a in self.inputs), out=dict(enumerate(outputs)))
            for index, (value, want, got) in enumerate(
                zip(made.module.main.outputs, self.outputs, outputs, strict=True)
            ):
                if not same_bits(want, got):
                    note = (
                        f"every launch is correct alone, but result {index} of the program is "
                        f"not{time_}: addresses, order, or memory left by another call"
                    )
                    yield _difference_record(value, want, got, note, "program", started)
                    return
        spent = time.perf_counter() - started
        yield CheckRecord(
            None, "bitwise", note="the program, executed three times", seconds=spent, kind="program"
        )

    # -- results as a whole ----------------------------------------------------------------------

    def _results(self, made: PassEffect, failed: bool) -> Iterator[CheckRecord]:
        started = time.perf_counter()
        outputs = self._evaluated(made.module)
        if isinstance(outputs, Exception):
            if not failed:
                yield _evaluation_failure(outputs)
            return
        same = matched(made.before, made.module)
        if same is None:
            note = f"{len(self.outputs)} results became {len(outputs)}"
            yield CheckRecord(None, "failed", note=note, kind="results")
            return
        if not made.pass_.changes_semantics and not failed:  # else the cause is known
            records = list(self._judged(made, same, outputs, started))
            failed = any(r.verdict == "failed" for r in records)
            yield from records
        self._advance(made, outputs)
        if failed:  # later stages are not blamed for it
            self.reference = list(outputs)
            self._sources = [(made.module, index) for index in range(len(outputs))]

    def _advance(self, made: PassEffect, outputs: list[np.ndarray]) -> None:
        """Compare the next stage with this one, and with the references of this one."""
        sources = [(made.module, index) for index in range(len(outputs))]
        for old_index, new_index in matched(made.before, made.module) or ():
            if self.reference[old_index].shape == outputs[new_index].shape:
                sources[new_index] = self._sources[old_index]
        self.reference = reference(made.before, made.module, self.reference, outputs)
        self._imported = reference(made.before, made.module, self._imported, outputs)
        self.outputs, self._sources = outputs, sources
        pairs = zip(self._imported, outputs, strict=True)
        if made.module is not made.before and not made.changes_semantics:
            self.error = max((distance(a, b).relative for a, b in pairs if a is not b), default=0.0)

    def _judged(self, made, same, outputs, started) -> Iterator[CheckRecord]:
        for old_index, new_index in same:
            record = self._same_type(made, old_index, new_index, outputs)
            if record is not None:
                yield record
                return
        judged = self._bits if made.exact else self._arithmetic
        yield from judged(made, same, outputs, started)

    def _same_type(self, made, old_index: int, new_index: int, outputs) -> CheckRecord | None:
        old_value, value = made.before.main.outputs[old_index], made.module.main.outputs[new_index]
        old = self.outputs[old_index]
        new = counting(old_value, value, old, outputs[new_index], _room(made))
        if old.shape == new.shape and old.dtype == new.dtype:
            return None
        note = (
            f"result {new_index} is {new.dtype}{list(new.shape)}, was {old.dtype}{list(old.shape)}"
        )
        return CheckRecord(None, "failed", float("inf"), value=value, note=note, kind="results")

    def _bits(self, made, same, outputs, started) -> Iterator[CheckRecord]:
        for old_index, new_index in same:
            old_value, value = (
                made.before.main.outputs[old_index],
                made.module.main.outputs[new_index],
            )
            old = self.outputs[old_index]
            new = counting(old_value, value, old, outputs[new_index], _room(made))
            if not same_bits(old, new):
                note = f"result {new_index} changed, but the pass is bit-exact"
                yield _difference_record(value, old, new, note, "results", started)
                return

    def _counting(self, made, old_index: int, new_index: int, outputs) -> np.ndarray:
        """Return the part of a result that has a counterpart in the reference."""
        old_value, value = made.before.main.outputs[old_index], made.module.main.outputs[new_index]
        return counting(
            old_value, value, self.reference[old_index], outputs[new_index], _room(made)
        )

    def _arithmetic(self, made, same, outputs, started) -> Iterator[CheckRecord]:
        """Check (a) and (b) of the module's docstring for every result."""
        counts = partial(self._counting, made, outputs=outputs)
        same = [(t, h) for t, h in same if not same_bits(self.reference[t], counts(t, h))]
        if not same:
            return
        try:
            wide = self._wide_outputs(made.module) if self._is_affordable(made) else None
            truth = {new_index: self._reference_in_f64(old_index) for old_index, new_index in same}
        except (KeyError, InternalError) as problem:  # a frontend's own ops
            yield CheckRecord(
                None, "unchecked", note=f"not evaluated in f64: {problem}", kind="results"
            )
            return
        worst: CheckRecord | None = None
        for old_index, new_index in same:
            old_value, value = (
                made.before.main.outputs[old_index],
                made.module.main.outputs[new_index],
            )
            old, true = self.reference[old_index], truth[new_index]
            new = counts(old_index, new_index)
            ignored = masks(old, new)
            measure = partial(
                distance, ignored=ignored, fallback_scale=largest((old, new), ignored)
            )
            if wide is not None:
                off = measure(true, counting(old_value, value, true, wide[new_index], _room(made)))
                if off.relative > ALGEBRA and not (
                    self._is_explained_by_ulp(old_index, off, measure)
                    or self._is_explained_by_constants(made, new_index, off, measure)
                ):
                    note = (
                        f"result {new_index} is off by {off.relative:.3g} of its largest value in "
                        "f64 too: rounding does not explain the difference"
                    )
                    yield _record(value, off, "failed", ALGEBRA, note, started)
                    return
            before, after = (measure(true, a, a.dtype) for a in (old, new))
            allowed = GROWTH * max(before.relative, epsilon(new.dtype))
            if after.relative > allowed:
                allowed = max(allowed, GROWTH * self._condition(old_index, measure))
            if after.relative > allowed:
                note = (
                    f"result {new_index} is off by {after.relative:.3g} of its largest value, the "
                    f"import by {before.relative:.3g}: more than {GROWTH:g} times"
                )
                yield _record(value, after, "failed", allowed, note, started)
                return
            found = _record(value, after, "within", allowed, "results against f64", started)
            if worst is None or _used(found) > _used(worst):
                worst = found
        if worst:
            yield worst

    def _is_affordable(self, made: PassEffect) -> bool:
        return made.last or made.flops <= MOST_WIDE

    def _reference_in_f64(self, index: int) -> np.ndarray:
        """Return a result of the reference in f64."""
        module, number = self._sources[index]
        return self._wide_outputs(module)[number]

    def _wide_outputs(self, module: Module) -> list[np.ndarray]:
        known = self._wide.get(id(module))
        if known is None:
            self._wide = {
                k: v for k, v in self._wide.items() if any(v[0] is m for m, _ in self._sources)
            }
            known = self._wide[id(module)] = module, self._in_f64(module)
        return known[1]

    def _in_f64(self, module: Module, seed: int | None = None) -> list[np.ndarray]:
        """Return the results of a stage in f64.

        With a ``seed``, inputs and weights are moved by an ulp, and scalar constants by an ulp of
        their own dtype.
        """
        random = np.random.default_rng(seed)

        def moved(array: np.ndarray) -> np.ndarray:
            return array if seed is None else nudged(array, random)

        def constant(op: Op) -> np.ndarray:
            wide = self._constant(op.results[0], op)
            if seed is not None and wide.size and np.all(wide == wide.flat[0]):
                wide = rerounded(self.checker.evaluator.op(op, ())[0], random, seed)
            return moved(wide)

        return self._outputs_with(module, constant, lambda array: moved(widened(array)))

    def _outputs_with(
        self,
        module: Module,
        constant: Callable[[Op], np.ndarray],
        given: Callable[[np.ndarray], np.ndarray] = widened,
    ) -> list[np.ndarray]:
        """Return a stage's results in f64 with these constants, and inputs mapped by ``given``."""
        body = module.main.body
        known = {op.results[0]: constant(op) for op in body.ops if op.kind in CONSTANTS}
        inputs = [given(np.asarray(a)) for a in self.inputs]
        return list(self._evaluator_in_f64().block(body, inputs, known=known))

    def _evaluator_in_f64(self) -> F64Evaluator:
        return F64Evaluator(self.checker.evaluator, self.checker.values.__getitem__)

    def _constant(self, value: Value, op: Op) -> np.ndarray:
        """Return a constant in f64: evaluated from its sources if folded, else its own values."""
        if value in self._folded:
            rewrite, old = self._folded[value]
            if old is not value or any(value in o.results for o in rewrite.old):
                return self._folded_from(rewrite, old)
        return widened(self.checker.evaluator.op(op, ())[0])

    def _folded_from(self, rewrite: Rewrite, wanted: Value) -> np.ndarray:
        wide = self._evaluator_in_f64()
        made: dict[Value, np.ndarray] = {}

        def boundary(value: Value) -> np.ndarray:
            if value not in made:
                link = self._folded.get(value)
                if link is not None and link[0] is not rewrite:
                    made[value] = self._folded_from(*link)
                else:
                    made[value] = widened(self.checker.values[value])
            return made[value]

        for op in rewrite.old:
            arrays = [boundary(v) for v in op.operands]
            outer = {v: boundary(v) for v in (op.uses() if op.regions else ())}
            made.update(zip(op.results, wide.op(op, arrays, outer), strict=True))
        return boundary(wanted)

    def _note_constants(self, rewrites: Sequence[Rewrite]) -> None:
        """Remember the sources of folded constants, which have more digits in f64."""
        for rewrite in rewrites:
            fresh = {v for op in rewrite.new if op.kind in CONSTANTS for v in op.results}
            if not fresh or any(op.kind in CONSTANTS for op in rewrite.old):
                continue
            for old, new in rewrite.values.items():
                if new in fresh and isinstance(new.type, TensorType) and new.type.dtype.is_float:
                    self._folded.setdefault(new, (rewrite, old))

    def _is_explained_by_ulp(
        self, index: int, off: Distance, measure: Callable[..., Distance]
    ) -> bool:
        """Return whether an ulp of inputs and weights explains a difference in f64."""
        module, number = self._sources[index]
        true, moved = self._reference_in_f64(index), 0.0
        for seed in range(SEEDS):
            other = self._in_f64(module, seed)[number]
            moved = max(moved, measure(true, other).relative)
            if off.relative <= MOVED * moved:
                return True
        return False

    def _is_explained_by_constants(
        self, made: PassEffect, index: int, off: Distance, measure: Callable[..., Distance]
    ) -> bool:
        """Return whether a difference in f64 is within the rounding of the pass's own constants.

        They move by an ulp of their own dtype: no event gives their sources, and they are rounded.
        """
        own_constants = {
            v
            for r in made.rewrites
            for op in r.new
            if op.kind in CONSTANTS
            for v in op.results
            if v not in self._folded
        }
        if not own_constants:
            return False
        wide, moved = self._wide_outputs(made.module)[index], 0.0
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)

            def constant(op: Op, random=random) -> np.ndarray:
                if op.results[0] not in own_constants:
                    return self._constant(op.results[0], op)
                return moved_by_an_ulp(self.checker.evaluator.op(op, ())[0], random)

            moved = max(
                moved, measure(wide, self._outputs_with(made.module, constant)[index]).relative
            )
            if off.relative <= GROWTH * moved:
                return True
        return False

    def _condition(self, index: int, measure: Callable[..., Distance]) -> float:
        """Return the relative change of a reference result when inputs and weights move by an ulp.

        The ulp is of their own dtype; the largest change over 8 seeds, relative to the largest
        value.
        """
        module, number = self._sources[index]
        true, largest = self._reference_in_f64(index), 0.0
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)

            def constant(op: Op, random=random) -> np.ndarray:
                array = self.checker.evaluator.op(op, ())[0]
                return moved_by_an_ulp(array, random) if array.ndim else widened(array)

            found = self._outputs_with(module, constant, partial(moved_by_an_ulp, random=random))
            largest = max(largest, measure(true, found[number]).relative)
        self.condition = max(self.condition or 0.0, largest)
        return largest

    def _evaluated(self, module: Module) -> list[np.ndarray] | Exception:
        """Return the results of a stage, or the exception of evaluating it."""
        try:
            return self.checker.results_of(module)
        except Exception as error:
            return error


def _as_single_shard(shards: int, loaded: Executable) -> Callable[..., Sequence[np.ndarray]]:
    """Return a callable for the program of one shard, among ``shards`` that hold the same."""

    def join_alone(contributions: Iterable[Sequence[np.ndarray]]) -> list[np.ndarray]:
        (arrays,) = contributions
        return [tree_sum([array] * shards) for array in arrays]

    running = Shards(lambda: loaded, (0,), join_alone)
    return lambda *arrays, out=None: running([arrays], out)


def _room(made: PassEffect) -> frozenset[Value]:
    return frozenset().union(*(rewrite.room for rewrite in made.rewrites))


def _any_failed(found: Sequence[KernelCheck]) -> bool:
    return any(each.record.verdict == "failed" for each in found)


def _has_changed(function: Function, old: Function | None) -> bool:
    """Return whether a function has changed; False if there was none before."""
    if old is None or old is function:
        return False
    one, other = (
        structure_key(Module({"kernel": f.with_(name="kernel")})) for f in (old, function)
    )
    return one != other


def _with_step(scheduled: Scheduled, function: Function, label: str) -> Scheduled:
    """Return a schedule with one more step: ``function``, made from its kernel by ``label``."""
    step = Step(label, scheduled.steps[0].kernel, function)
    return replace(scheduled, function=function, steps=(*scheduled.steps, step))


def _evaluation_failure(error: Exception) -> CheckRecord:
    text = " ".join(str(error).split())
    is_internal = isinstance(error, InternalError)
    reason = text if is_internal else f"{type(error).__name__}: {text}"
    note = f"the module cannot be evaluated: {reason}"
    return CheckRecord(None, "failed", note=note, kind="results")


def _difference_record(value, old, new, note: str, kind: str, started: float) -> CheckRecord:
    off = distance(old, new)
    if off.relative == 0.0 and old.shape == new.shape:  # +0 and -0
        index = tuple(map(int, np.argwhere(differing(old, new))[0]))
        off = replace(off, index=index, want=float(old[index]), got=float(new[index]))
    return replace(_record(value, off, "failed", 0.0, note, started), kind=kind)


def _used(record: CheckRecord) -> float:
    """Return a record's error as a fraction of its bound."""
    return record.worst_error / record.tolerance if record.tolerance else 0.0


def _record(value, off: Distance, verdict: str, allowed: float, note, started) -> CheckRecord:
    spent = time.perf_counter() - started
    return CheckRecord(
        None,
        verdict,
        off.relative,
        allowed,
        value,
        off.index,
        spent,
        note,
        off.want,
        off.got,
        "results",
    )
