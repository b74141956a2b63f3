"""Failures of passes on a module, described so that two runs can be compared.

Reduction asks thousands of times whether the failure is still the same; a reproducer asks once.
Two failures are the same if the pass, the way the fault showed, and the details agree: the
exception's type and the line of the pass, the rule whose check failed (and whether the given values
show it or only adversarial ones), or the verifier's message without names and numbers.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.debug.bisect import (
    CHECKED,
    END_TO_END,
    EXECUTED,
    HOW_DETECTED,
    INVALID,
    NEVER_ENDS,
    RAISED,
    locate,
)
from core_compiler.debug.deadline import Expired, deadline
from core_compiler.debug.judge import Judge, PassEffect
from core_compiler.ir import Module, Rewrite, Value
from core_compiler.ir.claims import Formula, Gradient
from core_compiler.ir.events import CheckRecord, Diagnostic
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.verifier import LevelRules, verify
from core_compiler.ops.costs import cost
from core_compiler.passes.base import Pass, PassContext, run_pass
from core_compiler.pipelines.pipeline import Step
from core_compiler.support.errors import CANNOT_HERE, UserError

#: Kinds of failure that depend on values and need inputs.
NUMBERS = frozenset({CHECKED, END_TO_END, EXECUTED})


@dataclass(frozen=True)
class Failure:
    """A single failure, named as ``--check`` names it.

    ``pass_label``; ``how`` it showed (``raised``, ``invalid``, ``check``, ``end to end``, ``never
    ends``); ``what`` it is within that; ``location`` is the line of the pass for an exception;
    ``adversarial`` means that a rule is right on the given values and wrong on adversarial ones.
    ``note`` is a message for the user.  ``near`` are the values concerned, if known.
    """

    pass_label: str
    how: str
    what: str
    location: str = ""
    note: str = field(default="", compare=False)
    near: tuple[Value, ...] = field(default=(), compare=False, repr=False)
    adversarial: bool = False


@dataclass(frozen=True, eq=False)
class _Stage:
    """A stage of a compilation, as far as it is judged; the first has no ``step``."""

    index: int
    name: str
    module: Module
    step: Step | None = None
    rewrites: Sequence[Rewrite] = ()
    before: Module | None = None


@dataclass(eq=False)
class _Ran:
    """The stages that a trial's passes made, in the form in which a search reads a compilation."""

    target: Any
    options: Any
    stages: list[_Stage]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> Module:
        return self.stages[-1].module

    def judged(self, stage: _Stage) -> PassEffect:
        """Return the description of a stage for the judge."""
        assert stage.step is not None and stage.before is not None
        last = stage is self.stages[-1]
        flops = module_flops(stage.module) if last else 0.0
        return PassEffect(
            stage.before,
            stage.module,
            stage.step.pass_,
            stage.rewrites,
            self.facts,
            flops,
            last,
            stage.step.limit is None,
        )


@dataclass(frozen=True)
class _Options:
    """The subset of a compile's options that a search for the cause reads."""

    target: Mapping[str, Any]
    pass_timeout: float | None
    threads: int


