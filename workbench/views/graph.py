"""The op graph of a stage: what changed in it, groups and kernels as scopes, heat overlays.

Ops inside a fused group or a launch are drawn inside it; edges of buffers go from the launch that
wrote a buffer to the one that reads it.  The regions of a loop or a branch are scopes before the op
itself, which gathers what they hand on: so every edge runs with the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.ir.diff import ModuleDiff
from core_compiler.training.phases import PHASES
from workbench.queries import joint
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
from workbench.queries.links import linked
from workbench.queries.op_facts import FOLDED, TEXTS, OpFacts
from workbench.queries.run import Run
from workbench.state.view_state import Sight


def key(run: Run, sight: Sight) -> tuple:
    return run.stage_number(sight.stage), run.version.timings, run.version.checks


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """The ``data`` of the graph view (widgets/README.md)."""
    stage = run.stage_number(sight.stage)
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
    """What is known of the nodes' ops whatever the stage, a row each."""
    return known.columns(np.array([n.key for n in nodes], np.int64), [n.op for n in nodes])


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    """What is selected in the graph of the shown stage: an op or a scope.  An op that the pass
    removed is still drawn, and itself."""
    if sight.op is not None and sight.op in ghosts(run, run.stage_number(sight.stage)):
        return {"op": sight.op}
    return standing(run, sight)


def standing(run: Run, sight: Sight) -> dict[str, Any]:
    """What is selected among what the shown stage has."""
    found = linked(run, sight)
    if found.op is None:
        return {"scope": sight.scope} if sight.scope else {}
    scopes = holders(run, found.stage)
    if found.op in scopes:
        return {"scope": scopes[found.op]}
    return {"op": found.op}


# -- columns --------------------------------------------------------------------------------------


def _columns(
    nodes: Sequence[Node], rows: Mapping[str, np.ndarray], known: OpFacts
) -> dict[str, Any]:
    """The tables of texts and the columns of the ops; ``rows`` are those of :class:`OpFacts`."""
    place = {node.key: i for i, node in enumerate(nodes)}
    starts, operands = [0], []
    for node in nodes:
        operands += [-1 if i is None else place.get(i, -1) for i in node.inputs]
        starts.append(len(operands))
    made = described(nodes, rows, known)
    made["ops"] |= {
        "operand_start": np.array(starts, np.int32), "operand": np.array(operands, np.int32),
    }  # fmt: skip
    return made


def described(
    nodes: Sequence[Node], rows: Mapping[str, np.ndarray], known: OpFacts
) -> dict[str, Any]:
    """What the graph says of each op, without edges: what a search looks at."""
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
    """The texts that a column has, and their numbers among these."""
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
    """Of a training step: phases, and what links forward, backward and update."""
    phase = joint.phase_column(run, stage, (node.op for node in nodes))
    if phase is None:
        return {}
    drawn = [None if n.ghost or n.op.kind in FOLDED else n.op for n in nodes]
    return {"phase": phase, **joint.link_columns(run, stage, drawn)}
