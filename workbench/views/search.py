"""Search: passes, kernels, and ops of the shown stage by name, kind, type, attribute, line or (of a
training step, as ``phase:backward``) phase."""

from __future__ import annotations

from typing import Any

from workbench.state import Sight
from workbench.views import graph, joint
from workbench.views.kernels import launches
from workbench.views.op_facts import OpFacts
from workbench.views.reading import Run
from workbench.views.rows import short_path

MAX_HITS = 40


def hits(run: Run, sight: Sight, text: str) -> list[dict[str, Any]]:
    """What matches all words of ``text``, each with the sight that shows it (``go``)."""
    words = text.lower().split()[:8]
    if not words or not run.version.stages:
        return []
    found = [*_passes(run, words), *_kernels(run, words), *_ops(run, sight, words)]
    return found[:MAX_HITS]


def _match(words: list[str], *texts: str) -> bool:
    whole = "\n".join(texts).lower()
    return all(word in whole for word in words)


def _passes(run: Run, words: list[str]):
    for stage in run.stages():
        if _match(words, stage.pass_name):
            yield _hit("pass", f"{stage.index:02d} {stage.pass_name}", stage.summary,
                       {"stage": stage.index, "rewrite": None})  # fmt: skip


def _kernels(run: Run, words: list[str]):
    for kernel in run.kernels():
        if _match(words, kernel.name):
            yield _hit("kernel", kernel.name, launches(len(kernel.launches)),
                       {"kernel": kernel.id, "panes": ["kernels", "source"]})  # fmt: skip


def _ops(run: Run, sight: Sight, words: list[str]):
    stage = run.stage_number(sight.stage)
    known = joint.joint(run, stage)
    nodes, facts = graph.flat(run, stage).nodes, OpFacts.of(run)
    rows = graph.facts(facts, nodes)
    texts_of = [list(facts.texts[column]) for column in ("file", "type", "attribute")]
    numbers = zip(
        *(rows[column].tolist() for column in ("file", "type", "attribute", "line")), strict=True
    )
    for node, (*places, line) in zip(nodes, numbers, strict=True):
        file, type_, attributes = (texts[i] for texts, i in zip(texts_of, places, strict=True))
        place = f"{short_path(file)}:{line}" if file else ""
        name = facts.names[node.key]
        phase = "" if known is None else known.phases.phase(node.op)
        texts = (name, graph.label(node), type_, attributes, node.scope, place, f"phase:{phase}")
        if _match(words, *texts):
            detail = "  ".join(part for part in (type_, node.scope, place, phase) if part)
            yield _hit("op", f"{name} {graph.label(node)}", detail, {"op": node.key})


def _hit(what: str, text: str, detail: str, go: dict[str, Any]) -> dict[str, Any]:
    return {"what": what, "text": text[:200], "detail": detail[:300], "go": go}
