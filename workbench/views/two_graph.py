"""The op graphs of two recordings after the same pass as one: what both have is drawn once, what
only one has beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.training.phases import PHASES
from workbench.queries import flat_graph, graph_overlays, joint
from workbench.queries.graph_pairs import Drawn, Key, StagePair, drawn_of
from workbench.queries.op_facts import FOLDED, TEXTS, OpFacts
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import graph, two_diff

#: What the statuses of the schema are called here.
STATUSES = {"removed": "only in A", "added": "only in B", "changed": "differs",
            "moved": "in another group"}  # fmt: skip
APART = "Only in B: in A there is nothing to select. The tooltip has its facts, p pins them."


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return (run.stage_number(sight.stage), run.version.timings,
            other.version.stages, other.version.timings)  # fmt: skip


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """The ``data`` of the graph view (widgets/README.md).  Ops of A have the keys that they have
    without B; those only in B have texts."""
    stage = run.stage_number(sight.stage)
    there = two_diff.compared(run, other, stage, "Choose an earlier pass, or show A alone.")
    drawn = drawn_of(StagePair(run, other, stage, there))
    names = [s.pass_name for s in (run.stages()[stage], other.stages()[there])]
    columns = _columns(drawn, run, other)
    ops = columns["ops"]
    ops |= {**_edges(drawn), **_joint(drawn, run, other, stage, there)}
    return {
        "stage": {"id": str(stage), "title": f"A {stage:02d} {names[0]}, B {there:02d} {names[1]}"},
        "two": {"titles": list(two_diff.titles(run, other, stage)), "statuses": STATUSES,
                "apart": APART},
        **columns,
        **({"phases": list(PHASES)} if "phase" in ops else {}),
        "overlays": _times(drawn, run, other, stage, there),
        "total_ops": len(drawn),
    }  # fmt: skip


def selection(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    return graph.standing(run, sight)


# -- which nodes are the same ---------------------------------------------------------------------


# -- one drawing ----------------------------------------------------------------------------------


# -- columns --------------------------------------------------------------------------------------


def _columns(drawn: Sequence[Drawn], run: Run, other: Run) -> dict[str, Any]:
    """The tables of texts and the columns of the ops."""
    sides = [[d for d in drawn if d.only_b == only_b] for only_b in (False, True)]
    parts = []
    for each, some in zip((run, other), sides, strict=True):
        nodes, known = [d.node for d in some], OpFacts.of(each)
        parts.append(graph.described(nodes, graph.facts(known, nodes), known))
    place = {d.key: i for i, d in enumerate((*sides[0], *sides[1]))}
    order = np.array([place[d.key] for d in drawn], np.int64)
    ops: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, plural in {**TEXTS, "scope": "scopes"}.items():
        tables[plural], column = _joined(name, plural, parts)
        ops[name] = column[order]
    names = [*parts[0]["ops"]["name"], *parts[1]["ops"]["name"]]
    notes = list(dict.fromkeys(("", *(d.note for d in drawn))))
    number = {note: i for i, note in enumerate(notes)}
    return {**tables, "notes": notes, "ops": {
        "key": [d.key for d in drawn],
        "name": [names[i] for i in order.tolist()],
        **ops,
        **{n: np.concatenate([p["ops"][n] for p in parts])[order] for n in ("line", "fold")},
        "status": np.array([d.status for d in drawn], np.uint8),
        "guessed": np.array([d.guessed for d in drawn], np.uint8),
        "note": np.array([number[d.note] for d in drawn], np.int32),
    }}  # fmt: skip


def _joined(
    name: str, plural: str, parts: Sequence[dict[str, Any]]
) -> tuple[list[str], np.ndarray]:
    """One table of the texts of both, and the numbers of the ops of A, then of B, in it."""
    numbers: dict[str, int] = {}
    columns = []
    for part in parts:
        mapped = [numbers.setdefault(text, len(numbers)) for text in part[plural]]
        columns.append(np.array(mapped, np.int32)[part["ops"][name]])
    return list(numbers), np.concatenate(columns)


def _edges(drawn: Sequence[Drawn]) -> dict[str, np.ndarray]:
    place: dict[Key | None, int] = {d.key: i for i, d in enumerate(drawn)}
    starts, operands = [0], []
    for each in drawn:
        operands += [place.get(i, -1) for i in each.inputs]
        starts.append(len(operands))
    return {"operand_start": np.array(starts, np.int32), "operand": np.array(operands, np.int32)}


def _joint(
    drawn: Sequence[Drawn], run: Run, other: Run, stage: int, there: int
) -> dict[str, np.ndarray]:
    """Of training steps: phases of both, and what links the ops of A."""
    trained = joint.trains(run), joint.trains(other)
    if not any(trained):
        return {}
    phase = np.full(len(drawn), joint.NO_PHASE, np.uint8)
    for each, at, only_b in ((run, stage, False), (other, there, True)):
        places = [i for i, d in enumerate(drawn) if d.only_b == only_b]
        column = joint.phase_column(each, at, [drawn[i].node.op for i in places])
        if column is not None:
            phase[places] = column
    linked = [None if d.only_b or d.node.op.kind in FOLDED else d.node.op for d in drawn]
    return {"phase": phase, **joint.link_columns(run, stage, linked)}


# -- overlays -------------------------------------------------------------------------------------


def _times(
    drawn: Sequence[Drawn], run: Run, other: Run, stage: int, there: int
) -> list[dict[str, Any]]:
    """The measured time in A, in B, and how much longer B takes; of what was not timed none."""
    one, two = (_measured(each, at) for each, at in ((run, stage), (other, there)))
    a = np.array([np.nan if d.only_b else one.get(d.node.key, np.nan) for d in drawn])
    twins = [d.node if d.only_b else d.twin for d in drawn]
    b = np.array([np.nan if n is None else two.get(n.key, np.nan) for n in twins])
    found = [graph_overlays.overlay(f"time in {letter}", "µs", column)
             for letter, column in (("A", a), ("B", b)) if np.nansum(column)]  # fmt: skip
    if len(found) == 2:
        known = ~(np.isnan(a) & np.isnan(b))
        more = np.where(known, np.nan_to_num(b) - np.nan_to_num(a), np.nan)
        found.insert(0, graph_overlays.overlay("more time in B", "µs", more))
    return found


def _measured(run: Run, stage: int) -> dict[int, float]:
    """Microseconds by node."""
    nodes = flat_graph.flat(run, stage).nodes
    flops = graph.facts(OpFacts.of(run), nodes)["flops"]
    times = graph_overlays.measured_times(run, stage, nodes, flops)
    return {n.key: us for n, us in zip(nodes, times, strict=False) if us}
