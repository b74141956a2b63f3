"""Bisection: find the pass, the rewrite and the value that changed the results.

A compile is stepped once and every stage is judged by the engine of ``--check``
(:mod:`core_compiler.debug.judge`).  A local check names the rewrite at once.  A fault that shows
only in the whole stage is searched for: the pass runs again on the same module, limited to its
first n rewrites, and binary search finds the smallest n that still fails
(:class:`~core_compiler.ir.rewriter.Budget`).  If a launch of machine code is wrong, its plain
loops, the steps of its schedule and its code are distinguished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core_compiler.debug.deadline import Expired, deadline
from core_compiler.debug.judge import Judge, PassEffect, pass_effect
from core_compiler.debug.kernels import KernelCheck
from core_compiler.debug.launch_cases import first_launches
from core_compiler.debug.steps import BadStep, first_bad_step
from core_compiler.ir import Module, Op, Rewrite, TensorType, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.target import Launch
from core_compiler.ir.verifier import verify
from core_compiler.passes.base import PassContext, run_pass
from core_compiler.support.errors import (
    CANNOT_HERE,
    InternalError,
    PassRaised,
    PassTimeout,
    UserError,
)

#: The ways in which a fault can show.
RAISED, INVALID, CHECKED, END_TO_END, EXECUTED, NEVER_ENDS = (
    "raised",
    "invalid",
    "check",
    "end to end",
    "executed",
    "never ends",
)
#: Maps the kind of a check to the way in which the faults that it finds show.
HOW_DETECTED = {
    "rewrite": CHECKED,
    "unlogged": CHECKED,
    "schedule": CHECKED,
    "results": END_TO_END,
    "loops": CHECKED,
    "memory": CHECKED,
    "code": EXECUTED,
    "kernel": EXECUTED,
    "program": EXECUTED,
    "translation": CHECKED,
    "function": CHECKED,
}


@dataclass(frozen=True, eq=False)
class Finding:
    """The first fault of a compile.

    ``how`` is the way it showed: ``raised``, ``invalid`` (verifier), ``check`` (of a rewrite),
    ``end to end`` or ``executed``.  ``number`` and ``rewrite`` are the rewrite within the pass,
    from 0, or the step of a kernel's schedule (None: the fault does not belong to one rewrite; for
    a pass that raised, the rewrite that it did not complete).  ``value`` holds wrong values,
    ``error`` is their distance relative to the largest right one, ``numbers`` are the right and the
    wrong value at its ``index`` (None: unknown).  ``before`` is the input module of the pass.
    ``seen`` is the stage that shows the fault: a later one if a kernel made by the pass is wrong.
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
    seen: int = 0

    def __post_init__(self) -> None:
        if not self.seen:
            object.__setattr__(self, "seen", self.stage)


@dataclass(eq=False)
class VerifiedWork:
    """The amount of work that a search has found to be right so far.

    ``passes``, ``launches`` of machine code (None: not compared, ``not_executed`` says why) and
    ``verdicts`` of rewrites.  ``error`` is the largest relative error of the outputs since the
    import; ``worst_pass`` caused it ("" while every bit is kept).
    """

    passes: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    error: float = 0.0
    worst_pass: str = ""
    launches: int | None = None
    not_executed: str = ""


@dataclass(frozen=True, eq=False)
class _Fault:
    """A fault of a stage before the responsible rewrite is known."""

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
    looked: VerifiedWork | None = None,
) -> Finding | None:
    """Return the first wrong pass of a ``compiler.Compilation`` at stage 0, or None.

    ``inputs`` are arrays for main's arguments.  ``levels`` are the verifier's legality tables.
    ``tolerance`` bounds the accumulated relative error of the outputs against the import.
    ``execute`` also compares machine code if this machine can run it.  The compilation is stepped
    up to the fault. ``looked`` counts the work done.
    """
    search = _Search(compilation, inputs, levels, tolerance, progress, looked or VerifiedWork())
    return search.run(execute)


def locate(
    compilation,
    inputs: Sequence[np.ndarray],
    judge: Judge,
    earlier: Judge,
    records: Sequence[CheckRecord],
    levels: Mapping[str, Any],
) -> Finding:
    """Return the finding for the failed ``records`` of the newest stage of ``compilation``.

    It names the rewrite, kernel or schedule step that caused them.  ``judge`` has judged that
    stage, ``earlier`` has its state from before.  ``levels`` are the verifier's legality tables.
    """
    search = _Search(compilation, inputs, levels, 1e-3, _silent, VerifiedWork())
    search.judge, search.earlier, search.records = judge, earlier, list(records)
    stage = compilation.stages[-1]
    fault = _fault(next(r for r in records if r.verdict == "failed"))
    return search._found(stage.step, stage.before, fault, stage.rewrites)


