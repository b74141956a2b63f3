"""Reverse indexes of a recording: the definitions of a value, the rewrites and stages of an op.

Rows store the forward direction (an op names its results, a rewrite its ops).  A reader inverts the
rows once and adds new ones on each request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.record.encoding import read_json_rows

Rows = Callable[..., list[tuple]]


@dataclass(frozen=True, slots=True)
class RewriteRow:
    """A rewrite by ids: its ops before and after, and the map of replaced values."""

    id: int
    stage: int
    rule: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    mapped: dict[int, int]


def carriers(rows: Rows, stage: int) -> dict[int, int]:
    """Map each replaced value to the value that carries its meaning in ``stage`` (ids).

    It follows the value maps of all rewrites up to that stage; a value that still exists is not
    listed.
    """
    texts = rows("t", "SELECT mapped FROM rewrite WHERE stage <= ? ORDER BY id", (int(stage),))
    step = {
        old: new
        for pairs in read_json_rows([text for (text,) in texts])
        for old, new in pairs
        if old != new
    }
    final: dict[int, int] = {}
    for value, target in step.items():
        seen = {value}
        while target in step and target not in seen:
            seen.add(target)
            target = step[target]
        final[value] = target
    return final


class Links:
    """The reverse indexes; call :meth:`update` first, under the file's guard.

    Forged rows raise ValueError or TypeError.
    """

    def __init__(self, rows: Rows):
        self._rows = rows
        self._last = {"op": 0, "rewrite": 0, "stage": -1}
        #: For each op, the values that it defines; for each value, the ops that define it, by id.
        self.results: dict[int, Sequence[int]] = {}
        self.makers: defaultdict[int, list[int]] = defaultdict(list)
        #: For each op, the rewrites that removed it and those that created it.
        self.removed_by: defaultdict[int, list[RewriteRow]] = defaultdict(list)
        self.made_by: defaultdict[int, list[RewriteRow]] = defaultdict(list)
        #: For each op: (stage, +1 where it enters, -1 where it leaves).
        self.stages: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        #: What was found from these and the rows (see `history`), until there are new ones.
        self.found: dict[tuple[str, int], Any] = {}

    def update(self) -> None:
        """Read the rows written since the last call."""
        self._ops(self._new("it", "op", "id, results"))
        self._rewrites(self._new("iiittt", "rewrite", "id, stage, rule, old, new, mapped"))
        self._stages(self._new("itt", "stage", "id, added, removed"))

    def _new(self, types: str, table: str, columns: str) -> list[tuple]:
        statement = f"SELECT {columns} FROM {table} WHERE id > ? ORDER BY id"
        rows = self._rows(types, statement, (self._last[table],))
        if rows:
            self._last[table] = rows[-1][0]
            self.found.clear()
        return rows

    def _ops(self, rows: list[tuple]) -> None:
        for (op, _), values in zip(rows, read_json_rows([r[1] for r in rows]), strict=True):
            self.results[op] = values
            for value in values:
                self.makers[value].append(op)

    def _rewrites(self, rows: list[tuple]) -> None:
        parts = [read_json_rows([row[column] for row in rows]) for column in (3, 4, 5)]
        for (key, stage, rule, *_), old, new, mapped in zip(rows, *parts, strict=True):
            row = RewriteRow(key, stage, rule, tuple(old), tuple(new), dict(mapped))
            for op in dict.fromkeys(old):
                self.removed_by[op].append(row)
            for op in dict.fromkeys(new):
                self.made_by[op].append(row)

    def _stages(self, rows: list[tuple]) -> None:
        parts = [read_json_rows([row[column] for row in rows]) for column in (1, 2)]
        for (stage, *_), added, removed in zip(rows, *parts, strict=True):
            for change, ops in ((1, added), (-1, removed)):
                for op in ops:
                    self.stages[op].append((stage, change))
