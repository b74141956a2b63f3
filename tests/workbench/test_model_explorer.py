"""`workbench export -o x.graph.json`: graphs for Google's Model Explorer."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from core_compiler.record import Recording

#: What a node, an edge, a pair and an output have; the names are Model Explorer's.
NODE = {"id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata"}
EDGE = {"sourceNodeId", "sourceNodeOutputId", "targetNodeInputId"}


@pytest.fixture(scope="module")
def exported(recording, tmp_path_factory) -> dict:
    from workbench.commands.cli import main

    path = tmp_path_factory.mktemp("graphs") / "x.graph.json"
    assert main(["export", str(recording), "-o", str(path)]) == 0
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_it_is_what_model_explorers_reader_takes(exported):
    """Its reader takes an object with ``label`` and ``graphs``, and no ``graphCollections``."""
    assert isinstance(exported["label"], str)
    assert exported["graphs"]
    for graph in exported["graphs"]:
        assert set(graph) == {"id", "nodes", "groupNodeAttributes"}
        for node in graph["nodes"]:
            assert set(node) == NODE
            assert all(isinstance(node[name], str) for name in ("id", "label", "namespace"))
            assert ";" not in node["namespace"]
            assert all(set(edge) == EDGE for edge in node["incomingEdges"])
            pairs = [*node["attrs"], *(p for o in node["outputsMetadata"] for p in o["attrs"])]
            assert all(set(p) == {"key", "value"} for p in pairs)
            assert all(isinstance(text, str) for p in pairs for text in p.values())


def test_its_own_classes_hold_it(exported, monkeypatch):
    found = importlib.util.find_spec("model_explorer")
    if found is None or found.origin is None:
        pytest.skip("Model Explorer is not installed (pip install ai-edge-model-explorer)")
    # The file alone: the package imports a web server.
    file = Path(found.origin).with_name("graph_builder.py")
    spec = importlib.util.spec_from_file_location("graph_builder", file)
    theirs = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, theirs)
    spec.loader.exec_module(theirs)

    def made(kind, value):
        """``value`` as one of their classes; TypeError where a name is none of its fields."""
        if is_dataclass(kind):
            hints = get_type_hints(kind)
            assert set(value) <= {f.name for f in fields(kind)}
            return kind(**{name: made(hints[name], part) for name, part in value.items()})
        if get_origin(kind) is list:
            return [made(get_args(kind)[0], part) for part in value]
        if get_origin(kind) is dict:
            return {k: made(get_args(kind)[1], part) for k, part in value.items()}
        options = [k for k in get_args(kind) if isinstance(k, type) or get_origin(k) is not None]
        if kind is str:
            assert isinstance(value, str)
        elif options and not isinstance(value, str):
            return made(options[0], value)
        return value

    collection = made(theirs.GraphCollection, exported)
    assert [type(g) for g in collection.graphs] == [theirs.Graph] * len(exported["graphs"])
    assert all(type(n) is theirs.GraphNode for g in collection.graphs for n in g.nodes)


def test_ids_are_unique_and_every_edge_comes_from_an_earlier_node(exported):
    names = [graph["id"] for graph in exported["graphs"]]
    assert names == sorted(set(names))
    for graph in exported["graphs"]:
        seen: dict[str, int] = {}
        for node in graph["nodes"]:
            for edge in node["incomingEdges"]:
                assert int(edge["sourceNodeOutputId"]) < seen[edge["sourceNodeId"]]
            assert node["id"] not in seen
            seen[node["id"]] = len(node["outputsMetadata"])
            inputs = [edge["targetNodeInputId"] for edge in node["incomingEdges"]]
            assert len(inputs) == len(set(inputs))


def test_the_edges_of_the_import_are_its_operands_constants_too(exported, recording):
    graph = exported["graphs"][0]
    found = {
        node["id"]: [tuple(edge[k] for k in sorted(EDGE)) for edge in node["incomingEdges"]]
        for node in graph["nodes"]
    }
    with Recording.open(recording) as run:
        body = run.module(0).main.body
        makers = {v: (f"input {i}", "0") for i, v in enumerate(body.arguments)}
        wanted: dict[str, list] = {name: [] for name, _ in makers.values()}
        for op in body.ops:
            key = str(run.op_id(op))
            wanted[key] = [(*makers[v], str(i)) for i, v in enumerate(op.operands)]
            makers |= {v: (key, str(i)) for i, v in enumerate(op.results)}
        for i, v in enumerate(body.outputs):
            wanted[f"output {i}"] = [(*makers[v], "0")]
    assert found == wanted
    assert any(node["label"] == "core.constant" for node in graph["nodes"])


def test_nodes_say_line_type_attributes_time_and_bytes(exported, recording, command):
    lines = {f"{r['file']}:{r['line']}" for r in command.json("lines", recording)["lines"]}
    first, last = exported["graphs"][0], exported["graphs"][-1]
    attributes = [{p["key"]: p["value"] for p in n["attrs"]} for n in first["nodes"]]
    assert {a["source line"] for a in attributes if "source line" in a} & lines
    assert any(float(a.get("traffic (B)", 0)) > 0 for a in attributes)
    kinds = {n["label"]: a for n, a in zip(first["nodes"], attributes, strict=True)}
    assert kinds["core.constant"]["type"].startswith("tensor<")
    timed = sum(
        float(p["value"]) for n in last["nodes"] for p in n["attrs"] if p["key"] == "time (µs)"
    )
    sql = "SELECT sum(median) FROM timing"
    (((total,),)) = command.json("query", recording, sql)["rows"]
    assert timed == pytest.approx(total, rel=1e-4)


def test_namespaces_are_the_scopes_of_the_graph_view(exported, recording):
    from workbench.queries import flat_graph
    from workbench.queries.run import Run

    run = Run(recording)
    for graph in exported["graphs"]:
        stage = int(graph["id"].split()[0])
        shown = {str(node.key): node.scope for node in flat_graph.flat(run, stage).nodes}
        mine = {n["id"]: n["namespace"] for n in graph["nodes"] if n["id"].isdecimal()}
        assert mine == shown
    run.close()


def test_one_stage_is_one_graph(command, recording, tmp_path, exported):
    path = tmp_path / "x.graph.json"
    found = command.json("export", recording, "-o", path, "--stage", "0")
    assert found["stages"] == [0]
    (graph,) = json.loads(path.read_text())["graphs"]
    assert graph == exported["graphs"][0]
    code, _, err = command("export", recording, "-o", path, "--stage", "no_such_pass")
    assert (code, "pass 'no_such_pass' not found" in err) == (2, True)


@pytest.mark.slow
def test_a_training_steps_graphs_are_as_sound(tmp_path):
    """Two groups of ops, launches that write in place, phases drawn one after the other."""
    from workbench.commands.cli import main

    words = ["train", "digits-cnn", "--width", "0.25", "--iterations", "1", "--batch", "4"]
    assert main([*words, "-o", str(tmp_path / "x.run")]) == 0
    assert main(["export", str(tmp_path / "x.run"), "-o", str(tmp_path / "x.graph.json")]) == 0
    made = json.loads((tmp_path / "x.graph.json").read_text(), parse_constant=pytest.fail)
    test_ids_are_unique_and_every_edge_comes_from_an_earlier_node(made)
