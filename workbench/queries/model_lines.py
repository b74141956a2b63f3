"""The cost of each line of the model: kernel times, bytes and flops traced back to their lines.

A launch's time is divided among the ops that its kernel computes, in proportion to the least time
in which this machine could do each op's flops and move the bytes it reads from or writes to memory
(values kept in registers move nothing). Flops and bytes of the launch are divided in proportion to
the ops' own. An op's share goes to the node of the model it came from; if it came from several, to
those that had an op of its kind at import, else to all, in proportion to their cost at import.
Nothing is lost: all lines, plus the work that came from no line, add up to all launches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core_compiler.ir import Module, Op
from core_compiler.ir.target import ALLOC, CONSTANT, INPUT, LAUNCH, OUTPUT, VIEW
from core_compiler.ops import REGISTRY, cost
from core_compiler.ops.traits import has_trait
from core_compiler.record import Recording
from workbench.queries.run import Run

#: The "file" whose lines are the nodes of the imported graph, in order.
NODES = ""
#: An unmeasured machine: 50 GFLOP/s, 10 GB/s. Only their ratio matters.
PEAK_GFLOPS, GBYTES_PER_S = 50.0, 10.0
#: Ops that hold or allocate memory and compute nothing.
_IDLE = (
    "core.constant",
    CONSTANT,
    ALLOC,
    VIEW,
    INPUT,
    OUTPUT,
)
#: Ops that only supply operands to others.
_FEEDS = (*_IDLE, "core.iota", "core.broadcast")
_VERDICTS = ("unchecked", "bitwise", "within", "failed")

#: File and line.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the imported graph.

    ``place`` is the innermost line of the model's own code (None: the model has no source);
    ``places`` are all lines on the call stack, including that one.
    """

    name: str
    kind: str
    scope: str
    place: Place | None
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Amount:
    """Microseconds (None if nothing was measured), compulsory bytes and flops of one execution."""

    us: float | None
    bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class Check:
    """The checks of the rewrites that touched ops of a line.

    Their number, the worst verdict, the largest relative error, and the stage and number of the
    rewrite with that error.
    """

    count: int
    verdict: str
    error: float
    stage: int
    rewrite: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the model.

    ``own``       the cost of the ops that it made; ``total`` includes its callees.
    ``at_import`` ops that came from it (or from its callees) at import, except constants.
    ``op``        the most expensive imported op; ``kernel`` the kernel it costs most in (ids).
    ``text``      the line as the framework's stack trace had it.
    """

    file: str
    line: int
    own: Amount
    total: Amount
    at_import: int
    check: Check | None
    op: int | None
    kernel: int | None
    text: str


@dataclass(frozen=True, slots=True)
class ModelLines:
    """All lines with ops, by file and line; those of the file `NODES` are the graph's nodes.

    ``unattributed``: the work that came from no line; ``nameless``: from no node. The lines'
    ``own`` and ``unattributed`` add up to ``total``, and so do the nodes' and ``nameless``.
    """

    lines: Mapping[Place, Line]
    nodes: tuple[Node, ...]
    total: Amount
    unattributed: Amount
    nameless: Amount
    measured: bool
    executed: bool
    of_op: Mapping[int, tuple[int, ...]]
    weights: tuple[float, ...]
    of_launch: Mapping[int, Mapping[int, float]]
    of_nodes: Mapping[tuple[int, ...], Mapping[int, float]]

    def nodes_of(self, op: int) -> tuple[int, ...]:
        """Return the numbers of the nodes that an op came from, the main ones first."""
        found = self.of_op.get(op, ())
        shares = self.of_launch.get(op) or self.of_nodes.get(found, {})
        return tuple(sorted(found, key=lambda n: (-shares.get(n, 0.0), -self.weights[n], n)))

    def count(self, module: Module, op_id) -> dict[Place, int]:
        """Return how many ops of a stage's ``main`` came from each line.

        A fused op counts once for each of its lines; memory ops and constants are not counted.
        """
        return _count(self.nodes, self.of_op, computing(module), op_id)


def computing(module: Module) -> list[Op]:
    """Return the ops of ``main`` that compute."""
    return [op for op in module.main.body.ops if op.kind not in _IDLE]


def model_lines(recording: Recording) -> ModelLines:
    """Return the cost of each line of a recorded model; see the module's docstring."""
    return _Tracing(recording).lines()


