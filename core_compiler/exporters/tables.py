"""Tables as CSV and Parquet.

CSV follows RFC 4180 (https://www.rfc-editor.org/rfc/rfc4180) in UTF-8: commas, CRLF, a header
line.  An empty field is NULL, ``""`` is the empty text, so the format is lossless.  Floats have as
many digits as needed to read back the same bits; special values are spelled ``inf``, ``-inf``,
``nan``, ``true`` and ``false``.  A cell is written unchanged, even if a spreadsheet would run it as
a formula: names in recordings come from models, and every way of making such a cell harmless (such
as an apostrophe before it) changes the name.  `Written.formulas` counts these cells, for users who
open the file in a spreadsheet.

Parquet is written by pyarrow (the extra ``parquet``): int64, double, string, bool.

Text that cannot be encoded as UTF-8 (lone surrogates) is written with backslash escapes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from core_compiler.record.tables import BATCH, BOOLEAN, INTEGER, REAL, TEXT, Table
from core_compiler.support.errors import CANNOT_HERE, UserError

#: The number of rows in a row group of a Parquet file.
ROW_GROUP_SIZE = 30 * BATCH
#: The first characters of text that spreadsheets interpret as a formula
#: (owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Written:
    """The number of ``rows`` written, and of CSV cells that a spreadsheet runs as ``formulas``."""

    rows: int
    formulas: int = 0


def write(table: Table, path: Path) -> Written:
    """Write a table to ``path`` in the format of its extension; raise UserError for unknown ones.

    An existing file is replaced only when the new one is complete.
    """
    write_as = FORMATS.get(path.suffix.lower().lstrip("."))
    if write_as is None:
        known = " or ".join(f".{each}" for each in FORMATS)
        raise UserError(
            f"unrecognised file extension {path.suffix or path.name!r}", str(path), f"use {known}"
        )
    with replacing(path) as draft:
        return write_as(table, draft)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path next to ``path``, which replaces it on success and is deleted otherwise."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _batches(table: Table, most: int) -> Iterator[list[tuple]]:
    rows = iter(table.rows())
    while batch := list(islice(rows, most)):
        yield batch


# -- CSV ------------------------------------------------------------------------------------------


def write_csv(table: Table, path: Path) -> Written:
    count = formulas = 0
    cells = [_CELLS[column.kind] for column in table.columns]
    texts = [at for at, column in enumerate(table.columns) if column.kind == TEXT]
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
        _write_rows(stream, [[_text(column.name) for column in table.columns]])
        for batch in _batches(table, BATCH):
            _write_rows(
                stream, ([cell(v) for cell, v in zip(cells, row, strict=True)] for row in batch)
            )
            count += len(batch)
            formulas += sum((row[at] or "").startswith(_FORMULA) for row in batch for at in texts)
    return Written(count, formulas)


def _write_rows(stream: IO[str], rows: Iterable[list[str]]) -> None:
    stream.write("".join(",".join(row) + "\r\n" for row in rows))


def _text(value: str | None) -> str:
    if value is None:
        return ""
    if value and not any(c in value for c in ',"\r\n'):
        return value
    return '"' + value.replace('"', '""') + '"'


def _integer(value: int | None) -> str:
    return "" if value is None else repr(int(value))


def _real(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _boolean(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"


_CELLS: dict[str, Callable[[Any], str]] = {
    INTEGER: _integer,
    REAL: _real,
    TEXT: _text,
    BOOLEAN: _boolean,
}


# -- Parquet --------------------------------------------------------------------------------------


def write_parquet(table: Table, path: Path) -> Written:
    pyarrow, parquet = need_pyarrow()
    types = {
        INTEGER: pyarrow.int64(),
        REAL: pyarrow.float64(),
        TEXT: pyarrow.string(),
        BOOLEAN: pyarrow.bool_(),
    }
    fields = [pyarrow.field(c.name, types[c.kind]) for c in table.columns]
    about = {"description": f"{table.name}: a row is {table.what}"}
    layout = pyarrow.schema(fields, metadata=about)
    count = 0
    with (  # the file is opened here, so that a full disk raises the system's own error
        path.open("wb") as stream,
        parquet.ParquetWriter(stream, layout, compression="zstd") as writer,
    ):
        for batch in _batches(table, ROW_GROUP_SIZE):
            columns = [
                pyarrow.array(map(_ARROW[field.kind], column), kind)
                for field, kind, column in zip(
                    table.columns, layout.types, zip(*batch, strict=True), strict=True
                )
            ]
            writer.write_batch(pyarrow.record_batch(columns, schema=layout), ROW_GROUP_SIZE)
            count += len(batch)
    return Written(count)


def need_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module; raise UserError if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise UserError(
            "pyarrow is not installed",
            "Parquet",
            "pip install 'compiler-workbench[parquet]', or write csv",
            CANNOT_HERE,
        ) from None
    return pyarrow, pyarrow.parquet


def _utf8(value: str | None) -> str | None:
    if value is None or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _identity(value: Any) -> Any:
    return value


_ARROW: dict[str, Callable[[Any], Any]] = {
    INTEGER: _identity,
    REAL: _float,
    TEXT: _utf8,
    BOOLEAN: _identity,
}

#: File extension -> writer.
FORMATS: dict[str, Callable[[Table, Path], Written]] = {"csv": write_csv, "parquet": write_parquet}
