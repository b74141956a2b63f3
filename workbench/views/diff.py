"""The IR before and after the shown pass; the import alone where nothing is before."""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.ir.line_diff import AlignedLines
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
    rows = _aligned(run, stage)
    stages = run.stages()
    left = stages[stage - 1] if stage else stages[0]
    found = {
        "left": {"title": f"{left.index:02d} {left.pass_name}"},
        "right": {"title": f"{stage:02d} {stages[stage].pass_name}"},
        "language": "mlir",
    }
    if len(rows) <= MAX_LINES:
        return {**found, "lines": lines(run, stage)}
    kinds = np.full(len(rows), KINDS.index("equal"), np.uint8)
    for place, row in rows.printed():
        kinds[place] = KINDS.index(_row(row)["kind"])
    return {**found, "lines": lines(run, stage, 0, PAGE), "count": len(rows), "start": 0,
            "kinds": kinds}  # fmt: skip


def answer(run: Run, sight: Sight, request: dict[str, Any]) -> Any:
    """Answers to the view's requests: further ``lines``, and where an op stands (``find``)."""
    stage = run.stage_number(sight.stage)
    if request["kind"] == "lines":
        start, end = max(0, int(request["from"])), int(request["to"])
        return {"start": start, "lines": lines(run, stage, start, min(end, start + 2 * PAGE))}
    if request["kind"] == "find":
        return {"row": _aligned(run, stage).place(request["op"])}
    raise ValueError(f"no request {request['kind']!r}")


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    found = linked(run, sight)
    if found.op is None:
        return {}
    return {"op": found.op}


def lines(run: Run, stage: int, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """The rows ``start`` to ``end`` of a stage as the view has them."""
    return [_row(row) for row in _aligned(run, stage)[start:end]]


def _aligned(run: Run, stage: int) -> AlignedLines:
    """The stage beside the one before it; the import beside itself."""
    before = max(0, stage - 1)
    return run.kept(("aligned lines", stage), lambda: run.recording.aligned_lines(
        before, stage, run.diff(before, stage)))  # fmt: skip


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
