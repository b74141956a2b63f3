"""Passes from ONNX to ONNX: what each makes, what it leaves and why, and that the numbers stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

import core_compiler as cc
from core_compiler.ir import Module
from core_compiler.ir.rewriter import Budget
from core_compiler.onnx_level.dialect import INITIALIZER, OVERRIDABLE, domain_and_type, is_node
from core_compiler.onnx_level.passes import transformations
from core_compiler.onnx_level.passes.clean_initializers import CleanInitializers
from core_compiler.onnx_level.passes.eliminate_dead_nodes import EliminateDeadNodes
from core_compiler.onnx_level.passes.fold_nodes import FoldNodes
from core_compiler.onnx_level.passes.infer_shapes import InferShapes
from core_compiler.onnx_level.passes.inline_functions import InlineFunctions
from core_compiler.onnx_level.passes.rewrite_nodes import RULES, RewriteNodes
from core_compiler.onnx_level.passes.simplify_control_flow import SimplifyControlFlow
from core_compiler.onnx_level.read import read
from core_compiler.onnx_level.write import write
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.rules import explain
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.frontends.onnx_models import F, model_of
from tests.onnx_level.suite import (
    a_case_each,
    applied,
    differ,
    evaluable,
    invalid,
    models,
    run,
)

DRAW = np.random.default_rng(0)


def kinds(module: Module) -> Counter:
    return Counter(domain_and_type(op)[1] for op in module.walk() if is_node(op))


def text(source: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{source}')


def same(model: onnx.ModelProto, made: Module) -> None:
    """The checker takes what was made, and on random inputs it computes what the model does."""
    onnx.checker.check_model(write(made), full_check=True)
    module = read(model)
    arrays = [
        DRAW.standard_normal([d if isinstance(d, int) else 3 for d in v.type.shape]).astype(
            v.type.dtype.numpy
        )
        for v in module.main.arguments
    ]
    assert not differ(run(module, arrays), run(made, arrays))


# -- all of them -----------------------------------------------------------------------------------


def _whole_level(names) -> int:
    right = 0
    for name, module, arrays, want in evaluable(names):
        made = applied(module, *transformations())
        assert not invalid(made, models()[name][1]), f"{name}: {invalid(made, models()[name][1])}"
        assert not differ(want, run(made, arrays)), name
        right += 1
    return right


@pytest.mark.slow
def test_a_case_of_every_op_keeps_its_numbers() -> None:
    assert _whole_level(a_case_each()) >= 150


@pytest.mark.slow
def test_every_case_of_the_suite_keeps_its_numbers() -> None:
    assert _whole_level(list(models())) >= 1790


# -- functions -------------------------------------------------------------------------------------

FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
calls (float[2, 4] x) => (float[2, 4] y)
{
  h = own.Twice<by = 3.0>(x)
  y = own.Twice(h)
}
<domain: "own", opset_import: ["" : 18, "own" : 1]>
Twice <by: float = 2.0> (v) => (r)
{ a = own.Scale<by: float = @by>(v)  r = own.Scale<by: float = @by>(a) }
<domain: "own", opset_import: ["" : 13]>
Scale <by: float = 1.0> (v) => (r) { c = Constant<value_float: float = @by>()  m = Mul(v, c)
  s = ReduceMax<axes = [1], keepdims = 1>(m)  r = Sub(m, s) }
"""


def test_functions_that_call_functions_become_their_bodies() -> None:
    """Attributes reach the inner calls; a body of version 13 is said in 18; names stay unique."""
    model = parser.parse_model(FUNCTIONS)
    context = PassContext()
    made = InlineFunctions().run(read(model), context)
    assert list(made.functions) == ["main"]
    assert kinds(made) == {"Mul": 4, "ReduceMax": 4, "Sub": 4}
    rules = Counter(r.rule for r in context.rewrites)
    assert rules["inline own::Twice"] == 2
    assert rules["inline own::Scale"] == 4
    assert rules["ReduceMax 13 => 18"] == 4
    same(model, made)
    x = DRAW.standard_normal((2, 4)).astype(np.float32)
    want = x
    for by in (3, 3, 2, 2):
        want = want * np.float32(by)
        want = want - want.max(1, keepdims=True)
    np.testing.assert_allclose(run(made, [x])[0], want, rtol=1e-5)


def test_a_function_that_calls_itself_is_refused() -> None:
    model = parser.parse_model(FUNCTIONS.replace("own.Scale<by: float = @by>(a)", "own.Twice(a)"))
    with pytest.raises(UserError, match="own::Twice calls itself"):
        applied(read(model), InlineFunctions())


