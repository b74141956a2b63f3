"""Migration of old recordings: a copy is upgraded, the file does not change.

The rule: a change of ``schema.sql`` increments ``schema.VERSION`` and adds here the statements that
turn a recording of the previous version into one of the new version.
"""

from __future__ import annotations

import sqlite3

from core_compiler.record import schema

_VIEWS_FOR_TABLES = """
ALTER TABLE stage RENAME TO stage_1;
CREATE TABLE stage (
  id INTEGER PRIMARY KEY, pass TEXT NOT NULL, summary TEXT NOT NULL, options TEXT NOT NULL,
  half TEXT NOT NULL, exact INTEGER NOT NULL, tolerance_class TEXT NOT NULL,
  changed INTEGER NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
  functions TEXT NOT NULL, symbols TEXT NOT NULL, added TEXT NOT NULL, removed TEXT NOT NULL);
INSERT INTO stage SELECT *,
  (SELECT json_group_array(op) FROM
    (SELECT op FROM stage_op WHERE stage = stage_1.id AND change = 1 ORDER BY op)),
  (SELECT json_group_array(op) FROM
    (SELECT op FROM stage_op WHERE stage = stage_1.id AND change = -1 ORDER BY op))
  FROM stage_1;
ALTER TABLE rewrite RENAME TO rewrite_1;
DROP INDEX rewrite_stage;
CREATE TABLE rewrite (
  id INTEGER PRIMARY KEY, stage INTEGER NOT NULL REFERENCES stage, number INTEGER NOT NULL,
  rule INTEGER NOT NULL REFERENCES name, source INTEGER NOT NULL REFERENCES name,
  function TEXT NOT NULL, tolerance REAL, note TEXT NOT NULL, microseconds REAL NOT NULL,
  old TEXT NOT NULL, new TEXT NOT NULL, mapped TEXT NOT NULL);
CREATE INDEX rewrite_stage ON rewrite (stage, number);
INSERT INTO rewrite SELECT *,
  (SELECT json_group_array(op) FROM
    (SELECT op FROM rewrite_op WHERE rewrite = rewrite_1.id AND side = 0 ORDER BY position)),
  (SELECT json_group_array(op) FROM
    (SELECT op FROM rewrite_op WHERE rewrite = rewrite_1.id AND side = 1 ORDER BY position)),
  (SELECT json_group_array(json_array(old, new)) FROM
    (SELECT old, new FROM rewrite_value WHERE rewrite = rewrite_1.id ORDER BY old))
  FROM rewrite_1;
DROP TABLE rewrite_op;
DROP TABLE rewrite_value;
DROP TABLE rewrite_1;
DROP TABLE stage_op;
DROP TABLE stage_1;
DROP TABLE result;
CREATE VIEW result (value, op) AS
  SELECT made.value, op.id FROM op, json_each(op.results) made;
CREATE VIEW stage_op (stage, op, change) AS
  SELECT stage.id, entering.value, 1 FROM stage, json_each(stage.added) entering
  UNION ALL SELECT stage.id, leaving.value, -1 FROM stage, json_each(stage.removed) leaving;
CREATE VIEW rewrite_op (rewrite, side, position, op) AS
  SELECT rewrite.id, 0, before.key, before.value FROM rewrite, json_each(rewrite.old) before
  UNION ALL SELECT rewrite.id, 1, after.key, after.value FROM rewrite, json_each(rewrite.new) after;
CREATE VIEW rewrite_value (rewrite, old, new) AS
  SELECT rewrite.id, before.value, after.value
  FROM rewrite, json_each(rewrite.mapped) pair, json_each(pair.value) before,
    json_each(pair.value) after WHERE before.key = 0 AND after.key = 1;
"""

_KERNELS_OF_ANY_TARGET = """
ALTER TABLE kernel RENAME COLUMN llvm_ir TO intermediate;
ALTER TABLE kernel ADD COLUMN intermediate_map TEXT NOT NULL DEFAULT '[]';
"""

