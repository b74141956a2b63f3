"""The IR before and after the shown pass; for stage 0, the import alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.ir.line_diff import AlignedLines
from core_compiler.ir.unified import patch
from workbench.queries.links import linked
from workbench.queries.run import Run, Runs, shown
from workbench.queries.stage_pairs import aligned, partner
from workbench.state.view_state import ViewState
from workbench.support import units
from workbench.views import Empty, missing

KINDS = ("equal", "changed", "added", "removed")
_KIND = {
    "same": "equal",
    "changed": "changed",
    "added": "added",
    "removed": "removed",
    "moved": "changed",
}
#: Modules with more lines than this are sent one page at a time.
MAX_LINES = 3000
PAGE = 2000
#: The approximate number of characters of a saved text that are sent at once.
PART = 2_000_000
#: Lines are truncated to this many characters (weights and long tables; the inspector shows all).
MAX_COLUMNS = 2000


def key(run: Run, state: ViewState) -> tuple:
    return (run.stage_number(state.stage),)


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the diff view (widgets/README.md)."""
    stage = run.stage_number(state.stage)
    rows = _aligned(run, stage)
    stages = run.stages()
    left = stages[stage - 1] if stage else stages[0]
    return {
        "left": {"title": f"{left.index:02d} {left.pass_name}"},
        "right": {"title": f"{stage:02d} {stages[stage].pass_name}"},
        "language": "mlir",
        **initial_lines(rows),
    }


def initial_lines(rows: AlignedLines) -> dict[str, Any]:
    """Return the lines sent to the view: all, or the first page and the kind of each line."""
    if len(rows) <= MAX_LINES:
        return {"lines": _cut_rows(rows, 0, len(rows))}
    kinds = np.full(len(rows), KINDS.index("equal"), np.uint8)
    for row_index, row in rows.printed():
        kinds[row_index] = KINDS.index(_row(row)["kind"])
    return {"lines": _cut_rows(rows, 0, PAGE), "count": len(rows), "start": 0, "kinds": kinds}


@dataclass(frozen=True)
class Sides:
    """Two stages side by side: their ``rows``, file names (without extension), and texts."""

    rows: AlignedLines
    files: tuple[str, str]
    texts: tuple[Callable[[], str], Callable[[], str]]


def answer(runs: Runs, state: ViewState, request: dict[str, Any]) -> Any:
    """Return the response to a request of the view.

    Requests are for further ``lines`` (``whole``: untruncated), the position of an op (``find``),
    and a whole ``text`` to save, in parts: ``after`` and ``before`` the pass, the ``patch``
    between them. For two recordings ``before`` is A, ``after`` B.
    """
    run, other = shown(runs)
    stage = run.stage_number(state.stage)
    if other is not None:
        return answer_request(run, _sides(run, other, stage), request)
    before = max(0, stage - 1)
    old, new = (file_of(run, n) for n in (before, stage))
    text = run.recording.text
    sides = Sides(_aligned(run, stage), (old, new), (lambda: text(before), lambda: text(stage)))
    return answer_request(run, sides, request)


def answer_request(run: Run, sides: Sides, request: dict[str, Any]) -> Any:
    """Return the response to a request about two sides."""
    if request["kind"] == "lines":
        start, end = max(0, int(request["from"])), int(request["to"])
        cut = _full_rows if request.get("whole") else _cut_rows
        return {"start": start, "lines": cut(sides.rows, start, min(end, start + 2 * PAGE))}
    if request["kind"] == "find":
        return {"row": sides.rows.index_of(request["op"])}
    if request["kind"] == "text":
        return _text(run, sides, str(request["what"]), max(0, int(request["from"])))
    raise ValueError(f"unknown request {request['kind']!r}")


def _text(run: Run, sides: Sides, what: str, start: int) -> dict[str, Any]:
    """Return ``lines`` from line ``start`` on, the ``next`` start (or None), and the ``file``."""
    old, new = sides.files
    # Cached while its parts are fetched: a large module takes seconds to print.
    cached: dict[str, Any] = run.cached("text to save", dict)
    if cached.get("of") != (sides.files, what):
        if what == "patch":
            made = list(patch(sides.rows, f"{old}.mlir", f"{new}.mlir"))
        else:
            text = sides.texts[("before", "after").index(what)]()
            made = text.removesuffix("\n").split("\n")
        cached.update(of=(sides.files, what), lines=made)
    lines, end, size = cached["lines"], start, 0
    while end < len(lines) and size < PART:
        size += len(lines[end])
        end += 1
    file = f"{old if what == 'before' else new}.{'diff' if what == 'patch' else 'mlir'}"
    part = {"file": file, "lines": lines[start:end], "next": end if end < len(lines) else None}
    if part["next"] is None:
        cached.clear()
    return part


