"""What an export writes means what the stage means: expanded ops, evaluated by the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from core_compiler.exporters.expansion import Expansion, Vocabulary
from core_compiler.exporters.mlir.context import Shared
from core_compiler.exporters.mlir.linalg import Linalg
from core_compiler.exporters.mlir.tosa import Tosa
from core_compiler.exporters.numpy_source.exporter import Writer
from core_compiler.exporters.onnx.exporter import Exporter
from core_compiler.ir import (
    Block,
    FrontendNode,
    Module,
    Op,
    Origin,
    Value,
    WeightStore,
    dtype,
)
from core_compiler.ops import Builder, evaluate
from core_compiler.ops.evaluation import evaluate_block
from tests.exporters.iree import differing
from tests.ops.samples import SAMPLES, Sample
from tests.passes.programs import program

_CLOSE = {"f64": 4e-12, "f32": 4e-6, "f16": 2e-3, "bf16": 1.6e-2}


def _onnx(opset: int) -> Callable[[Module], Vocabulary]:
    return lambda module: Exporter(module, module.main.body, opset, False).expansion.vocabulary


def _mlir(dialect) -> Callable[[Module], Vocabulary]:
    def vocabulary(module: Module) -> Vocabulary:
        context = dialect(Shared(module.weights))
        return Vocabulary(context.lacks, context.refused, context.COMPOSED)

    return vocabulary


FORMATS: dict[str, Callable[[Module], Vocabulary]] = {
    "numpy": lambda module: Writer(module, ()).expansion.vocabulary,
    "onnx17": _onnx(17),
    "onnx26": _onnx(26),
    "tosa": _mlir(Tosa),
    "linalg": _mlir(Linalg),
}


def expanded(form: str, op: Op) -> tuple[Block, Expansion]:
    """The expansion of a block of one op, and its state."""
    block = Block(tuple(dict.fromkeys(op.operands)), (op,), op.results)
    module = program(lambda b, x: x, "1xf32")
    expansion = Expansion(FORMATS[form](module), WeightStore())
    return expansion.block(block), expansion


@pytest.mark.sampled(24)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", SAMPLES, ids=str)
def test_what_is_written_has_the_values_of_the_op(case: Sample, form: str):
    op = case.op()
    block, expansion = expanded(form, op)
    left = [missing.op for missing in expansion.missing]
    for one in block.walk():
        assert one in left or expansion.vocabulary.lacks(one) == ""
    if left:
        assert "random" in case.kind or form != "numpy"
    if block.ops == (op,):
        return  # the format has the op itself
    got = evaluate_block(block, case.operands, expansion.weights)
    for made, want in zip(got, evaluate(op, case.operands), strict=True):
        kind = dtype(want.dtype)
        if kind.name == "f64" and form in ("tosa", "linalg"):
            continue  # their formulas are in f32
        assert differing(made, want, _CLOSE.get(kind.name, 0.0)) == ""


def test_parts_come_from_the_op_that_they_express():
    """So that an error, a node and a comment name the model's op and its line."""
    origin = Origin.root(FrontendNode("gelu", "aten.gelu", "model.py", 7))
    x = Value(program(lambda b, x: x, "4xf64").main.arguments[0].type, "x")
    op = Builder(origin=origin)
    y = op.gelu(x)
    block, expansion = expanded("onnx26", op.ops[0])
    assert len(block.ops) > 3 and {expansion.of[part] for part in block.ops} == {op.ops[0]}
    assert {part.origin for part in block.ops} == {origin}
    assert y.name == block.outputs[0].name


def test_what_no_output_needs_is_left_out():
    x = Value(program(lambda b, x: x, "4xf32").main.arguments[0].type, "x")
    builder = Builder()
    kept, _ = builder.exp(x), builder.log(x)
    expansion = Expansion(Vocabulary(lambda op: ""), WeightStore())
    block = expansion.block(Block((x,), tuple(builder.ops), (kept,)))
    assert [op.kind for op in block.ops] == ["core.exp"]


def test_an_op_that_nothing_expresses_is_missing():
    x = Value(program(lambda b, x: x, "4xf32").main.arguments[0].type, "x")
    builder = Builder()
    y = builder.silu(x)
    lacks = Vocabulary(lambda op: "no such thing" if op.kind != "core.mul" else "")
    expansion = Expansion(lacks, WeightStore())
    block = expansion.block(Block((x,), tuple(builder.ops), (y,)))
    (missing,) = expansion.missing
    assert missing.op.kind == "core.sigmoid" and missing.of is builder.ops[0]
    assert missing.reason == "no such thing" and missing.op in block.ops
    np.testing.assert_allclose(
        *(
            evaluate_block(b, [np.ones(4, np.float32)])
            for b in (block, Block((x,), tuple(builder.ops), (y,)))
        ),
        rtol=1e-6,
    )
