"""Old recordings in a newer program: they are upgraded in memory, the file stays as it is.

The rule: a change of ``schema.sql`` raises ``schema.VERSION`` by one and adds here the statements
that turn a recording of the version before into one of the new version.
"""

from __future__ import annotations

import sqlite3

from core_compiler.record import schema

#: Version -> statements that lead to the next version.
STEPS: dict[int, str] = {}


def upgraded(connection: sqlite3.Connection, version: int) -> sqlite3.Connection:
    """A copy of an older recording in memory, in the current schema; KeyError: no way there."""
    steps = [STEPS[v] for v in range(version, schema.VERSION)]
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    connection.backup(copy)
    copy.execute("PRAGMA trusted_schema = OFF")
    for step in steps:
        copy.executescript(step)
    copy.execute(f"PRAGMA user_version = {schema.VERSION}")
    copy.commit()
    return copy