def file_of(run: Run, stage: int) -> str:
    """Return the file name, without extension, for the text of a stage."""
    return f"{stage:02d}_{_plain(run.stages()[stage].pass_name)}"


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    run = runs[0]
    found = linked(run, state)
    if found.op is None:
        return {}
    return {"op": found.op}


def lines(run: Run, stage: int, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """Return the rows ``start`` to ``end`` of a stage in the form of the view."""
    rows = _aligned(run, stage)
    return _cut_rows(rows, start, len(rows) if end is None else end)


def _full_rows(rows: AlignedLines, start: int, end: int) -> list[dict[str, Any]]:
    return [_row(row) for row in rows[start:end]]


def _cut_rows(rows: AlignedLines, start: int, end: int) -> list[dict[str, Any]]:
    return list(map(_cut, _full_rows(rows, start, end)))


def _aligned(run: Run, stage: int) -> AlignedLines:
    """Return the stage aligned with the previous one; the import with itself."""
    before = max(0, stage - 1)
    return run.cached(
        ("aligned lines", stage),
        lambda: run.recording.aligned_lines(before, stage, run.diff(before, stage)),
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    kind = _KIND[row["kind"]]
    left, right = row["left"], row["right"]
    found = {"left": left, "kind": kind, "leftKey": row["left_key"], "rightKey": row["right_key"]}
    if kind != "equal" or right != left:
        found["right"] = right
    if row["kind"] == "moved" and left is None:
        found["kind"] = "added"
    elif row["kind"] == "moved" and right is None:
        found["kind"] = "removed"
    return found


def _plain(name: str) -> str:
    """Return a name that fits in a patch: one word on one line."""
    return re.sub(r"[^\w.+-]+", "_", name)


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    long = {side: row[side] for side in ("left", "right") if len(row.get(side) or "") > MAX_COLUMNS}
    if not long:
        return row
    return {**row, **{side: f"{text[:MAX_COLUMNS]} …" for side, text in long.items()}, "cut": True}


# -- two recordings ------------------------------------------------------------------------------

#: Larger stages are not compared: each line of both is printed, some 0.1 ms per op.
MAX_OPS = 100_000


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the diff view (widgets/README.md): A on the left, B on the right.

    Ops of B have the keys of the matching ops of A.
    """
    stage = run.stage_number(state.stage)
    other_stage = matching_stage(
        run, other, stage, "Choose an earlier pass, or show the previous pass instead."
    )
    rows, guessed = aligned(run, other, stage, other_stage)
    guess_note = f"  ·  {units.counted(guessed, 'op')} matched by a guess"
    left, right = titles(run, other, stage)
    sides = {"left": {"title": f"{left}{guess_note if guessed else ''}"}, "right": {"title": right}}
    return {**sides, "language": "mlir", **initial_lines(rows)}


def matching_stage(run: Run, other: Run, stage: int, fix: str) -> int:
    """Return the stage of ``other`` to show next to ``stage``.

    Empty if there is none, or the stages have too many ops (``fix``: the suggested fix).
    """
    missing.need_both(run, other, lambda each: each.version.stages, "stages")
    other_stage, _ = partner(run, other, stage)
    op_count = max(run.stages()[stage].ops, other.stages()[other_stage].ops)
    if op_count > MAX_OPS:
        raise Empty(f"The stages have {op_count:,} ops: too many to compare.", fix)
    return other_stage


def titles(run: Run, other: Run, stage: int) -> tuple[str, str]:
    """Return the titles of both sides: stages and recordings, and whether B lacks the pass."""
    other_stage, same = partner(run, other, stage)
    stage_a, stage_b = run.stages()[stage], other.stages()[other_stage]
    lacks = "" if same else f"  (it has no {stage_a.pass_name})"
    return (
        f"A  {stage_a.index:02d} {stage_a.pass_name}  ·  {run.path.name}",
        f"B  {other_stage:02d} {stage_b.pass_name}  ·  {other.path.name}{lacks}",
    )


def _sides(run: Run, other: Run, stage: int) -> Sides:
    """Return a stage of A as ``before``, and the matching one of B as ``after``."""
    other_stage, _ = partner(run, other, stage)
    return Sides(
        aligned(run, other, stage, other_stage)[0],
        (f"a_{file_of(run, stage)}", f"b_{file_of(other, other_stage)}"),
        (lambda: run.recording.text(stage), lambda: other.recording.text(other_stage)),
    )
