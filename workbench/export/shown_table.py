"""A table of the page for export: its columns with units, and the source of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core_compiler.record.tables import BOOLEAN, INTEGER, REAL, TEXT, Column, Table
from workbench.queries.run import Run
from workbench.views import Empty

Row = Mapping[str, Any]


_KINDS = {"i": INTEGER, "r": REAL, "t": TEXT, "b": BOOLEAN}


@dataclass(frozen=True)
class PageTable:
    """A table of the page.

    It has its ``view``, the description of a row, and the columns as ``name:kind`` or
    ``name:kind=key``; ``rows`` returns dictionaries with these keys.
    """

    view: str
    what: str
    columns: str
    rows: Callable[[Run], Iterable[Row]]

    def table(self, name: str, run: Run) -> Table:
        columns, keys = [], []
        for text in self.columns.split():
            column, _, kind = text.partition(":")
            kind, _, key = kind.partition("=")
            columns.append(Column(column, _KINDS[kind]))
            keys.append(key or column)

        def rows() -> Iterator[tuple]:
            try:
                for row in self.rows(run):
                    yield tuple(map(_cell, columns, (row.get(key) for key in keys)))
            except Empty:
                return

        return Table(name, self.what, tuple(columns), rows)


def _cell(column: Column, value: Any) -> Any:
    """Return a value of a view's data as a cell: lists as JSON, NumPy scalars as Python numbers."""
    if value is None:
        return None
    if column.kind == TEXT:
        return value if isinstance(value, str) else json.dumps(value)
    return {INTEGER: int, REAL: float, BOOLEAN: bool}[column.kind](value)
