"""Matching of the buffers of two recordings that have the same contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core_compiler.ir.diff import GUESSED, RECORDED
from core_compiler.record.reader import Buffer
from workbench.queries import matching
from workbench.queries.links import written_by
from workbench.queries.matching import Counterpart
from workbench.queries.pairs import pairs
from workbench.queries.run import Run


def same_buffers(run: Run, other: Run) -> list[Counterpart]:
    """Return the matching buffers (ids) of both recordings, each buffer once.

    Buffers match if they carry the same imported value, have the same name, are written by
    launches that compute the same, or are defined by ops that are the same (constants).
    """
    key = "same buffers", str(other.path), other.identity, run.version, other.version
    return run.cached(key, lambda: _same_buffers(run, other))


def _same_buffers(run: Run, other: Run) -> list[Counterpart]:
    taken: tuple[set[int], set[int]] = (set(), set())
    found = []
    for make in (_by_meaning, _by_name, _by_launch, _by_op):
        for each in make(run, other):
            if each.first not in taken[0] and each.second not in taken[1]:
                taken[0].add(each.first)
                taken[1].add(each.second)
                found.append(each)
    return found


def _by_meaning(run: Run, other: Run) -> Iterator[Counterpart]:
    ones, twos = (
        {b.value: b.id for b in each.buffers() if b.value is not None} for each in (run, other)
    )
    stages = run.version.stages - 1, other.version.stages - 1
    for same in matching.same_meaning(run, other, stages):
        one, two = ones.get(run.value_id(same.first)), twos.get(other.value_id(same.second))
        if one is not None and two is not None:
            yield Counterpart(one, two, same.how, same.why)


def _by_name(run: Run, other: Run) -> Iterator[Counterpart]:
    """Match weights, inputs and results of the same name."""
    ones, twos = (
        {(b.tier, b.kind, b.name): b.id for b in each.buffers() if b.name} for each in (run, other)
    )
    for name in ones.keys() & twos.keys():
        yield Counterpart(ones[name], twos[name], RECORDED, "same name")


def _by_launch(run: Run, other: Run) -> Iterator[Counterpart]:
    """Match the buffers written by launches that compute the same.

    The match is certain if each side has one launch and equally many buffers; otherwise buffers
    are matched by the order of their sizes, as a guess.
    """
    written_a, written_b = _written(run), _written(other)
    for pair in pairs(run, other):
        ones = [b for each in pair.first for b in written_a.get(each.op, ())]
        twos = [b for each in pair.second for b in written_b.get(each.op, ())]
        is_single = len(pair.first) == len(pair.second) == 1 and not pair.by_work
        if is_single and [b.kind for b in ones] == [b.kind for b in twos]:
            yield from _pair_up(ones, twos, RECORDED, "launches of the same nodes")
        else:
            yield from _pair_up(
                _by_size(ones), _by_size(twos), GUESSED, "launches that compute the same, by size"
            )


def _by_op(run: Run, other: Run) -> Iterator[Counterpart]:
    stages = run.version.stages - 1, other.version.stages - 1
    body_a, body_b = (
        each.index(stage).module.main.body for each, stage in zip((run, other), stages, strict=True)
    )
    ones, twos = ({b.op: b for b in each.buffers() if b.op is not None} for each in (run, other))
    meaning = matching.same_meaning(run, other, stages)
    for same in matching.same_ops(body_a.ops, body_b.ops, meaning):
        one, two = ones.get(run.op_id(same.first)), twos.get(other.op_id(same.second))
        if one is not None and two is not None and one.kind == two.kind:
            yield Counterpart(one.id, two.id, same.how, same.why)


def _pair_up(
    ones: Sequence[Buffer], twos: Sequence[Buffer], how: str, why: str
) -> Iterator[Counterpart]:
    for one, two in zip(ones, twos, strict=False):
        yield Counterpart(one.id, two.id, how, why)


def _by_size(buffers: Sequence[Buffer]) -> list[Buffer]:
    return sorted(buffers, key=lambda b: (-b.size, b.start, b.id))


def _written(run: Run) -> dict[int, list[Buffer]]:
    """Return the buffers that each launch writes, in the order of the plan."""
    found: dict[int, list[Buffer]] = {}
    for buffer in run.buffers():
        op = written_by(run, buffer)
        if op is not None:
            found.setdefault(op, []).append(buffer)
    return found
