"""Stages as graphs for Google's Model Explorer (github.com/google-ai-edge/model-explorer).

The file is one *graph collection*, the JSON that Model Explorer opens: ``label`` and ``graphs`` of
nodes with ``incomingEdges``; the classes in its ``graph_builder.py`` define a node. Nodes and
namespaces are those of the graph view; the model's inputs and outputs are additional nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core_compiler.exporters.tables import replacing
from core_compiler.ir import Value
from core_compiler.ir.text import print_attribute
from core_compiler.record.reader import Stage
from workbench.queries import flat_graph, graph_overlays
from workbench.queries.flat_graph import Flat, Node
from workbench.queries.joint import makes
from workbench.queries.op_facts import OpFacts
from workbench.queries.rows import cut
from workbench.queries.run import Run
from workbench.views import graph

#: The scopes of main's arguments and results: names that no module of a model has.
INPUTS, OUTPUTS = "model inputs", "model outputs"


def write(run: Run, stages: Sequence[int], path: Path) -> int:
    """Write these stages of a recording, one graph each; return the numbers of their nodes."""
    count = 0
    head = json.dumps({"label": _label(run), "graphSorting": "name_asc"})
    with replacing(path) as draft, draft.open("w", encoding="utf-8") as stream:
        stream.write(f'{head[:-1]}, "graphs": [')
        for place, stage in enumerate(stages):
            made = graph_of(run, stage)
            count += len(made["nodes"])
            stream.write(",\n" if place else "\n")
            stream.write(json.dumps(made, allow_nan=False))
        stream.write("\n]}\n")
    return count


def changed(stages: Sequence[Stage]) -> list[int]:
    """Return the import and the stages of passes that changed something."""
    return [s.index for s in stages if s.changed or not s.index]


def graph_of(run: Run, stage: int) -> dict[str, Any]:
    """Return a stage as a graph, with nodes in topological order."""
    flat, record = flat_graph.flat(run, stage), run.stages()[stage]
    about = {
        "model": str(run.meta().get("model", run.path.stem)),
        "target": str(run.meta().get("target", "")),
        "stage": str(stage),
        "pass": record.pass_name,
        "what it does": record.summary,
        "ops": str(record.ops),
    }
    return {
        "id": f"{stage:02d} {record.pass_name}",
        "nodes": [*_inputs(run, stage), *_ops(run, stage, flat), *_outputs(run, stage, flat)],
        "groupNodeAttributes": {"": about, **dict(_groups(run, flat))},
    }


def _label(run: Run) -> str:
    meta = run.meta()
    return f"{meta.get('model', run.path.stem)} for {meta.get('target', 'no target')}"


def _inputs(run: Run, stage: int) -> Iterator[dict[str, Any]]:
    for at, value in enumerate(run.index(stage).module.main.body.arguments):
        yield {
            "id": f"input {at}",
            "label": value.name or f"input {at}",
            "namespace": INPUTS,
            "attrs": _pairs([("name", _name(run, value)), ("type", value.type)]),
            "incomingEdges": [],
            "outputsMetadata": _made(run, [value]),
        }


def _outputs(run: Run, stage: int, flat: Flat) -> Iterator[dict[str, Any]]:
    values = run.index(stage).module.main.body.outputs
    for at, (value, source) in enumerate(zip(values, flat.outputs, strict=True)):
        yield {
            "id": f"output {at}",
            "label": f"output {at}",
            "namespace": OUTPUTS,
            "attrs": _pairs([("name", _name(run, value)), ("type", value.type)]),
            "incomingEdges": list(_edges([source])),
            "outputsMetadata": [],
        }


def _ops(run: Run, stage: int, flat: Flat) -> Iterator[dict[str, Any]]:
    rows = graph.facts(OpFacts.of(run), flat.nodes)
    overlays = graph_overlays.overlays(run, stage, flat.nodes, rows)
    for at, node in enumerate(flat.nodes):
        figures = [pair for each in overlays if (pair := _figure(each, at)) is not None]
        yield {
            "id": str(node.key),
            "label": flat_graph.label(node),
            "namespace": _namespace(node.scope),
            "attrs": _pairs([*_facts(run, node), *figures]),
            "incomingEdges": list(_edges(zip(node.inputs, node.ports, strict=True))),
            "outputsMetadata": _made(run, makes(node.op)),
        }


def _facts(run: Run, node: Node) -> Iterator[tuple[str, Any]]:
    file, line = run.source_location(node.op)
    yield "op", node.key
    yield "name", run.name_of(node.key)
    yield "type", ", ".join(str(v.type) for v in makes(node.op))
    if file:
        yield "source line", f"{file}:{line}"
    for name, value in node.op.attributes.items():
        yield name, cut(print_attribute(value))


def _edges(sources: Any) -> Iterator[dict[str, str]]:
    """Yield the edges from ``(node, port)`` of each operand that has a source."""
    for at, (maker, port) in enumerate(sources):
        if maker is None and port < 0:
            continue
        from_input = maker is None
        yield {
            "sourceNodeId": f"input {port}" if from_input else str(maker),
            "sourceNodeOutputId": "0" if from_input else str(max(port, 0)),
            "targetNodeInputId": str(at),
        }


def _made(run: Run, values: Sequence[Value]) -> list[dict[str, Any]]:
    """Return the metadata of a node's outputs.

    Model Explorer writes ``tensor_shape`` on their edges.
    """
    return [
        {
            "id": str(at),
            "attrs": _pairs([("__tensor_tag", _name(run, v)), ("tensor_shape", v.type)]),
        }
        for at, v in enumerate(values)
    ]


def _groups(run: Run, flat: Flat) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield, for each group or kernel, its op and its measured time, if any."""
    times = {t.op: t.median_us for t in run.timings()}
    for op, scope in flat.holders.items():
        found = {"op": str(op), "name": run.name_of(op), "kind": run.recording.op(op).kind}
        if times.get(op) is not None:
            found["time (µs)"] = _number(times[op])
        yield _namespace(scope), found


def _namespace(scope: str) -> str:
    """Return a scope for Model Explorer, which keeps only the last of semicolon-separated parts."""
    return "/".join(part for part in scope.replace(";", ",").split("/") if part)


def _pairs(found: Sequence[tuple[str, Any]]) -> list[dict[str, str]]:
    return [{"key": key, "value": str(value)} for key, value in found]


def _name(run: Run, value: Value) -> str:
    return f"%{value.name or run.value_id(value)}"


def _figure(overlay: dict[str, Any], at: int) -> tuple[str, str] | None:
    """Return the figure of an overlay for a node; None if it has none."""
    value = overlay["values"][at]
    if "labels" in overlay:
        return overlay["name"], overlay["labels"][int(value)]
    name = f"{overlay['name']} ({overlay['unit']})" if overlay["unit"] else overlay["name"]
    return (name, _number(value)) if value else None


def _number(value: Any) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else f"{number:.6g}"
