"""``workbench runs``: the library of runs: search, tags, notes, pins, the trash, the uploads."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from core_compiler.support.errors import UserError
from workbench.app.library import Library
from workbench.app.run_entry import Entry
from workbench.app.run_query import FIELDS
from workbench.commands.printing import emit, number, printable, table

#: The actions that may come first: ``workbench runs tag RUN TAG ...``.
ACTIONS = (
    "tag",
    "untag",
    "note",
    "pin",
    "unpin",
    "delete",
    "restore",
    "empty-trash",
    "import",
    "delete-upload",
)
#: The maximum of ``--limit`` and ``--offset``.
MAX_NUMBER = 10**9


def add_arguments(parser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "words",
        nargs="*",
        metavar="QUERY",
        help=f"words, or field:value with the fields {', '.join(FIELDS)}; a leading '-' excludes",
    )
    parser.add_argument("--limit", type=int, default=50, help="list at most this many (default 50)")
    parser.add_argument("--offset", type=int, default=0, help="skip this many first")
    parser.add_argument("--trash", action="store_true", help="list the deleted runs")
    parser.add_argument("--uploads", action="store_true", help="list the uploaded files")
    parser.add_argument("--store", metavar="DIR", help="the library (default: in the cache)")
    parser.epilog = (
        "or one of\n"
        "  tag RUN TAG ...     add tags to a run      untag RUN TAG ...   remove tags\n"
        "  note RUN TEXT       set its note           pin|unpin RUN ...   list it first, or not\n"
        "  delete RUN ...      move it to the trash   restore RUN ...     restore it\n"
        "  import FILE ...     copy it in             empty-trash         delete permanently\n"
        "  delete-upload TOKEN ...   delete an uploaded file permanently\n"
        "Quote the first word of a query if it is a command: '\"tag\"'; put a query that begins\n"
        "with - after --: workbench runs -- -status:failed"
    )


def run(arguments) -> int | None:
    library = Library(Path(arguments.store) if arguments.store else None)
    words = arguments.words
    if arguments.limit < 1 or arguments.offset < 0:
        raise UserError(
            "expected a limit of 1 or more and an offset of 0 or more, got "
            f"{arguments.limit} and {arguments.offset}",
            "--limit, --offset",
            "pass --limit 50 --offset 0",
        )
    if max(arguments.limit, arguments.offset) > MAX_NUMBER:
        raise UserError("value is too large", "--limit, --offset", f"pass at most {MAX_NUMBER}")
    if words and words[0] in ACTIONS:
        _act(arguments, library, words[0], words[1:])
    elif arguments.trash:
        _list_trash(arguments, library)
    elif arguments.uploads:
        _list_uploads(arguments, library)
    else:
        _list(arguments, library, " ".join(words))
    return None


# -- lists ----------------------------------------------------------------------------------------


def _list(arguments, library: Library, query: str) -> None:
    library.index.refresh()
    found = library.listing(query, arguments.limit, arguments.offset)
    data = {"runs": [asdict(entry) for entry in found.entries], "total": found.total}
    emit(arguments, data, lambda: _table(found.entries, found.total, library))


def _table(entries: Sequence[Entry], total: int, library: Library) -> str:
    if not entries:
        return f"no runs found in {library.folder}"
    head = (
        "run",
        "target",
        "made",
        "compile s",
        "time ms",
        "peak KiB",
        "kernels",
        "error",
        "state",
        "tags",
    )
    rows = [
        (
            ("* " if e.pinned else "") + printable(e.name),
            printable(e.target),
            _date(e.began),
            number(e.compile_s),
            number(e.total_ms),
            "" if e.peak_bytes is None else f"{e.peak_bytes / 1024:,.1f}",
            e.kernels,
            number(e.worst_error, 2),
            "on another machine" if e.elsewhere else printable(e.status),
            printable(" ".join(e.tags)),
        )
        for e in entries
    ]
    more = [] if len(entries) == total else [f"{len(entries)} of {total:,}; --limit, --offset"]
    return "\n".join([table(head, rows, right=(3, 4, 5, 6, 7)), *more])


def _list_trash(arguments, library: Library) -> None:
    in_trash = library.deleted()
    rows = [
        (printable(d.name), printable(d.target), _date(d.when), f"{d.size / 1024:,.0f}", d.token)
        for d in in_trash
    ]
    text = table(("run", "target", "deleted", "KiB", "token"), rows, right=(3,))
    emit(
        arguments,
        {"trash": [asdict(d) for d in in_trash]},
        text if in_trash else "the trash is empty",
    )


def _list_uploads(arguments, library: Library) -> None:
    found = library.uploads.content()
    rows = [
        (
            printable(each.name),
            printable(each.by),
            _date(each.when),
            f"{each.size / 1024:,.0f}",
            each.token,
        )
        for each in found
    ]
    text = table(("file", "by", "last used", "KiB", "token"), rows, right=(3,))
    data = {"uploads": [asdict(each) for each in found]}
    emit(arguments, data, text if found else "no uploaded files")


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


# -- changes --------------------------------------------------------------------------------------


def _act(arguments, library: Library, action: str, words: Sequence[str]) -> None:
    if action == "empty-trash":
        count = library.trash.empty()
        emit(arguments, {"emptied": count}, f"{count} deleted permanently")
        return
    if not words or (action in ("tag", "untag") and len(words) < 2):
        raise UserError("missing argument", f"runs {action}", "see workbench runs --help")
    if action in ("tag", "untag", "note"):
        done = _ANNOTATE[action](library, _name(library, words[0]), words[1:])
        emit(arguments, {"run": done}, done)
        return
    each = {
        "delete": lambda word: library.remove(_name(library, word)).name,
        "import": lambda word: library.import_recording(Path(word)),
        "restore": lambda word: library.restore(_token(library, word)),
        "delete-upload": library.discard,
        "pin": lambda word: _pin(library, word, True),
        "unpin": lambda word: _pin(library, word, False),
    }[action]
    names = [each(word) for word in words]
    emit(arguments, {"runs": names}, "\n".join(names))


def _name(library: Library, word: str) -> str:
    """Return the run that a word names: a name, with or without ``.run``, or a path."""
    path = Path(word)
    if path.exists() and path.suffix == ".run":
        return library.name(path)
    return word if word.endswith(".run") else f"{word}.run"


def _token(library: Library, word: str) -> str:
    """Return the deleted run that a word names: its token, or its name (the last one deleted)."""
    named = (word, f"{word}.run")
    return next((d.token for d in library.deleted() if word == d.token or d.name in named), word)


def _pin(library: Library, word: str, pinned: bool) -> str:
    library.annotate(name := _name(library, word), pinned=pinned)
    return name


def _tag(library: Library, name: str, tags: Sequence[str]) -> str:
    library.annotate(name, tags=lambda current: [*current, *tags])
    return name


def _untag(library: Library, name: str, tags: Sequence[str]) -> str:
    removed = {tag.lower() for tag in tags}
    library.annotate(name, tags=lambda current: [t for t in current if t not in removed])
    return name


def _note(library: Library, name: str, words: Sequence[str]) -> str:
    library.annotate(name, note=" ".join(words))
    return name


_ANNOTATE: dict[str, Callable[[Library, str, Sequence[str]], str]] = {
    "tag": _tag,
    "untag": _untag,
    "note": _note,
}
