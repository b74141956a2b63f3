"""Search over the page: passes, kernels, and ops of the shown stage.

It uses the graph's own syntax (:mod:`workbench.queries.op_search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.training.graph.phases import PHASES
from workbench.queries import flat_graph, joint, op_search
from workbench.queries.op_facts import FOLDED, OpFacts
from workbench.queries.op_search import Term
from workbench.queries.rows import short_path
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.support import units
from workbench.views import graph

#: The most hits that are listed, and of these the most passes and kernels, so that ops have room.
MAX_HITS, MAX_OTHERS = 40, 10


@dataclass(frozen=True)
class Found:
    """The result of a search.

    ``hits``, each with the view state that shows it (``go``); the total number, and that of
    ``ops``.
    """

    hits: list[dict[str, Any]]
    total: int = 0
    ops: int = 0


def hits(run: Run, state: ViewState, text: str) -> list[dict[str, Any]]:
    """Return the items that match all terms of ``text``, at most `MAX_HITS`."""
    return find(run, state, text).hits


def find(run: Run, state: ViewState, text: str) -> Found:
    """Return the items that match all terms of ``text``.

    UserError if an expression in it is invalid.
    """
    query = op_search.terms(text)
    if not query or not run.version.stages:
        return Found([])
    passes, kernels = _passes(run, query), _kernels(run, query)
    nodes, data = _ops(run, state)
    indices = op_search.matching(data, query).tolist()
    indices.sort(key=lambda i: nodes[i].op.kind in FOLDED)  # ops that compute before weights
    shown_hits = [*passes[:MAX_OTHERS], *kernels[:MAX_OTHERS]]
    shown_hits += [_op_hit(data, nodes[i], i) for i in indices[: MAX_HITS - len(shown_hits)]]
    return Found(shown_hits, len(passes) + len(kernels) + len(indices), len(indices))


def _named(query: Sequence[Term], names: Sequence[str]) -> list[int]:
    """Return the indices of the matching names."""
    if any(term.field not in ("", "name") for term in query):
        return []
    return np.flatnonzero(np.all([term.matches(names) for term in query], axis=0)).tolist()


def _passes(run: Run, query: Sequence[Term]) -> list[dict[str, Any]]:
    stages = run.stages()
    found = (stages[i] for i in _named(query, [stage.pass_name for stage in stages]))
    return [
        _hit(
            "pass",
            f"{stage.index:02d} {stage.pass_name}",
            stage.summary,
            {"stage": stage.index, "rewrite": None},
        )
        for stage in found
    ]


def _kernels(run: Run, query: Sequence[Term]) -> list[dict[str, Any]]:
    kernels = run.kernels()
    found = (kernels[i] for i in _named(query, [kernel.name for kernel in kernels]))
    panes = ["kernels", "source"]
    return [
        _hit(
            "kernel",
            kernel.name,
            units.launches(len(kernel.launches)),
            {"kernel": kernel.id, "panes": panes},
        )
        for kernel in found
    ]


def _ops(run: Run, state: ViewState) -> tuple[Sequence[flat_graph.Node], dict[str, Any]]:
    """Return the ops of the shown stage, and their facts in the graph."""
    stage = run.stage_number(state.stage)
    nodes = flat_graph.flat(run, stage).nodes
    known = OpFacts.of(run)
    data = graph.described(nodes, graph.facts(known, nodes), known)
    phases = joint.phase_column(run, stage, (node.op for node in nodes))
    if phases is not None:
        data["phases"], data["ops"]["phase"] = list(PHASES), phases
    return nodes, data


def _op_hit(data: dict[str, Any], node: flat_graph.Node, index: int) -> dict[str, Any]:
    ops = data["ops"]
    type_, file = data["types"][ops["type"][index]], data["files"][ops["file"][index]]
    phase = ops["phase"][index] if "phase" in ops else len(PHASES)
    where = f"{short_path(file)}:{ops['line'][index]}" if file else ""
    parts = (type_, node.scope, where, PHASES[phase] if phase < len(PHASES) else "")
    name = f"{ops['name'][index]} {flat_graph.label(node)}"
    return _hit("op", name, "  ".join(filter(None, parts)), {"op": node.key})


def _hit(what: str, text: str, detail: str, go: dict[str, Any]) -> dict[str, Any]:
    return {"what": what, "text": text[:200], "detail": detail[:300], "go": go}
