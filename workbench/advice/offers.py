"""Resolution of suggestions into edits: the draft and command line, or the reason for failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core_compiler.passes.base import Pass
from core_compiler.record.reader import Stage
from core_compiler.support.errors import UserError
from workbench.advice.finding import Suggestion
from workbench.model import edits, pipeline_editor, recorded_model
from workbench.queries.run import Run

Gesture = Mapping[str, Any]


@dataclass(frozen=True)
class Changed:
    """A change by the recording's own edit: a description, and the gesture that reverts it."""

    words: str
    done: Gesture


class Bench:
    """The possible trials of a recording; ``reason``: why there are none ("" if there are)."""

    def __init__(self, run: Run):
        self._run = run
        self.basis: pipeline_editor.EditBasis | None = None
        self._rows: Sequence[pipeline_editor.Row] = ()
        try:
            self.basis = pipeline_editor.basis_of(run)
            self._rows = self.basis.rows(self.basis.base)
        except UserError as problem:
            self._reason = f"{problem.what}; {problem.fix}"
        else:
            self._reason = ""

    @property
    def reason(self) -> str:
        return self._reason

    def changed(self, *names: str) -> Iterator[Changed]:
        """Yield the changes of this recording to the named passes: skipped, or stopped early."""
        for row in self._rows:
            if row.pass_.name() not in names:
                continue
            if row.skipped:
                yield Changed(f"{row.label} was skipped in this run", skip(row.label, False))
            if row.limit is not None:
                yield Changed(
                    f"{row.label} stopped after {row.limit} rewrites in this run",
                    {"do": "limit", "label": row.label, "text": ""},
                )

    def row(self, label: str) -> pipeline_editor.Row | None:
        return next((row for row in self._rows if row.label == label), None)

    def target(self, name: str) -> str:
        """Return the text of a target option that this recording was made with ("": default)."""
        return "" if self.basis is None else str(self.basis.base["target"].get(name, ""))

    def default(self, name: str) -> str:
        """Return the target's default of that option ("": not recorded)."""
        return str((self._run.meta().get("target_defaults") or {}).get(name, ""))

    def resolve(self, suggestion: Suggestion) -> Suggestion:
        """Return ``suggestion`` with its draft and command, or the reason why it has none."""
        if not suggestion.done or self.basis is None:
            return replace(suggestion, reason=self.reason if suggestion.done else "")
        basis = self.basis
        draft = basis.base
        try:
            for gesture in suggestion.done:
                draft = pipeline_editor.change(basis, draft, gesture)
            shown = pipeline_editor.shown(basis, draft, recorded_model.compiled_as(self._run))
        except UserError as problem:
            return replace(suggestion, reason=str(problem))
        summary = edits.words(edits.checked(draft["edit"]), draft["target"]) or "no edits"
        return replace(
            suggestion, draft=draft, words=summary, command=shown["command"], reason=self._reason
        )


def skip(label: str, on: bool = True) -> Gesture:
    return {"do": "skip", "label": label, "on": on}


def repeat(label: str) -> Gesture:
    return {"do": "repeat", "label": label, "on": True}


def move(label: str, before: str) -> Gesture:
    """Return the gesture that moves a pass right before another one."""
    return {"do": "move", "label": label, "before": before}


def insert(after: str, name: str) -> Gesture:
    """Return the gesture that inserts an optional built-in pass right after another one."""
    return {"do": "insert", "label": after, "pass": name}


def option(label: str, name: str, text: str) -> Gesture:
    return {"do": "option", "label": label, "option": name, "text": text}


def target_option(name: str, text: str) -> Gesture:
    """Return the gesture that sets an option of the target; "" for its default."""
    return {"do": "target", "option": name, "text": text}


def suggest_reverting(changed: Sequence[Changed]) -> list[Suggestion]:
    """Suggest restoring the passes that the recording's own edit disabled."""
    if not changed:
        return []
    changes = "; ".join(each.words for each in changed)
    return [
        Suggestion(
            f"{changes}: let {'it' if len(changed) == 1 else 'them'} run.",
            tuple(each.done for each in changed),
        )
    ]


def last_stage(stages: Sequence[Stage], pass_: type[Pass]) -> Stage | None:
    """Return the last stage that a pass of this class made."""
    named = (s for s in reversed(stages) if s.pass_name.partition("#")[0] == pass_.name())
    return next(named, None)
