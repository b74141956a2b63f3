"""The model's source with the cost of each line; the graph's nodes if there is no source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.queries import compared
from workbench.queries.line_pairs import lines
from workbench.queries.links import costliest_launch, linked, writer_of
from workbench.queries.model_lines import NODES, Line, ModelLines, Place, traced
from workbench.queries.numeric_results import json_number
from workbench.queries.rows import short_path
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState
from workbench.views import Empty, missing

#: The number of the hottest lines that are listed.
HOTTEST = 10


def key(run: Run, state: ViewState) -> tuple:
    version = run.version
    return (
        version.stages,
        version.checks,
        version.kernels,
        version.timings,
        run.stage_number(state.stage),
        run.status,
    )


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the data for the browser module, of one recording or of two."""
    run, other = shown(runs)
    return _one(run, state) if other is None else _two(run, other, state)


def _one(run: Run, state: ViewState) -> dict[str, Any]:
    """Return the source files with costs, and the hottest lines.

    ``files``, those that take most time first: ``path``, ``title``, ``text`` (None if the
    recording has none), ``rows`` of lines with ops; ``hottest``: the most expensive lines of all.
    """
    found = traced(run)
    if not found.lines:
        raise Empty(
            "No op of this recording has a source location.",
            "Models imported from a framework or from an ONNX file have them.",
        )
    stage = run.stage_number(state.stage)
    now = found.count(run.index(stage).module, run.op_id)
    stages = run.stages()
    sources = run.cached("sources", run.recording.sources)
    by_file: dict[str, list[Line]] = {}
    for line in found.lines.values():
        by_file.setdefault(line.file, []).append(line)
    files = [_file(run, found, name, lines, sources, now) for name, lines in by_file.items()]
    files.sort(key=lambda f: (f["path"] == NODES, -(f["us"] or 0), -f["flops"], f["path"]))
    return {
        "stage": stage,
        "stage_name": stages[stage].pass_name,
        "measured": found.measured,
        "grows": run.status == "recording",
        "executed": found.executed,
        "total_us": found.total.us,
        "checked": any(line.check for line in found.lines.values()),
        "nowhere_us": found.unattributed.us,
        "files": files,
        "hottest": list(_hottest(found, sources)),
        "not_executed": run.not_timed() if not found.measured else None,
    }


def selection(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the lines of the selected op.

    ``lines``: ``[file, line]`` of the op, its main one first; ``path``: the call stack when the
    framework recorded it; ``node``: its index among the nodes.
    """
    run = runs[0]
    if not run.version.stages:
        return {}
    anchor = state.op
    if anchor is None and state.kernel is not None:
        anchor = costliest_launch(run, state.kernel)
    elif anchor is None and state.buffer is not None:
        anchor = writer_of(run, state.buffer)
    anchor = linked(run, state).op if anchor is None else anchor
    found = traced(run)
    nodes = () if anchor is None else found.nodes_of(anchor)
    nodes = tuple(n for n in nodes if (NODES, n + 1) in found.lines) or nodes
    if not nodes:
        return {"op": anchor}
    lines = dict.fromkeys(p for n in nodes if (p := found.nodes[n].place) is not None)
    return {
        "op": anchor,
        "lines": [list(p) for p in lines],
        "node": nodes[0] + 1,
        "nodes": [n + 1 for n in nodes[:50]],
        "path": [list(p) for p in found.nodes[nodes[0]].places],
    }


def _file(
    run: Run,
    found: ModelLines,
    name: str,
    lines: list[Line],
    sources: dict[str, str],
    now: dict[Place, int],
) -> dict[str, Any]:
    us = [line.own.us for line in lines]
    return {
        "path": name,
        "title": short_path(name) if name else "Nodes of the graph",
        "text": sources.get(name) if name else None,
        "us": sum(u or 0.0 for u in us) if found.measured else None,
        "flops": sum(line.own.flops for line in lines),
        "rows": [_row(run, found, line, now) for line in lines],
    }


def _row(run: Run, found: ModelLines, line: Line, now: dict[Place, int]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "line": line.line,
        "text": line.text,
        "op": line.op,
        "kernel": line.kernel,
        "us": line.own.us,
        "bytes": line.own.bytes,
        "flops": line.own.flops,
        "all_us": line.total.us,
        "all_bytes": line.total.bytes,
        "all_flops": line.total.flops,
        "import": line.at_import,
        "now": now.get((line.file, line.line), 0),
    }
    if line.check is not None:
        check = line.check
        row["check"] = {
            "verdict": check.verdict,
            "error": json_number(check.error),
            "count": check.count,
            "stage": check.stage,
            "rewrite": check.rewrite,
            "pass": run.stages()[check.stage].pass_name,
        }
    if line.file == NODES:
        node = found.nodes[line.line - 1]
        row |= {"text": node.name, "kind": node.kind, "scope": node.scope}
    return row


def _hottest(found: ModelLines, sources: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Return the lines whose own ops take longest (most flops if nothing was measured)."""
    has_files = any(place[0] != NODES for place in found.lines)
    rows = [line for line in found.lines.values() if (line.file != NODES) == has_files]
    rows.sort(key=lambda line: (-(line.own.us or 0.0), -line.own.flops, line.file, line.line))
    for line in rows[:HOTTEST]:
        if not line.own.us and not line.own.flops:
            break
        text = sources.get(line.file, "").split("\n") if line.file else []
        full_line = text[line.line - 1].strip() if 0 < line.line <= len(text) else line.text
        node = found.nodes[line.line - 1] if line.file == NODES else None
        yield {
            "file": line.file,
            "line": line.line,
            "us": line.own.us,
            "flops": line.own.flops,
            "place": node.name if node else f"{line.file.split('/')[-1]}:{line.line}",
            "text": node.kind if node else full_line,
            "op": line.op,
            "kernel": line.kernel,
        }


# -- two recordings ------------------------------------------------------------------------------


def _two(run: Run, other: Run, state: ViewState) -> dict[str, Any]:
    """Return ``rows``: the lines that have ops in either recording (None: no ops on that side).

    A row has ``place``, ``text``, and each side's ``us`` of its own ops, ``all_us`` including
    callees, ``bytes``, ``import`` and ``now`` ops (at the import, at the end of the compile);
    ``nodes``: the rows are the nodes of the graph because no lines are known. Empty if a side
    knows none.
    """
    missing.need_both(run, other, lambda each: traced(each).lines, "lines of the model")
    return {"two": True, "a": compared.about(run), "b": compared.about(other), **lines(run, other)}
