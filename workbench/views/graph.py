"""The op graph of a stage: its changes, groups and kernels as scopes, heat overlays.

Ops inside a fused group or a launch are drawn inside it; edges of buffers go from the launch that
wrote a buffer to the one that reads it. The regions of a loop or a branch are scopes before the op
itself, which collects what they yield, so every edge follows program order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.ir.diff import ModuleDiff
from core_compiler.training.graph.phases import PHASES
from workbench.queries import flat_graph, graph_overlays, joint
from workbench.queries.flat_graph import (
    ADDED,
    CHANGED,
    MOVED,
    REMOVED,
    SAME,
    Node,
    flat,
    ghosts,
    holders,
    label,
    with_ghosts,
)
from workbench.queries.graph_overlays import overlays
from workbench.queries.graph_pairs import Drawn, Key, StagePair, drawn_of
from workbench.queries.links import linked
from workbench.queries.op_facts import FOLDED, TEXTS, OpFacts
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState
from workbench.views.diff import matching_stage, titles


def key(run: Run, state: ViewState) -> tuple:
    return run.stage_number(state.stage), run.version.timings, run.version.checks


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the graph view (widgets/README.md)."""
    stage = run.stage_number(state.stage)
    diff = run.diff(stage - 1, stage) if stage else None
    nodes = flat(run, stage).nodes
    if diff is not None:
        nodes = with_ghosts(nodes, diff, run, stage)
    record = run.stages()[stage]
    known = OpFacts.of(run)
    rows = facts(known, nodes)
    columns = _columns(nodes, rows, known)
    columns["ops"] |= {**_changes(nodes, diff, run), **_joint(nodes, run, stage)}
    return {
        "stage": {"id": str(stage), "title": f"{stage:02d} {record.pass_name}"},
        **columns,
        **({"phases": list(PHASES)} if "phase" in columns["ops"] else {}),
        "overlays": overlays(run, stage, nodes, rows),
        "total_ops": len(nodes),
    }


def facts(known: OpFacts, nodes: Sequence[Node]) -> dict[str, np.ndarray]:
    """Return the facts about the nodes' ops that are the same in all stages, one row each."""
    return known.columns(np.array([n.key for n in nodes], np.int64), [n.op for n in nodes])


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the selection in the graph of the shown stage: an op or a scope.

    An op that the pass removed is still drawn and can be selected.
    """
    run, other = shown(runs)
    if (
        other is None
        and state.op is not None
        and state.op in ghosts(run, run.stage_number(state.stage))
    ):
        return {"op": state.op}
    return selection_in_stage(run, state)


def selection_in_stage(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the selection among the items of the shown stage."""
    found = linked(run, state)
    if found.op is None:
        return {"scope": state.scope} if state.scope else {}
    scopes = holders(run, found.stage)
    if found.op in scopes:
        return {"scope": scopes[found.op]}
    return {"op": found.op}


# -- columns --------------------------------------------------------------------------------------


def _columns(
    nodes: Sequence[Node], rows: Mapping[str, np.ndarray], known: OpFacts
) -> dict[str, Any]:
    """Return the tables of texts and the columns of the ops.

    ``rows`` are those of :class:`OpFacts`.
    """
    index = {node.key: i for i, node in enumerate(nodes)}
    starts, operands = [0], []
    for node in nodes:
        operands += [-1 if i is None else index.get(i, -1) for i in node.inputs]
        starts.append(len(operands))
    made = described(nodes, rows, known)
    made["ops"] |= {
        "operand_start": np.array(starts, np.int32),
        "operand": np.array(operands, np.int32),
    }
    return made