def test_every_inlined_node_knows_the_call_it_came_from() -> None:
    model = parser.parse_model(FUNCTIONS)
    made = applied(read(model), InlineFunctions())
    for op in made.main.body.ops:
        assert op.origin is not None
        assert any(n.kind == "Twice" for n in op.origin.nodes())


# -- control flow ----------------------------------------------------------------------------------


def _branch(condition: str) -> onnx.ModelProto:
    return text(f"""branch (float[3] x, bool c) => (float[3] y)
    <bool yes = {{1}}, bool no = {{0}}> {{
      y = If({condition}) < then_branch = t () => (float[3] a) {{ a = Neg(x) }},
                            else_branch = e () => (float[3] b) {{ b = Abs(x) }} > }}""")


@pytest.mark.parametrize(("condition", "kind"), [("yes", "Neg"), ("no", "Abs")])
def test_the_branch_that_is_always_taken(condition: str, kind: str) -> None:
    made = applied(read(_branch(condition)), SimplifyControlFlow())
    assert kinds(made) == {kind: 1, "Identity": 1}
    same(_branch(condition), made)


def test_a_computed_condition_stays() -> None:
    module = read(_branch("c"))
    assert applied(module, SimplifyControlFlow()) is module
    (op,) = [op for op in module.main.body.ops if op.regions]
    from core_compiler.ir import Rewriter
    from core_compiler.passes.base import RefusalContext

    refusal = SimplifyControlFlow().refusal(
        [op], RefusalContext(module, Rewriter(module.main.body))
    )
    assert refusal is not None
    assert "is not a constant" in refusal.reason


def _loop(trips: int, opset: int = 18) -> onnx.ModelProto:
    return text(
        f"""loop (float[3] x) => (float[3] y, float[n, 3] rows)
    <int64 n_ = {{{trips}}}, bool go = {{1}}, float[3] one = {{1, 2, 3}}> {{
      y, rows = Loop(n_, go, x) <
        body = b (int64 i, bool g, float[3] a) => (bool g2, float[3] s, float[3] row)
        {{ g2 = Identity(g)  f = Cast<to = 1>(i)  h = Add(a, one)  s = Mul(h, f)  row = Neg(s) }}
      > }}""",
        opset,
    )


@pytest.mark.parametrize(("trips", "opset"), [(1, 18), (5, 18), (8, 11)])
def test_a_loop_of_few_iterations_is_unrolled(trips: int, opset: int) -> None:
    """What is carried is carried, what is collected is stacked."""
    made = applied(read(_loop(trips, opset)), SimplifyControlFlow())
    assert "Loop" not in kinds(made)
    assert kinds(made)["Mul"] == trips
    same(_loop(trips, opset), made)


def test_a_loop_of_many_iterations_stays_unless_asked() -> None:
    module = read(_loop(9))
    assert applied(module, SimplifyControlFlow()) is module
    assert "Loop" not in kinds(applied(module, SimplifyControlFlow(unroll=9)))


def test_a_loop_that_does_not_begin_and_collects_stays() -> None:
    """Nothing can be stacked: what it collects are empty tensors."""
    model = _loop(3)
    (go,) = [t for t in model.graph.initializer if t.name == "go"]
    go.CopyFrom(numpy_helper.from_array(np.array([False]), "go"))
    module = read(model)
    assert applied(module, SimplifyControlFlow()) is module


def test_a_loop_that_may_stop_earlier_stays() -> None:
    model = _loop(3)
    (loop,) = [n for n in model.graph.node if n.op_type == "Loop"]
    loop.attribute[0].g.node[0].op_type = "Not"
    module = read(model)
    assert applied(module, SimplifyControlFlow()) is module


# -- constants -------------------------------------------------------------------------------------


def test_shapes_and_constants_are_computed() -> None:
    """Shape of a known shape, and what is computed from it; not what a caller gives."""
    model = text("""shapes (float[2, 3, 4] x) => (float[2, 12] y)
    <int64[1] two = {2}, int64[1] zero = {0}, int64[1] minus = {-1}> {
      s = Shape(x)  b = Gather<axis = 0>(s, zero)
      t = Concat<axis = 0>(b, minus)  y = Reshape(x, t) }""")
    made = applied(read(model), InferShapes(), FoldNodes(), EliminateDeadNodes())
    assert kinds(made) == {"Reshape": 1}
    same(model, made)


