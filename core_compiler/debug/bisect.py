"""Bisecting: which pass, which rewrite, which value changed the numbers?

A compile is stepped once and every stage is judged: did the pass raise, does the verifier refuse
its module, does a rewrite's local check fail, do the outputs differ from the stage before?  A local
check names the rewrite at once.  What only shows on the whole stage is searched: the pass runs
again on the same module, limited to its first n rewrites, and the smallest n that still fails is
found by binary search (:class:`~core_compiler.ir.rewriter.Budget`).  When all stages are right, the
machine code of every launch is compared with its meaning, and the schedule of a wrong kernel is
searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core_compiler.debug.buffers import BufferMachine
from core_compiler.debug.check import Checker, numbers, same_bits, worst_error
from core_compiler.debug.deadline import Expired, deadline
from core_compiler.debug.evaluate import Values
from core_compiler.debug.kernels import KernelCheck, check_kernels
from core_compiler.debug.results import counting, matched, reference
from core_compiler.debug.steps import BadStep, first_bad_step, first_launches
from core_compiler.errors import (
    CANNOT_HERE,
    InternalError,
    PassRaised,
    PassTimeout,
    UserError,
)
from core_compiler.ir import Module, Op, Rewrite, TensorType, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.verifier import verify
from core_compiler.passes.base import PassContext

#: How a fault was seen.
RAISED, INVALID, CHECKED, END_TO_END, EXECUTED, NEVER_ENDS = (
    "raised",
    "invalid",
    "check",
    "end to end",
    "executed",
    "never ends",
)


@dataclass(frozen=True, eq=False)
class Finding:
    """The first thing that is wrong.

    ``how`` it was seen: ``raised``, ``invalid`` (verifier), ``check`` (of a rewrite), ``end to
    end`` or ``executed``.  ``number`` and ``rewrite`` are the rewrite within the pass, from 0
    (None: the fault is not of one rewrite; a pass that raised has the number of the rewrite it did
    not make), or the step of a kernel's schedule.  ``value`` is what holds wrong numbers, ``error``
    their distance relative to the largest right one, ``numbers`` the right and the wrong one at its
    ``index`` (None: not known).  ``before`` is the module that the pass got.
    """

    stage: int
    pass_label: str
    how: str
    note: str
    number: int | None = None
    rewrite: Rewrite | None = None
    value: Value | None = None
    index: tuple[int, ...] = ()
    error: float = float("nan")
    before: Module | None = None
    numbers: tuple[float, float] | None = None


@dataclass(eq=False)
class Looked:
    """How much a search has looked at so far, where nothing was wrong.

    ``passes`` and ``launches`` of machine code (None: not compared, ``not_executed`` says why),
    ``verdicts`` of rewrites.  ``error`` is the largest one of the outputs since the import,
    relative; ``worst_pass`` brought it ("" while every bit is kept).
    """

    passes: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    error: float = 0.0
    worst_pass: str = ""
    launches: int | None = None
    not_executed: str = ""


@dataclass(frozen=True, eq=False)
class _Fault:
    """What is wrong with a stage, before it is known which rewrite did it."""

    how: str
    note: str
    record: CheckRecord | None = None
    value: Value | None = None
    index: tuple[int, ...] = ()
    error: float = float("nan")
    numbers: tuple[float, float] | None = None


def bisect(
    compilation,
    inputs: Sequence[np.ndarray],
    *,
    levels: Mapping[str, Any] | None = None,
    tolerance: float = 1e-3,
    execute: bool = True,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    looked: Looked | None = None,
) -> Finding | None:
    """The first wrong pass of a ``compiler.Compilation`` at stage 0; None: all is right.

    ``inputs`` are arrays for main's arguments.  ``levels`` are the verifier's legality tables.
    ``tolerance`` bounds the accumulated relative error of the outputs against the import.
    ``execute`` compares machine code too, where this machine can.  The compilation is stepped as
    far as it is right.  ``looked`` is told what was looked at.
    """
    search = _Search(compilation, inputs, levels, tolerance, progress, looked or Looked())
    return search.run(execute)


class _Search:
    def __init__(self, compilation, inputs, levels, tolerance, progress, looked):
        self.made, self.inputs, self.levels = compilation, list(inputs), levels
        self.tolerance, self.progress, self.looked = tolerance, progress, looked
        self.records: list[CheckRecord] = []  # of the stage that was judged last
        self.checker = Checker(compilation.module, inputs)
        self.outputs = self._outputs(compilation.module)
        #: What the outputs of the last stage are compared with: since the import, or since a pass
        #: that computes something else.
        self.reference: list[np.ndarray] = list(self.checker.reference)

    def run(self, execute: bool) -> Finding | None:
        made = self.made
        total = len(made.steps)
        while made.next is not None:
            step, before, place = made.next, made.module, len(made.stages)
            self.progress(f"check {step.label}", place, total)
            try:
                made.step()
            except Exception as error:
                if isinstance(error, UserError) and error.exit_code == CANNOT_HERE:
                    raise
                return self._narrow(step, before, _raised(error))
            after, rewrites = made.module, made.stages[-1].rewrites
            outputs = self._outputs_after(before, after)
            fault = self._judge(step, before, after, rewrites, outputs)
            if fault is not None:
                return self._narrow(step, before, fault, rewrites)
            if step.pass_.name() == "schedule_kernels":
                wrong = self._schedules()
                if wrong is not None:
                    return wrong
            anew = step.pass_.anew and after is not before
            if not anew:
                self.reference = reference(before, after, self.reference, outputs)
            self._count(step, outputs)
            self.outputs = outputs
            if anew:  # its values have another meaning than before it
                self.checker, self.reference = Checker(after, self.inputs), list(outputs)
        missing = "not asked for" if not execute else made.not_executed
        if missing:
            self.looked.not_executed = missing
            return None
        self.progress("check machine code", total, total)
        return self._executed()

    # -- stages ----------------------------------------------------------------------------------

    def _count(self, step, outputs) -> None:
        """Enter a pass that is right into what was looked at."""
        looked = self.looked
        looked.passes += 1
        looked.verdicts.update(record.verdict for record in self.records)
        if outputs is self.outputs or step.pass_.anew:
            return
        pairs = zip(self.reference, outputs, strict=True)
        error = max((worst_error(old, new)[0] for old, new in pairs), default=0.0)
        if error > looked.error:
            looked.error, looked.worst_pass = error, step.label

    def _judge(self, step, before: Module, after: Module, rewrites, outputs) -> _Fault | None:
        """What is wrong with the module that a pass made of ``before``."""
        self.records = []
        if after is before and not rewrites:
            return None
        errors = [d for d in verify(after, self.levels) if d.severity == "error"]
        if errors:
            return _Fault(INVALID, "; ".join(map(str, errors[:3])))
        self.records = self.checker.stage(
            rewrites, step.pass_.exact, before, after, step.pass_.anew
        )
        for record in self.records:
            if record.verdict == "failed":
                return _Fault(
                    CHECKED, record.note, record, record.value, record.index, record.worst_error,
                    _numbers(record),
                )  # fmt: skip
        return self._compare(step, before, after, rewrites, outputs)

    def _compare(self, step, before: Module, after: Module, rewrites, outputs) -> _Fault | None:
        """Whether the outputs are still what they were: bit for bit after an exact pass."""
        if isinstance(outputs, Exception):
            return _Fault(END_TO_END, f"the module cannot be evaluated: {outputs}")
        same = matched(before, after)
        if same is None:
            return _Fault(END_TO_END, f"{len(self.outputs)} results became {len(outputs)}")
        if step.pass_.anew:
            return None
        exact = step.pass_.exact or not rewrites
        for there, place in same:
            kept, value = before.main.outputs[there], after.main.outputs[place]
            old = self.outputs[there]
            new = counting(kept, value, old, outputs[place])
            if old.shape != new.shape or old.dtype != new.dtype:
                note = f"result {place} was {old.dtype}{old.shape}, is {new.dtype}{new.shape}"
                return _Fault(END_TO_END, note, None, value, (), float("inf"))
            if exact and not same_bits(old, new):
                error, index = worst_error(old, new)
                return _Fault(
                    END_TO_END,
                    f"result {place} changed though the pass keeps bits",
                    None,
                    value,
                    index,
                    error,
                    _pair(old, new, index),
                )
        for there, place in same:
            kept, value = before.main.outputs[there], after.main.outputs[place]
            old = self.reference[there]
            error, index = worst_error(old, counting(kept, value, old, outputs[place]))
            if error > self.tolerance:
                note = (
                    f"result {place} is off by {error:.3g} of its largest number since the import"
                )
                pair = _pair(old, outputs[place], index)
                return _Fault(END_TO_END, note, None, value, index, error, pair)
        return None

    def _outputs_after(self, before: Module, after: Module):
        """The outputs of a stage, or the exception that evaluating it raised."""
        if after is before:
            return self.outputs
        try:
            return self._outputs(after)
        except Exception as error:
            return error

    def _outputs(self, module: Module) -> list[np.ndarray]:
        evaluator = self.checker.evaluator
        arguments = dict(zip(module.main.arguments, self.inputs, strict=True))
        if module.main.level == "target":
            return BufferMachine(module, evaluator).run(arguments)
        values = Values(evaluator, arguments)
        values.learn(module.main.body.ops)
        return [values[v] for v in module.main.outputs]

    # -- narrowing -------------------------------------------------------------------------------

    def _narrow(
        self, step, before: Module, fault: _Fault, rewrites: Sequence[Rewrite] = ()
    ) -> Finding:
        """The rewrite of a wrong pass that did it."""
        stage = (
            next(
                i
                for i, s in enumerate(self.made.stages)
                if s.module is before
                and (i + 1 == len(self.made.stages) or self.made.stages[i + 1].step is step)
            )
            + 1
        )
        found = Finding(
            stage,
            step.label,
            fault.how,
            fault.note,
            None,
            None,
            fault.value,
            fault.index,
            fault.error,
            before,
            fault.numbers,
        )
        failed = fault.record.rewrite if fault.record is not None else None
        judged = found
        if failed is not None and failed in rewrites:
            judged = replace(found, number=list(rewrites).index(failed), rewrite=failed)
        if judged is not found and before.main.level != "target":
            return judged
        if fault.how == NEVER_ENDS:
            return found
        if fault.how == RAISED:
            _, done, _ = self._attempt(step, before, None)
            return replace(
                found, number=len(done), note=f"{fault.note} (after {len(done)} rewrites)"
            )
        limited = self._smallest(step, before)
        if limited is not None:
            number, rewrite = limited
            return replace(found, number=number, rewrite=rewrite)
        return judged

    def _smallest(self, step, before: Module) -> tuple[int, Rewrite | None] | None:
        """(number, rewrite) of the first rewrite with which the pass is wrong; None where the pass
        is wrong without any, or does not keep to a limit."""
        _, rewrites, error = self._attempt(step, before, None)
        good, bad = 0, len(rewrites) + (error is not None)
        if bad == 0 or self._fails(step, before, 0) or not self._fails(step, before, bad):
            return None
        while bad - good > 1:
            middle = (good + bad) // 2
            self.progress(f"limit {step.label} to {middle} rewrites", 0, 0)
            if self._fails(step, before, middle):
                bad = middle
            else:
                good = middle
        _, rewrites, _ = self._attempt(step, before, bad)
        return bad - 1, rewrites[bad - 1] if bad <= len(rewrites) else None

    def _fails(self, step, before: Module, limit: int) -> bool:
        after, rewrites, error = self._attempt(step, before, limit)
        if error is not None or after is None:
            return True
        return (
            self._judge(step, before, after, rewrites, self._outputs_after(before, after))
            is not None
        )

    def _attempt(self, step, before: Module, limit: int | None):
        """The pass alone on ``before``, limited: (module, rewrites, what it raised).  It may take
        as long as in the compile."""
        if step.limit is not None:
            limit = step.limit if limit is None else min(limit, step.limit)
        context = PassContext(
            target=self.made.target,
            budget=Budget(limit),
            facts=dict(self.made.facts),
            options=self.made.options.target,
            progress=lambda what, done, total: None,
        )
        try:
            with deadline(self.made.options.pass_timeout):
                return step.pass_.run(before, context), context.rewrites, None
        except (Exception, Expired) as error:
            return None, context.rewrites, error

    # -- machine code ----------------------------------------------------------------------------

    def _executed(self) -> Finding | None:
        made = self.made
        threads = made.options.threads
        launches = check_kernels(
            made.module, made.facts, made.target, self.inputs, self.checker.evaluator, threads
        )
        self.looked.launches = len(launches)
        bad = next((c for c in launches if c.record.verdict == "failed"), None)
        if bad is not None:
            return self._kernel(bad)
        # A result that nobody writes must not find the right numbers in memory used before.
        execute = made.executable  # of all that main gives, sizes that depend on data too
        execute(*(np.ascontiguousarray(np.roll(a, 1)).reshape(a.shape) for a in self.inputs))
        outputs = execute(*self.inputs)
        for place, (value, old, new) in enumerate(
            zip(made.module.main.outputs, self.outputs, outputs, strict=True)
        ):
            if not same_bits(old, new):
                error, index = worst_error(old, new)
                note = (
                    f"every launch is right alone, result {place} is not: "
                    "a launch's addresses or order"
                )
                return self._of(
                    "generate_code", EXECUTED, note, value=value, index=index, error=error,
                    numbers=_pair(old, new, index),
                )  # fmt: skip
        return None

    def _kernel(self, check: KernelCheck) -> Finding:
        """Whether a kernel's loops, its schedule or its machine code are at fault."""
        record, launch = check.record, check.launch
        where: dict[str, Any] = {
            "value": record.value,
            "index": record.index,
            "error": record.worst_error,
            "numbers": _numbers(record),
        }
        scheduled = self.made.facts["schedules"][check.kernel]
        found = first_bad_step(launch, scheduled, self.checker.evaluator)
        if found is None:
            return self._of("generate_code", EXECUTED, record.note, **where)
        if found.number:
            return self._step(scheduled, found, EXECUTED, **where)
        rewrites = self._stage_of("outline_kernels").rewrites
        number = next((i for i, r in enumerate(rewrites) if r.note == check.kernel), None)
        rewrite = None if number is None else rewrites[number]
        return self._of("outline_kernels", EXECUTED, found.note, number, rewrite, **where)

    def _schedules(self) -> Finding | None:
        """The first kernel whose schedule does not keep the bits of its plain loops."""
        schedules = self.made.facts["schedules"]
        for launch in first_launches(self.made.module, schedules):
            scheduled = schedules[launch["kernel"]]
            found = first_bad_step(launch, scheduled)
            if found is not None and found.number:
                value = launch.operands[launch["reads"]]
                return self._step(scheduled, found, CHECKED, value=value, error=found.error)
        return None

    def _step(self, scheduled, found: BadStep, how: str, **where) -> Finding:
        step = scheduled.steps[found.number]
        # Steps of schedules are no rewrites of the pass (they are many, and made again at will).
        told = f"schedule of {scheduled.function.name}"
        rewrite = Rewrite(step.name, "", (), (), {}, step.kernel, None, told)
        return self._of("schedule_kernels", how, found.note, found.number, rewrite, **where)

    def _stage_of(self, pass_name: str):
        """The last stage made by a pass of this name (where there is none, of all)."""
        stages = [s for s in self.made.stages if s.step and s.step.pass_.name() == pass_name]
        return (stages or self.made.stages)[-1]

    def _of(
        self,
        pass_name: str,
        how: str,
        note: str,
        number: int | None = None,
        rewrite: Rewrite | None = None,
        **where,
    ) -> Finding:
        stage = self._stage_of(pass_name)
        before = self.made.stages[stage.index - 1].module
        return Finding(stage.index, stage.name, how, note, number, rewrite, before=before, **where)


