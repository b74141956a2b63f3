"""The IR before and after the shown pass; the import alone where nothing is before."""

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
from workbench.views import Empty, missing

KINDS = ("equal", "changed", "added", "removed")
_KIND = {"same": "equal", "changed": "changed", "added": "added", "removed": "removed",
         "moved": "changed"}  # fmt: skip
#: Modules with more lines than this are sent a page at a time.
MAX_LINES = 3000
PAGE = 2000
#: Characters of a text to save that are sent at once, about.
PART = 2_000_000
#: Lines are cut after this many characters (weights and long tables; the inspector shows all).
MAX_COLUMNS = 2000


def key(run: Run, state: ViewState) -> tuple:
    return (run.stage_number(state.stage),)


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return what the browser module draws, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """The ``data`` of the diff view (widgets/README.md)."""
    stage = run.stage_number(state.stage)
    rows = _aligned(run, stage)
    stages = run.stages()
    left = stages[stage - 1] if stage else stages[0]
    return {
        "left": {"title": f"{left.index:02d} {left.pass_name}"},
        "right": {"title": f"{stage:02d} {stages[stage].pass_name}"},
        "language": "mlir", **sent(rows),
    }  # fmt: skip


def sent(rows: AlignedLines) -> dict[str, Any]:
    """The lines that the view is given: all, or of many the first page and what each line is."""
    if len(rows) <= MAX_LINES:
        return {"lines": _shown(rows, 0, len(rows))}
    kinds = np.full(len(rows), KINDS.index("equal"), np.uint8)
    for place, row in rows.printed():
        kinds[place] = KINDS.index(_row(row)["kind"])
    return {"lines": _shown(rows, 0, PAGE), "count": len(rows), "start": 0, "kinds": kinds}


@dataclass(frozen=True)
class Sides:
    """Two stages side by side: their ``rows``, names of their files (without an ending), and their
    texts."""

    rows: AlignedLines
    files: tuple[str, str]
    texts: tuple[Callable[[], str], Callable[[], str]]


def answer(runs: Runs, state: ViewState, request: dict[str, Any]) -> Any:
    """Answers to the view's requests: further ``lines`` (``whole``: uncut), where an op stands
    (``find``), and a whole ``text`` to save, in parts: ``after`` and ``before`` the pass, the
    ``patch`` between them.  Of two recordings ``before`` is A, ``after`` B."""
    run, other = shown(runs)
    stage = run.stage_number(state.stage)
    if other is not None:
        return answered(run, _sides(run, other, stage), request)
    before = max(0, stage - 1)
    old, new = (file_of(run, n) for n in (before, stage))
    text = run.recording.text
    sides = Sides(_aligned(run, stage), (old, new), (lambda: text(before), lambda: text(stage)))
    return answered(run, sides, request)


def answered(run: Run, sides: Sides, request: dict[str, Any]) -> Any:
    """What a request asks of two sides."""
    if request["kind"] == "lines":
        start, end = max(0, int(request["from"])), int(request["to"])
        cut = _whole if request.get("whole") else _shown
        return {"start": start, "lines": cut(sides.rows, start, min(end, start + 2 * PAGE))}
    if request["kind"] == "find":
        return {"row": sides.rows.place(request["op"])}
    if request["kind"] == "text":
        return _text(run, sides, str(request["what"]), max(0, int(request["from"])))
    raise ValueError(f"no request {request['kind']!r}")


def _text(run: Run, sides: Sides, what: str, start: int) -> dict[str, Any]:
    """``lines`` from line ``start`` on, where to go on (``next``, or None), the ``file``'s name."""
    old, new = sides.files
    # Kept while its parts are fetched: a large module takes seconds to print.
    held: dict[str, Any] = run.kept("text to save", dict)
    if held.get("of") != (sides.files, what):
        if what == "patch":
            made = list(patch(sides.rows, f"{old}.mlir", f"{new}.mlir"))
        else:
            text = sides.texts[("before", "after").index(what)]()
            made = text.removesuffix("\n").split("\n")
        held.update(of=(sides.files, what), lines=made)
    lines, end, size = held["lines"], start, 0
    while end < len(lines) and size < PART:
        size += len(lines[end])
        end += 1
    file = f"{old if what == 'before' else new}.{'diff' if what == 'patch' else 'mlir'}"
    told = {"file": file, "lines": lines[start:end], "next": end if end < len(lines) else None}
    if told["next"] is None:
        held.clear()
    return told


