"""``workbench export RUN -o FOLDER --tables csv`` or ``-o kernels.csv``: tables.

With ``--other RUN`` also those of two recordings.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError
from workbench.commands import subject
from workbench.commands.printing import emit, table

if TYPE_CHECKING:
    from core_compiler.record.tables import Table
    from workbench.queries.run import Run

FORMATS = ("csv", "parquet")
#: The file in a folder of tables that identifies it as one.
INDEX = "tables.json"
#: The argument that lists the tables.
HELP = "help"


def add_arguments(parser) -> None:
    parser.add_argument(
        "--tables",
        choices=FORMATS,
        help="write every table to the folder FILE: those that "
        "the page shows, and those of the schema",
    )
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="write this table to FILE.csv or FILE.parquet (default: named by FILE); "
        "help lists them",
    )
    parser.add_argument(
        "--other",
        metavar="RUN",
        help="also write tables of both recordings side by side",
    )


def is_meant(arguments) -> bool:
    """Return whether tables are requested."""
    written = Path(arguments.output or "").suffix.lower().lstrip(".") in FORMATS
    return bool(arguments.tables or arguments.table) or written


def run(arguments) -> None:
    if arguments.stage is not None:
        raise UserError("tables cover all stages", "--stage", "leave it out")
    if arguments.table == HELP:
        with _opened(arguments, execute=False) as run, _open_other(arguments) as other:
            return _list(arguments, run, other)
    if arguments.tables and arguments.table:
        raise UserError("cannot be used together", "--tables and --table", "pass one of the two")
    if "parquet" in (arguments.tables, Path(arguments.output or "").suffix.lower().lstrip(".")):
        from core_compiler.exporters.tables import need_pyarrow

        need_pyarrow()  # fail before any work
    (_all if arguments.tables else _one)(arguments)


@contextmanager
def _opened(arguments, execute: bool = True) -> Iterator[Run]:
    """Open the recording for the views; a growing one is copied, so that all tables agree."""
    from workbench.queries.run import Run

    with subject.recording(arguments, execute) as opened, tempfile.TemporaryDirectory() as folder:
        path = opened.path
        if opened.status == "recording":
            path = Path(folder) / path.name
            opened.export(path)
        with closing(Run(path)) as run:
            yield run


@contextmanager
def _open_other(arguments) -> Iterator[Run | None]:
    """Open the recording of ``--other``, if there is one."""
    from workbench.queries.run import Run

    if not arguments.other:
        yield None
        return
    with closing(Run(Path(arguments.other))) as other:
        yield other


def _list(arguments, run: Run, other: Run | None) -> None:
    from workbench.export import tables

    found = tables.tables(run, other)
    data = {family: [each.to_json() for each in members] for family, members in found.items()}
    rows = [(family, each.name, each.what) for family, members in found.items() for each in members]
    emit(arguments, data, lambda: table(("family", "table", "a row is"), rows))


def _one(arguments) -> None:
    from core_compiler.exporters.tables import write
    from workbench.commands.compile_model import output
    from workbench.export import tables

    if not arguments.output:
        raise UserError("missing output file", "-o", "pass FILE.csv or FILE.parquet")
    path = Path(arguments.output)
    given = path.suffix.lower()
    path = output(arguments.output, given if given.lstrip(".") in FORMATS else ".csv")
    with _opened(arguments) as run, _open_other(arguments) as other:
        found = tables.find(run, arguments.table or path.stem, other)
        made = write(found, path)
    data = {
        "file": str(path),
        "bytes": path.stat().st_size,
        **found.to_json(),
        "rows": made.rows,
        "formulas": made.formulas,
    }
    emit(
        arguments,
        data,
        f"{path}: {made.rows:,} rows, {data['bytes']:,} bytes{_warning(made.formulas)}",
    )


# -- all tables -----------------------------------------------------------------------------------


def _all(arguments) -> None:
    """Write every table into a folder, which is moved into place when complete."""
    if not arguments.output:
        raise UserError("missing output folder", "-o", "pass the folder to write the tables to")
    folder = Path(arguments.output)
    _check(folder)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        draft.mkdir()
        with _opened(arguments) as run, _open_other(arguments) as other:
            index = _write(run, other, draft, arguments.tables)
        _put(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    rows = sum(each["rows"] for each in index["tables"])
    size = sum(each["bytes"] for each in index["tables"])
    formulas = sum(each["formulas"] for each in index["tables"])
    text = f"{folder}: {len(index['tables'])} tables, {rows:,} rows, {size:,} bytes; "
    text += f"{INDEX} says what is in them{_warning(formulas)}"
    emit(arguments, {"folder": str(folder), **index}, text)


def _check(folder: Path) -> None:
    """Raise UserError if the folder cannot be created or contains foreign files."""
    if not folder.parent.is_dir():
        raise UserError("folder not found", str(folder.parent), "create it first")
    if not os.access(folder.parent, os.W_OK):
        raise UserError("the folder is not writable", str(folder.parent), "choose another one")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError("not a folder", str(folder), "name a folder, or use --table for one file")
    foreign = sorted(_files(folder) - _exported_files(folder)) if folder.is_dir() else []
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise UserError(
            f"the folder contains other files ({', '.join(foreign[:3])}{more})",
            str(folder),
            "choose a new folder: only files that workbench wrote are replaced",
        )


def _files(folder: Path) -> set[str]:
    return {
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_symlink() or not p.is_dir()
    }


def _exported_files(folder: Path) -> set[str]:
    """Return the files that an earlier export lists as its own."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return {INDEX, *(str(each["file"]) for each in index["tables"])}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _write(run: Run, other: Run | None, folder: Path, ending: str) -> dict[str, Any]:
    from core_compiler.exporters.tables import write
    from workbench.export import tables

    listed = []
    for family, members in tables.tables(run, other).items():
        (folder / family).mkdir()
        for each in members:
            listed.append(_written(each, family, folder, ending, write))
    meta = run.meta()
    index = {
        "model": str(meta.get("model", "")),
        "target": str(meta.get("target", "")),
        "status": run.status,
        "format": ending,
        "tables": listed,
    }
    if other is not None:
        index["other"] = other.path.name
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return index


def _written(each: Table, family: str, folder: Path, ending: str, write: Any) -> dict[str, Any]:
    name = f"{family}/{each.name}.{ending}"
    made = write(each, folder / name)
    return {
        "file": name,
        "family": family,
        **each.to_json(),
        "rows": made.rows,
        "formulas": made.formulas,
        "bytes": (folder / name).stat().st_size,
    }


def _put(draft: Path, folder: Path) -> None:
    """Replace ``folder``, which contains only the files of an export, by ``draft``."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    try:
        draft.rename(folder)
    except OSError:
        with suppress(OSError):
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _warning(formulas: int) -> str:
    """Return the warning to read before a spreadsheet opens it."""
    if not formulas:
        return ""
    return (
        f"\n{formulas:,} cells begin as formulas do (= + - @): in a spreadsheet, import the "
        "columns as text"
    )
