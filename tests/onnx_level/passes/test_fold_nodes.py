"""Nodes whose inputs are constants, and what follows from known types, become initializers."""

from __future__ import annotations

import pytest

from core_compiler.ir import Module
from core_compiler.onnx_level.passes.fold_nodes import FoldNodes
from tests.onnx_level.passes import specs


def test_a_chain_of_constants_becomes_initializers_of_the_same_names() -> None:
    """Whatever the file says of their types; what they were made of stays for another pass."""
    specs.becomes(
        FoldNodes(),
        """g (float[3] x) => (float[3] y, float[n] z) <float[3] a = {1, -2, 0.5}, float[3] b> {
          b = Neg(a)  k = Constant<value_float = 4.0>()  c = Mul(b, k)  z = Clip(c, , k)
          v, "", i = Unique(c)  h = Add(x, v)  y = Sub(h, b) }""",
        """g (float[3] x) => (float[3] y, float[3] z)
        <float[3] a = {1, -2, 0.5}, float[3] b = {-1, 2, -0.5}, float k = {4},
         float[3] c = {-4, 8, -2}, float[3] z = {-4, 4, -2}, float[3] v = {-4, -2, 8},
         int64[3] i = {0, 2, 1}> { h = Add(x, v)  y = Sub(h, b) }""",
        [f"fold {k}" for k in ("Neg", "Constant", "Mul", "Clip", "Unique")],
    )


def test_what_follows_from_a_type_is_known_without_the_value() -> None:
    """Not if a size of the type is open."""
    made = specs.becomes(
        FoldNodes(),
        """g (float[2, 3] x, float[n, 3] z)
        => (int64[2] s, int64 n, int64[1] e, float[1] c, int64[2] t) <int64[1] k = {5}> {
          s = Shape(x)  n = Size(x)  e = Shape<start = -1>(x)  c = CastLike(k, x)
          t = Shape(z) }""",
        """g (float[2, 3] x, float[n, 3] z)
        => (int64[2] s, int64 n, int64[1] e, float[1] c, int64[2] t)
        <int64[1] k = {5}, int64[2] s = {2, 3}, int64 n = {6}, int64[1] e = {3}, float[1] c = {5}> {
          t = Shape(z) }""",
        ["fold Shape", "fold Size", "fold Shape", "fold CastLike"],
    )
    why = specs.reason(FoldNodes(), made, "t")
    assert why == "%z, which %t (onnx.Shape) reads, is not a constant"


def test_a_subgraph_is_folded_with_the_constants_outside_of_it() -> None:
    specs.becomes(
        FoldNodes(),
        """g (float[2] x, bool c) => (float[2] y) <float[2] a = {1, 2}> {
          y = If(c) <then_branch = t () => (float[2] p) { k = Neg(a)  p = Add(k, x) },
                     else_branch = e () => (float[2] q) { q = Add(a, a) }> }""",
        """g (float[2] x, bool c) => (float[2] y) <float[2] a = {1, 2}> {
          y = If(c) <then_branch = t () => (float[2] p) <float[2] k = {-1, -2}> { p = Add(k, x) },
                     else_branch = e () => (float[2] q) <float[2] q = {2, 4}> {}> }""",
        ["fold Neg", "fold Add"],
    )


#: A function of the model, and one that takes nothing but an attribute.
OWN = """<domain: "own", opset_import: ["" : 18]>
Twice (v) => (r) { w = Neg(v)  r = Sub(v, w) }
<domain: "own", opset_import: ["" : 18]>
Numbers <by: floats = [1.0, 2.0]> () => (r) { r = Constant<value_floats: floats = @by>() }
<domain: "own", opset_import: ["" : 18]>
Noise (v) => (r) { r = RandomNormalLike(v) }
<domain: "own", opset_import: ["" : 18, "own" : 1]>
More (v) => (r) { w = own.Noise(v)  r = Add(v, w) }
"""


def own(graph: str) -> Module:
    return specs.module_of(f"{graph}\n{OWN}", domains=["own"])


def test_a_call_with_constants_is_computed_and_its_function_left() -> None:
    specs.becomes(
        FoldNodes(),
        own(
            """g (float[2] x) => (float[2] y) <float[2] a = {1, 2}> {
              k = own.Twice(a)  y = Add(x, k) }"""
        ),
        own(
            """g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] k = {2, 4}> {
              y = Add(x, k) }"""
        ),
        ["fold own.Twice"],
    )


def test_what_is_computed_in_a_function_is_a_node_of_it() -> None:
    """A function of a model has no initializers."""
    specs.becomes(
        FoldNodes(),
        specs.module_of(
            """g (float[2] x) => (float[2] y) { y = own.F(x) }
            <domain: "own", opset_import: ["" : 18]>
            F (v) => (r) {
              c = Constant<value = float[2] {1.0, 2.0}>()  n = Neg(c)  r = Mul(v, n) }""",
            domains=["own"],
        ),
        specs.module_of(
            """g (float[2] x) => (float[2] y) { y = own.F(x) }
            <domain: "own", opset_import: ["" : 18]>
            F (v) => (r) {
              n = Constant<value = float[2] {-1.0, -2.0}>()
              c = Constant<value = float[2] {1.0, 2.0}>()  r = Mul(v, n) }""",
            domains=["own"],
        ),
        ["fold Neg"],
    )


@pytest.mark.parametrize(("most", "fires"), [(16, True), (15, False)])
def test_a_result_may_be_as_large_as_the_option_says(most: int, fires: bool) -> None:
    """16 bytes made of 8. What is no larger than its inputs is always computed."""
    source = """g (float[4] x) => (float[4] y) <int64[1] s = {4}, float[4] a = {1, 2, 3, 4}> {
          k = ConstantOfShape<value = float[1] {2.0}>(s)  b = Neg(a)  h = Add(x, b)
          y = Mul(h, k) }"""
    made, rules = specs.apply(FoldNodes(most), specs.module_of(source))
    assert rules == ["fold ConstantOfShape"] * fires + ["fold Neg"]
    assert specs.op_of(made, "k").kind == f"onnx.{'initializer' if fires else 'ConstantOfShape'}"


BRANCHES = """then_branch = b () => (float[2] p) { p = Neg(a) },
              else_branch = e () => (float[2] q) { q = Abs(a) }"""


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("Neg(x)", "%x, which %y (onnx.Neg) reads, is not a constant"),
        ("Neg(w)", "%w, which %y (onnx.Neg) reads, is not a constant"),  # a caller may replace it
        ("RandomNormalLike(a)", "onnx.RandomNormalLike is not evaluated at compile time"),
        ("Dropout(a, r, t)", "onnx.Dropout is not evaluated at compile time"),
        (f"If(t) <{BRANCHES}>", "onnx.If is not evaluated at compile time"),
        ("own.More(a)", "onnx.own.More is a function that draws random numbers"),
        ("own.Numbers()", "%y (onnx.own.Numbers) has no inputs"),
        ("Constant<value = float[2] {1.0, 2.0}>()", "%y (onnx.Constant) is a constant"),
    ],
)
def test_a_node_stays_with_a_reason(node: str, reason: str) -> None:
    module = own(
        f"""g (float[2] x, float[2] w = {{1, 2}}) => (float[2] y)
        <float[2] a = {{1, 2}}, float r = {{0.5}}, bool t = {{1}}> {{ y = {node} }}"""
    )
    assert specs.reason(FoldNodes(), module, "y") == reason
    if "If" not in node:  # what is in its branches is folded
        specs.stays(FoldNodes(), module)
