"""Nodes are translated into tensor ops, node by node."""

from __future__ import annotations

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.debug.bits import same_bits
from core_compiler.ir import Module
from core_compiler.onnx_level.passes.import_onnx import ImportOnnx
from core_compiler.onnx_level.write import write
from core_compiler.passes.base import EXAMPLES, IMPORTED, PassContext
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError
from tests.onnx_level.passes import specs
from tests.onnx_level.suite import run
from tests.passes import specs as tensor_specs


def imported(module: Module, examples=None, **options) -> tuple[Module, PassContext]:
    context = PassContext(facts={} if examples is None else {EXAMPLES: examples})
    made = ImportOnnx(**options).run(module, context)
    tensor_specs.assert_valid(made)
    assert context.facts[IMPORTED].module is made
    return made, context


SMALL = """g (float[3, 2] x, bool c) => (float[3, 2] y, float[3, 2] z)
<float[2] a = {1, -2}, float hi = {2}> {
  h = Add(x, a)  k = Clip(h, , hi)  i = Identity(k)
  y = If(c) <then_branch = t () => (float[3, 2] p) { p = Relu(i) },
             else_branch = e () => (float[3, 2] q) { q = Neg(x) }>
  z = Identity(x) }"""


def test_each_node_becomes_its_tensor_ops() -> None:
    made, context = imported(specs.module_of(SMALL))
    wanted = tensor_specs.module_of(
        "%x: tensor<3x2xf32>, %c: tensor<i1>",
        """
        %a = "core.constant"() {value = dense<[1.0, -2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %hi = "core.constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
        %0 = "core.broadcast"(%a) {dims = [1], shape = [3, 2]} : (tensor<2xf32>) -> tensor<3x2xf32>
        %1 = "core.add"(%x, %0) : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
        %2 = "core.broadcast"(%hi) {dims = [], shape = [3, 2]} : (tensor<f32>) -> tensor<3x2xf32>
        %3 = "core.min"(%1, %2) : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
        %4 = "core.if"(%c) ({
          %5 = "core.relu"(%3) : (tensor<3x2xf32>) -> tensor<3x2xf32>
          "core.yield"(%5) : (tensor<3x2xf32>) -> ()
        }, {
          %6 = "core.neg"(%x) : (tensor<3x2xf32>) -> tensor<3x2xf32>
          "core.yield"(%6) : (tensor<3x2xf32>) -> ()
        }) : (tensor<i1>) -> tensor<3x2xf32>
        "core.return"(%4, %x) : (tensor<3x2xf32>, tensor<3x2xf32>) -> ()
        """,
    )
    assert tensor_specs.body_text(made) == tensor_specs.body_text(wanted)
    held = context.facts[IMPORTED]
    assert (held.inputs, held.outputs) == (("x", "c"), ("y", "z"))


def test_a_rewrite_says_what_each_node_became() -> None:
    """Its ops, which know their node, and the values that stand for its results."""
    module = specs.module_of(SMALL)
    made, context = imported(module)
    steps = [
        (r.rule, [o.kind for o in r.new], [v.name for v in r.values]) for r in context.rewrites
    ]
    assert steps == [
        ("import a missing input", [], []),
        ("import initializer", ["core.constant"], ["a"]),
        ("import initializer", ["core.constant"], ["hi"]),
        ("import Add", ["core.broadcast", "core.add"], ["h"]),
        ("import Clip", ["core.broadcast", "core.min"], ["k"]),
        ("import Identity", [], ["i"]),
        ("import If", ["core.if"], ["y"]),
        ("import Identity", [], ["z"]),
    ]
    new = {old.name: value for r in context.rewrites for old, value in r.values.items()}
    ops = made.main.body.producers()
    assert {n: ops[v].kind for n, v in new.items() if v in ops} == {
        "a": "core.constant",
        "hi": "core.constant",
        "h": "core.add",
        "k": "core.min",
        "i": "core.min",
        "y": "core.if",
    }
    assert new["z"] is made.main.arguments[0]
    told = [(op.origin.rules()[0], op.origin.nodes()[0].kind) for op in made.main.body.ops]
    kinds = ["initializer", "initializer", "Add", "Add", "Clip", "Clip", "If"]
    assert told == [(f"import {kind}", kind) for kind in kinds]


