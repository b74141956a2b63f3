"""Every op of the sample models reaches a frontend node with a file, a line and a module path."""

from __future__ import annotations

import itertools

import pytest

from core_compiler.frontends.onnx import import_file
from core_compiler.frontends.pytorch import import_module
from sample_models.catalogue import build
from sample_models.export import export_onnx
from tests.slow import slow_but

NARROW = {
    "digits-cnn": {},
    "digits-mlp": {},
    "resnet18": {"depth": 1, "image": 32},
    "resnet50": {"depth": 1, "image": 32},
    "mobilenet-v2": {"depth": 1, "image": 32},
    "bert-base": {"depth": 1, "sequence": 16},
    "gpt2": {"depth": 1, "sequence": 16},
    "gpt2-decode": {"depth": 1, "past": 15},
    "vit-b16": {"depth": 1, "image": 32},
    "llama-4l": {"depth": 1, "sequence": 16},
}
#: Models whose modules lie in modules: an op's path has a slash.
NESTED = ("bert-base", "gpt2", "gpt2-decode", "vit-b16", "llama-4l")


def _imported(name, frontend, **sizes):
    if frontend == "onnx":
        return import_file(export_onnx(name, width=0.25, **sizes))
    built = build(name, width=0.25, **sizes)
    return import_module(built.module, built.example_inputs, name=name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "frontend"),
    slow_but(
        [("resnet18", "pytorch"), ("resnet18", "onnx"), ("gpt2", "pytorch"), ("llama-4l", "onnx")],
        itertools.product(NARROW, ["pytorch", "onnx"]),
    ),
)
def test_every_op_reaches_a_line_of_the_model(name, frontend):
    imported = _imported(name, frontend, **NARROW[name])
    for op in imported.module.walk():
        nodes = op.origin.nodes()
        assert nodes, f"{op.kind} has no frontend node"
        if nodes[0].kind in ("parameter", "buffer", "initializer"):
            assert nodes[0].name
            continue
        assert all(n.file and n.line > 0 for n in nodes), (
            f"{op.kind} of {nodes[0].name} has no line"
        )
        # Regions without gradients torch traces anew: the exporter knows no lines of theirs.
        traced = frontend == "onnx" and nodes[0].scope.endswith("rotary_emb")
        assert any(n.file.endswith(".py") or (traced and n.file == "model.onnx") for n in nodes)
    scopes = {op.origin.scope for op in imported.module.walk()}
    assert any(scope.count("/") >= (name in NESTED) and scope for scope in scopes)


@pytest.mark.slow
@pytest.mark.parametrize("frontend", ["pytorch", "onnx"])
def test_module_paths_are_the_models_own(frontend):
    imported = _imported("bert-base", frontend, depth=1, sequence=16)
    scopes = {op.origin.scope for op in imported.module.walk()}
    assert "network/encoder/layer/0/attention/self" in scopes
    assert "network/embeddings" in scopes


@pytest.mark.slow
def test_both_frontends_tell_the_same_line_of_the_same_layer():
    lines = {}
    for frontend in ("pytorch", "onnx"):
        imported = _imported("digits-cnn", frontend)
        nodes = [op.origin.nodes()[0] for op in imported.module.walk() if op.kind == "core.conv"]
        lines[frontend] = [(n.file, n.line, n.scope) for n in nodes]
    assert lines["pytorch"] == lines["onnx"]


@pytest.mark.slow
def test_pytorch_sources_hold_the_models_file_and_onnx_reads_no_file():
    ours = _imported("digits-cnn", "pytorch")
    assert any(name.endswith("sample_models/digits.py") for name in ours.sources)
    assert list(_imported("digits-cnn", "onnx").sources) == ["model.onnx"]
