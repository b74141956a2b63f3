"""Opening of recordings for reading, with checks of the format, the version and a live writer.

A recording is untrusted: it is opened read-only, with an untrusted schema, and must not contain any
object that our schema does not have.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from core_compiler.record import migrate, schema
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import open_regular

#: Exceptions of reading damaged or forged content; all of them become one UserError.
DAMAGE = (
    sqlite3.Error,
    sqlite3.Warning,
    zlib.error,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
)

_MAGIC = b"SQLite format 3\0"
_RECORD_AGAIN = "record the compile again"


@dataclass(frozen=True)
class QueryResult:
    """Rows of a query; ``truncated`` means that there were more than the limit."""

    columns: tuple[str, ...]
    rows: list[tuple]
    truncated: bool


class RecordingFile:
    """Read-only access to a recording's tables.

    While the recording grows, each use reopens the file, so that its writer can close it.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._lock = threading.RLock()
        self._kept: sqlite3.Connection | None = None
        self._kept_of: tuple[int, ...] | None = None
        self._active: sqlite3.Connection | None = None
        check_header(self.path)
        with self.guard():
            stamp = self.stamp
            self._keep_or_close(*self._checked(), stamp)

    def close(self) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.close()
                self._kept = None

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """Return a value that changes when the file is written, or None if it is gone.

        It consists of inode, size in bytes, and modification time in ns.
        """
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Convert exceptions of damaged content inside to a UserError."""
        try:
            yield
        except UserError as problem:
            if problem.where == str(self.path):
                raise
            raise self.damaged(problem) from None
        except DAMAGE as problem:
            raise self.damaged(problem) from None

    def damaged(self, problem: object) -> UserError:
        # The bare text of some exceptions (a key, an index) says little without its type.
        has_message = isinstance(problem, (sqlite3.Error, UserError, ValueError)) and str(problem)
        detail = str(problem) if has_message else repr(problem)
        # SQLite returns undecodable bytes unchanged.
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in detail[:200])
        what = f"the recording is damaged or was altered ({shown})"
        return UserError(what, str(self.path), _RECORD_AGAIN)

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that sees the file as it is now; one thread at a time."""
        with self._lock, self.guard():
            if self._active is None and self.stamp not in (None, self._kept_of):
                # The file may have been replaced: a connection may have read half of it, or cached
                # the old content.
                self.close()
            current = self._kept or self._active
            if current is not None:
                yield current
                return
            stamp = self.stamp
            connection, live = self._checked()
            self._active = connection
            try:
                yield connection
            finally:
                self._active = None
                self._keep_or_close(connection, live, stamp)

    def _keep_or_close(
        self, connection: sqlite3.Connection, live: bool, of: tuple[int, ...] | None
    ) -> None:
        """Keep a connection to a complete recording as long as its file is the same.

        ``of`` is the file's stamp before it was read.  A writer that has marked the recording
        finished may be about to merge the file: until then, an open connection would block it.
        """
        if live or Path(f"{self.path}-wal").exists():
            connection.close()
        else:
            self._kept, self._kept_of = connection, of

    def rows(self, columns: str, statement: str, parameters: tuple = ()) -> list[tuple]:
        """Return the rows of a statement.

        ``columns`` has a letter for each: ``i`` integer, ``f`` number, ``t`` text, ``b`` bytes,
        ``d`` text or bytes, ``v`` any but bytes; in capitals if it may be NULL.  Raises ValueError
        if a row differs (SQLite stores any type in any column).
        """
        with self.connection() as connection:
            rows = connection.execute(statement, parameters).fetchall()
            _check_types(columns, rows, statement)
            return rows

    def batches(self, columns: str, statement: str, most: int) -> Iterator[list[tuple]]:
        """Yield rows as :meth:`rows`, ``most`` of them at a time, with bounded memory.

        Until all are read or the iterator is closed, no other reader may run.
        """
        with self.connection() as connection, closing(connection.execute(statement)) as cursor:
            while rows := cursor.fetchmany(most):
                _check_types(columns, rows, statement)
                yield rows

    def query(self, sql: str, *, timeout: float = 5.0, max_rows: int = 10_000) -> QueryResult:
        """Run ``sql`` read-only, for at most ``timeout`` seconds and ``max_rows`` rows.

        Raises UserError if it is wrong, tries to write, or takes too long.
        """
        deadline = time.monotonic() + timeout
        refused: list[str] = []

        def authorize(action: int, first, second, *_) -> int:
            allowed = action in _READING and second != "load_extension"
            if not allowed:
                refused.append("only reading is allowed")
            return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

        with self.connection() as connection:
            for table in (
                "json_each",
                "json_tree",
            ):  # their first use declares them, which is a write
                connection.execute(f"SELECT 1 FROM {table}('[]')")
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 2000)
            connection.set_authorizer(authorize)
            try:
                cursor = connection.execute(sql)
                rows = cursor.fetchmany(max_rows + 1)
                columns = tuple(c[0] for c in cursor.description or ())
                cursor.close()
            except (sqlite3.Error, sqlite3.Warning, ValueError) as problem:
                if "interrupted" in str(problem):
                    what, fix = f"the query took more than {timeout:g} s", "narrow the query"
                else:
                    what = f"the query is invalid: {refused[0] if refused else problem}"
                    fix = "write one SELECT statement; docs/recording.md lists the tables"
                raise UserError(what, str(self.path), fix) from None
            finally:
                connection.set_progress_handler(None, 0)
                connection.set_authorizer(None)
        return QueryResult(columns, rows[:max_rows], len(rows) > max_rows)

    def export(self, target: str | Path) -> None:
        """Copy to a single complete file, also from a growing recording."""
        with self.connection() as connection:
            try:
                with closing(sqlite3.connect(target)) as copy:
                    connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.OperationalError as problem:
                fix = "choose another path, with free disk space"
                raise UserError(f"cannot write the copy: {problem}", str(self.path), fix) from None

    # -- opening ---------------------------------------------------------------------------------

    def _checked(self) -> tuple[sqlite3.Connection, bool]:
        """Return a connection with our schema, and whether another process is writing the file."""
        connection = self._connect()
        try:
            schema.harden(connection)
            version = self.version = self._check_version(connection)
            if version < schema.VERSION:
                older, connection = connection, migrate.upgraded(connection, version)
                older.close()
                schema.harden(connection)
            if strange := schema.objects(connection) ^ schema.expected_objects():
                kind, name, _ = min(strange)
                raise UserError(
                    f"not a recording: its schema differs ({kind} {name})",
                    str(self.path),
                    "open a file that `workbench compile -o` wrote",
                )
            row = connection.execute("SELECT value FROM meta WHERE key = 'status'").fetchone()
            return connection, row is None or row[0] == '"recording"'
        except BaseException:
            connection.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        wal = Path(f"{self.path}-wal")
        try:
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=5)
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as problem:
            # Copied from a live recording into a read-only folder: complete as it is.
            if wal.exists() and wal.stat().st_size:
                what = f"cannot be read while another program's -wal file is next to it: {problem}"
                fix = "copy it with its -wal file to a writable folder"
                raise UserError(what, str(self.path), fix) from None
            connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, check_same_thread=False)
        return connection

    def _check_version(self, connection: sqlite3.Connection) -> int:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != schema.APPLICATION_ID:
            raise UserError(
                "a SQLite database, but not a recording",
                str(self.path),
                "open a file that `workbench compile -o` wrote",
            )
        if version > schema.VERSION:
            raise UserError(schema.made_by_newer(version), str(self.path), "update this program")
        if any(v not in migrate.STEPS for v in range(version, schema.VERSION)):
            raise UserError(f"unknown schema version {version}", str(self.path), _RECORD_AGAIN)
        return version