@pytest.mark.parametrize("taken", [True, False])
def test_the_values_of_the_nodes_are_those_of_the_tensor_ops(taken: bool) -> None:
    module = specs.module_of(SMALL)
    made, _ = imported(module)
    for seed in (0, 1):
        arrays = [specs.arrays_for(module, seed)[0], np.array(taken)]
        ours = tensor_specs.outputs(made, arrays)
        for theirs in (run(module, arrays), specs.onnxruntimes(module, arrays)):
            assert [same_bits(a, b) for a, b in zip(ours, theirs, strict=True)] == [True, True]


OPEN = "g (float[batch, 3] x, float[batch, seq] w) => (float[batch, 3] y) { y = Neg(x) }"


@pytest.mark.parametrize(
    ("sizes", "examples", "bound"),
    [
        ("", None, (1, 1)),
        (" batch=4, seq = 64, ", None, (4, 64)),
        ("seq=5", [np.zeros((7, 3), np.float32), np.zeros((7, 5), np.float32)], (7, 5)),
    ],
)
def test_open_sizes_are_those_of_the_option_and_of_the_examples(sizes, examples, bound) -> None:
    made, _ = imported(specs.module_of(OPEN), examples, sizes=sizes)
    batch, seq = bound
    shapes = [v.type.shape for v in (*made.main.arguments, *made.main.outputs)]
    assert shapes == [(batch, 3), (batch, seq), (batch, 3)]


def test_a_result_whose_size_depends_on_data_has_room_for_the_largest() -> None:
    source = "g (float[3, 2] x) => (int64[2, n] y, float[3, 2] z) { y = NonZero(x)  z = Neg(x) }"
    made, context = imported(specs.module_of(source))
    assert [r.room for r in context.rewrites] == [frozenset(made.main.outputs[:1]), frozenset()]
    assert made.main.outputs[0].type.shape == (2, 6)
    assert context.facts[IMPORTED].outputs == ("y", "z", "y.size[1]")


UNKNOWN = """2 ops are not supported: a::Op (no translation; model.onnx:1); \
b::Op (no translation; model.onnx:3)"""


@pytest.mark.parametrize(
    ("graph", "sizes", "what"),
    [
        (OPEN, "batch=4,seq", "expected name=number, got 'seq'"),
        (OPEN, "batch=four", "expected name=number, got 'batch=four'"),
        (OPEN, "batch=-1", "expected name=number, got 'batch=-1'"),
        (OPEN, "rows=4", "unknown size 'rows'"),
        (OPEN, "batch=²", "expected name=number, got 'batch=²'"),
        ("g (float[2] x) => (float[2] y) { h = a.Op(x)  k = Neg(h)  y = b.Op(k) }", "", UNKNOWN),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_error(graph: str, sizes: str, what: str) -> None:
    with pytest.raises(UserError) as said:
        imported(specs.module_of(graph), sizes=sizes)
    assert said.value.what == what


def test_a_function_that_is_not_inlined_goes_with_its_calls() -> None:
    """No check finds an op of its body lost."""
    graph = """g (float[2] x) => (float[2] y) { y = own.F(x) }
    <domain: "own", opset_import: ["" : 18]>
    F (v) => (r) { c = Constant<value = float[2] {1.0, 2.0}>()  n = Neg(c)  r = Mul(v, n) }"""
    made = cc.compile(
        write(specs.module_of(graph, domains=["own"])),
        [np.array([1, 2], np.float32)],
        frontend="onnx-passes",
        edit=PipelineEdit(limits={"inline_functions": 0}),
        check=True,
    )
    (y,) = made(np.array([1, 2], np.float32))
    assert y.tolist() == [-1, -4]
    assert not [c.note for found in made.checks.values() for c in found if c.verdict == "failed"]
