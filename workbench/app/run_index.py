"""The index of the library: a SQLite file for listing and searching thousands of runs.

It is never authoritative. A row is read again if the recording or its annotations have changed, it
is removed with its file, and the whole index is rebuilt if it is missing, damaged or of an older
version. Several processes may use it: each query opens it, and writes are short.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from core_compiler.support.errors import UserError
from workbench.app import run_entry, run_query
from workbench.app.run_entry import Entry

T = TypeVar("T")

VERSION = 5
#: The time for which another process may lock the index (seconds).
PATIENCE = 10.0
#: The number of rows written in one transaction.
BATCH = 64
#: The time for which results are read before the folders are scanned again (seconds).
SCAN_INTERVAL = 5.0
#: The time for which single files are not checked while none is created or deleted (seconds).
SETTLED = 30.0
#: The number of runs that a trend shows.
MAX_TREND = 2000

_SCHEMA = """CREATE TABLE run (
  name TEXT PRIMARY KEY, stamp TEXT NOT NULL, words TEXT NOT NULL,
  model TEXT NOT NULL, variant TEXT NOT NULL, target TEXT NOT NULL,
  mode TEXT NOT NULL, device TEXT NOT NULL, status TEXT NOT NULL,
  elsewhere INTEGER NOT NULL, error TEXT NOT NULL,
  began REAL NOT NULL, size INTEGER NOT NULL, stages INTEGER NOT NULL, iterations INTEGER NOT NULL,
  checks TEXT NOT NULL, total_ms REAL, compile_s REAL, peak_bytes INTEGER, kernels INTEGER,
  worst_error REAL, pinned INTEGER NOT NULL, tags TEXT NOT NULL, note TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX newest ON run (pinned DESC, began DESC);
CREATE INDEX of_model ON run (model, variant, target, began);
"""
_COLUMNS = tuple(f.name for f in fields(Entry) if f.name != "path")
_JSON = ("checks", "tags")
#: The stamp of a run that was seen and not read yet.
_UNREAD = ""


@dataclass(frozen=True)
class Found:
    """A page of the runs that a query found.

    ``total``: the number of runs found; ``pending`` of all ``known`` runs in the library are still
    to be read.
    """

    entries: list[Entry]
    total: int
    known: int
    pending: int


class Index:
    """The index in ``file`` of the recordings in ``folders`` (a prefix of names -> folder)."""

    def __init__(self, file: Path, folders: Mapping[str, Path]):
        self.file, self._folders = file, dict(folders)
        self._refreshing = threading.Lock()
        self._todo: list[tuple[str, str]] = []  # names and stamps still to be read
        self._scanned = 0.0
        self._settled: tuple = ()  # the folders and the time when everything had been read
        # If no file can be written, the index lives as long as this object.
        self._memory: sqlite3.Connection | None = None
        self._memory_lock = threading.RLock()

    def path(self, name: str) -> Path:
        prefix, _, base = name.rpartition("/")
        return self._folders[f"{prefix}/" if prefix else ""] / base

    # -- refresh ---------------------------------------------------------------------------------

    def refresh(self, seconds: float = float("inf"), quick: bool = False) -> int:
        """Scan the folders and read new or changed recordings, newest first, for about ``seconds``.

        Returns the number still to be read. ``quick``: if no file was created or deleted since,
        and none is being written, not even file sizes are checked.
        """
        with self._refreshing:
            folders = [_changed(folder) for folder in self._folders.values()]
            now = time.monotonic()
            if quick and self._settled[:1] == (folders,) and now - self._settled[1] < SETTLED:
                return 0
            self._settled = ()
            if not self._todo or now - self._scanned > SCAN_INTERVAL or seconds == float("inf"):
                self._scan()
            deadline = time.monotonic() + seconds
            while self._todo:
                self._read_some(deadline)
                if time.monotonic() > deadline:
                    break
            if not self._todo and not self._in_transaction(_has_unread):
                self._settled = folders, now
            return len(self._todo)

    def _scan(self) -> None:
        """Find the recordings to read, the newest last."""
        seen = self._seen()
        names = self._in_transaction(lambda db: self._compare(db, seen))
        names.sort(key=lambda name: seen[name][1])
        self._todo = [(name, seen[name][0]) for name in names]
        self._scanned = time.monotonic()

    def _read_some(self, deadline: float) -> None:
        """Read at least one run, and write the rows."""
        rows = []
        for _ in range(min(BATCH, len(self._todo))):
            rows.append(self._row(*self._todo.pop()))
            if time.monotonic() > deadline:
                break
        self._in_transaction(partial(_write, rows=[row for row in rows if row is not None]))

    def update(self, name: str, before: Callable[[], None] = lambda: None) -> None:
        """Run ``before`` while no other process writes, then read one run again."""

        def change(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            before()
            stamp = _stamps(self.path(name).parent, only=self.path(name).name)
            row = self._row(name, next((s for _, s, _ in stamp), _UNREAD)) if stamp else None
            if row is None:
                db.execute("DELETE FROM run WHERE name = ?", (name,))
            else:
                db.execute(_INSERT, row)

        self._in_transaction(change)

    def _seen(self) -> dict[str, tuple[str, float, int]]:
        """Return stamp, modification time and size of each recording."""
        found = {}
        for prefix, folder in self._folders.items():
            for base, stamp, stat in _stamps(folder):
                found[prefix + base] = stamp, stat.st_mtime, stat.st_size
        return found

    def _compare(self, db: sqlite3.Connection, seen: Mapping[str, tuple]) -> list[str]:
        """Remove deleted runs, insert new ones by name, and return the names to read."""
        known = {
            n: (s, live)
            for n, s, live in db.execute("SELECT name, stamp, status = 'recording' FROM run")
        }
        deleted = [(n,) for n in known if n not in seen and not self.path(n).exists()]
        new = [n for n in seen if n not in known]
        if deleted or new:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM run WHERE name = ?", deleted)
            blanks = (_placeholder(n, self.path(n), *seen[n][1:]) for n in new)
            db.executemany(_INSERT.replace("REPLACE", "IGNORE", 1), map(_values, blanks))
        changed = (n for n, (s, live) in known.items() if n in seen and (live or s != seen[n][0]))
        return [*new, *changed]

    def _row(self, name: str, stamp: str) -> tuple | None:
        try:
            entry = run_entry.read(self.path(name), name)
        except OSError:  # it is gone, or not readable
            return None
        return _values(entry, stamp)

    def version(self) -> tuple[int, int]:
        """Return a value that changes whenever the index is written."""
        if self._memory is not None:
            return 0, self._memory.total_changes
        try:
            stat = self.file.stat()
        except OSError:
            return 0, 0
        return stat.st_mtime_ns, stat.st_size

    # -- queries ---------------------------------------------------------------------------------

    def find(
        self,
        text: str = "",
        limit: int = 50,
        offset: int = 0,
        group: tuple[str, str, str] | None = None,
    ) -> Found:
        """Return the runs that a query finds (:mod:`workbench.app.run_query`), pinned ones first.

        With a ``group`` (model, variant, target), only its runs, the newest first.
        """
        query = run_query.parse(text)
        query = query if group is None else run_query.within(query, *group)

        def ask(db: sqlite3.Connection) -> Found:
            where, given = query.where, query.parameters
            (total,) = db.execute(f"SELECT count(*) FROM run WHERE {where}", given).fetchone()
            known, pending = db.execute(
                "SELECT count(*), count(*) FILTER (WHERE stamp = '') FROM run"
            ).fetchone()
            rows = db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM run WHERE {where} ORDER BY {query.order} "
                "LIMIT ? OFFSET ?",
                (*given, limit, max(0, offset)),
            ).fetchall()
            return Found([self._entry(row) for row in rows], total, known, pending)

        return self._in_transaction(ask)

    def groups(self, text: str, limit: int = 20) -> list[tuple[str, str, str, int]]:
        """Return model, variant, target and count of the runs that a query finds, most first."""
        query = run_query.parse(text)
        return self._in_transaction(
            lambda db: db.execute(
                f"SELECT model, variant, target, count(*) FROM run WHERE ({query.where}) "
                "AND stamp <> '' GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT ?",
                (*query.parameters, limit),
            ).fetchall()
        )

    def _entry(self, row: tuple) -> Entry:
        values = dict(zip(_COLUMNS, row, strict=True))
        values |= {name: json.loads(values[name]) for name in _JSON}
        values |= {"tags": tuple(values["tags"]), "path": str(self.path(values["name"]))}
        return Entry(
            **{**values, "pinned": bool(values["pinned"]), "elsewhere": bool(values["elsewhere"])}
        )

    # -- the file --------------------------------------------------------------------------------

    def _in_transaction(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``ask`` in a transaction; rebuild a damaged index and run it again."""
        for attempt in range(2):
            try:
                with self._connection() as db:
                    return ask(db)
            except sqlite3.DatabaseError as problem:
                message = str(problem)
                if "locked" in message or "busy" in message:
                    raise UserError(
                        "the index of the library is in use", str(self.file), "try again"
                    ) from None
                if attempt or self._memory is not None:
                    raise UserError(
                        f"cannot use the index of the library: {message}",
                        str(self.file),
                        "delete this file",
                    ) from None
                self._rebuild(problem)
        raise AssertionError("not reached")

    def _rebuild(self, problem: sqlite3.DatabaseError) -> None:
        """Rebuild the index; in memory if the folder is not writable."""
        refused = isinstance(problem, sqlite3.OperationalError) and "no such" not in str(problem)
        try:
            if refused:
                raise OSError
            for part in ("", "-journal"):
                Path(f"{self.file}{part}").unlink(missing_ok=True)
        except OSError:
            self._keep_in_memory()

    def _keep_in_memory(self) -> None:
        self._memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        _create(self._memory)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._memory is None:
            with suppress(OSError):
                self.file.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.file, timeout=PATIENCE, isolation_level=None)
            try:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version > VERSION:  # of a newer program, which keeps it
                    self._keep_in_memory()
                elif version < VERSION:
                    _create(db)
                if self._memory is None:
                    yield from _transaction(db)
                    return
            finally:
                db.close()
        with self._memory_lock:
            assert self._memory is not None
            yield from _transaction(self._memory)


