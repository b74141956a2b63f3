"""Matching of the ops and values of two recordings.

Nothing is recorded from one file to another, but each states where its ops come from (the nodes of
the framework's graph) and which value replaced which (the value maps of its rewrites). A match is
*recorded* if both files agree on both sides, else *guessed*, by structure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from core_compiler.ir import Module, Op, Value
from core_compiler.ir.diff import GUESSED, RECORDED
from workbench.queries.run import Run

#: The most ops of each side that are matched by kind, type and order.
MAX_GUESSED = 2_000


@dataclass(frozen=True, eq=False, slots=True)
class Counterpart:
    """The counterpart in the second recording of an item of the first.

    ``how``: whether it is recorded or guessed; ``why``: the evidence.
    """

    first: Any
    second: Any
    how: str
    why: str


def same_ops(
    first: Sequence[Op], second: Sequence[Op], meaning: Sequence[Counterpart] = ()
) -> list[Counterpart]:
    """Return the ops that two programs have in common, in the order of the first.

    ``meaning``: values known to be the same (:func:`same_meaning`), so that their defining ops
    match.
    """
    found = list(_by_results(first, second, meaning))
    found += _by_nodes(*_unmatched(first, second, found))
    unmatched = _unmatched(first, second, found)
    found += _by_operands(*unmatched, found)
    found += _in_order(*_unmatched(first, second, found), "kind, type and order")
    index = {op: at for at, op in enumerate(first)}
    return sorted(found, key=lambda same: index[same.first])


def same_in_stages(run: Run, other: Run, stages: tuple[int, int]) -> list[Counterpart]:
    """Return the ops that two stages of ``run`` and ``other`` have in common, also nested."""
    key = "same ops", str(other.path), other.identity, stages
    return run.cached(
        key,
        lambda: same_ops(
            list(run.index(stages[0]).module.walk()),
            list(other.index(stages[1]).module.walk()),
            same_meaning(run, other, stages),
        ),
    )


def same_values(first: Module, second: Module) -> list[Counterpart]:
    """Return the common values of two modules: arguments of main, then results of its ops."""
    return [
        *same_arguments(first, second),
        *results_of(same_ops(first.main.body.ops, second.main.body.ops)),
    ]


def same_meaning(run: Run, other: Run, stages: tuple[int, int]) -> list[Counterpart]:
    """Return the values of two stages that carry the same value of the import.

    They follow from the recorded value maps; each value appears once, certain matches first.
    """
    key = "same meaning", str(other.path), other.identity, stages
    return run.cached(key, lambda: _same_meaning(run, other, stages))


def _same_meaning(run: Run, other: Run, stages: tuple[int, int]) -> list[Counterpart]:
    carriers = _carriers(run, stages[0]), _carriers(other, stages[1])
    imported = same_values(run.index(0).module, other.index(0).module)
    found: list[Counterpart] = []
    taken: set[Value] = set()
    for same in sorted(imported, key=lambda each: each.how != RECORDED):
        one, two = carriers[0](same.first), carriers[1](same.second)
        if one is not None and two is not None and taken.isdisjoint((one, two)):
            taken |= {one, two}
            found.append(Counterpart(one, two, same.how, "value map"))
    return found


def _carriers(run: Run, stage: int) -> Callable[[Value], Value | None]:
    """Return a function from a value of the import to its counterpart in a stage."""
    there = {run.value_id(value): value for value in _values(run.index(stage).module)}
    maps = run.recording.carriers(stage)

    def carrier(value: Value) -> Value | None:
        number = run.value_id(value)
        return there.get(maps.get(number, number))

    return carrier


def _values(module: Module) -> Iterator[Value]:
    yield from module.main.arguments
    for op in module.main.body.ops:
        yield from op.results


def same_arguments(first: Module, second: Module) -> list[Counterpart]:
    """Return the arguments of main that two modules have in common."""
    ones, twos = first.main.arguments, second.main.arguments
    named = {v.name: v for v in twos if v.name}
    found = []
    for at, value in enumerate(ones):
        if value.name in named:
            found.append(Counterpart(value, named[value.name], RECORDED, "same name"))
        elif at < len(twos) and twos[at].type is value.type and not value.name:
            found.append(Counterpart(value, twos[at], GUESSED, "same place among the arguments"))
    return found


def results_of(ops: Iterable[Counterpart]) -> Iterator[Counterpart]:
    """Return the results of matched ops."""
    for same in ops:
        for a, b in zip(same.first.results, same.second.results, strict=False):
            yield Counterpart(a, b, same.how, same.why)


# -- recorded matches -----------------------------------------------------------------------------


def _by_results(
    first: Sequence[Op], second: Sequence[Op], meaning: Sequence[Counterpart]
) -> Iterator[Counterpart]:
    """Match the ops that define values which are the same."""
    makers = [{v: op for op in side for v in op.results} for side in (first, second)]
    taken: set[Op] = set()
    for same in meaning:
        one, two = makers[0].get(same.first), makers[1].get(same.second)
        if one is not None and two is not None and taken.isdisjoint((one, two)):
            taken |= {one, two}
            yield Counterpart(one, two, same.how, same.why)


def _nodes(op: Op) -> frozenset[str]:
    """Return the framework's nodes of an op by name: paths and lines change too easily."""
    nodes = op.origin.nodes() if op.origin is not None else ()
    return frozenset(n.name or f"{n.scope}|{n.kind}" for n in nodes)