class _Tracing:
    """The tables of one recording, by ids: ops, origins and nodes are numbers here."""

    def __init__(self, recording: Recording):
        self.recording, self.costs = recording, _Costs()
        self.keys, self.nodes, self.texts = _nodes(recording)
        origins = _origins(recording, self.keys)
        self.of_op = {
            op: origins[origin]
            for op, origin in _rows(recording, "SELECT id, origin FROM op WHERE origin NOT NULL")
        }
        figures = recording.figures("timing")
        self.seconds_of_flop = 1e-9 / _positive(figures.get("peak_gflops"), PEAK_GFLOPS)
        self.seconds_of_byte = 1e-9 / _positive(figures.get("dram_gbytes_per_s"), GBYTES_PER_S)
        self.imported = computing(recording.module(0)) if recording.stage_count() else []
        self.weights = [0.0] * len(self.nodes)
        self.kinds: list[set[str]] = [set() for _ in self.nodes]
        self.costliest_op: dict[int, tuple[int, float]] = {}
        # For ops that came from several nodes, the nodes they represent: seconds by node.
        self.of_nodes: dict[tuple[int, ...], dict[int, float]] = {}
        for op in self.imported:
            self._of_import(op)

    def _of_import(self, op: Op) -> None:
        key = self.recording.op_id(op)
        known = self.of_op.get(key, ())
        flops, moved = self.costs(op)
        for node in known:
            self.weights[node] += self._seconds(flops, moved) / len(known)
            self.kinds[node].add(op.kind)
            seconds = self._seconds(flops, moved)
            if op.kind not in _FEEDS and seconds > self.costliest_op.get(node, (0, -1.0))[1]:
                self.costliest_op[node] = key, seconds

    def _seconds(self, flops: float, moved: float) -> float:
        return flops * self.seconds_of_flop + moved * self.seconds_of_byte

    def lines(self) -> ModelLines:
        launches = {t.op: t for t in self.recording.timings() if t.op is not None}
        measured = any(t.median_us is not None for t in launches.values())
        of_launch: dict[int, dict[int, float]] = {}
        # By node (None: from no node): microseconds, bytes, flops, seconds at the limits.
        table: dict[int | None, list[float]] = {}
        for op in self._launches():
            key = self.recording.op_id(op)
            timing = launches.pop(key, None)
            for node, part in self._shares(op, timing).items():
                row = table.setdefault(node, [0.0] * 4)
                for i, amount in enumerate(part):
                    row[i] += amount
                if node is not None:
                    of_launch.setdefault(key, {})[node] = part[0] if measured else part[3]
        for timing in launches.values():  # of launches that the last stage does not contain
            row = table.setdefault(None, [0.0] * 4)
            for i, amount in enumerate((timing.median_us or 0.0, timing.bytes, timing.flops)):
                row[i] += amount
        return self._build_lines(table, of_launch, measured, bool(of_launch))

    def _launches(self) -> list[Op]:
        """Return the executed ops: the launches of the last stage, else the ops of the import."""
        stages = self.recording.stage_count()
        last = self.recording.module(stages - 1).main.body.ops if stages else ()
        timed = {t.op for t in self.recording.timings()}
        found = [o for o in last if o.kind == LAUNCH or self.recording.op_id(o) in timed]
        return found or self.imported

    def _shares(self, launch: Op, timing: Any) -> dict[int | None, tuple[float, ...]]:
        """Return a launch's microseconds, bytes, flops and seconds at the limits, by node."""
        parts = list(_parts(launch, self.costs))
        flops = float(sum(p.flops for p in parts) if timing is None else timing.flops)
        moved = float(sum(p.bytes for p in parts) if timing is None else timing.bytes)
        us = (timing.median_us or 0.0) if timing is not None else 0.0
        limit = self._seconds(flops, moved)
        by_time = _scaled([self._seconds(p.flops, p.bytes) for p in parts])
        by_flops = _scaled([p.flops for p in parts], by_time)
        by_bytes = _scaled([p.bytes for p in parts], by_time)
        found: dict[int | None, list[float]] = {}
        for part, t, m, f in zip(parts, by_time, by_bytes, by_flops, strict=True):
            amounts = us * t, moved * m, flops * f, limit * t
            nodes = self.of_op.get(self.recording.op_id(part.op), ())
            known = self.of_nodes.setdefault(nodes, {})
            for node, share in self._owners(part.op, nodes).items():
                _add(found.setdefault(node, [0.0] * 4), amounts, share)
                if node is not None:
                    known[node] = known.get(node, 0.0) + limit * t * share
        return {node: tuple(row) for node, row in found.items()}

    def _owners(self, op: Op, nodes: tuple[int, ...]) -> dict[int | None, float]:
        """Return the nodes an op came from, with their shares of it (adding up to 1)."""
        if not nodes:
            return {None: 1.0}
        nodes = tuple(n for n in nodes if op.kind in self.kinds[n]) or nodes
        return dict(zip(nodes, _scaled([self.weights[n] for n in nodes]), strict=True))

    # -- from nodes to lines ---------------------------------------------------------------------

    def _build_lines(self, table, of_launch, measured: bool, executed: bool) -> ModelLines:
        own: dict[Place, list[float]] = {}
        total: dict[Place, list[float]] = {}
        unattributed = list(table.get(None, [0.0] * 4))
        costliest: dict[Place, tuple[float, int]] = {}
        by_launch: dict[Place, dict[int, float]] = {}
        for key, shares in of_launch.items():
            for number, amount in shares.items():
                for place in self._places(number):
                    entry = by_launch.setdefault(place, {})
                    entry[key] = entry.get(key, 0.0) + amount
        for number, node in enumerate(self.nodes):
            row = table.get(number, [0.0] * 4)
            rank = (row[0] if measured else row[3]) or self.weights[number] * 1e-6
            if node.place is None:
                _add(unattributed, row)
            else:
                _add(own.setdefault(node.place, [0.0] * 4), row)
            _add(own.setdefault((NODES, number + 1), [0.0] * 4), row)
            for place in self._places(number):
                _add(total.setdefault(place, [0.0] * 4), row)
                if number in self.costliest_op and rank > costliest.get(place, (-1.0, 0))[0]:
                    costliest[place] = rank, number
        kernels = dict(
            _rows(self.recording, "SELECT op, kernel FROM kernel_op WHERE role = 'launch'")
        )
        counts, checks = self._counts(), self._checks()
        lines = {}
        for place in sorted(total):
            launch = max(by_launch.get(place, {}).items(), key=lambda i: i[1], default=(None, 0))[0]
            best = costliest.get(place)
            if best is None and place not in counts and not any(total[place]):
                continue  # a parameter: it computes nothing
            lines[place] = Line(
                *place,
                _amount(own.get(place, [0.0] * 4), measured),
                _amount(total[place], measured),
                counts.get(place, 0),
                checks.get(place),
                None if best is None else self.costliest_op[best[1]][0],
                None if launch is None else kernels.get(launch),
                self.texts.get(place, ""),
            )
        everything = [0.0] * 4
        for row in table.values():
            _add(everything, row)
        return ModelLines(
            lines,
            self.nodes,
            _amount(everything, measured),
            _amount(unattributed, measured),
            _amount(table.get(None, [0.0] * 4), measured),
            measured,
            executed,
            self.of_op,
            tuple(self.weights),
            of_launch,
            self.of_nodes,
        )

    def _places(self, number: int) -> tuple[Place, ...]:
        return (*self.nodes[number].places, (NODES, number + 1))

    def _counts(self) -> dict[Place, int]:
        return _count(self.nodes, self.of_op, self.imported, self.recording.op_id)

    def _checks(self) -> dict[Place, Check]:
        """Return the checks of the rewrites that removed ops of each line."""
        kinds = ",".join(f"'{kind}'" for kind in _FEEDS)
        feeds = f"SELECT op.id FROM op JOIN name ON name.id = op.kind WHERE text IN ({kinds})"
        idle = {op for (op,) in _rows(self.recording, feeds)}
        found: dict[Place, list] = {}
        known: dict[tuple[int, ...], tuple[Place, ...]] = {}
        for stage, number, old, verdict, error in _rows(
            self.recording,
            "SELECT r.stage, r.number, r.old, c.verdict, c.worst_error FROM check_result c"
            " JOIN rewrite r ON r.id = c.rewrite WHERE c.verdict != 'unchecked'"
            " ORDER BY r.stage, r.number",
        ):
            touched = tuple(map(int, old.strip("[]").split(","))) if old != "[]" else ()
            if touched not in known:
                ops = [op for op in touched if op not in idle] or touched
                nodes = dict.fromkeys(n for op in ops for n in self.of_op.get(op, ()))
                known[touched] = tuple(dict.fromkeys(p for n in nodes for p in self._places(n)))
            rank = _VERDICTS.index(verdict), float("inf") if error is None else float(error)
            for place in known[touched]:
                entry = found.setdefault(place, [0, (0, 0.0), 0, 0])
                entry[0] += 1
                if entry[0] == 1 or rank > entry[1]:
                    entry[1:] = rank, stage, number
        return {
            place: Check(count, _VERDICTS[rank[0]], rank[1], stage, number)
            for place, (count, rank, stage, number) in found.items()
        }