def file_of(run: Run, stage: int) -> str:
    """What the text of a stage is saved as, without an ending."""
    return f"{stage:02d}_{_plain(run.stages()[stage].pass_name)}"


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    run = runs[0]
    found = linked(run, state)
    if found.op is None:
        return {}
    return {"op": found.op}


def lines(run: Run, stage: int, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """The rows ``start`` to ``end`` of a stage as the view has them."""
    rows = _aligned(run, stage)
    return _shown(rows, start, len(rows) if end is None else end)


def _whole(rows: AlignedLines, start: int, end: int) -> list[dict[str, Any]]:
    return [_row(row) for row in rows[start:end]]


def _shown(rows: AlignedLines, start: int, end: int) -> list[dict[str, Any]]:
    return list(map(_cut, _whole(rows, start, end)))


def _aligned(run: Run, stage: int) -> AlignedLines:
    """The stage beside the one before it; the import beside itself."""
    before = max(0, stage - 1)
    return run.kept(("aligned lines", stage), lambda: run.recording.aligned_lines(
        before, stage, run.diff(before, stage)))  # fmt: skip


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
    """A name that a patch can hold: one word on one line."""
    return re.sub(r"[^\w.+-]+", "_", name)


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    long = {side: row[side] for side in ("left", "right")
            if len(row.get(side) or "") > MAX_COLUMNS}  # fmt: skip
    if not long:
        return row
    return {**row, **{side: f"{text[:MAX_COLUMNS]} …" for side, text in long.items()}, "cut": True}


# -- two recordings ------------------------------------------------------------------------------

#: Ops of a stage beyond which nothing is compared: each line of both is printed, some 0.1 ms an op.
MAX_OPS = 100_000


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """The ``data`` of the diff view (widgets/README.md): A on the left, B on the right.  Ops of B
    have the keys of those of A that they are."""
    stage = run.stage_number(state.stage)
    there = stage_beside(
        run, other, stage, "Choose an earlier pass, or show the previous pass instead."
    )
    rows, guessed = aligned(run, other, stage, there)
    doubt = f"  ·  {guessed:,} {'op' if guessed == 1 else 'ops'} matched by a guess"
    left, right = titles(run, other, stage)
    sides = {"left": {"title": f"{left}{doubt if guessed else ''}"}, "right": {"title": right}}
    return {**sides, "language": "mlir", **sent(rows)}


def stage_beside(run: Run, other: Run, stage: int, fix: str) -> int:
    """The stage of ``other`` to show beside ``stage``; Empty where it has none, or where they have
    too many ops (``fix``: what to do then)."""
    missing.need_both(run, other, lambda each: each.version.stages, "stages")
    there, _ = partner(run, other, stage)
    most = max(run.stages()[stage].ops, other.stages()[there].ops)
    if most > MAX_OPS:
        raise Empty(f"The stages have {most:,} ops: too many to compare.", fix)
    return there


def titles(run: Run, other: Run, stage: int) -> tuple[str, str]:
    """What is compared: stages and recordings, and whether B lacks the pass."""
    there, same = partner(run, other, stage)
    mine, theirs = run.stages()[stage], other.stages()[there]
    lacks = "" if same else f"  (it has no {mine.pass_name})"
    return (f"A  {mine.index:02d} {mine.pass_name}  ·  {run.path.name}",
            f"B  {there:02d} {theirs.pass_name}  ·  {other.path.name}{lacks}")  # fmt: skip


def _sides(run: Run, other: Run, stage: int) -> Sides:
    """A stage of A as ``before``, the one of B beside it as ``after``."""
    there, _ = partner(run, other, stage)
    return Sides(
        aligned(run, other, stage, there)[0],
        (f"a_{file_of(run, stage)}", f"b_{file_of(other, there)}"),
        (lambda: run.recording.text(stage), lambda: other.recording.text(there)),
    )
