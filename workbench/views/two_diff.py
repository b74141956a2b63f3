"""The IR of two recordings after the same pass: lines aligned by what the ops are, not by how they
are numbered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core_compiler.ir import Function, Module, Op, Value
from core_compiler.ir.diff import GUESSED, Match, ModuleDiff
from core_compiler.ir.line_diff import AlignedLines
from workbench.queries import matching
from workbench.queries.links import linked
from workbench.queries.matching import Same
from workbench.queries.run import Run
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
    rows, guessed = _aligned(run, other, stage, there)
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
        _aligned(run, other, stage, there)[0],
        (f"a_{diff.file_of(run, stage)}", f"b_{diff.file_of(other, there)}"),
        (lambda: run.recording.text(stage), lambda: other.recording.text(there)),
    )
    return diff.answered(run, sides, request)


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    found = linked(run, sight)
    return {} if found.op is None else {"op": found.op}


def partner(run: Run, other: Run, stage: int) -> tuple[int, bool]:
    """The stage of ``other`` after the pass of ``stage``, and whether it has that pass; else the
    one after the nearest pass before it that both have."""
    there = {each.pass_name: each.index for each in other.stages()}
    for each in reversed(run.stages()[: stage + 1]):
        if each.pass_name in there:
            return there[each.pass_name], each.index == stage
    return 0, False


def _aligned(run: Run, other: Run, stage: int, there: int) -> tuple[AlignedLines, int]:
    """The lines of both, and how many ops are matched by structure alone."""
    key = "aligned with", str(other.path), other.identity, stage, there
    return run.kept(key, lambda: _align(run, other, stage, there))


def _align(run: Run, other: Run, stage: int, there: int) -> tuple[AlignedLines, int]:
    left, right = run.index(stage).module, other.index(there).module
    mine, theirs = list(left.walk()), list(right.walk())
    same = matching.same_in_stages(run, other, (stage, there))
    partners = {each.second: each.first for each in same}
    left_over = {each.first for each in same}, partners.keys()
    found = ModuleDiff(
        [], [], [Match(each.first, each.second, each.how, each.why) for each in same], [],
        [op for op in mine if op not in left_over[0]],
        [op for op in theirs if op not in left_over[1]],
    )  # fmt: skip
    own = set(mine)

    def key(thing: Op | Function) -> int | str | None:
        """Of an op of B the id of the op of A that it is; None where it is none."""
        if isinstance(thing, Function):
            return f"@{thing.name}"
        thing = partners.get(thing, thing)
        return run.op_id(thing) if thing in own else None

    numbers = _numbers(run, other, left, right, same)
    guessed = sum(each.how == GUESSED for each in same)
    return AlignedLines(left, right, found=found, key=key, numbers=numbers), guessed


def _numbers(
    run: Run, other: Run, left: Module, right: Module, same: Sequence[Same]
) -> dict[Value, int]:
    """What values without a name are called: those of A by their ids, those of B as what they are
    in A, else by numbers that A does not have."""
    found = {value: run.value_id(value) for value in _values(left)}
    beyond = max(found.values(), default=0) + 1
    found |= {value: beyond + other.value_id(value) for value in _values(right)}
    pairs = [(each.first, each.second) for each in matching.same_arguments(left, right)]
    for each in same:
        pairs += zip(each.first.results, each.second.results, strict=False)
        for a, b in zip(each.first.regions, each.second.regions, strict=False):
            pairs += zip(a.arguments, b.arguments, strict=False)
    return found | {b: found[a] for a, b in pairs}


def _values(module: Module) -> Iterator[Value]:
    for function in module.functions.values():
        yield from function.arguments
    for op in module.walk():
        yield from op.results
        for region in op.regions:
            yield from region.arguments