@dataclass(frozen=True)
class Trial:
    """A sequence of passes to run; the last one is the suspect, or shows an earlier one's fault.

    ``levels`` are the verifier's rules.  ``pass_seconds`` is the time limit of one pass (None: no
    limit), ``tolerance`` the total relative error that an inexact pass may add to the outputs.
    """

    steps: tuple[Step, ...]
    target: Any
    levels: Mapping[str, LevelRules]
    options: Mapping[str, Any] = field(default_factory=dict)
    pass_seconds: float | None = None
    tolerance: float = 1e-3
    threads: int = 0

    def failures(
        self, module: Module, inputs: Sequence[np.ndarray] | None, how: str | None = None
    ) -> Iterator[Failure]:
        """Yield the failures of running the passes on ``module``; nothing if all is well.

        ``inputs`` are arrays for main's arguments; without them values are not checked.  ``how``
        limits the search to failures of that kind.  Raises UserError (exit code 3) if this machine
        lacks something.
        """
        options = _Options(self.options, self.pass_seconds, self.threads)
        ran = _Ran(self.target, options, [_Stage(0, "", module)])
        for step in self.steps:
            before = ran.module
            context = PassContext(
                self.target, Budget(step.limit), facts=ran.facts, options=self.options
            )
            try:
                with deadline(self.pass_seconds):
                    after = run_pass(step.pass_, before, context)
            except Expired:
                note = f"has not ended after {self.pass_seconds:g} s"
                yield Failure(step.label, NEVER_ENDS, "", "", note)
                return
            except Exception as error:
                if isinstance(error, UserError) and error.exit_code == CANNOT_HERE:
                    raise
                yield _raised(step, error)
                return
            wrong = _returned(step, after) or self._invalid(step, after, context.notes)
            if wrong is not None:
                yield wrong
                return
            rewrites = tuple(context.rewrites)
            ran.stages.append(_Stage(len(ran.stages), step.label, after, step, rewrites, before))
        if inputs is not None and how not in (RAISED, INVALID, NEVER_ENDS):
            yield from self._numbers(ran, inputs, how)

    def without(self, step: Step) -> Trial | None:
        """Return the trial without one pass, or None if a later pass requires it."""
        steps = tuple(s for s in self.steps if s is not step)
        if _missing(steps) - _missing(self.steps):
            return None
        return replace(self, steps=steps)

    def find(
        self, module: Module, inputs: Sequence[np.ndarray] | None, wanted: Failure | None = None
    ) -> Failure | None:
        """Return the first failure, or the one that equals ``wanted``."""
        how = wanted.how if wanted is not None else None
        found = self.failures(module, inputs, how)
        return next((f for f in found if wanted is None or f == wanted), None)

    # -- what may be wrong -----------------------------------------------------------------------

    def _invalid(self, step: Step, after: Module, notes: Sequence[Diagnostic]) -> Failure | None:
        found = [*notes, *verify(after, self.levels)]
        errors = [d for d in found if d.severity == "error"]
        if not errors:
            return None
        note = "; ".join(map(str, errors[:3]))
        near = [v for d in errors if d.op for v in (*d.op.operands, *d.op.results)]
        return Failure(step.label, INVALID, _skeleton(errors[0].message), "", note, tuple(near))

    def _numbers(
        self, ran: _Ran, inputs: Sequence[np.ndarray], how: str | None
    ) -> Iterator[Failure]:
        """Yield the judge's failures of the last pass.

        Nothing if the stages before it have no values: candidates may lack what they need.
        """
        step, (first, *earlier, last) = self.steps[-1], ran.stages
        changed = last.module is not last.before or last.rewrites
        if not changed and step.pass_.name() not in _OF_KERNELS:
            return
        target = self.target if self.target.available() is None else None
        try:
            judge = Judge(first.module, inputs, target, self.threads)
            for stage in earlier:
                judge.follow(ran.judged(stage))
        except Exception:  # a module that cannot be evaluated has no values
            return
        before = judge.fork()
        try:
            found = judge.stage(ran.judged(last))
        except Exception:  # a candidate lacks a pass whose facts are read
            return
        for record in found:
            if record.verdict != "failed" or how not in (None, HOW_DETECTED[record.kind]):
                continue
            if record.kind not in _NARROWED:
                yield _checked(step, record)
                continue
            one = locate(ran, inputs, judge, before, [record], self.levels)
            what = _of_kernel(one.note)
            rule = "" if one.rewrite is None else _skeleton(one.rewrite.rule)
            what = what if what.startswith(rule) else f"{rule}: {what}"
            near = () if record.value is None else (record.value,)
            yield Failure(one.pass_label, one.how, what, "", one.note, near)
        if judge.error is not None and judge.error > self.tolerance and not step.pass_.exact:
            if any(r.kind == "results" for r in found):
                return  # judged in f64
            note = f"the results are off by {judge.error:.3g} of their largest value"
            yield Failure(step.label, END_TO_END, "error", "", note)