# -- the ops of a launch --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """An op that a kernel computes: its flops, and the bytes it reads from and writes to memory."""

    op: Op
    flops: float
    bytes: float


def _parts(launch: Op, costs: _Costs) -> Iterator[_Part]:
    """Return the ops of a launch, or the op itself if it contains none."""
    if not launch.regions or not launch.regions[0].ops:
        yield _Part(launch, *costs(launch))
        return
    block = launch.regions[0]
    outside, given = set(block.arguments), set(block.outputs)
    inner = {v for op in block.ops for v in op.results}
    for op in block.ops:
        if op.kind == "core.constant":
            continue
        read = sum(
            _read(op, v) for v in dict.fromkeys(op.operands) if v in outside or v not in inner
        )
        written = sum(_bytes(v) for v in op.results if v in given)
        yield _Part(op, costs(op)[0], read + written)


def _read(op: Op, value: Any) -> float:
    """Return the bytes that are read of an operand; of a lookup table only those looked up."""
    if has_trait(op, "partial_read") and op.operands[0] is value:
        return min(_bytes(value), _bytes(op.results[0]))
    return _bytes(value)


def _bytes(value: Any) -> float:
    try:
        return float(value.type.bytes)
    except (AttributeError, TypeError, ValueError):  # no tensor, or of unknown shape
        return 0.0


