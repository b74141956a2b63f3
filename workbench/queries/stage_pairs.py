"""The IR of two recordings after the same pass, aligned by matching ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core_compiler.ir import Function, Module, Op, Value
from core_compiler.ir.diff import GUESSED, Match, ModuleDiff
from core_compiler.ir.line_diff import AlignedLines
from workbench.queries import matching
from workbench.queries.matching import Counterpart
from workbench.queries.run import Run


def partner(run: Run, other: Run, stage: int) -> tuple[int, bool]:
    """Return the stage of ``other`` after the pass of ``stage``, and whether it has that pass.

    If not, the stage is the one after the nearest earlier pass that both have.
    """
    stage_of_pass = {each.pass_name: each.index for each in other.stages()}
    for each in reversed(run.stages()[: stage + 1]):
        if each.pass_name in stage_of_pass:
            return stage_of_pass[each.pass_name], each.index == stage
    return 0, False


def aligned(run: Run, other: Run, stage: int, other_stage: int) -> tuple[AlignedLines, int]:
    """Return the lines of both, and the number of ops matched by structure alone."""
    key = "aligned with", str(other.path), other.identity, stage, other_stage
    return run.cached(key, lambda: _align(run, other, stage, other_stage))


def _align(run: Run, other: Run, stage: int, other_stage: int) -> tuple[AlignedLines, int]:
    left, right = run.index(stage).module, other.index(other_stage).module
    ops_a, ops_b = list(left.walk()), list(right.walk())
    same = matching.same_in_stages(run, other, (stage, other_stage))
    partners = {each.second: each.first for each in same}
    matched = {each.first for each in same}, partners.keys()
    found = ModuleDiff(
        [],
        [],
        [Match(each.first, each.second, each.how, each.why) for each in same],
        [],
        [op for op in ops_a if op not in matched[0]],
        [op for op in ops_b if op not in matched[1]],
    )
    own_ops = set(ops_a)

    def key(item: Op | Function) -> int | str | None:
        """Return the id of the op of A that matches an op of B; None if there is none."""
        if isinstance(item, Function):
            return f"@{item.name}"
        item = partners.get(item, item)
        return run.op_id(item) if item in own_ops else None

    numbers = _numbers(run, other, left, right, same)
    guessed = sum(each.how == GUESSED for each in same)
    return AlignedLines(left, right, found=found, key=key, numbers=numbers), guessed


def _numbers(
    run: Run, other: Run, left: Module, right: Module, same: Sequence[Counterpart]
) -> dict[Value, int]:
    """Return numbers for the values without a name.

    Values of A get their ids; values of B get those of their matches in A, else numbers that A
    does not use.
    """
    found = {value: run.value_id(value) for value in _values(left)}
    offset = max(found.values(), default=0) + 1
    found |= {value: offset + other.value_id(value) for value in _values(right)}
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