def test_what_a_caller_may_replace_is_no_constant() -> None:
    held = numpy_helper.from_array(np.ones(3, np.float32), "w")
    model = model_of(
        [_made("Neg", "w", to="n"), _made("Add", "x", "n")],
        [("x", F, (3,)), ("w", F, (3,))],
        [("y", F, (3,))],
        [held],
    )
    module = read(model)
    assert kinds(applied(module, FoldNodes())) == kinds(module)
    fixed = applied(module, CleanInitializers(), FoldNodes(), EliminateDeadNodes())
    assert kinds(fixed) == {"Add": 1}
    assert [i.name for i in write(fixed).graph.input] == ["x"]


def test_a_result_that_is_larger_than_what_it_is_made_of_has_a_limit() -> None:
    model = text("""big () => (float[1000, 1000] y) <int64[2] s = {1000, 1000}> {
      y = ConstantOfShape<value = float[1] {1.0}>(s) }""")
    module = read(model)
    assert applied(module, FoldNodes()) is module
    assert not kinds(applied(module, FoldNodes(most=1 << 23)))


def test_equal_initializers_become_one_and_constants_become_initializers() -> None:
    model = text("""twins (float[2] x) => (float[2] y, float[2] z)
    <float[2] a = {1, 2}, float[2] b = {1, 2}> {
      c = Constant<value = float[2] {1.0, 2.0}>()  h = Add(x, a)  i = Add(h, b)  y = Add(i, c)
      z = Identity(b) }""")
    made = applied(read(model), CleanInitializers())
    held = [op for op in made.main.body.ops if op.kind == INITIALIZER]
    assert len(held) == 1
    assert not any(op.get(OVERRIDABLE) for op in held)
    same(model, made)


# -- rules -----------------------------------------------------------------------------------------


def _const(name: str, *shape: int, positive: bool = False) -> onnx.TensorProto:
    array = DRAW.standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(np.abs(array) + 0.5 if positive else array, name)


def _made(kind: str, *inputs: str, to: str = "y", **attributes) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [to], **attributes)


def _ints(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def _floats(name: str, *numbers: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.float32), name)


_X = ("x", F, (2, 3, 8, 8))
_NORM = [_const(n, 4, positive=n == "v") for n in "sbmv"]
#: A rule, a model that it fires in (its nodes, constants), and the nodes that are left.
FIRES = {
    "Identity(x) => x": ([_made("Identity", "x", to="h"), _made("Neg", "h")], [], ["Neg"]),
    "Cast(x) to its own type => x": (
        [_made("Cast", "x", to="h", to_=1), _made("Neg", "h")], [], ["Neg"]),
    "Dropout(x) => x": ([_made("Dropout", "x", to="h"), _made("Neg", "h")], [], ["Neg"]),
    "Transpose in order => x": (
        [_made("Transpose", "x", to="h", perm=[0, 1, 2, 3]), _made("Neg", "h")], [], ["Neg"]),
    "Transpose(Transpose(x)) => one": (
        [_made("Transpose", "x", to="h", perm=[0, 2, 3, 1]),
         _made("Transpose", "h", perm=[0, 1, 3, 2])], [], ["Transpose"]),
    "Reshape(Reshape(x)) => Reshape(x)": (
        [_made("Reshape", "x", "s", to="h"), _made("Reshape", "h", "t")],
        [_ints("s", 2, -1), _ints("t", 6, 64)], ["Reshape"]),
    "Reshape to its own shape => x": (
        [_made("Reshape", "x", "s", to="h"), _made("Neg", "h")], [_ints("s", 2, 3, 8, 8)], ["Neg"]),
    "Expand to its own shape => x": (
        [_made("Expand", "x", "s", to="h"), _made("Neg", "h")], [_ints("s", 8, 8)], ["Neg"]),
    "Concat of one => x": ([_made("Concat", "x", to="h", axis=1), _made("Neg", "h")], [], ["Neg"]),
    "Sum of one => x": ([_made("Sum", "x", to="h"), _made("Neg", "h")], [], ["Neg"]),
    "Max of one => x": ([_made("Max", "x", to="h"), _made("Neg", "h")], [], ["Neg"]),
    "Min of one => x": ([_made("Min", "x", to="h"), _made("Neg", "h")], [], ["Neg"]),
    "x * 1 => x": ([_made("Mul", "c", "x", to="h"), _made("Neg", "h")], [_floats("c", 1)], ["Neg"]),
    "x / 1 => x": ([_made("Div", "x", "c", to="h"), _made("Neg", "h")], [_floats("c", 1)], ["Neg"]),
    "x - 0 => x": ([_made("Sub", "x", "c", to="h"), _made("Neg", "h")], [_floats("c", 0)], ["Neg"]),
    "Neg(Neg(x)) => x": (
        [_made("Neg", "x", to="h"), _made("Neg", "h", to="i"), _made("Abs", "i")], [], ["Abs"]),
    "Relu(Relu(x)) => Relu(x)": ([_made("Relu", "x", to="h"), _made("Relu", "h")], [], ["Relu"]),
    "BatchNormalization(Conv(x)) => Conv(x)": (
        [_made("Conv", "x", "w", "k", to="h", pads=[1, 1, 1, 1]),
         _made("BatchNormalization", "h", "s", "b", "m", "v")],
        [_const("w", 4, 3, 3, 3), _const("k", 4), *_NORM], ["Conv"]),
    "Conv(Pad(x)) => Conv(x)": (
        [_made("Pad", "x", "p", to="h"), _made("Conv", "h", "w", pads=[1, 0, 0, 1])],
        [_ints("p", 0, 0, 1, 2, 0, 0, 3, 0), _const("w", 4, 3, 3, 3)], ["Conv"]),
}  # fmt: skip


