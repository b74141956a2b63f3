"""A compile that waits before its passes until it is told to go on: the page's step by step."""

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
from core_compiler.pipelines.pipeline import PipelineEdit, cut, leave
from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError
from workbench.queries.breakpoints import OP, PASS, RULE, known

#: How long one wait for a command lasts before it is looked whether to stop (seconds).
PATIENCE = 0.2

Command = Mapping[str, Any]


#: The breakpoints of each kind.
Named = Mapping[str, Set[str]]
#: Whether the next pass, prepared, is to be run without asking.
Going = Callable[[Compilation], bool]


class Hold:
    """Waits for ``commands`` (None: nobody will send any more) and says where it stands.

    ``apply`` runs the next pass, ``rewrite`` only as far as its next rewrite, ``skip`` leaves it
    out, ``change`` runs until a pass changed something, ``run`` until a breakpoint (``stops``: a
    pass that comes next, the rewrite that a rule or an op was met in), ``finish`` runs all that is
    left.  A pass that is interrupted is done in parts, which the recording's edit says.
    """

    def __init__(self, commands: queue.Queue[Command | None], say: Callable[[dict], None],
                 cancelled: Callable[[], bool]):  # fmt: skip
        self._commands, self._say, self._cancelled = commands, say, cancelled
        self._going: Going | None = None
        self._recorder: Recorder | None = None
        self._watching = Observer()

    def begin(self, watching: Observer, recorder: Recorder | None) -> None:
        """Who is told of an edit, and who knows the numbers of ops."""
        self._watching, self._recorder = watching, recorder

    def go_on(self, made: Compilation) -> bool:
        """Wait for what is to happen to the next pass: True to run it, False to run all that is
        left.  Cancelled where nobody is there any more."""
        problem: UserError | None = None
        while made.next is not None:
            if self._going is not None and self._going(made):
                return True
            self._going = None
            self._tell(made, problem)
            command, problem = self._wait(), None
            what, done = command.get("do"), len(made.stages)
            if what == "finish":
                return False
            if what == "apply":
                self._going = partial(_once, done)
            elif what == "change":
                self._going = partial(_to_change, done)
            elif what == "rewrite":
                self._going = partial(self._to_rewrite, done)
            elif what == "run":
                stops = [str(stop) for stop in command.get("stops") or ()]
                self._going = partial(self._to_breakpoint, done, _named(stops))
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

    def _tell(self, made: Compilation, problem: UserError | None) -> None:
        assert made.next is not None
        to_come = [step.label for step in made.steps[len(made.stages) - 1 :]]
        self._say({"paused": {
            "next": made.next.label, "at": len(made.stages), "total": len(made.steps),
            "to_come": to_come, "half": made.next.half,
            "problem": None if problem is None else problem.to_json()["error"],
        }})  # fmt: skip

    def _skip(self, made: Compilation) -> None:
        """The rest of the pipeline without the next pass; UserError where it cannot do without."""
        assert made.next is not None
        self._change(made, leave(made.options.edit, made.next))

    def _change(self, made: Compilation, edit: PipelineEdit) -> None:
        made.change(edit)
        self._watching.amend({"edit": edit_facts(edit)})

    def _to_rewrite(self, done: int, made: Compilation) -> bool:
        """Until something has changed, by one rewrite where the pass can be interrupted."""
        if not _to_change(done, made):
            return False
        if _can_be_cut(made):
            self._cut(made, 1, len(made.peek()))
        return True

    def _to_breakpoint(self, done: int, stops: Named, made: Compilation) -> bool:
        """Until a breakpoint holds: before a pass, after a rule was applied or an op changed."""
        assert made.next is not None
        rules, values = stops[RULE], self._values(made, {int(op) for op in stops[OP]})
        if len(made.stages) > done:
            last = made.stages[-1]
            if made.next.label in stops[PASS] or _met(last.rewrites, rules, values):
                return False
        if (rules or values) and _can_be_cut(made):
            coming = made.peek()
            self._cut(made, _met(coming, rules, values), len(coming))
        return True

    def _cut(self, made: Compilation, count: int, of: int) -> None:
        """Let the next pass stop after ``count`` rewrites ``of`` all, and the others come next;
        where it cannot, it is run as a whole."""
        assert made.next is not None
        if 0 < count < of:
            with suppress(UserError):
                self._change(made, cut(made.options.edit, made.next, count))

    def _values(self, made: Compilation, ops: set[int]) -> set[Value]:
        """What the ops that are followed made in any stage, and what came of it."""
        if self._recorder is None or not ops:
            return set()
        ids = self._recorder.op_ids
        values = {value for op, number in ids.items() if number in ops for value in op.results}
        for stage in made.stages:
            _met(stage.rewrites, set(), values)
        return values


def _named(stops: Iterable[str]) -> Named:
    """The breakpoints of each kind."""
    found: dict[str, set[str]] = {PASS: set(), RULE: set(), OP: set()}
    for stop in filter(known, stops):
        what, _, name = stop.partition(":")
        found[what].add(name)
    return found


def _once(done: int, made: Compilation) -> bool:
    return len(made.stages) == done


def _to_change(done: int, made: Compilation) -> bool:
    return not any(stage.changed for stage in made.stages[done:])


def _can_be_cut(made: Compilation) -> bool:
    return made.next is not None and not made.next.pass_.mandatory


def _met(rewrites: Sequence[Rewrite], rules: Set[str], values: set[Value]) -> int:
    """The number of the first rewrite that applied one of ``rules``, or took one of ``values``;
    0 where there is none.  What was made of ``values`` is added to them."""
    first = 0
    for number, rewrite in enumerate(rewrites, 1):
        taken = values.intersection(value for op in rewrite.old for value in op.results)
        if taken:
            values.update(value for op in rewrite.new for value in op.results)
        if not first and (taken or rewrite.rule in rules):
            first = number
    return first
