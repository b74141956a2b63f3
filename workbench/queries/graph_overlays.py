"""Heat overlays of a graph: figures measured or known of each drawn op.

Time and error are shown at every stage: the time measured of a launch is attributed to the ops it
came from, the error of a checked rewrite to the ops derived from its result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from core_compiler.ir import Op
from core_compiler.ir.origin import Origin
from workbench.queries import magnitudes
from workbench.queries.op_facts import FOLDED
from workbench.queries.run import Run


class Drawn(Protocol):
    """A drawn op: ``key`` is its id in the recording; a ghost is an op that the stage lacks."""

    op: Op
    key: int
    ghost: bool


def overlays(
    run: Run, stage: int, nodes: Sequence[Drawn], rows: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return the overlays of drawn ops (widgets/README.md) from ``rows``, columns of facts."""
    found = []
    for name, unit, values in (
        ("work", "Mflop", rows["flops"] / 1e6),
        ("traffic", "B", rows["bytes"]),
    ):
        if values.any():
            found.append(overlay(name, unit, values))
    times = measured_times(run, stage, nodes, rows["flops"])
    if any(times):
        found.insert(0, overlay("time", "µs", times))
    if stage:
        born = run.births(stage)
        names = [f"{s.index:02d} {s.pass_name}" for s in run.stages()]
        found.append(
            {
                **overlay("made by pass", "", [born[n.key] for n in nodes]),
                "combine": "max",
                "labels": names,
            }
        )
    drawn = [n.op for n in nodes]
    for name, sizes in (
        ("largest |value|", magnitudes.values(run, drawn)),
        ("largest |gradient| of a parameter", magnitudes.gradients(run, stage, drawn)),
    ):
        if sizes is not None:
            found.append({**overlay(name, "", sizes), "combine": "max", "scale": "log"})
    errors = _errors(run, stage, nodes)
    if any(errors):
        found.append({**overlay("error", "", errors), "combine": "max"})
    return found


