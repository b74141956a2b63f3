"""Whole models, taken out at the first stage and at the last one on tensors."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from core_compiler.driver.compilation import Options, start
from core_compiler.exporters.onnx import OLDEST, OPSET, export, write
from core_compiler.frontends.onnx import import_file, import_proto
from core_compiler.ir import Module
from core_compiler.ops import evaluate_block
from tests.exporters.onnx_runs import alike, in_runtime
from tests.sample_models.narrow import NARROW
from tests.slow import slow_but
from workbench.model import models
from workbench.model.spec import read_spec

#: Products of some hundred terms, one after the other, in another order of summation.
SLACK = 8.0


def stages(module: Module) -> dict[str, Module]:
    """The import, the end of the meaning half, and what kernels are outlined from."""
    made = start(module, "cpu", Options(threads=1))
    meaning = sum(step.half == "meaning" for step in made.steps)
    while made.next is not None and made.next.label != "outline_kernels":
        made.step()
    return {"first": module, "meaning": made.stages[meaning].module, "last": made.module}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", slow_but(("digits-mlp", "digits-cnn", "gpt2"), NARROW))
def test_a_model_computes_the_same_in_onnxruntime_and_comes_back(name, tmp_path: Path):
    model = models.load(read_spec(name, "torch", **NARROW[name]))
    imported, arrays = model.imported, list(model.inputs)
    ends = {"inputs": imported.inputs, "outputs": imported.outputs}
    wanted = evaluate_block(imported.module.main.body, arrays, imported.module.weights)
    for stage, module in stages(imported.module).items():
        for opset in (OLDEST, OPSET):
            made = export(module, **ends, opset=opset, name=f"{name} {stage}")
            alike(in_runtime(made, arrays), wanted, SLACK)
        back = import_proto(made)
        assert (back.inputs, back.outputs) == (imported.inputs, imported.outputs)
        again = evaluate_block(back.module.main.body, arrays, back.module.weights)
        alike(again, wanted, SLACK)
        assert _lines(back.module) and _lines(back.module) <= _lines(imported.module)
        files = write(module, tmp_path / f"{stage}.onnx", **ends, largest=0)
        held = import_file(files[0]).module
        alike(evaluate_block(held.main.body, arrays, held.weights), again, 0.0)


def _lines(module: Module) -> set[tuple[str, int]]:
    """The model's lines that ops come from."""
    nodes = (n for op in module.walk() if op.origin for n in op.origin.nodes())
    return {(n.file, n.line) for n in nodes if n.file.endswith(".py")}


def test_weights_keep_their_names_and_nodes_say_where_they_come_from():
    model = models.load(read_spec("digits-cnn", "torch", **NARROW["digits-cnn"]))
    imported = model.imported
    made = export(imported.module, inputs=imported.inputs, outputs=imported.outputs).graph
    stored = {i.name: prod(i.dims) for i in made.initializer}
    weights = {
        op.result.name: op.result.type.elements
        for op in imported.module.main.body.ops
        if op.kind == "core.constant" and op.result.name
    }
    assert weights.items() <= stored.items()
    assert [i.name for i in made.input] == list(imported.inputs)
    assert [o.name for o in made.output] == list(imported.outputs)
    conv = next(n for n in made.node if n.op_type == "Conv")
    facts = {p.key: p.value for p in conv.metadata_props}
    (origin,) = next(op for op in imported.module.walk() if op.kind == "core.conv").origin.nodes()
    assert conv.name == f"{origin.scope}/{origin.name}/Conv"
    assert facts["pkg.core_compiler.kind"] == "core.conv"
    assert facts["pkg.core_compiler.line"] == f"{origin.file}:{origin.line}"
    assert facts["pkg.core_compiler.rules"] == "import"
    assert conv.doc_string.splitlines()[:2] == ["core.conv", origin.scope]


def test_a_later_stage_says_which_rules_made_a_node():
    model = models.load(read_spec("digits-cnn", "torch", **NARROW["digits-cnn"]))
    imported = model.imported
    last = stages(imported.module)["last"]
    made = export(last, inputs=imported.inputs, outputs=imported.outputs).graph
    facts = [{p.key: p.value for p in node.metadata_props} for node in made.node]
    rules = {f["pkg.core_compiler.rules"] for f in facts}
    assert all(r.endswith("import") for r in rules) and any(" <- " in r for r in rules)
    assert len({f.get("pkg.core_compiler.group") for f in facts}) > 3


def test_the_same_module_gives_the_same_bytes(tmp_path: Path):
    model = models.load(read_spec("digits-mlp", "torch", **NARROW["digits-mlp"]))
    ends = {"inputs": model.imported.inputs, "outputs": model.imported.outputs}
    files = [write(model.imported.module, tmp_path / f"{n}.onnx", **ends)[0] for n in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()
