"""The number of applications of each rule of each pass in two recordings, and their cost."""

from __future__ import annotations

from typing import Any

from workbench.queries import compared
from workbench.queries.numeric_results import json_number
from workbench.queries.run import Run

Row = dict[str, Any]


_SQL = """
WITH checked (rewrite, error, failed) AS (
  SELECT rewrite, max(worst_error), max(verdict = 'failed') FROM check_result
  WHERE rewrite IS NOT NULL GROUP BY rewrite)
SELECT stage, name.text, count(*), sum(microseconds),
  sum(json_array_length(old)), sum(json_array_length(new)), max(error), sum(failed), min(number)
FROM rewrite JOIN name ON name.id = rewrite.rule LEFT JOIN checked ON rewrite.id = checked.rewrite
GROUP BY stage, name.text ORDER BY stage, min(number)
"""


_COLUMNS = ("stage", "rule", "count", "us", "old", "new", "error", "failed", "first")


def rules(run: Run, other: Run) -> list[Row]:
    """Return a row for each rule of a pass, in the order of A's passes, then B's.

    A row has ``pass``, ``rule``, and for each side (None: it never applied there) its ``stage``,
    the ``count`` of applications, ``us`` spent matching and rewriting, the number of ``removed``
    ops (negative: added), the worst ``error`` of its checks, the number of ``failed`` checks, and
    the number of its ``first`` rewrite. [] if a side has no stage.
    """
    if not (run.version.stages and other.version.stages):
        return []
    a, b = _applied(run), _applied(other)
    names = [row["name"] for row in compared.passes(run, other)]
    order = {name: at for at, name in enumerate(names)}
    keys = sorted(dict.fromkeys((*a, *b)), key=lambda k: order.get(k[0], len(order)))
    return [
        {"pass": name, "rule": rule, "a": a.get((name, rule)), "b": b.get((name, rule))}
        for name, rule in keys
    ]


def _applied(run: Run) -> dict[tuple[str, str], Row]:
    """Return the statistics of each rule of each pass."""
    return run.cached(("rules applied", run.version.stages, run.version.checks), lambda: _read(run))


def _read(run: Run) -> dict[tuple[str, str], Row]:
    passes = {stage.index: stage.pass_name for stage in run.stages()}
    found = {}
    for cells in run.recording.query(_SQL, max_rows=100_000).rows:
        row = dict(zip(_COLUMNS, cells, strict=True))
        if row["stage"] not in passes:  # recorded after the stages were read
            continue
        row["removed"] = row.pop("old") - row.pop("new")
        row["failed"], row["error"] = row["failed"] or 0, json_number(row["error"])
        found[passes[row["stage"]], row.pop("rule")] = row
    return found