def of_import(module: Module, record: CheckRecord) -> Finding:
    """Return the finding for a failed check of the import (stage 0); ``module`` is the import."""
    return Finding(
        0, "import", HOW_DETECTED[record.kind], record.note, value=record.value, before=module
    )


def raised_by(compilation, step, error: Exception) -> Finding:
    """Return the finding for an exception of a pass."""
    search = _Search(compilation, (), None, 1e-3, _silent, VerifiedWork())
    return search._narrow(step, compilation.module, _raised(error))


def _silent(what: str, done: int, total: int) -> None:
    pass


def _fault(record: CheckRecord) -> _Fault:
    return _Fault(
        HOW_DETECTED[record.kind],
        record.note,
        record,
        record.value,
        record.index,
        record.worst_error,
        _numbers(record),
    )


class _Search:
    def __init__(self, compilation, inputs, rules, tolerance, progress, looked):
        self.made, self.inputs, self.levels = compilation, list(inputs), rules
        self.tolerance, self.progress, self.looked = tolerance, progress, looked
        self.records: list[CheckRecord] = []  # of the stage judged last
        self.execute = True

    def run(self, execute: bool) -> Finding | None:
        made, self.execute = self.made, execute
        total = len(made.steps)
        self.judge = self.earlier = self._judge_from(made.module)
        while made.next is not None:
            step, before, position = made.next, made.module, len(made.stages)
            self.progress(f"check {step.label}", position, total)
            try:
                made.step()
            except Exception as error:
                if isinstance(error, UserError) and error.exit_code == CANNOT_HERE:
                    raise
                return self._narrow(step, before, _raised(error))
            stage = made.stages[-1]
            self.earlier = self.judge.fork()
            fault = self._judged(pass_effect(made, stage))
            if fault is not None:
                return self._found(step, before, fault, stage.rewrites)
            self._count(step, stage)
        missing = "not asked for" if not execute else made.not_executed
        if missing:
            self.looked.not_executed = missing
        else:
            self.looked.launches = len(self.judge.kernels)
        return None

    def _judge_from(self, module: Module) -> Judge:
        made = self.made
        target = made.target if self.execute and not made.not_executed else None
        return Judge(module, self.inputs, target, made.options.threads)

    # -- stages ----------------------------------------------------------------------------------

    def _count(self, step, stage) -> None:
        """Count a correct pass in ``looked``."""
        looked, error = self.looked, self.judge.error
        looked.passes += 1
        looked.verdicts.update(record.verdict for record in self.records)
        if (
            stage.changed
            and not step.pass_.changes_semantics
            and error is not None
            and error > looked.error
        ):
            looked.error, looked.worst_pass = error, step.label

    def _judged(self, done: PassEffect) -> _Fault | None:
        """Return the first fault of the module that a pass made, or None."""
        self.records = []
        if done.changed:
            errors = [d for d in verify(done.module, self.levels) if d.severity == "error"]
            if errors:
                return _Fault(INVALID, "; ".join(map(str, errors[:3])))
        self.records = self.judge.stage(done)
        record = next((r for r in self.records if r.verdict == "failed"), None)
        if record is not None:
            return _fault(record)
        error = self.judge.error
        if done.exact or done.pass_.changes_semantics or error is None or error <= self.tolerance:
            return None
        if any(r.kind == "results" and r.verdict == "within" for r in self.records):
            return None  # right in f64: the model is ill-conditioned, not miscompiled
        note = f"the results are off by {error:.3g} of their largest value since the import"
        return _Fault(END_TO_END, note, error=error)

    def _found(self, step, before: Module, fault: _Fault, rewrites) -> Finding:
        """Return the finding for a fault of a stage."""
        kind = fault.record.kind if fault.record is not None else ""
        if kind == "schedule":
            return self._schedule(fault)
        if kind == "loops":
            return self._loops(fault)
        if kind in ("code", "kernel"):
            made = self.judge.parts if kind == "code" else self.judge.kernels
            bad = next(c for c in made if c.record.verdict == "failed")
            return self._kernel(bad)
        if kind in ("program", "memory") and step.pass_.name() == "generate_code":
            return self._finding_in(
                "generate_code",
                EXECUTED,
                fault.note,
                value=fault.value,
                index=fault.index,
                error=fault.error,
                numbers=fault.numbers,
            )
        return self._narrow(step, before, fault, rewrites)

    # -- narrowing -------------------------------------------------------------------------------

    def _narrow(
        self, step, before: Module, fault: _Fault, rewrites: Sequence[Rewrite] = ()
    ) -> Finding:
        """Return the finding with the responsible rewrite of a wrong pass."""
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
        elif failed is not None:  # a change that no event describes
            return replace(found, rewrite=failed)
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
        """Return the (number, rewrite) of the first rewrite with which the pass is wrong, or None.

        None if the pass is wrong without any rewrite or does not respect a limit.
        """
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
        kept, self.judge = self.judge, self.earlier.fork()
        try:
            made = PassEffect(before, after, step.pass_, rewrites, self.made.facts, whole=False)
            return self._judged(made) is not None
        finally:
            self.judge = kept

    def _attempt(self, step, before: Module, limit: int | None):
        """Run the pass alone on ``before`` with a limit: (module, rewrites, exception).

        It may take as long as in the compile.
        """
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
                return run_pass(step.pass_, before, context), context.rewrites, None
        except (Exception, Expired) as error:
            return None, context.rewrites, error

    # -- machine code ----------------------------------------------------------------------------

    def _kernel(self, check: KernelCheck) -> Finding:
        """Return the finding for a kernel whose loops, schedule or machine code is at fault."""
        record, launch = check.record, check.launch
        where: dict[str, Any] = {
            "value": record.value,
            "index": record.index,
            "error": record.worst_error,
            "numbers": _numbers(record),
        }
        scheduled = self.made.facts["schedules"][check.kernel]
        found = first_bad_step(launch, scheduled, self.judge.checker.evaluator)
        if found is None:
            return self._finding_in("generate_code", EXECUTED, record.note, **where)
        if found.number:
            return self._step(scheduled, found, EXECUTED, **where)
        return self._outlined(check.kernel, EXECUTED, found.note, **where)

    def _outlined(self, kernel: str, how: str, note: str, **where) -> Finding:
        """Return the rewrite that made a kernel whose plain loops are wrong."""
        made_by = self._maker(kernel, "outline_kernels")
        rewrites = self._stage_of(made_by).rewrites
        number = next((i for i, r in enumerate(rewrites) if r.note == kernel), None)
        rewrite = None if number is None else rewrites[number]
        return self._finding_in(made_by, how, note, number, rewrite, **where)

    def _loops(self, fault: _Fault) -> Finding:
        """Return the finding for a kernel whose plain loops differ from its region.

        Lowering is at fault.
        """
        schedules = self.made.facts["schedules"]
        launches = first_launches(self.made.module, schedules)
        kernel = next(
            Launch.of(op).kernel for op in launches if Launch.of(op).written[0] is fault.value
        )
        return self._outlined(
            kernel,
            CHECKED,
            fault.note,
            value=fault.value,
            index=fault.index,
            error=fault.error,
            numbers=fault.numbers,
        )

    def _schedule(self, fault: _Fault) -> Finding:
        """Return the step of the first kernel whose schedule changes bits of its plain loops."""
        schedules = self.made.facts["schedules"]
        for launch in first_launches(self.made.module, schedules):
            scheduled = schedules[Launch.of(launch).kernel]
            found = first_bad_step(launch, scheduled)
            if found is not None:
                value = Launch.of(launch).written[0]
                return self._step(scheduled, found, CHECKED, value=value, error=found.error)
        return self._finding_in("schedule_kernels", CHECKED, fault.note, value=fault.value)

    def _step(self, scheduled, found: BadStep, how: str, **where) -> Finding:
        step = scheduled.steps[found.number]
        # Steps of schedules are not rewrites of the pass: they are many and are recomputed on
        # demand.
        note = f"schedule of {scheduled.function.name}"
        rewrite = Rewrite(step.name, "", (), (), {}, step.kernel, None, note)
        made_by = self._maker(scheduled.function.name, "schedule_kernels")
        return self._finding_in(made_by, how, found.note, found.number, rewrite, **where)

    def _maker(self, kernel: str, usual: str) -> str:
        """Return the pass that made a kernel after others were scheduled, or the ``usual`` one."""
        stage = next(s for s in self.made.stages if kernel in s.module.functions)
        name = "" if stage.step is None else stage.step.pass_.name()
        return usual if name in ("", "outline_kernels") else name

    def _stage_of(self, pass_name: str):
        """Return the last stage made by the pass of this name, or else the last of all."""
        stages = [s for s in self.made.stages if s.step and s.step.pass_.name() == pass_name]
        return (stages or self.made.stages)[-1]

    def _finding_in(
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
        seen = self.made.stages[-1].index
        return Finding(
            stage.index, stage.name, how, note, number, rewrite, before=before, seen=seen, **where
        )


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
    """Return the tensor of a finding: its value, or the first that its rewrite replaced."""
    if finding.value is not None:
        return finding.value
    if finding.rewrite is None:
        return None
    values: list[Value] = [v for op in finding.rewrite.old for v in op.results]
    return next(
        (v for v in (*values, *finding.rewrite.values) if isinstance(v.type, TensorType)), None
    )


def made_by(finding: Finding) -> Op | None:
    """Return the op of the module before the pass that defines the finding's value."""
    value = tensor_value(finding)
    if value is None or finding.before is None:
        return None
    return next((op for op in finding.before.walk() if value in op.results), None)
