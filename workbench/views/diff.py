"""The IR before and after the shown pass; the import alone where nothing is before."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.state import Sight
from workbench.views.links import linked
from workbench.views.reading import Run

KINDS = ("equal", "changed", "added", "removed")
_KIND = {"same": "equal", "changed": "changed", "added": "added", "removed": "removed",
         "moved": "changed"}  # fmt: skip
#: Modules with more lines than this are sent a page at a time.
MAX_LINES = 3000
PAGE = 2000
#: Lines are cut after this many characters (weights and long tables; the inspector shows all).
MAX_COLUMNS = 2000


def key(run: Run, sight: Sight) -> tuple:
    return (run.stage_number(sight.stage),)


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """The ``data`` of the diff view (widgets/README.md)."""
    stage = run.stage_number(sight.stage)
    rows = _rows(run, stage)
    stages = run.stages()
    left = stages[stage - 1] if stage else stages[0]
    found = {
        "left": {"title": f"{left.index:02d} {left.pass_name}"},
        "right": {"title": f"{stage:02d} {stages[stage].pass_name}"},
        "language": "mlir",
    }
    if len(rows) <= MAX_LINES:
        return {**found, "lines": rows}
    kinds = np.array([KINDS.index(row["kind"]) for row in rows], np.uint8)
    return {**found, "lines": rows[:PAGE], "count": len(rows), "start": 0, "kinds": kinds}


def answer(run: Run, sight: Sight, request: dict[str, Any]) -> Any:
    """Answers to the view's requests: further ``lines``, and where an op stands (``find``)."""
    rows = _rows(run, run.stage_number(sight.stage))
    if request["kind"] == "lines":
        start, end = max(0, int(request["from"])), min(len(rows), int(request["to"]))
        return {"start": start, "lines": rows[start : min(end, start + 2 * PAGE)]}
    if request["kind"] == "find":
        wanted = request["op"]
        places = (i for i, r in enumerate(rows) if wanted in (r["rightKey"], r["leftKey"]))
        return {"row": next(places, None)}
    raise ValueError(f"no request {request['kind']!r}")


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    found = linked(run, sight)
    if found.op is None:
        return {}
    return {"op": found.op}


def _rows(run: Run, stage: int) -> list[dict[str, Any]]:
    return run.kept(("diff rows", stage), lambda: _make_rows(run, stage))


def _make_rows(run: Run, stage: int) -> list[dict[str, Any]]:
    if stage == 0:
        table = run.recording.lines(0)
        number = run.recording.key
        keys = [None if k is None else number(k) for k in table.keys]
        return [
            {"left": _cut(line), "kind": "equal", "leftKey": key, "rightKey": key}
            for line, key in zip(table.lines, keys, strict=True)
        ]
    rows = run.recording.diff_lines(stage - 1, stage, changed_only=False, spans=False,
                                    found=run.diff(stage - 1, stage))  # fmt: skip
    return [_row(row) for row in rows]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    kind = _KIND[row["kind"]]
    left, right = row["left"], row["right"]
    found = {"left": _cut(left), "kind": kind, "leftKey": row["left_key"],
             "rightKey": row["right_key"]}  # fmt: skip
    if kind != "equal" or right != left:
        found["right"] = _cut(right)
    if row["kind"] == "moved" and left is None:
        found["kind"] = "added"
    elif row["kind"] == "moved" and right is None:
        found["kind"] = "removed"
    return found


def _cut(line: str | None) -> str | None:
    if line is None or len(line) <= MAX_COLUMNS:
        return line
    return line[:MAX_COLUMNS] + " …"