def _rule_model(nodes, constants) -> onnx.ModelProto:
    for node in nodes:
        for attribute in node.attribute:
            attribute.name = attribute.name.rstrip("_")
    return model_of(nodes, [_X], [("y", F, None)], constants)


@pytest.mark.parametrize("name", FIRES)
def test_a_rule_fires_and_keeps_the_numbers(name: str) -> None:
    nodes, constants, left = FIRES[name]
    model = _rule_model(nodes, constants)
    context = PassContext()
    made = RewriteNodes().run(applied(read(model), InferShapes()), context)
    assert name in {r.rule for r in context.rewrites}
    made = applied(made, EliminateDeadNodes())
    assert sorted(kinds(made).elements()) == sorted(left)
    same(model, made)


def test_two_matrices_and_a_bias_are_one_product() -> None:
    model = text("""product (float[5, 4] x) => (float[5, 2] y)
    <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] c = {1, -1}>
    { h = MatMul(x, w)  y = Add(c, h) }""")
    made = applied(read(model), InferShapes(), RewriteNodes())
    assert kinds(made) == {"Gemm": 1}
    same(model, made)


#: Near misses: a model in which a rule must not fire, and a part of the reason that it gives.
REFUSED = {
    "x * 1 => x": ([_made("Mul", "x", "c")], [_floats("c", 1, 1, 1, 1, 1, 1, 1, 2)], "all ones"),
    "x + 0 => x": ([_made("Add", "x", "c")], [_floats("c", 0)], "-0 + 0"),
    "x - 0 => x": ([_made("Sub", "x", "c")], [_floats("c", -0.0)], "all +0"),
    "Reshape(Reshape(x)) => Reshape(x)": (
        [_made("Reshape", "x", "s", to="h"), _made("Reshape", "h", "t")],
        [_ints("s", 6, 64), _ints("t", 0, 8, 8)],
        "copies a size",
    ),
    "BatchNormalization(Conv(x)) => Conv(x)": (
        [
            _made("Conv", "x", "w", to="h"),
            _made("Neg", "h", to="z"),
            _made("BatchNormalization", "h", "s", "b", "m", "v", to="n"),
            _made("Add", "n", "z"),
        ],
        [_const("w", 4, 3, 3, 3), *_NORM],
        "has other uses",
    ),
    "Conv(Pad(x)) => Conv(x)": (
        [_made("Pad", "x", "p", "one", to="h"), _made("Conv", "h", "w")],
        [
            _ints("p", 0, 0, 1, 1, 0, 0, 1, 1),
            numpy_helper.from_array(np.float32(1), "one"),
            _const("w", 4, 3, 3, 3),
        ],
        "does not pad with zeros",
    ),
}