def described(
    nodes: Sequence[Node], rows: Mapping[str, np.ndarray], known: OpFacts
) -> dict[str, Any]:
    """Return the facts about each op, without edges, that a search examines."""
    kinds = rows["kind"]
    for i, node in enumerate(nodes):
        if node.label:
            kinds[i] = known.number("kind", label(node))
    tables, numbers = {}, {}
    for name, plural in TEXTS.items():
        column = kinds if name == "kind" else rows[name]
        tables[plural], numbers[name] = _only(list(known.texts[name]), column)
    scopes: dict[str, int] = {}
    numbers["scope"] = np.array([scopes.setdefault(n.scope, len(scopes)) for n in nodes], np.int32)
    return {
        **tables,
        "scopes": list(scopes),
        "ops": {
            "key": np.array([node.key for node in nodes], np.int32),
            "name": [known.names[node.key] for node in nodes],
            **numbers,
            "line": rows["line"],
            "fold": rows["fold"],
        },
    }


def _only(texts: Sequence[str], column: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the texts that occur in a column, and the column renumbered to them."""
    used = np.zeros(len(texts), bool)
    used[column] = True
    numbers = np.cumsum(used, dtype=np.int32) - 1
    return [texts[i] for i in np.flatnonzero(used).tolist()], numbers[column]


def _changes(nodes: Sequence[Node], diff: ModuleDiff | None, run: Run) -> dict[str, Any]:
    if diff is None:
        return {}
    number = run.op_id
    status = {number(op): ADDED for op in diff.added}
    status |= {number(op): MOVED for op in diff.moved}
    status |= {number(m.new): CHANGED for m in diff.changed}
    guessed = {number(m.new) for m in diff.changed if m.how == "guessed"}
    return {
        "status": np.array(
            [REMOVED if n.ghost else status.get(n.key, SAME) for n in nodes], np.uint8
        ),
        "guessed": np.array([n.key in guessed for n in nodes], np.uint8),
    }


def _joint(nodes: Sequence[Node], run: Run, stage: int) -> dict[str, Any]:
    """Return the phases of a training step, and the links between its ops."""
    phase = joint.phase_column(run, stage, (node.op for node in nodes))
    if phase is None:
        return {}
    drawn = [None if n.ghost or n.op.kind in FOLDED else n.op for n in nodes]
    return {"phase": phase, **joint.link_columns(run, stage, drawn)}


# -- two recordings ------------------------------------------------------------------------------

#: The names of the schema's statuses here.
STATUSES = {
    "removed": "only in A",
    "added": "only in B",
    "changed": "differs",
    "moved": "in another group",
}
ONLY_B_HINT = "Only in B: A has no op to select. The tooltip shows its facts; p pins it."


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return the ``data`` of the graph view (widgets/README.md).

    Ops of A have the same keys as without B; ops only in B have texts.
    """
    stage = run.stage_number(state.stage)
    other_stage = matching_stage(run, other, stage, "Choose an earlier pass, or show A alone.")
    drawn = drawn_of(StagePair(run, other, stage, other_stage))
    names = [s.pass_name for s in (run.stages()[stage], other.stages()[other_stage])]
    columns = _pair_columns(drawn, run, other)
    ops = columns["ops"]
    ops |= {**_edges(drawn), **_pair_joint(drawn, run, other, stage, other_stage)}
    return {
        "stage": {
            "id": str(stage),
            "title": f"A {stage:02d} {names[0]}, B {other_stage:02d} {names[1]}",
        },
        "two": {
            "titles": list(titles(run, other, stage)),
            "statuses": STATUSES,
            "apart": ONLY_B_HINT,
        },
        **columns,
        **({"phases": list(PHASES)} if "phase" in ops else {}),
        "overlays": _times(drawn, run, other, stage, other_stage),
        "total_ops": len(drawn),
    }


def _pair_columns(drawn: Sequence[Drawn], run: Run, other: Run) -> dict[str, Any]:
    """Return the tables of texts and the columns of the ops."""
    sides = [[d for d in drawn if d.only_b == only_b] for only_b in (False, True)]
    parts = []
    for each, drawn_ops in zip((run, other), sides, strict=True):
        nodes, known = [d.node for d in drawn_ops], OpFacts.of(each)
        parts.append(described(nodes, facts(known, nodes), known))
    index = {d.key: i for i, d in enumerate((*sides[0], *sides[1]))}
    order = np.array([index[d.key] for d in drawn], np.int64)
    ops: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, plural in {**TEXTS, "scope": "scopes"}.items():
        tables[plural], column = _joined(name, plural, parts)
        ops[name] = column[order]
    names = [*parts[0]["ops"]["name"], *parts[1]["ops"]["name"]]
    notes = list(dict.fromkeys(("", *(d.note for d in drawn))))
    number = {note: i for i, note in enumerate(notes)}
    return {
        **tables,
        "notes": notes,
        "ops": {
            "key": [d.key for d in drawn],
            "name": [names[i] for i in order.tolist()],
            **ops,
            **{n: np.concatenate([p["ops"][n] for p in parts])[order] for n in ("line", "fold")},
            "status": np.array([d.status for d in drawn], np.uint8),
            "guessed": np.array([d.guessed for d in drawn], np.uint8),
            "note": np.array([number[d.note] for d in drawn], np.int32),
        },
    }


def _joined(
    name: str, plural: str, parts: Sequence[dict[str, Any]]
) -> tuple[list[str], np.ndarray]:
    """Return one table of the texts of both, and the numbers in it of the ops of A, then of B."""
    numbers: dict[str, int] = {}
    columns = []
    for part in parts:
        mapped = [numbers.setdefault(text, len(numbers)) for text in part[plural]]
        columns.append(np.array(mapped, np.int32)[part["ops"][name]])
    return list(numbers), np.concatenate(columns)


def _edges(drawn: Sequence[Drawn]) -> dict[str, np.ndarray]:
    index: dict[Key | None, int] = {d.key: i for i, d in enumerate(drawn)}
    starts, operands = [0], []
    for each in drawn:
        operands += [index.get(i, -1) for i in each.inputs]
        starts.append(len(operands))
    return {"operand_start": np.array(starts, np.int32), "operand": np.array(operands, np.int32)}


def _pair_joint(
    drawn: Sequence[Drawn], run: Run, other: Run, stage: int, other_stage: int
) -> dict[str, np.ndarray]:
    """Return, for training steps, the phases of both, and the links of the ops of A."""
    trained = joint.trains(run), joint.trains(other)
    if not any(trained):
        return {}
    phase = np.full(len(drawn), joint.NO_PHASE, np.uint8)
    for each, at, only_b in ((run, stage, False), (other, other_stage, True)):
        positions = [i for i, d in enumerate(drawn) if d.only_b == only_b]
        column = joint.phase_column(each, at, [drawn[i].node.op for i in positions])
        if column is not None:
            phase[positions] = column
    linked = [None if d.only_b or d.node.op.kind in FOLDED else d.node.op for d in drawn]
    return {"phase": phase, **joint.link_columns(run, stage, linked)}


def _times(
    drawn: Sequence[Drawn], run: Run, other: Run, stage: int, other_stage: int
) -> list[dict[str, Any]]:
    """Return the measured time in A, in B, and the difference.

    A side that was not timed has no overlay.
    """
    one, two = (_measured(each, at) for each, at in ((run, stage), (other, other_stage)))
    a = np.array([np.nan if d.only_b else one.get(d.node.key, np.nan) for d in drawn])
    nodes_b = [d.node if d.only_b else d.twin for d in drawn]
    b = np.array([np.nan if n is None else two.get(n.key, np.nan) for n in nodes_b])
    found = [
        graph_overlays.overlay(f"time in {letter}", "µs", column)
        for letter, column in (("A", a), ("B", b))
        if np.nansum(column)
    ]
    if len(found) == 2:
        known = ~(np.isnan(a) & np.isnan(b))
        more = np.where(known, np.nan_to_num(b) - np.nan_to_num(a), np.nan)
        found.insert(0, graph_overlays.overlay("more time in B", "µs", more))
    return found


def _measured(run: Run, stage: int) -> dict[int, float]:
    """Return microseconds by node."""
    nodes = flat_graph.flat(run, stage).nodes
    flops = facts(OpFacts.of(run), nodes)["flops"]
    times = graph_overlays.measured_times(run, stage, nodes, flops)
    return {n.key: us for n, us in zip(nodes, times, strict=False) if us}