#: Kinds of checks that show the fault of an earlier pass: a kernel's loops, its schedule or its
#: code.
_NARROWED = frozenset({"code", "kernel", "loops", "schedule"})


def _missing(steps: Sequence[Step]) -> set[str]:
    """Return the facts that ``steps`` need and none of them ensures: the required initial state."""
    missing: set[str] = set()
    holds: set[str] = set()
    for step in steps:
        missing |= step.pass_.requires - holds
        holds = (holds | step.pass_.ensures) - step.pass_.invalidates
    return missing


#: Passes whose result is in the facts rather than in main.
_OF_KERNELS = frozenset({"schedule_kernels", "generate_code"})


def module_flops(module: Module) -> float:
    """Return the operations of main's ops, if declared; 0 at other levels than tensor ops."""
    if module.main.level != "tensor":
        return 0.0
    known = (op for op in module.main.body.ops if op.kind.startswith("core.") and not op.regions)
    return float(sum(cost(op).flops for op in known if op.kind != "core.constant"))


def _raised(step: Step, error: Exception) -> Failure:
    text = " ".join(str(error).split())[:300]
    name = type(error).__name__
    location = _line_in(step.pass_, error)
    note = f"raised {name}{f' at {location}' if location else ''}: {text}".rstrip(": ")
    return Failure(step.label, RAISED, name, location, note)


def _line_in(pass_: Pass, error: BaseException) -> str:
    """Return ``file.py:12``: the innermost traceback line in the pass's own file."""
    own = getattr(sys.modules.get(type(pass_).__module__), "__file__", None)
    own = type(pass_).run.__code__.co_filename if own is None else own
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _returned(step: Step, after: Any) -> Failure | None:
    if isinstance(after, Module):
        return None
    what = f"returned {type(after).__name__}, not a module"
    return Failure(step.label, INVALID, what, "", what)


def _checked(step: Step, record: CheckRecord) -> Failure:
    rewrite, how = record.rewrite, HOW_DETECTED[record.kind]
    note = record.note or "a check failed"
    if rewrite is None:
        # Which call of a program is wrong may depend on the earlier contents of memory.
        what = record.kind if record.kind == "program" else _of_kernel(note)
        values = () if record.value is None else (record.value,)
        return Failure(step.label, how, what, "", note, values)
    equal = record.kind == "unlogged" and not record.worst_error
    rule = f"{rewrite.rule} of equal values" if equal else rewrite.rule
    near = tuple(
        dict.fromkeys(
            [
                *rewrite.values,
                *(v for op in rewrite.old for v in op.results),
                *_claimed(rewrite),
            ]
        )
    )
    return Failure(step.label, how, rule, "", note, near, record.adversarial)


def _of_kernel(note: str) -> str:
    """Return a note without the name of the kernel that it is about."""
    return _skeleton(re.sub(r"^kernel [^ :]+:? (\w+: )?(<.*>: )?", "", note))


def _claimed(rewrite: Rewrite) -> tuple[Value, ...]:
    """Return the values that new ops claim to compute something of."""
    claim = rewrite.claim
    if isinstance(claim, Gradient):
        return tuple(v for op in claim.forward for v in op.results)
    return tuple(claim.given.values()) if isinstance(claim, Formula) else ()


_NAMES = (
    (re.compile(r", in .*", re.DOTALL), ""),
    (re.compile(r"%[\w$.]+"), "%"),
    (re.compile(r"(tensor|memref)<[^>]*>+"), r"\1"),
    (re.compile(r"\([\d, ?]*\)|\[[\d, ?]*\]"), "shape"),
    (re.compile(r"\b\d+\b"), "N"),
)


def _skeleton(message: str) -> str:
    """Return a diagnostic without the names, types and numbers that reduction changes."""
    for pattern, put in _NAMES:
        message = pattern.sub(put, message)
    return message