_ITERATIONS = """
CREATE TABLE iteration (
  id INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, loss REAL NOT NULL,
  seconds REAL NOT NULL, root TEXT NOT NULL, rate REAL, loss_scale REAL, skipped INTEGER);
"""

_FRAMEWORK_VALUES = """
CREATE TABLE framework_value (
  id INTEGER PRIMARY KEY, value INTEGER NOT NULL REFERENCES value, framework TEXT NOT NULL,
  node TEXT NOT NULL, same INTEGER NOT NULL, worst_error REAL NOT NULL, element TEXT NOT NULL,
  theirs REAL, ours REAL);
"""

_EXECUTIONS = """
CREATE TABLE execution (
  id INTEGER PRIMARY KEY, began REAL NOT NULL, machine TEXT NOT NULL, threads INTEGER NOT NULL,
  digest TEXT NOT NULL, median REAL, samples BLOB NOT NULL);
CREATE TABLE launch_time (
  id INTEGER PRIMARY KEY, execution INTEGER NOT NULL REFERENCES execution, launch INTEGER NOT NULL,
  kernel TEXT NOT NULL, op INTEGER REFERENCES op, threads INTEGER NOT NULL,
  flops INTEGER NOT NULL, bytes INTEGER NOT NULL, median REAL, minimum REAL, p95 REAL,
  samples BLOB NOT NULL);
INSERT INTO execution
  SELECT 1, coalesce((SELECT CAST(value AS REAL) FROM meta WHERE key = 'began'), 0.0), '',
    (SELECT max(threads) FROM timing),
    coalesce((SELECT value FROM figure WHERE section = 'run' AND name = 'digest'
              AND typeof(value) = 'text' ORDER BY rowid DESC LIMIT 1), ''),
    (SELECT 1e3 * value FROM figure WHERE section = 'timing' AND name = 'total_ms'
     AND typeof(value) IN ('real', 'integer') ORDER BY rowid DESC LIMIT 1), zeroblob(0)
  WHERE EXISTS (SELECT 1 FROM timing);
INSERT INTO launch_time
  SELECT id, 1, launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples
  FROM timing;
DROP TABLE timing;
CREATE VIEW timing (
  id, launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples) AS
  SELECT id, launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples
  FROM launch_time WHERE execution = (SELECT max(id) FROM execution);
"""

_QUANTISATION = """
CREATE TABLE quantised_value (
  id INTEGER PRIMARY KEY, value INTEGER NOT NULL REFERENCES value,
  integers INTEGER NOT NULL REFERENCES value, stage INTEGER NOT NULL, sqnr REAL NOT NULL,
  cosine REAL, saturated REAL NOT NULL, minimum REAL NOT NULL, maximum REAL NOT NULL,
  low REAL NOT NULL, high REAL NOT NULL, edges TEXT NOT NULL, floats TEXT NOT NULL,
  dequantised TEXT NOT NULL, alone REAL);
CREATE TABLE float_op (op INTEGER PRIMARY KEY REFERENCES op, reason TEXT NOT NULL);
"""

#: Version -> statements that lead to the next version.
STEPS: dict[int, str] = {
    1: _VIEWS_FOR_TABLES,
    2: _KERNELS_OF_ANY_TARGET,
    3: _ITERATIONS,
    4: _FRAMEWORK_VALUES,
    5: _EXECUTIONS,
    6: _QUANTISATION,
}


def upgraded(connection: sqlite3.Connection, version: int) -> sqlite3.Connection:
    """Return a private copy of an older recording in the current schema.

    SQLite keeps a small copy in memory, a large one in a temporary file.  Raises KeyError if there
    is no migration.
    """
    steps = [STEPS[v] for v in range(version, schema.VERSION)]
    copy = sqlite3.connect("", check_same_thread=False)
    connection.backup(copy)
    copy.execute("PRAGMA trusted_schema = OFF")
    copy.execute("PRAGMA legacy_alter_table = ON")  # references to a renamed table must not change
    for step in steps:
        copy.executescript(step)
    copy.execute(f"PRAGMA user_version = {schema.VERSION}")
    copy.commit()
    return copy