class _Costs:
    """Flops and bytes of ops; 0 for ops that declare none (an op of a target, of unknown shape).

    A network repeats its layers: equal ops are counted once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple, tuple[float, float]] = {}

    def __call__(self, op: Op) -> tuple[float, float]:
        if op.regions:
            inner = [o for region in op.regions for o in region.walk() if not o.regions]
            return sum(self(o)[0] for o in inner), _moved(op)
        key = (
            op.kind,
            tuple(v.type for v in op.operands),
            tuple(v.type for v in op.results),
            len(set(op.operands)),
            tuple(op.attributes.items()),
        )
        try:
            if key not in self._known:
                self._known[key] = _flops(op), _moved(op)
            return self._known[key]
        except TypeError:  # an attribute that cannot be hashed
            return _flops(op), _moved(op)


def _moved(op: Op) -> float:
    return sum(_bytes(v) for v in (*dict.fromkeys(op.operands), *op.results))


def _flops(op: Op) -> float:
    if op.kind not in REGISTRY:
        return 0.0
    try:
        return float(cost(op).flops)
    except (AttributeError, TypeError, ValueError):
        return 0.0


# -- tables of the recording ----------------------------------------------------------------------


def _rows(recording: Recording, statement: str) -> list[tuple]:
    return recording.query(statement, timeout=60.0, max_rows=1 << 24).rows


def _nodes(recording: Recording) -> tuple[dict[int, int], tuple[Node, ...], dict[Place, str]]:
    """Return node numbers by id, the nodes that computed at import, and the texts of lines."""
    keys: dict[int, int] = {}
    nodes: list[Node] = []
    texts: dict[Place, str] = {}
    for key, name, kind, file, line, scope, stack in _rows(
        recording, "SELECT id, name, kind, file, line, scope, stack FROM node ORDER BY id"
    ):
        frames = [(str(f), int(at), str(text)) for f, at, _, text in json.loads(stack)]
        for f, at, text in frames:
            texts.setdefault((f, at), text)
        place = (file, line) if file else None
        # Calls from the innermost line of the model's own code are the framework's.
        own = [(f, at) for f, at, _ in frames]
        around = own[: len(own) - own[::-1].index(place)] if place in own else []
        places = dict.fromkeys(p for p in around if not _is_framework(p[0]))
        keys[key] = len(nodes)
        inside = (*places,) if place is None or place in places else (*places, place)
        nodes.append(Node(name, kind, scope, place, inside))
    return keys, tuple(nodes), texts


def _is_framework(file: str) -> bool:
    return "/torch/" in file.replace("\\", "/")


def _origins(recording: Recording, keys: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Return the numbers of the nodes that each origin (by id) leads back to, in order."""
    found: dict[int, tuple[int, ...]] = {}
    for key, parents, node in _rows(recording, "SELECT id, parents, node FROM origin ORDER BY id"):
        rows = {} if node is None else {keys[node]: None}
        for parent in json.loads(parents):
            rows.update(dict.fromkeys(found.get(parent, ())))
        found[key] = tuple(rows)
    return found


