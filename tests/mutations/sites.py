"""Which mutations are drawn: sites that the corpus executes, in an order that the seed fixes."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutations.classes import WORK_OF, Kind
from tests.mutations.operators import Mutation, lines_around, mutations


@dataclass(frozen=True)
class Traced:
    """What a model of the corpus executes; ``seconds``: by command, where that is green."""

    name: str
    lines: Mapping[str, Mapping[str, Sequence[int]]]
    tokens: frozenset[str]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Site:
    """A mutation of a file, the models that execute it, in the order of trying, and the passes."""

    kind: Kind
    file: str
    mutation: Mutation
    models: tuple[str, ...]
    passes: tuple[str, ...] = ()


@dataclass
class Coverage:
    """The traces of a corpus, by file and line."""

    traces: Sequence[Traced]
    _at: dict[tuple[str, int], dict[str, set[str]]] = field(default_factory=dict)
    _orders: dict[tuple, tuple[str, ...]] = field(default_factory=dict)
    _executed: dict[tuple[str, str], frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        at: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for trace in self.traces:
            for phase, files in trace.lines.items():
                for file, lines in files.items():
                    for line in lines:
                        at[file, line][trace.name].add(phase)
        self._at = dict(at)
        self._by_name = {t.name: t for t in self.traces}

    def phases(
        self,
        file: str,
        mutation: Mutation,
        reads: Mapping[str, Sequence[int]],
    ) -> dict[str, set[str]]:
        """By model: the phases in which the site is executed; {} where none does."""
        if mutation.row:
            return {t.name: {"row"} for t in self.traces if mutation.row in t.tokens}
        if mutation.name:
            found: dict[str, set[str]] = defaultdict(set)
            for line in reads.get(mutation.name, ()):
                for name, phases in self._at.get((file, line), {}).items():
                    found[name] |= phases
            return dict(found)
        return self._at.get((file, mutation.line), {})

    def site(
        self, kind: Kind, file: str, mutation: Mutation, reads: Mapping, around: range = range(0)
    ) -> Site | None:
        """The site, where models that its command is green on execute it; ``around`` are the lines
        of the function that it is in."""
        found = self.phases(file, mutation, reads)
        if kind.in_passes:
            found = {
                name: phases
                for name, phases in found.items()
                if "row" in phases or any(p.startswith("pass:") for p in phases)
            }
        usable = [n for n in found if kind.command in self._by_name[n].seconds]
        if not usable:
            return None
        usable = self._ordered(usable, kind.command, file, around)
        passes = {p[5:] for n in usable for p in found[n] if p.startswith("pass:")}
        passes |= self._around(file, around, usable)
        for start, labels in WORK_OF.items():
            passes.update(labels if file.startswith(start) else ())
        return Site(kind, file, mutation, usable, tuple(sorted(passes)))

    def _around(self, file: str, around: range, names: Sequence[str]) -> set[str]:
        """The passes that execute any line of the function around a site: which of its lines the
        clean sources come by, the mutant's answer is their work."""
        return {
            p[5:]
            for line in around
            for name, phases in self._at.get((file, line), {}).items()
            if name in names
            for p in phases
            if p.startswith("pass:")
        }

    def _ordered(
        self, names: Sequence[str], command: str, file: str, around: range
    ) -> tuple[str, ...]:
        """Models by how many lines a second they execute that none before them does, first of the
        function, then of the file; then those that execute most of the file a second."""
        key = tuple(names), command, file, around
        if key not in self._orders:
            lines = {name: self._lines(name, file) for name in names}
            cost = {name: 0.5 + self._by_name[name].seconds[command] for name in names}
            order: list[str] = []
            left = sorted(names, key=lambda n: (cost[n], n))
            for wanted in (frozenset(around), frozenset().union(*lines.values())):
                missing = set(wanted)
                while left:
                    best = max(left, key=lambda n: len(lines[n] & missing) / cost[n])
                    if not lines[best] & missing:
                        break
                    missing -= lines[best]
                    order.append(best)
                    left.remove(best)
            left.sort(key=lambda n: (-len(lines[n]) / cost[n], n))
            self._orders[key] = (*order, *left)
        return self._orders[key]

    def _lines(self, name: str, file: str) -> frozenset[int]:
        """The lines of a file that a model executes."""
        if (name, file) not in self._executed:
            found = self._by_name[name].lines.values()
            every = frozenset(line for files in found for line in files.get(file, ()))
            self._executed[name, file] = every
        return self._executed[name, file]


def drawn(kind: Kind, root: Path, coverage: Coverage, seed: int) -> Iterator[Site]:
    """All executed sites of a class in the seed's order, no two of one line.

    Lines are drawn first and then one mutation of each, so that a line with many operators in it
    weighs no more than another.
    """
    lines: dict[tuple[str, int], list[Site]] = defaultdict(list)
    for file in kind.paths(root):
        text = (root / file).read_text()
        reads = _reads(text)
        for mutation in mutations(text, kind.operators):
            around = lines_around(text, mutation.line)
            site = coverage.site(kind, file, mutation, reads, around)
            if site is not None:
                lines[file, mutation.line].append(site)
    order = sorted(lines)
    chance = random.Random(f"{seed}:{kind.name}")
    chance.shuffle(order)
    for place in order:
        site = chance.choice(lines[place])
        if _parses(site.mutation.applied((root / place[0]).read_text())):
            yield site


def like(kind: Kind, root: Path, coverage: Coverage, row: Mapping[str, Any]) -> Site | None:
    """The site where a mutation that was tried in other sources is in these; None where they have
    no such line, or no model executes it."""
    text = (root / row["file"]).read_text()
    same = [
        m
        for m in mutations(text, (row["operator"],))
        if (m.before(text), m.after(text)) == (row["before"], row["after"])
    ]
    nearest = min(same, key=lambda m: abs(m.line - row["line"]), default=None)
    if nearest is None:
        return None
    around = lines_around(text, nearest.line)
    return coverage.site(kind, row["file"], nearest, _reads(text), around)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _reads(text: str) -> dict[str, list[int]]:
    """On which lines a file reads a name or an attribute of that name."""
    found: dict[str, list[int]] = defaultdict(list)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id].append(node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found[node.attr].append(node.lineno)
    return found
