"""The schema's version, the hardening of connections, and the check of a file's schema."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from importlib.resources import files

#: Marks a SQLite file as a recording ("CWBr").
APPLICATION_ID = 0x43574272
#: Incremented whenever the schema changes; ``migrate`` then gets a step from the version before.
VERSION = 7

#: The checks whose error is relative to a tensor's largest magnitude: those of rewrites and of
#: results, and any that fails; others compare slopes (a condition on ``check_result``).
OF_TENSORS = "(rewrite IS NOT NULL OR value IS NOT NULL OR verdict = 'failed')"

#: Maximum length of a string, blob or row of a recording (bytes).
MAX_LENGTH = 1 << 28


def made_by_newer(version: int) -> str:
    """Return why a recording of a later schema cannot be read."""
    return f"made by a newer version (schema {version}, this program reads {VERSION})"


def schema_sql() -> str:
    """Return the statements that create an empty recording."""
    return files(__package__).joinpath("schema.sql").read_text()


def create(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty recording."""
    connection.executescript(f"""BEGIN;
      {schema_sql()}
      PRAGMA application_id = {APPLICATION_ID};
      PRAGMA user_version = {VERSION};
      COMMIT;""")


def objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return the tables, indexes, views and triggers of a database: (type, name, statement)."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema")
    return {(kind, name, " ".join((sql or "").split())) for kind, name, sql in rows}


@lru_cache(maxsize=1)
def expected_objects() -> frozenset[tuple[str, str, str]]:
    """Return the result of :func:`objects` for a recording of this version."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(schema_sql())
        return frozenset(objects(connection))
    finally:
        connection.close()


def harden(connection: sqlite3.Connection) -> None:
    """Apply settings for reading an untrusted file."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LENGTH)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = ON")
