"""The stages of a recording or of a live compilation, read through one interface and only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any
from weakref import ref

from typing_extensions import override

from core_compiler.debug.trails import Changes, Index
from core_compiler.ir import Op, Rewrite, Value
from core_compiler.ir.text import value_names
from core_compiler.passes.base import Pass
from core_compiler.pipelines.registry import known_passes
from core_compiler.support.errors import UserError


class Stages:
    """The stages of a recording, of a compilation, or of a sequence of a compilation's stages."""

    def __init__(self, source: Any):
        # A weak reference, so that the cache of questions does not keep a recording or compilation
        # alive.
        self._source = ref(source) if hasattr(source, "stages") else lambda: source
        self._recorded = hasattr(source, "stage_count")
        target = getattr(source, "target", None)
        self.claims = target.claims if target is not None else lambda op: False
        self._index: dict[int, Index] = {}
        self._changes: dict[int, Changes] = {}
        self._names: dict[int, Mapping[Value, str]] = {}
        self._rows: Sequence[Any] = ()
        self.refresh()

    @property
    def _given(self) -> Any:
        source = self._source()
        if source is None:
            raise ReferenceError("the recording is closed")
        return source

    def refresh(self) -> None:
        """Add the stages that were made since the last call."""
        source = self._given
        if self._recorded:
            if source.stage_count() != len(self._rows):
                self._rows = source.stages()
        else:
            self._rows = getattr(source, "stages", source)

    @property
    def count(self) -> int:
        return len(self._rows)

    def label(self, number: int) -> str:
        """Return the pass's name, with ``#2`` for the second pass of that name."""
        row = self._rows[number]
        return str(row.pass_name if self._recorded else row.name)

    def pass_(self, number: int) -> Pass | None:
        """Return the pass of a stage with its options, or None if the pass is unknown here."""
        row = self._rows[number]
        if not self._recorded:
            return row.step.pass_ if row.step is not None else None
        made = known_passes().get(row.pass_name.partition("+")[0].partition("#")[0])
        if made is None:
            return None
        names = {f.name for f in fields(made)}
        return made(**{k: v for k, v in row.options.items() if k in names})

    @property
    def last_testable(self) -> int:
        """Return the last stage whose pass has conditions to test (or is unknown here)."""
        for number in range(self.count - 1, 0, -1):
            pass_ = self.pass_(number)
            if pass_ is None or pass_.refusal_arity or pass_.table() or pass_.fusion() is not None:
                return number
        return 0

    def index(self, number: int) -> Index:
        if number not in self._index:
            row = self._rows[number]
            module = self._given.module(number) if self._recorded else row.module
            self._index[number] = Index(module)
        return self._index[number]

    def rewrites(self, number: int) -> Sequence[Rewrite]:
        if self._recorded:
            return [r.rewrite for r in self._given.rewrites(number)]
        return self._rows[number].rewrites

    def changes(self, number: int) -> Changes:
        """Return the changes made by the pass of a stage."""
        if number not in self._changes:
            self._changes[number] = Changes(
                self.index(number - 1), self.rewrites(number), self.index(number)
            )
        return self._changes[number]

    # -- names -----------------------------------------------------------------------------------

    def op(self, op_id: int) -> Op:
        if not self._recorded:
            raise UserError(
                f"expected an op, got the id {op_id}",
                "why not",
                "pass the op itself: ops of a compilation have no ids",
            )
        return self._given.op(op_id)

    def op_id(self, op: Op) -> int | None:
        """Return an op's id in the recording, or None elsewhere."""
        try:
            return self._given.op_id(op) if self._recorded else None
        except KeyError:
            return None

    def name(self, value: Value, number: int, query_stage: int) -> str:
        """Return a value as spelled in the text of stage ``query_stage``.

        If it is not there: as in the stage before pass ``number``, or after it.  Recordings number
        unnamed values by their ids.  Elsewhere each stage's text numbers its own: the third value
        of another stage than ``query_stage`` is ``%3@21``.
        """
        for stage in (query_stage, number - 1, number):
            if stage not in self._names:
                module = self.index(stage).module
                numbers = _Ids(self._given) if self._recorded else None
                self._names[stage] = value_names(module.main, numbers)
            found = self._names[stage].get(value)
            if found is not None:
                counted = stage != query_stage and not value.name and not self._recorded
                return f"{found}@{stage}" if counted else found
        return f"%{value.name or '?'}"


class _Ids(Mapping):
    """A recording's ids of values, in the form that the printer of the text expects."""

    def __init__(self, recording: Any):
        self._recording = recording

    @override
    def __getitem__(self, value: Value) -> int:
        return self._recording.value_id(value)

    @override
    def __contains__(self, value: object) -> bool:
        try:
            self._recording.value_id(value)
        except KeyError:
            return False
        return True

    @override
    def __iter__(self):
        return iter(())

    @override
    def __len__(self) -> int:
        return 0
