"""What goes wrong when passes run on a module, told so that two runs can be compared.

Reducing asks thousands of times "is this still the same failure?"; a reproducer asks once.  Two
failures are the same where the pass is, how it showed, and what it is within that: the exception's
type and the line of the pass, the rule whose check failed, the verifier's complaint without names
and numbers.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.debug.bisect import (
    CHECKED,
    END_TO_END,
    EXECUTED,
    INVALID,
    NEVER_ENDS,
    RAISED,
    SEEN,
)
from core_compiler.debug.deadline import Expired, deadline
from core_compiler.debug.judge import Judge, Made
from core_compiler.errors import CANNOT_HERE, UserError
from core_compiler.ir import Module, Rewrite, Value
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.verifier import LevelRules, verify
from core_compiler.ops.base import cost
from core_compiler.passes.base import Pass, PassContext
from core_compiler.pipelines import Step

#: Kinds of failure that the numbers show: they need inputs.
NUMBERS = frozenset({CHECKED, END_TO_END, EXECUTED})


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong.

    ``pass_label`` and ``how`` it was seen (``raised``, ``invalid``, ``check``, ``end to end``,
    ``never ends``); ``what`` it is within that; ``place`` is the line of the pass for an exception.
    ``note`` is for people.  ``near`` are values that it has to do with (where that is known).
    """

    pass_label: str
    how: str
    what: str
    place: str = ""
    note: str = field(default="", compare=False)
    near: tuple[Value, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Trial:
    """Passes to be run in a row; the last one is the suspect.

    ``levels`` are the verifier's rules.  ``pass_seconds`` is what one pass may take (None: as long
    as it likes), ``tolerance`` how far an inexact pass may move the outputs as a whole.
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
        """What is wrong when the passes run on ``module``; nothing where all is well.

        ``inputs`` are arrays for main's arguments; without them numbers are not looked at.  ``how``
        says that only failures of that kind are asked for.  UserError (exit code 3) where this
        machine lacks something.
        """
        stages: list[tuple[Module, tuple[Rewrite, ...]]] = [(module, ())]
        facts: dict[str, Any] = {}
        for step in self.steps:
            before = stages[-1][0]
            context = PassContext(self.target, Budget(step.limit), facts=facts,
                                  options=self.options)  # fmt: skip
            try:
                with deadline(self.pass_seconds):
                    after = step.pass_.run(before, context)
            except Expired:
                note = f"has not ended after {self.pass_seconds:g} s"
                yield Failure(step.label, NEVER_ENDS, "", "", note)
                return
            except Exception as error:
                if isinstance(error, UserError) and error.exit_code == CANNOT_HERE:
                    raise
                yield _raised(step, error)
                return
            wrong = _returned(step, after) or self._invalid(step, after)
            if wrong is not None:
                yield wrong
                return
            stages.append((after, tuple(context.rewrites)))
        if inputs is not None and how not in (RAISED, INVALID, NEVER_ENDS):
            yield from self._numbers(stages, facts, inputs, how)

    def find(
        self, module: Module, inputs: Sequence[np.ndarray] | None, wanted: Failure | None = None
    ) -> Failure | None:
        """The first failure, or the one that is the same as ``wanted``."""
        how = wanted.how if wanted is not None else None
        found = self.failures(module, inputs, how)
        return next((f for f in found if wanted is None or f == wanted), None)

    # -- what may be wrong -----------------------------------------------------------------------

    def _invalid(self, step: Step, after: Module) -> Failure | None:
        errors = [d for d in verify(after, self.levels) if d.severity == "error"]
        if not errors:
            return None
        note = "; ".join(map(str, errors[:3]))
        near = [v for d in errors if d.op for v in (*d.op.operands, *d.op.results)]
        return Failure(step.label, INVALID, _skeleton(errors[0].message), "", note, tuple(near))

    def _numbers(self, stages, facts, inputs, how) -> Iterator[Failure]:
        """What the judge says of the last pass; nothing where the stages before it have no values:
        candidates may lack what they need."""
        step = self.steps[-1]
        (before, _), (after, rewrites) = stages[-2:]
        if after is before and not rewrites and step.pass_.name() not in _OF_KERNELS:
            return
        target = self.target if self.target.available() is None else None
        try:
            judge = Judge(stages[0][0], inputs, target, self.threads)
            for earlier, (one, other) in zip(self.steps, pairwise(stages[:-1]), strict=False):
                judge.follow(Made(one[0], other[0], earlier.pass_, other[1]))
        except Exception:  # a module that nobody can evaluate has no values
            return
        last = Made(before, after, step.pass_, rewrites, facts, module_flops(after), True)
        try:
            found = judge.stage(last)
        except Exception:  # a candidate lacks a pass whose work is read
            return
        for record in found:
            if record.verdict == "failed" and how in (None, SEEN[record.kind]):
                yield _checked(step, record)
        if judge.error is not None and judge.error > self.tolerance and not step.pass_.exact:
            if any(r.kind == "results" for r in found):
                return  # judged in f64
            note = f"the results are off by {judge.error:.3g} of their largest value"
            yield Failure(step.label, END_TO_END, "error", "", note)


#: Passes whose result is no other main but what they lay down in the facts.
_OF_KERNELS = frozenset({"schedule_kernels", "generate_code"})


def module_flops(module: Module) -> float:
    """Operations of main's ops, as far as they declare them; 0 at other levels than tensor ops."""
    if module.main.level != "tensor":
        return 0.0
    known = (op for op in module.main.body.ops if op.kind.startswith("core.") and not op.regions)
    return float(sum(cost(op).flops for op in known if op.kind != "core.constant"))


def _raised(step: Step, error: Exception) -> Failure:
    text = " ".join(str(error).split())[:300]
    name = type(error).__name__
    place = _line_in(step.pass_, error)
    note = f"raised {name}{f' at {place}' if place else ''}: {text}".rstrip(": ")
    return Failure(step.label, RAISED, name, place, note)


def _line_in(pass_: Pass, error: BaseException) -> str:
    """``file.py:12``: the innermost line of the pass's own file that the exception came through."""
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
    rewrite, how = record.rewrite, SEEN[record.kind]
    note = record.note or "a check failed"
    if rewrite is None:
        what = _skeleton(re.sub(r"^kernel [^ :]+:? ", "", note))
        near = () if record.value is None else (record.value,)
        return Failure(step.label, how, what, "", note, near)
    near = dict.fromkeys([*rewrite.values, *(v for op in rewrite.old for v in op.results)])
    return Failure(step.label, how, rewrite.rule, "", note, tuple(near))


_NAMES = (
    (re.compile(r", in .*", re.DOTALL), ""),
    (re.compile(r"%[\w$.]+"), "%"),
    (re.compile(r"(tensor|memref)<[^>]*>+"), r"\1"),
    (re.compile(r"\([\d, ?]*\)|\[[\d, ?]*\]"), "shape"),
    (re.compile(r"\b\d+\b"), "N"),
)


def _skeleton(message: str) -> str:
    """A diagnostic without the names, types and numbers that reducing changes."""
    for pattern, put in _NAMES:
        message = pattern.sub(put, message)
    return message
