"""A compile that waits before its passes until it is told to go on: the page's step by step."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from core_compiler.compiler import Cancelled, Compilation
from core_compiler.edit_facts import edit_facts
from core_compiler.errors import UserError
from core_compiler.ir.events import Observer
from core_compiler.record.recorder import Recorder
from core_compiler.stage import Stage
from workbench.stops import OP, PASS, RULE, known

#: How long one wait for a command lasts before it is looked whether to stop (seconds).
PATIENCE = 0.2

Command = Mapping[str, Any]


class Hold:
    """Waits for ``commands`` (None: nobody will send any more) and says where it stands.

    ``apply`` runs the next pass, ``skip`` leaves it out, ``change`` runs until a pass changed
    something, ``run`` until a breakpoint (``stops``), ``finish`` runs all that is left.
    """

    def __init__(self, commands: queue.Queue[Command | None], say: Callable[[dict], None],
                 cancelled: Callable[[], bool]):  # fmt: skip
        self._commands, self._say, self._cancelled = commands, say, cancelled
        self._until: Callable[[Compilation], bool] | None = None
        self._recorder: Recorder | None = None
        self._watching = Observer()

    def begin(self, watching: Observer, recorder: Recorder | None) -> None:
        """Who is told of an edit, and who knows the numbers of ops."""
        self._watching, self._recorder = watching, recorder

    def go_on(self, made: Compilation) -> bool:
        """Wait for what is to happen to the next pass: True to run it, False to run all that is
        left.  Cancelled where nobody is there any more."""
        if made.next is None:
            return False
        if self._until is not None and not self._until(made):
            return True
        self._until = None
        problem: UserError | None = None
        while True:
            self._tell(made, problem)
            command, problem = self._wait(), None
            what = command.get("do")
            if what == "finish":
                return False
            if what == "apply":
                return True
            if what == "change":
                self._until = lambda made: made.stages[-1].changed
                return True
            if what == "run":
                self._until = self._breakpoints([str(s) for s in command.get("stops") or ()])
                return True
            if what == "skip":
                try:
                    self._skip(made)
                except UserError as error:
                    problem = error
                if made.next is None:
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
        edit, label = made.options.edit, made.next.label
        if any(step.label == f"{label}#2" for step in made.steps):
            label += "#1"  # the bare name means all of them
        made.change(replace(edit, skip=(*edit.skip, label)))
        self._watching.amend({"edit": edit_facts(made.options.edit)})

    def _breakpoints(self, stops: list[str]) -> Callable[[Compilation], bool]:
        """Whether a breakpoint holds: before a pass, after a rule was applied or an op changed."""
        found = {what: {s.partition(":")[2] for s in stops if known(s) and s.startswith(what)}
                 for what in (PASS, RULE, OP)}  # fmt: skip
        followed = {int(number) for number in found[OP]}

        def holds(made: Compilation) -> bool:
            assert made.next is not None
            last = made.stages[-1]
            rules = any(rewrite.rule in found[RULE] for rewrite in last.rewrites)
            return self._touched(last, followed) or rules or made.next.label in found[PASS]

        return holds

    def _touched(self, stage: Stage, followed: set[int]) -> bool:
        """Whether a rewrite of the stage took one of these ops; what it made is followed too."""
        if self._recorder is None or not followed:
            return False
        ids, hit = self._recorder.op_ids, False
        for rewrite in stage.rewrites:
            old, new = ({ids[op] for op in ops if op in ids} for ops in (rewrite.old, rewrite.new))
            if followed & old:
                followed |= new
                hit = True
        return hit
