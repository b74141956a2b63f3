"""A recording's tables in the form for other programs: columns with a kind, rows as a stream.

Text, integers and floats are as SQLite has them, lists stay JSON text.  Bytes are not exported:
``NAME_bytes`` is their number.  A column without a type in the schema (`figure.value`) is text, and
``NAME_type`` is its original type (`integer`, `real`, `text`, `null`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core_compiler.record import schema
from core_compiler.record.file import RecordingFile

#: Number of rows in memory at once.
BATCH = 2_000

INTEGER, REAL, TEXT, BOOLEAN = "integer", "real", "text", "boolean"


@dataclass(frozen=True)
class Column:
    """A column; its ``kind`` is INTEGER (64 bits), REAL (float64), TEXT or BOOLEAN."""

    name: str
    kind: str


@dataclass(frozen=True)
class Table:
    """A table to be written; ``what`` says what a row is.

    ``rows()`` returns a new iterator of tuples with values of the columns' kinds, or None.
    """

    name: str
    what: str
    columns: tuple[Column, ...]
    rows: Callable[[], Iterable[tuple]]

    def to_json(self) -> dict[str, Any]:
        columns = [{"name": c.name, "kind": c.kind} for c in self.columns]
        return {"name": self.name, "what": self.what, "columns": columns}


@dataclass(frozen=True)
class _Read:
    """A column of the schema.

    It has the selected expression, the letter that `RecordingFile.rows` checks it by, and the
    columns that it is exported as.
    """

    select: str
    letter: str
    columns: tuple[Column, ...]


def tables(file: RecordingFile) -> list[Table]:
    """Return every table and view of a recording, tables first, in the schema's order."""
    return [_table(file, name, *found) for name, found in _layout().items()]


def _table(file: RecordingFile, name: str, what: str, reads: tuple[_Read, ...]) -> Table:
    letters = "".join(read.letter for read in reads)
    statement = f'SELECT {", ".join(read.select for read in reads)} FROM "{name}"'
    untyped = [at for at, read in enumerate(reads) if len(read.columns) == 2]

    def rows() -> Iterator[tuple]:
        for batch in file.batches(letters, statement, BATCH):
            yield from (map(_typed(untyped), batch) if untyped else batch)

    return Table(name, what, tuple(c for read in reads for c in read.columns), rows)


def _typed(untyped: list[int]) -> Callable[[tuple], tuple]:
    """Return a function that turns the cells at ``untyped`` into text and their type's name."""

    def made(row: tuple) -> tuple:
        cells: list[Any] = []
        for at, cell in enumerate(row):
            if at not in untyped:
                cells.append(cell)
                continue
            text = cell if cell is None or isinstance(cell, str) else repr(cell)
            cells += [text, _NAMES[type(cell)]]
        return tuple(cells)

    return made


_NAMES: Mapping[type, str] = {int: "integer", float: "real", str: "text", type(None): "null"}
#: Declared type -> the letter of `RecordingFile.rows` (if it may be NULL) and the kind.
_TYPES: Mapping[str, tuple[str, str]] = {
    "INTEGER": ("I", INTEGER),
    "REAL": ("F", REAL),
    "TEXT": ("T", TEXT),
}


@lru_cache(maxsize=1)
def _layout() -> dict[str, tuple[str, tuple[_Read, ...]]]:
    """Return the meaning of a row, and the columns, by table, as in an empty recording."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.schema_sql())
        listed = connection.execute(
            "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')"
            " ORDER BY type, rowid"
        ).fetchall()
        return {
            name: (
                WHAT[name],
                tuple(
                    _read(row, kind) for row in connection.execute(f'PRAGMA table_info("{name}")')
                ),
            )
            for name, kind in listed
        }


def _read(row: tuple, kind: str) -> _Read:
    _, name, declared, *_ = row
    quoted = f'"{name}"'
    if declared == "BLOB":
        return _Read(f"length(CAST({quoted} AS BLOB))", "I", (Column(f"{name}_bytes", INTEGER),))
    if declared in _TYPES:
        letter, found = _TYPES[declared]
        return _Read(quoted, letter, (Column(name, found),))
    if kind == "view":  # an id or a position in a list
        return _Read(quoted, "I", (Column(name, INTEGER),))
    return _Read(quoted, "v", (Column(name, TEXT), Column(f"{name}_type", TEXT)))


#: The meaning of a row of each table.
WHAT: Mapping[str, str] = {
    "meta": "a fact about the run",
    "name": "an interned string: an op's kind, a rule, a rule's function",
    "type": "a type, as MLIR text",
    "attributes": "a dictionary of attributes",
    "node": "a node of the framework's graph",
    "origin": "one step of an op's origin",
    "value": "an SSA value",
    "op": "an op of any stage or rewrite",
    "block": "a list of ops",
    "function": "a function",
    "stage": "the module after a pass",
    "figure": "a number",
    "diagnostic": "a message of the compiler",
    "rewrite": "one rule application",
    "check_result": "a rewrite or a stage checked on tensors",
    "blob": "compressed bytes",
    "kernel": "a compiled kernel",
    "kernel_op": "an op that a kernel computes, or one that launches it",
    "kernel_step": "a kernel's IR after a step of its schedule",
    "buffer": "a placed buffer",
    "execution": "an execution of the program on its example inputs",
    "launch_time": "a launch as measured in an execution",
    "timing": "a launch as measured in the newest execution",
    "tensor_stats": "statistics of a value on the example inputs",
    "framework_value": "a value of the import beside that of the model's framework",
    "quantised_value": "what a value lost when it became integers",
    "float_op": "an op that stayed in floats when the model was quantised",
    "iteration": "an iteration of a training run",
    "weight": "a weight the stages use",
    "source_file": "a file of the model's source",
    "event": "another event: progress, the end",
    "result": "a value and an op that defines it",
    "stage_op": "an op that enters (+1) or leaves (-1) at a stage",
    "rewrite_op": "an op of a rewrite: side 0 before, 1 after",
    "rewrite_value": "an old value and the new value that replaces it",
}