_TYPES: dict[str, set[type]] = {
    "v": {int, float, str, type(None)},
    "i": {int},
    "f": {int, float},
    "t": {str},
    "b": {bytes},
    "d": {bytes, str},
}
_COLUMN_TYPES = _TYPES | {k.upper(): kinds | {type(None)} for k, kinds in _TYPES.items()}


def _check_types(columns: str, rows: list[tuple], statement: str) -> None:
    for letter, column in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
        if not set(map(type, column)) <= _COLUMN_TYPES[letter]:
            raise ValueError(f"values of another type in: {statement.strip()[:60]}")


#: Actions that a query may perform (SQLite's action codes).
_READING = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)


def check_header(path: Path) -> None:
    """Raise UserError if ``path`` is not a SQLite database, without opening it as one."""
    with open_regular(path, "pass the path of a .run file") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise UserError("not a recording", str(path), "pass the path of a .run file")
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    size = path.stat().st_size
    wal = Path(f"{path}-wal")  # a writer may be moving pages into the file just now
    complete = (65536 if page == 1 else page) * pages
    if size < complete and not (wal.exists() and wal.stat().st_size):
        raise UserError(f"the recording is truncated after {size} bytes", str(path), _RECORD_AGAIN)


def is_running(writer: str, here: str) -> bool:
    """Return whether the writer ``pid@machine`` is alive (on another machine: assumed so)."""
    pid, _, machine = writer.partition("@")
    if machine != here or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