def _by_nodes(first: Sequence[Op], second: Sequence[Op]) -> Iterator[Counterpart]:
    """Match the ops of the same nodes.

    If a node produced the same list of ops on both sides they are recorded matches; from other
    lists only an op that is the only one of its kind and type matches.
    """
    ones, twos = _grouped(first, _nodes), _grouped(second, _nodes)
    for nodes, ops_a in ones.items():
        ops_b = twos.get(nodes)
        if not nodes or ops_b is None:
            continue
        if [op.kind for op in ops_a] == [op.kind for op in ops_b]:
            yield from (
                Counterpart(a, b, RECORDED, "same node") for a, b in zip(ops_a, ops_b, strict=True)
            )
            continue
        a, b = _grouped(ops_a, _signature), _grouped(ops_b, _signature)
        only = [
            Counterpart(a[each][0], b[each][0], RECORDED, "same node")
            for each in a
            if len(a[each]) == len(b.get(each, ())) == 1
        ]
        yield from only
        yield from _in_order(*_unmatched(ops_a, ops_b, only), "order among the ops of its node")


# -- structural matches ---------------------------------------------------------------------------


def _by_operands(
    first: Sequence[Op], second: Sequence[Op], found: Iterable[Counterpart]
) -> list[Counterpart]:
    """Match ops that no node identifies, by kind and matched operands.

    Constants match by equal content.
    """
    partner = {
        v: w
        for same in found
        for v, w in zip(same.first.results, same.second.results, strict=False)
    }
    candidates: dict[Hashable, list[Op]] = {}
    for op in reversed(second):
        candidates.setdefault(_reads(op, op.operands), []).append(op)
    made = []
    for op in first:
        matches = candidates.get(_reads(op, tuple(partner.get(v, v) for v in op.operands)))
        if matches:
            other = matches.pop()
            made.append(
                Counterpart(op, other, GUESSED, "same operands" if op.operands else "same text")
            )
            partner.update(zip(op.results, other.results, strict=False))
    return made


def _reads(op: Op, operands: tuple[Value, ...]) -> Hashable:
    text = "" if operands else str(sorted((k, str(v)) for k, v in op.attributes.items()))
    return op.kind, operands, tuple(v.type for v in op.results), text


def _in_order(first: Sequence[Op], second: Sequence[Op], why: str) -> Iterator[Counterpart]:
    """Match ops of the same kind and types that occur equally often, in the same order.

    Large numbers of them are skipped: the cost is quadratic.
    """
    if max(len(first), len(second)) > MAX_GUESSED:
        return
    ones, twos = ([_signature(op) for op in side] for side in (first, second))
    for a, b, size in SequenceMatcher(None, ones, twos, autojunk=False).get_matching_blocks():
        for one, two in zip(first[a : a + size], second[b : b + size], strict=True):
            yield Counterpart(one, two, GUESSED, why)


def _signature(op: Op) -> Hashable:
    return op.kind, tuple(v.type for v in op.results)


# -- helpers --------------------------------------------------------------------------------------


def _grouped(ops: Iterable[Op], key: Callable[[Op], Hashable]) -> dict[Hashable, list[Op]]:
    groups: dict[Hashable, list[Op]] = {}
    for op in ops:
        groups.setdefault(key(op), []).append(op)
    return groups


def _unmatched(
    first: Sequence[Op], second: Sequence[Op], found: Iterable[Counterpart]
) -> tuple[list[Op], list[Op]]:
    """Return the ops of both sides that are not matched yet."""
    taken = {op for same in found for op in (same.first, same.second)}
    return [op for op in first if op not in taken], [op for op in second if op not in taken]
