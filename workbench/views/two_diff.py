"""The IR of two recordings after the same pass: lines aligned by what the ops are, not by how they
are numbered."""

from __future__ import annotations

from typing import Any

from workbench.queries.links import linked
from workbench.queries.run import Run
from workbench.queries.stage_pairs import aligned, partner
from workbench.state.view_state import Sight
from workbench.views import Empty, diff, missing

#: Ops of a stage beyond which nothing is compared: each line of both is printed, some 0.1 ms an op.
MAX_OPS = 100_000


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return run.stage_number(sight.stage), other.version.stages


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """The ``data`` of the diff view (widgets/README.md): A on the left, B on the right.  Ops of B
    have the keys of those of A that they are."""
    stage = run.stage_number(sight.stage)
    there = compared(
        run, other, stage, "Choose an earlier pass, or show the previous pass instead."
    )
    rows, guessed = aligned(run, other, stage, there)
    doubt = f"  ·  {guessed:,} {'op' if guessed == 1 else 'ops'} matched by a guess"
    left, right = titles(run, other, stage)
    sides = {"left": {"title": f"{left}{doubt if guessed else ''}"}, "right": {"title": right}}
    return {**sides, "language": "mlir", **diff.sent(rows)}


def compared(run: Run, other: Run, stage: int, fix: str) -> int:
    """The stage of ``other`` to show beside ``stage``; Empty where it has none, or where they have
    too many ops (``fix``: what to do then)."""
    for each, letter in ((run, "A"), (other, "B")):
        if not each.version.stages:
            raise missing.of_two(each, letter, "stages")
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


def answer(run: Run, sight: Sight, request: dict[str, Any], other: Run) -> Any:
    """Answers to the view's requests, as those of the IR diff of one recording; ``before`` is A,
    ``after`` B."""
    stage = run.stage_number(sight.stage)
    there, _ = partner(run, other, stage)
    sides = diff.Sides(
        aligned(run, other, stage, there)[0],
        (f"a_{diff.file_of(run, stage)}", f"b_{diff.file_of(other, there)}"),
        (lambda: run.recording.text(stage), lambda: other.recording.text(there)),
    )
    return diff.answered(run, sides, request)


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    found = linked(run, sight)
    return {} if found.op is None else {"op": found.op}