def _count(nodes, of_op, ops: Iterable[Op], op_id) -> dict[Place, int]:
    counts: dict[Place, int] = {}
    for op in ops:
        numbers = of_op.get(op_id(op), ())
        places = (p for n in numbers for p in (*nodes[n].places, (NODES, n + 1)))
        for place in dict.fromkeys(places):
            counts[place] = counts.get(place, 0) + 1
    return counts


# -- sums -----------------------------------------------------------------------------------------


def _add(row: list[float], amounts: Iterable[float], share: float = 1.0) -> None:
    for i, amount in enumerate(amounts):
        row[i] += amount * share


def _amount(row: list[float], measured: bool) -> Amount:
    return Amount(row[0] if measured else None, row[1], row[2])


def _scaled(amounts: list[float], otherwise: list[float] | None = None) -> list[float]:
    """Return fractions of 1 in proportion to ``amounts``.

    If all amounts are 0, the fractions are equal, or ``otherwise``.
    """
    total = sum(amounts)
    if total > 0:
        return [a / total for a in amounts]
    return otherwise or [1.0 / len(amounts)] * len(amounts) if amounts else []


def _positive(value: Any, otherwise: float) -> float:
    try:
        return float(value) if float(value) > 0 else otherwise
    except (TypeError, ValueError):
        return otherwise


def traced(run: Run) -> ModelLines:
    """Return the cost of each line, cached for each state of the recording."""
    version = run.version
    known = version.stages, version.checks, version.kernels, version.timings
    return run.cached(("model lines", known), lambda: model_lines(run.recording))
