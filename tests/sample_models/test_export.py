"""Sample models as files: read back by onnxruntime and torch they give the module's results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from sample_models import CATALOGUE, Built, build
from sample_models.export import cache_folder, export_onnx, export_pt2
from tests.sample_models.narrow import NARROW, outputs
from tests.slow import slow_but


def onnx_results(path: Path, built: Built, seed: int) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = zip(built.input_names, built.make_inputs(seed), strict=True)
    return session.run(list(built.output_names), {name: x.numpy() for name, x in feeds})


def worst_relative_error(name: str, path: Path) -> float:
    """The largest difference to torch, scaled by how far the outputs of two inputs differ."""
    built = build(name, **NARROW[name])
    expected = outputs(built, built.make_inputs(1))
    others = outputs(built, built.make_inputs(2))
    return max(
        float(np.abs(got - want.numpy()).max() / (want - other).abs().max())
        for got, want, other in zip(onnx_results(path, built, 1), expected, others, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", slow_but(("digits-cnn",), CATALOGUE))
def test_onnxruntime_agrees_with_torch(name: str, optimize: bool, tmp_path: Path) -> None:
    path = export_onnx(name, tmp_path, optimize=optimize, **NARROW[name])
    assert path == tmp_path / f"{name}.onnx"
    onnx.checker.check_model(path)
    assert worst_relative_error(name, path) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("resnet18", "bert-base"), CATALOGUE))
def test_onnx_is_the_plain_translation_with_external_weights(name: str) -> None:
    path = export_onnx(name, **NARROW[name])
    model = onnx.load(path, load_external_data=False)
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 18}
    external = [
        {field.key: field.value for field in weight.external_data}["location"]
        for weight in model.graph.initializer
        if weight.data_location == onnx.TensorProto.EXTERNAL
    ]
    assert external and set(external) == {f"{name}.onnx.data"}
    kinds = Counter(node.op_type for node in model.graph.node)
    modules = Counter(
        type(module).__name__ for module in build(name, **NARROW[name]).module.modules()
    )
    # What the exporter's own optimisation would have folded away is still there.
    assert kinds["BatchNormalization"] == modules["BatchNorm2d"]
    assert kinds["Conv"] == modules["Conv2d"]
    assert kinds["LayerNormalization"] == modules["LayerNorm"]
    assert kinds["Gemm"] + kinds["MatMul"] >= modules["Linear"]


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(("digits-cnn", "gpt2-decode", "llama-4l"), CATALOGUE))
def test_pt2_loads_and_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    path = export_pt2(name, tmp_path, **NARROW[name])
    loaded = torch.export.load(path).module()
    built = build(name, **NARROW[name])
    inputs = built.make_inputs(3)
    with torch.no_grad():
        result = loaded(*inputs)
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    for got, want in zip(results, outputs(built, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CATALOGUE)
def test_torch_export_keeps_composite_ops(name: str) -> None:
    built = build(name, **NARROW[name])
    graph = torch.export.export(built.module, built.example_inputs).graph
    kinds = Counter(str(node.target) for node in graph.nodes if node.op == "call_function")
    modules = Counter(type(module).__name__ for module in built.module.modules())
    assert kinds["aten.conv2d.default"] == modules["Conv2d"]
    assert kinds["aten.batch_norm.default"] == modules["BatchNorm2d"]
    assert kinds["aten.linear.default"] == modules["Linear"]
    assert kinds["aten.layer_norm.default"] == modules["LayerNorm"]
    assert kinds["aten.addmm.default"] == modules["Conv1D"]  # what GPT-2 calls its products
    assert kinds["aten.scaled_dot_product_attention.default"] == sum(
        modules[layer] for layer in ("BertLayer", "GPT2Block", "ViTLayer", "LlamaDecoderLayer")
    )


@pytest.mark.slow
def test_second_export_is_read_from_the_cache_without_a_framework() -> None:
    first = export_onnx("digits-mlp", **NARROW["digits-mlp"])
    assert cache_folder() in first.parents
    script = (
        "import sys; from sample_models.export import export_onnx;"
        f"print(export_onnx('digits-mlp', width={NARROW['digits-mlp']['width']}));"
        "print([m for m in ('torch', 'onnx', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [str(first), "[]"]


@pytest.mark.slow
def test_sizes_and_options_have_files_of_their_own() -> None:
    sizes = NARROW["digits-mlp"]
    paths = {
        export_onnx("digits-mlp", **sizes),
        export_onnx("digits-mlp", **sizes, batch=2),
        export_onnx("digits-mlp", **sizes, opset=20),
        export_pt2("digits-mlp", **sizes),
    }
    assert len(paths) == 4
    assert export_onnx("digits-mlp", **sizes, depth=None, seed=0) in paths