def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield db
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if db.in_transaction:
        db.execute("COMMIT")


def _create(db: sqlite3.Connection) -> None:
    """Create the empty table; of two processes one creates it."""
    db.execute("BEGIN IMMEDIATE")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        db.execute("DROP TABLE IF EXISTS run")
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


_INSERT = (
    f"INSERT OR REPLACE INTO run (stamp, words, {', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join('?' * (len(_COLUMNS) + 2))})"
)


def _write(db: sqlite3.Connection, rows: list[tuple]) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.executemany(_INSERT, rows)


def _has_unread(db: sqlite3.Connection) -> bool:
    """Return whether a run is still to be read, or being written."""
    statement = "SELECT EXISTS (SELECT 1 FROM run WHERE stamp = '' OR status = 'recording')"
    return bool(db.execute(statement).fetchone()[0])


def _changed(folder: Path) -> int:
    """Return when a file of the folder was last created or deleted."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _values(entry: Entry, stamp: str = _UNREAD) -> tuple:
    texts = (
        entry.name,
        entry.model,
        entry.variant,
        entry.target,
        entry.device,
        entry.mode,
        entry.status,
        *entry.tags,
        entry.note,
    )
    values: dict[str, Any] = {name: getattr(entry, name) for name in _COLUMNS}
    values |= {name: json.dumps(values[name]) for name in _JSON}
    return stamp, "\n".join(texts).lower(), *values.values()


def _placeholder(name: str, path: Path, made: float, size: int) -> Entry:
    return Entry(name, str(path), path.stem[: run_entry.MAX_NAME], "", made, size, "", 0, {}, None)


def _stamps(folder: Path, only: str = "") -> list[tuple[str, str, os.stat_result]]:
    """Return name, stamp and state of each recording of a folder.

    The stamp changes with the file, its write-ahead log, and its annotations.
    """
    stats: dict[str, os.stat_result] = {}
    try:
        with os.scandir(folder) as found:
            for each in found:
                if each.name.endswith((".run", ".run-wal", ".about.json")) and not only:
                    with suppress(OSError, UnicodeEncodeError):
                        each.name.encode()  # other names fit neither an address nor the index
                        stats[each.name] = each.stat()
    except OSError:
        return []
    if only:
        for name in (only, f"{only}-wal", run_entry.about_path(Path(only)).name):
            with suppress(OSError):
                stats[name] = os.stat(folder / name)
    made = []
    for name, stat in stats.items():
        if name.endswith(".run"):
            companions = (f"{name}-wal", f"{name[:-4]}.about.json")
            parts = [stat, *(stats[other] for other in companions if other in stats)]
            made.append((name, ",".join(f"{s.st_size}.{s.st_mtime_ns}" for s in parts), stat))
    return made
