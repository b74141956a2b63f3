"""``workbench query FILE "SQL"``: one read-only statement, limited in time and rows."""

from __future__ import annotations

from core_compiler.record.file import RecordingFile
from core_compiler.support.errors import UserError
from workbench.commands.printing import emit, printable, table

#: A cell of the table shows at most this many characters (``--json`` shows all).
WIDEST = 120


def add_arguments(parser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a .run file, also an unfinished one")
    parser.add_argument("sql", metavar="SQL", help="one SELECT; docs/recording.md lists the tables")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="default 10")
    parser.add_argument("--rows", type=int, default=10_000, help="row limit (default 10000)")


def run(arguments) -> None:
    if not 0 < arguments.timeout <= 3600:
        raise UserError(
            f"expected a time above 0 and up to 3600 s, got {arguments.timeout:g} s",
            "--timeout",
            "pass a number of seconds up to 3600",
        )
    if not 1 <= arguments.rows <= 10_000_000:
        raise UserError(
            f"expected 1 to 10000000, got {arguments.rows}",
            "--rows",
            "pass a number from 1 to 10000000",
        )
    if not arguments.sql.strip(" \n\t;"):
        raise UserError("the query is empty", "SQL", "pass one SELECT statement")
    file = RecordingFile(arguments.recording)
    try:
        found = file.query(arguments.sql, timeout=arguments.timeout, max_rows=arguments.rows)
    finally:
        file.close()
    data = {"columns": found.columns, "rows": found.rows, "truncated": found.truncated}
    emit(arguments, data, lambda: _text(found, arguments.rows))


def _text(found, most: int) -> str:
    rows = [[_cell(value) for value in row] for row in found.rows]
    numeric = [
        i
        for i in range(len(found.columns))
        if all(isinstance(row[i], (int, float, type(None))) for row in found.rows)
    ]
    lines = [table(found.columns, rows, right=numeric)] if found.columns else []
    if found.truncated:
        lines.append(f"... more than {most} rows; raise --rows")
    return "\n".join(lines)


def _cell(value) -> str:
    if value is None:
        return "NULL"
    text = f"<{len(value)} bytes>" if isinstance(value, bytes) else printable(str(value))
    text = text.replace("\n", "\\n").replace("\t", " ")
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