def _normalised(conv: str, norm: str) -> onnx.ModelProto:
    """A convolution in one dtype, its normalisation with parameters of another."""
    names = {"float16": np.float16, "float": np.float32, "double": np.float64}
    held = [
        numpy_helper.from_array(numpy_helper.to_array(c).astype(names[t]), c.name)
        for c, t in ((_const("w", 4, 3, 3, 3), conv), *((c, norm) for c in _NORM))
    ]
    shown = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
    norm ({conv}[2, 3, 8, 8] x) => ({conv}[2, 4, 6, 6] y)
    {{ h = Conv(x, w)  y = BatchNormalization(h, s, b, m, v) }}""")
    shown.graph.initializer.extend(held)
    return shown


@pytest.mark.parametrize(
    ("conv", "norm", "reason"),
    [
        ("float", "float", ""),
        ("double", "double", ""),
        ("float16", "float16", "the weights are f16: scaling would round them again"),
        ("float16", "float", "the weights are f16: scaling would round them again"),
        ("float", "double", "the weights are f32, but others are f64"),
    ],
)
def test_a_normalisation_is_folded_where_weights_are_wide_and_alike(conv, norm, reason) -> None:
    model = _normalised(conv, norm)
    module, context = applied(read(model), InferShapes()), PassContext()
    made = RewriteNodes().run(module, context)
    name = "BatchNormalization(Conv(x)) => Conv(x)"
    assert (name in {r.rule for r in context.rewrites}) == (not reason)
    rules = [rule for rule in RULES if rule.name == name]
    root = next(op for op in module.main.body.ops if op.kind == rules[0].pattern.kind)
    assert (reason or "fires here") in explain(rules, module, root)[0][1]
    arrays = [DRAW.standard_normal((2, 3, 8, 8)).astype(module.main.arguments[0].type.dtype.numpy)]
    (old,), (new,) = run(module, arrays), run(made, arrays)
    assert old.dtype == new.dtype
    bound = 2e-5 * np.abs(old).max() if not reason else 0
    np.testing.assert_allclose(new.astype(np.float64), old.astype(np.float64), rtol=0, atol=bound)


@pytest.mark.parametrize("name", REFUSED)
def test_a_near_miss_is_refused_with_the_reason(name: str) -> None:
    nodes, constants, reason = REFUSED[name]
    module = applied(read(_rule_model(nodes, constants)), InferShapes())
    rules = [rule for rule in RULES if rule.name == name]
    root = rules[0].pattern.kind
    context = PassContext()
    RewriteNodes().run(module, context)
    assert name not in {r.rule for r in context.rewrites}
    said = [
        text_
        for op in module.main.body.ops
        if op.kind == root
        for _, text_, _ in explain(rules, module, op)
    ]
    assert any(reason in each for each in said), said


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.permutations(range(4)), min_size=1, max_size=4))
def test_any_row_of_transposes_becomes_one_or_none(perms) -> None:
    names = ["x", *(f"h{i}" for i in range(len(perms)))]
    nodes = [
        _made("Transpose", a, to=b, perm=list(p))
        for a, b, p in zip(names, names[1:], perms, strict=False)
    ]
    model = _rule_model([*nodes, _made("Neg", names[-1])], [])
    made = applied(read(model), InferShapes(), RewriteNodes())
    total = list(range(4))
    for perm in perms:
        total = [total[axis] for axis in perm]
    assert kinds(made) == {"Neg": 1} | ({} if total == list(range(4)) else {"Transpose": 1})
    same(model, made)


# -- as passes -------------------------------------------------------------------------------------


def test_a_limit_on_rewrites_is_kept() -> None:
    nodes = [_made("Identity", "x", to="a"), _made("Identity", "a", to="b"), _made("Neg", "b")]
    context = PassContext(budget=Budget(1))
    made = RewriteNodes().run(applied(read(_rule_model(nodes, [])), InferShapes()), context)
    assert len(context.rewrites) == 1
    assert kinds(made)["Identity"] == 1


@pytest.mark.parametrize("pass_", transformations(), ids=lambda p: p.name())
def test_a_pass_says_what_it_does(pass_: Pass) -> None:
    assert pass_.summary().endswith(".")
    assert pass_.half == "source"


def test_a_contradiction_is_told_by_the_import() -> None:
    """Inference leaves open what it cannot infer, and loses nothing."""
    nodes = [_made("Reshape", "x", "s", to="h"), _made("MatMul", "h", "w")]
    model = model_of(
        nodes, [("x", F, (2, 6))], [("y", F, (3, 5))], [_ints("s", 3, 4), _const("w", 3, 5)]
    )
    assert kinds(applied(read(model), InferShapes())) == {"Reshape": 1, "MatMul": 1}
    with pytest.raises(UserError, match="MatMul"):
        cc.compile(model, [np.ones((2, 6), np.float32)], frontend="onnx-passes")


def test_types_are_found_where_the_file_says_none() -> None:
    model = text(
        """open (float[n, 4] x, float[4, k] w) => (float[n, k] y)
    { h = MatMul(x, w)  y = Relu(h) }"""
    )
    module = read(model)
    made = applied(module, InferShapes())
    (matmul,) = [op for op in made.main.body.ops if op.kind == "onnx.MatMul"]
    assert matmul.result.type.shape == ("n", "k")
    assert applied(made, InferShapes()) is made
