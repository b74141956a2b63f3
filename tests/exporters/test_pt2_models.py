"""Whole models as exported programs, at the first stage and at the last one on tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from core_compiler.exporters.pt2 import export, write
from core_compiler.frontends.pytorch.archive import read_pt2
from core_compiler.frontends.pytorch.importer import import_exported
from core_compiler.ir import Op, Value, tensor
from core_compiler.ops import evaluate_block
from core_compiler.support.errors import UserError
from tests.exporters.onnx_runs import alike, module_of
from tests.exporters.pt2_runs import in_torch
from tests.exporters.test_onnx_models import SLACK, stages
from tests.exporters.test_onnx_properties import module_of as module_from
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def sample(name: str):
    return models.load(read_spec(name, "torch", **NARROW[name]))


def lines(module) -> set[tuple[str, int]]:
    """The model's lines that ops come from."""
    nodes = (n for op in module.walk() if op.origin for n in op.origin.nodes())
    return {(n.file, n.line) for n in nodes if n.file.endswith(".py")}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(("digits-mlp", "digits-cnn", "gpt2"), NARROW))
def test_a_model_computes_the_same_in_torch_and_comes_back(name, tmp_path: Path):
    model = sample(name)
    imported, arrays = model.imported, list(model.inputs)
    ends = {"inputs": imported.inputs, "outputs": imported.outputs}
    wanted = evaluate_block(imported.module.main.body, arrays, imported.module.weights)
    for stage, module in stages(imported.module).items():
        (path,) = write(module, tmp_path / f"{stage}.pt2", **ends)
        alike(in_torch(torch.export.load(path), arrays), wanted, SLACK)
        back = import_exported(read_pt2(path))
        alike(evaluate_block(back.module.main.body, arrays, back.module.weights), wanted, SLACK)
        assert lines(back.module) and lines(back.module) <= lines(imported.module)


def test_weights_keep_their_names_and_nodes_say_where_they_come_from():
    imported = sample("digits-cnn").imported
    made = export(imported.module, inputs=imported.inputs, outputs=imported.outputs)
    weights = {
        op.result.name: op.result.type.shape
        for op in imported.module.main.body.ops
        if op.kind == "core.constant" and op.result.name
    }
    assert {name: tuple(t.shape) for name, t in made.state_dict.items()} == weights
    statistics = {name for name in weights if name.endswith(("running_mean", "running_var"))}
    assert set(made.graph_signature.buffers) == statistics
    assert set(made.graph_signature.parameters) == set(weights) - statistics
    assert list(made.graph_signature.user_inputs) == list(imported.inputs)
    assert list(made.graph_signature.user_outputs) == list(imported.outputs)
    conv = next(n for n in made.graph.nodes if n.target is torch.ops.aten.conv2d.default)
    (origin,) = next(op for op in imported.module.walk() if op.kind == "core.conv").origin.nodes()
    assert f'File "{origin.file}", line {origin.line}, in ' in conv.meta["stack_trace"]
    path = [*conv.meta["nn_module_stack"].values()][-1][0]
    assert path == origin.scope.replace("/", ".")


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("layers.0.weight", "layers.0.weight"),
        ("onnx::MatMul_1", "onnx__MatMul_1"),
        ("forward", "forward_1"),
        ("a..b", "a.b"),
        (".", "constant"),
    ],
)
def test_every_name_of_a_weight_can_be_stored(name, stored, tmp_path: Path):
    module = module_from(lambda b, v: b.add(v, b.constant(X, name=name)), X)
    (path,) = write(module, tmp_path / "m.pt2", inputs=["x"], outputs=["y"])
    for made in (torch.export.load(path), read_pt2(path)):
        assert list(made.state_dict) == [stored]
        np.testing.assert_array_equal(in_torch(made, [X])[0], 2 * X)


def test_a_name_that_is_the_path_of_others_is_changed():
    def build(b, x):
        part, whole = (b.constant(X + n, name=name) for n, name in enumerate(("a.b", "a")))
        return b.mul(b.add(x, part), whole)

    made = export(module_from(build, X), inputs=["self"], outputs=["class"])
    assert list(made.state_dict) == ["a.b", "a_1"]
    np.testing.assert_array_equal(in_torch(made, [X])[0], 2 * X * (X + 1))


def test_results_may_be_inputs_weights_and_one_another():
    def build(b, x):
        negated = b.neg(x)
        return x, b.constant(X + 1, name="w"), negated, negated

    made = export(module_from(build, X), inputs=["x"], outputs=["a", "b", "c", "d"])
    alike(in_torch(made, [X]), [X, X + 1, -X, -X])


def test_a_program_does_not_share_the_weights_of_the_module():
    module = module_from(lambda b, v: b.mul(v, b.constant(X, name="w")), X)
    made = export(module, inputs=["x"], outputs=["y"])
    made.state_dict["w"].zero_()
    (kept,) = evaluate_block(module.main.body, [X], module.weights)
    np.testing.assert_array_equal(kept, X * X)


def test_the_same_module_gives_the_same_bytes(tmp_path: Path):
    imported = sample("digits-mlp").imported
    ends = {"inputs": imported.inputs, "outputs": imported.outputs}
    files = [write(imported.module, tmp_path / f"{n}.pt2", **ends)[0] for n in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_torch_lacks_is_named_with_its_line():
    imported = sample("digits-cnn").imported
    conv = next(op for op in imported.module.walk() if op.kind == "core.conv")
    image = Value(conv.operands[0].type)
    (line,) = {f"{n.file}:{n.line}" for n in conv.origin.nodes()}
    cast = Op("core.cast", (image,), (Value(image.type.with_(dtype="i4")),), {}, (), conv.origin)
    cast = cast.with_(attributes={"dtype": cast.result.type.dtype, "saturate": False})
    with pytest.raises(UserError) as refused:
        export(module_of(cast), inputs=["x"], outputs=["y"])
    assert f"core.cast (once; torch has no tensors of i4; {line})" in str(refused.value)


def test_open_sizes_are_refused():
    x = Value(tensor(("n", 3), "f32"))
    module = module_of(Op("core.neg", (x,), (Value(x.type),)))
    with pytest.raises(UserError, match="symbolic sizes are not supported: n"):
        export(module, inputs=["x"], outputs=["y"])


#: Loads a file as its documentation says, and prints the sum of what it computes from ones.
FRESH = """
import json, sys, torch
import torch.ao.quantization.fx._decomposed
program = torch.export.load(sys.argv[1])
(made,) = [program.module()(torch.ones(1, 1, 8, 8))]
print(json.dumps([str(made.dtype), list(made.shape), made.isfinite().all().item()]))
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("--quantize", "int8", "--stage", "insert_quantization"),
    ],
)
def test_the_command_line_writes_a_file_that_a_fresh_process_loads(options, tmp_path: Path):
    path = tmp_path / "m.pt2"
    command = [sys.executable, "-m", "workbench", "export", "digits-cnn", *options, "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["torch.float32", [1, 10], True]
    read = "import sys; from core_compiler.frontends.pytorch.archive import read_pt2; "
    done = subprocess.run(
        [sys.executable, "-c", f"{read}read_pt2(sys.argv[1])", str(path)], check=False
    )
    assert done.returncode == 0
