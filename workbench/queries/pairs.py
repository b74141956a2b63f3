"""Matching of the launches of two recordings that compute the same, by any kernel name.

A launch is identified by the nodes of the framework's graph that its ops go back to. Launches with
the same nodes are paired, in program order; the remaining ones are joined if they share nodes, so
that one fused launch is paired with the several that do its work elsewhere. Launches that are
still alone on both sides (another frontend names its nodes differently) are paired if flops and
bytes are equal and the order of both programs agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from core_compiler.ir.target import Launch
from workbench.queries.links import launches
from workbench.queries.run import Run
from workbench.queries.work import Work, work


@dataclass(frozen=True)
class Launched:
    """A launch, its work, and the names of the framework's nodes that it computes."""

    op: int
    work: Work
    nodes: frozenset[str]
    title: str
    place: str


@dataclass(frozen=True)
class Pair:
    """Launches of the first and of the second recording that compute the same (or () for none).

    ``by_work``: the match rests only on their flops, bytes and order.
    """

    first: tuple[Launched, ...]
    second: tuple[Launched, ...]
    by_work: bool = False


def launched(run: Run) -> list[Launched]:
    """Return the launches of one execution in program order."""
    key = "launched", run.version.stages, run.version.timings, run.version.figures
    return run.cached(key, lambda: _launched(run))


def _launched(run: Run) -> list[Launched]:
    works = {w.op: w for w in work(run) if w.op is not None}
    found = []
    for key, op in launches(run).items():
        nodes = op.origin.nodes() if op.origin is not None else ()
        file, line = run.source_location(op)
        each = works.get(key, Work(key, Launch.of(op).kernel, 0, 0, None))
        found.append(
            Launched(
                key,
                each,
                frozenset(n.name or f"{n.scope}|{n.kind}" for n in nodes),
                " · ".join(dict.fromkeys(_kind(n.kind) for n in nodes)) or Launch.of(op).kernel,
                f"{file}:{line}" if file else "",
            )
        )
    return found


def _kind(kind: str) -> str:
    """Return the short name of a node's kind: ``aten.conv2d.default`` -> ``conv2d``."""
    parts = kind.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[-1]


def pairs(first: Run, second: Run) -> list[Pair]:
    """Return pairs that cover all launches of both recordings, in the first one's order."""
    return pair_launches(launched(first), launched(second))


def pair_launches(first: Sequence[Launched], second: Sequence[Launched]) -> list[Pair]:
    """Return :func:`pairs` of launches."""
    by_nodes: dict[frozenset[str], list[Launched]] = {}
    for each in second:
        by_nodes.setdefault(each.nodes, []).append(each)
    found: list[Pair] = []
    unmatched = []
    for each in first:
        candidates = by_nodes.get(each.nodes)
        if each.nodes and candidates:
            found.append(Pair((each,), (candidates.pop(0),)))
        else:
            unmatched.append(each)
    taken = {each.op for pair in found for each in pair.second}
    joined = _joined(unmatched, [each for each in second if each.op not in taken])
    found += [pair for pair in joined if pair.first and pair.second]
    ones = {each.op for pair in found for each in pair.first}
    twos = {each.op for pair in found for each in pair.second}
    found += _by_work(
        [e for e in unmatched if e.op not in ones], [e for e in second if e.op not in twos]
    )
    positions = {each.op: at for at, each in enumerate(first)}
    return sorted(
        found, key=lambda p: min((positions[e.op] for e in p.first), default=len(positions))
    )


def _joined(first: Sequence[Launched], second: Sequence[Launched]) -> list[Pair]:
    """Join launches that share nodes, directly or through others."""
    owner: dict[str, str] = {}

    def root(name: str) -> str:
        while owner.setdefault(name, name) != name:
            owner[name] = name = owner[owner[name]]
        return name

    every = [(0, e) for e in first] + [(1, e) for e in second]
    groups: dict[str, tuple[list[Launched], list[Launched]]] = {}
    names = [sorted(e.nodes) or [f"{side}/{e.op}"] for side, e in every]
    for each in names:
        for other in each[1:]:
            owner[root(other)] = root(each[0])
    for (side, launch), each in zip(every, names, strict=True):
        groups.setdefault(root(each[0]), ([], []))[side].append(launch)
    return [Pair(tuple(a), tuple(b)) for a, b in groups.values()]


def _by_work(first: Sequence[Launched], second: Sequence[Launched]) -> list[Pair]:
    """Pair launches of the same flops and bytes, in the longest matching blocks.

    The others remain alone.
    """
    ones, twos = ([(e.work.flops, e.work.bytes) for e in side] for side in (first, second))
    found: list[Pair] = []
    taken: set[tuple[int, int]] = set()
    for a, b, size in SequenceMatcher(None, ones, twos, autojunk=False).get_matching_blocks():
        for one, two in zip(first[a : a + size], second[b : b + size], strict=True):
            if one.work.bytes:  # the work of the others is unknown
                found.append(Pair((one,), (two,), by_work=True))
                taken |= {(0, one.op), (1, two.op)}
    found += [Pair((each,), ()) for each in first if (0, each.op) not in taken]
    found += [Pair((), (each,)) for each in second if (1, each.op) not in taken]
    return found
