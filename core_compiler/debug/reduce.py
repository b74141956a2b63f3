"""Test case reduction: the smallest module and simplest values on which passes fail the same way.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002)
on SSA: any set of ops is a valid module once the values that it reads from the rest are arguments
and those that the rest reads are results, so the search is over sets of ops and needs no repair.
The arguments of such a cut hold the values that they had in the whole model.  Then sizes, values
and attributes are simplified as long as the failure stays the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from core_compiler.debug.bisect import NEVER_ENDS
from core_compiler.debug.candidates import (
    CONSTANT,
    Case,
    Cutter,
    around,
    arrays_of,
    bypassed,
    needs_simplifying,
    only_outputs,
    resized,
    simpler_values,
    sizes_of,
    value_slots,
    with_attribute,
    with_values,
    without_facts,
)
from core_compiler.debug.failure import NUMBERS, Failure, Trial
from core_compiler.debug.recipes import RECIPES
from core_compiler.ir import Module
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ir.verifier import verify

#: Sizes that are tried instead of larger ones.
SMALL = (1, 2, 3, 4)
#: Distances, in ops, of the first cuts from the ops that a failure names.
REACH = (0, 1, 2, 4, 8, 16)
#: Minimum time limit of a pass while one that never ends is reduced.
LEAST_SECONDS = 0.25
#: Upper bound on the rounds, which otherwise run as long as one changes something.
ROUNDS = 4


@dataclass(frozen=True, eq=False)
class Reduced:
    """The result of a reduction.

    ``case`` still fails as ``failure`` says when ``trial`` runs on it.  ``before`` is the original
    number of ops; ``tried`` counts candidates.  ``stopped`` is ``""`` if nothing smaller was found,
    else ``time limit`` or ``interrupted``.
    """

    case: Case
    trial: Trial
    failure: Failure
    before: int
    tried: int
    seconds: float
    stopped: str = ""


def is_plain(module: Module) -> bool:
    """Return whether main has tensor ops only.

    Groups, launches and buffers have parts that depend on each other in ways that a cut does not
    keep.
    """
    main = module.main
    return main.level == "tensor" and all(op.kind not in MEANING_IN_REGION for op in main.body.ops)


def reduce(
    module: Module,
    inputs: Sequence[np.ndarray] | None,
    trial: Trial,
    failure: Failure | None = None,
    *,
    seconds: float | None = 60.0,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Reduced | None:
    """Return the smallest case found on which ``trial`` fails as on ``module``, or None.

    ``module``  its main has tensor ops only (see :func:`is_plain`).
    ``inputs``  arrays for main's arguments; None if no values are needed.
    ``failure`` the failure to keep; None: the first that shows.
    ``seconds`` the time limit of the search (None: no limit); Ctrl-C ends it too.  Both keep the
                best case so far.

    None if nothing fails.  Two runs that end by themselves return the same case.
    """
    arrays = None if inputs is None else tuple(inputs)
    found = trial.find(module, arrays, failure)
    if found is None:
        return None
    if found.how not in NUMBERS:
        arrays = None
    case = Case(module, arrays)
    if found.how != NEVER_ENDS or trial.pass_seconds is None:
        return _Search(case, trial, found, seconds, progress).run()
    return _impatient(case, trial, found, seconds, progress)


def _impatient(case: Case, trial: Trial, failure: Failure, seconds, progress) -> Reduced:
    """Reduce a case on which a pass never ends: smaller modules get less time.

    The last one gets the full time.  If the pass ends on it, the search starts again with the full
    time for each.
    """
    patience = trial.pass_seconds
    assert patience is not None
    quick = replace(trial, pass_seconds=min(patience, max(LEAST_SECONDS, patience / 20)))
    found = _Search(case, quick, failure, seconds, progress).run()
    patient = replace(found.trial, pass_seconds=patience)
    try:
        again = patient.find(found.case.module, None, failure)
    except KeyboardInterrupt:  # it did not end in the time that could be waited
        return replace(found, trial=patient, stopped="interrupted")
    if again is not None:
        return replace(found, trial=patient, failure=again)
    left = None if seconds is None else max(seconds - found.seconds, 0.0)
    return _Search(case, trial, failure, left, progress).run()


class _TimeIsUp(Exception):
    pass


@dataclass
class _Search:
    case: Case
    trial: Trial
    failure: Failure
    seconds: float | None
    progress: Callable[[str, int, int], None]
    tried: int = 0
    doing: str = ""
    started: float = field(default_factory=time.monotonic)

    def run(self) -> Reduced:
        before, stopped = self.case.ops, ""
        try:
            for _ in range(ROUNDS):
                at_start = self.case, self.trial
                for step in (
                    self.facts,
                    self.passes,
                    self.near,
                    self.some_ops,
                    self.outputs,
                    self.bypass,
                    self.any_op,
                    self.numbers,
                    self.shapes,
                    self.numbers,
                    self.attributes,
                ):
                    step()
                if (self.case, self.trial) == at_start:
                    break
        except _TimeIsUp:
            stopped = "time limit"
        except KeyboardInterrupt:
            stopped = "interrupted"
        spent = time.monotonic() - self.started
        return Reduced(self.case, self.trial, self.failure, before, self.tried, spent, stopped)

    # -- candidates --------------------------------------------------------------------------------

    def fails(self, case: Case | None, trial: Trial | None = None) -> bool:
        """Return whether a candidate fails the same way, and if so, keep it as the best one."""
        if case is None:
            return False
        if self.seconds is not None and time.monotonic() - self.started > self.seconds:
            raise _TimeIsUp
        self.tried += 1
        self.progress(f"reduce to {self.case.ops} ops: {self.doing}", self.tried, 0)
        trial = trial or self.trial
        if any(d.severity == "error" for d in verify(case.module, trial.levels)):
            return False
        found = trial.find(case.module, case.inputs, self.failure)
        if found is None:
            return False
        self.case, self.trial, self.failure = case, trial, found
        return True

    def facts(self) -> None:
        """Remove main's facts of arguments and results, which every part must keep otherwise."""
        self.doing = "state attributes of main"
        self.fails(without_facts(self.case))

    def passes(self) -> None:
        """Remove passes before the suspect that no later pass needs."""
        self.doing = "passes before it"
        for step in self.trial.steps[:-1]:
            left = self.trial.without(step)
            if left is not None:
                self.fails(self.case, left)

    def near(self) -> None:
        """Cut out the ops that the failure mentions, with increasing distance around them."""
        self.doing = "ops near it"
        body, named = self.case.module.main.body, set(self.failure.near)
        seeds = [op for op in body.ops if op.kind != CONSTANT and named.intersection(op.results)]
        if not seeds:
            return
        cutter, count = Cutter(self.case), self.case.ops
        for reach in REACH:
            kept = around(body, seeds, reach)
            if len(kept) >= count or self.fails(cutter.cut(kept)):
                return

    def some_ops(self) -> None:
        """Minimise the ops; constants stay with the ops that read them."""
        self.doing = "fewer ops"
        cutter = Cutter(self.case)
        ops = [op for op in self.case.module.main.body.ops if op.kind != CONSTANT]
        if len(ops) > 1:
            _minimise(ops, lambda kept: self.fails(cutter.cut(kept)))

    def any_op(self) -> None:
        """Minimise the ops including constants: removed ones become arguments."""
        self.doing = "constants as inputs"
        cutter = Cutter(self.case)
        ops = list(self.case.module.main.body.ops)
        if len(ops) > 1:
            _minimise(ops, lambda kept: self.fails(cutter.cut(kept, constants=False)))

    def outputs(self) -> None:
        """Minimise the results."""
        self.doing = "fewer results"
        case = self.case
        indices = list(range(len(case.module.main.outputs)))
        if len(indices) > 1:
            _minimise(indices, lambda kept: bool(kept) and self.fails(only_outputs(case, kept)))

    def bypass(self) -> None:
        """Replace an op's result by an operand of the same type."""
        self.doing = "ops replaced by an operand"
        again = True
        while again:
            again = any(self.fails(case) for case in bypassed(self.case))

    def numbers(self) -> None:
        """Simplify inputs and weights: zeros, ones, small integers, seeded values."""
        self.doing = "simpler values"
        count = len(value_slots(self.case))
        if count > 1 and any(map(needs_simplifying, arrays_of(self.case))):
            self._simplified(range(count))
        for number in range(count):
            self._simplified([number])

    def _simplified(self, numbers: Sequence[int]) -> None:
        """Try recipes on these arrays together, simplest first, down to the current one."""
        for recipe in RECIPES.values():
            case = with_values(self.case, numbers, recipe)
            if case is None or self.fails(case):
                return

    def shapes(self) -> None:
        """Shrink tensors: one size of the whole module after another."""
        self.doing = "smaller sizes"
        for size in sizes_of(self.case):
            if size not in sizes_of(self.case):  # an earlier change removed it
                continue
            smaller = [s for s in dict.fromkeys((*SMALL, size // 2)) if 0 < s < size]
            any(self.fails(case) for s in smaller for case in resized(self.case, size, s))

    def attributes(self) -> None:
        """Set attributes to their defaults, or to all zeros or ones."""
        self.doing = "default attributes"
        for position, op in enumerate(self.case.module.main.body.ops):
            for name in op.attributes:
                values = simpler_values(self.case.module.main.body.ops[position], name)
                any(self.fails(with_attribute(self.case, position, name, v)) for v in values)


# -- sets of ops -----------------------------------------------------------------------------------


def _minimise(items: list, fails: Callable[[list], bool]) -> list:
    """Return a subset of ``items`` that fails, from which no single item can be removed (ddmin)."""
    known: dict[tuple[int, ...], bool] = {tuple(range(len(items))): True}

    def test(kept: Sequence[int]) -> bool:
        key = tuple(kept)
        if key not in known:
            known[key] = fails([items[i] for i in key])
        return known[key]

    current, parts = list(range(len(items))), 2
    while len(current) > 1:
        size = -(-len(current) // parts)
        chunks = [current[i : i + size] for i in range(0, len(current), size)]
        rests = [[i for i in current if i not in set(chunk)] for chunk in chunks]
        found = next((c for c in chunks if len(chunks) > 1 and test(c)), None)
        if found is not None:
            current, parts = found, 2
            continue
        rest = next((r for r in rests if r and len(r) < len(current) and test(r)), None)
        if rest is not None:
            current, parts = rest, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(current))
    return [items[i] for i in current]