def overlay(name: str, unit: str, values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    return {"name": name, "unit": unit, "values": np.array(values, np.float64), "scale": "linear"}


def measured_times(run: Run, stage: int, nodes: Sequence[Drawn], flops: np.ndarray) -> list[float]:
    """Return the measured microseconds by node.

    They add up to those of all launches whose ops the stage has.

    A launch that the stage contains, or whose ops it contains, is divided among these by flops.
    The time of any other launch goes to the model's nodes that its ops came from, as in the source
    view, and from there to the ops of the stage that came from those nodes, also by flops.
    """
    measured = {t.op: t.median_us for t in run.timings() if t.op is not None and t.median_us}
    if not measured:
        return []
    places = {n.key: i for i, n in enumerate(nodes) if not n.ghost and n.op.kind not in FOLDED}
    weights, values = np.maximum(flops, 1.0), np.zeros(len(nodes))
    around, members = run.index(stage).around, _members(run)
    undrawn: dict[int, float] = {}
    covered: set[int] = set()
    for launch, us in measured.items():
        drawn = _drawn_positions([launch], places, around) or _drawn_positions(
            members.get(launch, ()), places, around
        )
        if drawn:
            covered.update(drawn)
            _distribute(values, us, drawn, weights)
        else:
            undrawn[launch] = us
    if undrawn:
        free = {key: place for key, place in places.items() if place not in covered}
        _distribute_by_origin(run, undrawn, free, weights, values)
    return values.tolist()


def _members(run: Run) -> dict[int, list[int]]:
    """Return the ops that the kernels of the measured launches compute, by launch."""

    def make() -> dict[int, list[int]]:
        index, found = run.index(len(run.stages()) - 1), {}
        for op in dict.fromkeys(t.op for t in run.timings()):
            if op is None or op not in index.ops:
                continue
            inner = (o for region in index.ops[op].regions for o in region.ops)
            found[op] = [run.op_id(o) for o in inner if o.kind not in FOLDED]
        return found

    return run.cached(("members", run.version.stages, run.version.timings), make)


def _drawn_positions(
    ops: Sequence[int], places: Mapping[int, int], around: Mapping[int, int]
) -> list[int]:
    """Return the positions at which all of ``ops`` are drawn, alone or inside another op.

    Returns [] if one of them is not drawn.
    """
    found = (places.get(op, places.get(around.get(op, op))) for op in ops)
    drawn = list(dict.fromkeys(found))
    return [] if None in drawn else [place for place in drawn if place is not None]


def _distribute_by_origin(
    run: Run,
    launches: Mapping[int, float],
    places: Mapping[int, int],
    weights: np.ndarray,
    values: np.ndarray,
) -> None:
    """Add the microseconds of ``launches`` to the ops that came from the same nodes."""
    from workbench.queries.model_lines import traced

    lines = traced(run)
    positions_of_node: dict[int, list[int]] = {}
    for key, place in places.items():
        for node in lines.of_op.get(key, ()):
            positions_of_node.setdefault(node, []).append(place)
    of_node: dict[int, float] = {}
    for launch, us in launches.items():
        parts = {
            n: us
            for n, us in lines.of_launch.get(launch, {}).items()
            if us and n in positions_of_node
        }
        whole = sum(parts.values())
        for node, part in parts.items():
            of_node[node] = of_node.get(node, 0.0) + us * part / whole
    for node, us in of_node.items():
        _distribute(values, us, positions_of_node[node], weights)


def _distribute(values: np.ndarray, us: float, places: Sequence[int], weights: np.ndarray) -> None:
    own_weights = weights[places]
    values[places] += us * own_weights / own_weights.sum()


def _errors(run: Run, stage: int, nodes: Sequence[Drawn]) -> list[float]:
    """Return the worst relative error of the checked rewrites behind each op.

    These are the rewrites, of any pass, that made the op, its sources, or the group or launch that
    contains it.
    """
    known = _worst_errors(run, stage)
    if not known.of_op:
        return []
    index = run.index(stage)

    def worst(node: Drawn) -> float:
        around = index.around.get(node.key, node.key)
        own = (known.of_op.get(key, 0.0) for key in (node.key, around))
        return max(known.inherited(node.op.origin), *own)

    return [worst(node) for node in nodes]


class _WorstErrors:
    """The worst errors of the checked rewrites up to a stage; ``of_op``: by created op."""

    def __init__(self, run: Run, stage: int) -> None:
        rows = run.recording.query(
            "SELECT r.new, c.worst_error FROM check_result c JOIN rewrite r ON r.id = c.rewrite"
            f" WHERE c.worst_error > 0 AND r.stage <= {int(stage)}",
            timeout=60.0,
            max_rows=1 << 24,
        ).rows
        self.of_op: dict[int, float] = {}
        for new, error in rows:
            for op in json.loads(new):
                self.of_op[op] = max(self.of_op.get(op, 0.0), error)
        self._own: dict[Origin, float] = {}
        for op, error in self.of_op.items():
            origin = run.recording.op(op).origin
            if origin is not None and origin.node is None:  # not shared with ops of another origin
                self._own[origin] = max(self._own.get(origin, 0.0), error)
        self._known: dict[Origin, float] = {}

    def inherited(self, origin: Origin | None) -> float:
        """Return the worst error of the rewrites that led to an origin."""
        known, waiting = self._known, [] if origin is None else [origin]
        while waiting:
            at = waiting[-1]
            missing = [p for p in at.parents if p not in known] if at not in known else []
            if missing:
                waiting += missing
                continue
            known[at] = max(self._own.get(at, 0.0), *(known[p] for p in at.parents), 0.0)
            waiting.pop()
        return 0.0 if origin is None else known[origin]


def _worst_errors(run: Run, stage: int) -> _WorstErrors:
    key = "worst errors", stage, run.version.checks
    return run.cached(key, lambda: _WorstErrors(run, stage))