def _pair(old: np.ndarray, new: np.ndarray, index: tuple[int, ...]) -> tuple[float, float] | None:
    found = numbers(old, new, index)
    return (found["old"], found["new"]) if found else None


def _numbers(record: CheckRecord) -> tuple[float, float] | None:
    return None if record.old is None or record.new is None else (record.old, record.new)


def _raised(error: BaseException) -> _Fault:
    if isinstance(error, PassTimeout):
        return _Fault(NEVER_ENDS, error.what)
    if isinstance(error, PassRaised) and error.__cause__ is not None:
        error = error.__cause__
    invalid = isinstance(error, UserError)
    text = " ".join(str(error).split())
    return _Fault(
        INVALID if invalid else RAISED,
        text
        if isinstance(error, (UserError, InternalError))
        else f"{type(error).__name__}: {text}",
    )


def tensor_value(finding: Finding) -> Value | None:
    """The tensor that a finding is about: its value, or the first that its rewrite replaced."""
    if finding.value is not None:
        return finding.value
    if finding.rewrite is None:
        return None
    values: list[Value] = [v for op in finding.rewrite.old for v in op.results]
    return next(
        (v for v in (*values, *finding.rewrite.values) if isinstance(v.type, TensorType)), None
    )


def made_by(finding: Finding) -> Op | None:
    """The op of the module before the pass that makes the finding's value."""
    value = tensor_value(finding)
    if value is None or finding.before is None:
        return None
    return next((op for op in finding.before.walk() if value in op.results), None)
