"""Step-by-step compilation for the page: a compile that waits before its passes for a command."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any

from core_compiler.driver.compilation import Cancelled, Compilation
from core_compiler.ir import Rewrite, Value
from core_compiler.ir.events import Observer
from core_compiler.pipelines.edit_data import edit_facts
from core_compiler.pipelines.pipeline import PipelineEdit, split_step, without_step
from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError
from workbench.queries.breakpoints import OP, PASS, RULE, is_valid

#: The interval at which a wait for a command checks for cancellation (seconds).
PATIENCE = 0.2

Command = Mapping[str, Any]


#: The breakpoints of each kind.
Breakpoints = Mapping[str, Set[str]]
#: A predicate: whether to run the next pass, after its preparation, without waiting.
Continue = Callable[[Compilation], bool]


class Hold:
    """A hold that waits for ``commands`` (None: there will be no more) and reports its position.

    ``apply`` runs the next pass, ``rewrite`` only as far as its next rewrite, ``skip`` leaves it
    out, ``change`` runs until a pass changed something, ``run`` until a breakpoint (``stops``: the
    next pass, or a rewrite by a rule or of an op), ``finish`` runs all remaining passes. A pass
    that is interrupted runs in parts, which the recording's edit states.
    """

    def __init__(
        self,
        commands: queue.Queue[Command | None],
        send: Callable[[dict], None],
        cancelled: Callable[[], bool],
    ):
        self._commands, self._send, self._cancelled = commands, send, cancelled
        self._keep_going: Continue | None = None
        self._recorder: Recorder | None = None
        self._observer = Observer()

    def begin(self, observer: Observer, recorder: Recorder | None) -> None:
        """Set the observer of edits, and the recorder that knows the numbers of ops."""
        self._observer, self._recorder = observer, recorder

    def should_step(self, made: Compilation) -> bool:
        """Wait for the command for the next pass.

        Returns True to run it, False to run all remaining passes.

        Cancelled if there will be no more commands.
        """
        problem: UserError | None = None
        while made.next is not None:
            if self._keep_going is not None and self._keep_going(made):
                return True
            self._keep_going = None
            self._report_position(made, problem)
            command, problem = self._wait(), None
            what, done = command.get("do"), len(made.stages)
            if what == "finish":
                return False
            if what == "apply":
                self._keep_going = partial(_once, done)
            elif what == "change":
                self._keep_going = partial(_to_change, done)
            elif what == "rewrite":
                self._keep_going = partial(self._to_rewrite, done)
            elif what == "run":
                breakpoints = [str(stop) for stop in command.get("stops") or ()]
                self._keep_going = partial(
                    self._to_breakpoint, done, _group_breakpoints(breakpoints)
                )
            elif what == "skip":
                try:
                    self._skip(made)
                except UserError as error:
                    problem = error
        return False

    def _wait(self) -> Command:
        while not self._cancelled():
            try:
                command = self._commands.get(timeout=PATIENCE)
            except queue.Empty:
                continue
            if command is None:
                break
            return command
        raise Cancelled

    def _report_position(self, made: Compilation, problem: UserError | None) -> None:
        assert made.next is not None
        to_come = [step.label for step in made.steps[len(made.stages) - 1 :]]
        self._send(
            {
                "paused": {
                    "next": made.next.label,
                    "at": len(made.stages),
                    "total": len(made.steps),
                    "to_come": to_come,
                    "half": made.next.half,
                    "problem": None if problem is None else problem.to_json()["error"],
                }
            }
        )

    def _skip(self, made: Compilation) -> None:
        """Continue the pipeline without the next pass; UserError if that is impossible."""
        assert made.next is not None
        self._change(made, without_step(made.options.edit, made.next))

    def _change(self, made: Compilation, edit: PipelineEdit) -> None:
        made.change(edit)
        self._observer.amend({"edit": edit_facts(edit)})

    def _to_rewrite(self, done: int, made: Compilation) -> bool:
        """Return True until something has changed.

        A pass that can be interrupted runs only one rewrite.
        """
        if not _to_change(done, made):
            return False
        if _can_be_cut(made):
            self._cut(made, 1, len(made.peek()))
        return True

    def _to_breakpoint(self, done: int, breakpoints: Breakpoints, made: Compilation) -> bool:
        """Return True until a breakpoint holds: before a pass, or after a rule or op matched."""
        assert made.next is not None
        rules, values = breakpoints[RULE], self._values(made, {int(op) for op in breakpoints[OP]})
        if len(made.stages) > done:
            last = made.stages[-1]
            if made.next.label in breakpoints[PASS] or _first_match(last.rewrites, rules, values):
                return False
        if (rules or values) and _can_be_cut(made):
            upcoming = made.peek()
            self._cut(made, _first_match(upcoming, rules, values), len(upcoming))
        return True

    def _cut(self, made: Compilation, count: int, of: int) -> None:
        """Make the next pass stop after ``count`` of its ``of`` rewrites; the rest comes next.

        If that is impossible it runs as a whole.
        """
        assert made.next is not None
        if 0 < count < of:
            with suppress(UserError):
                self._change(made, split_step(made.options.edit, made.next, count))

    def _values(self, made: Compilation, ops: set[int]) -> set[Value]:
        """Return the results of the followed ops in any stage, and the values derived from them."""
        if self._recorder is None or not ops:
            return set()
        ids = self._recorder.op_ids
        values = {value for op, number in ids.items() if number in ops for value in op.results}
        for stage in made.stages:
            _first_match(stage.rewrites, set(), values)
        return values


def _group_breakpoints(breakpoints: Iterable[str]) -> Breakpoints:
    """Return the breakpoints of each kind."""
    found: dict[str, set[str]] = {PASS: set(), RULE: set(), OP: set()}
    for stop in filter(is_valid, breakpoints):
        what, _, name = stop.partition(":")
        found[what].add(name)
    return found


def _once(done: int, made: Compilation) -> bool:
    return len(made.stages) == done


def _to_change(done: int, made: Compilation) -> bool:
    return not any(stage.changed for stage in made.stages[done:])


def _can_be_cut(made: Compilation) -> bool:
    return made.next is not None and not made.next.pass_.mandatory


def _first_match(rewrites: Sequence[Rewrite], rules: Set[str], values: set[Value]) -> int:
    """Return the number of the first rewrite that applied ``rules`` or used ``values``, or 0.

    Values derived from ``values`` are added to them.
    """
    first = 0
    for number, rewrite in enumerate(rewrites, 1):
        taken = values.intersection(value for op in rewrite.old for value in op.results)
        if taken:
            values.update(value for op in rewrite.new for value in op.results)
        if not first and (taken or rewrite.rule in rules):
            first = number
    return first
