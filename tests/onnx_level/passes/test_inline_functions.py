"""Calls of the model's own functions become the bodies of these functions."""

from __future__ import annotations

import pytest

from core_compiler.ir import Module
from core_compiler.onnx_level.passes.inline_functions import InlineFunctions
from core_compiler.support.errors import UserError
from tests.onnx_level.passes import specs


def calls(graph: str, *functions: str, more: str = "", opset: int = 18) -> Module:
    """A graph of version 18, and functions of domain ``own`` of version ``opset``."""
    head = f'<domain: "own", opset_import: ["" : {opset}, "own" : 1{more}]>'
    source = "\n".join([graph, *(f"{head}\n{function}" for function in functions)])
    return specs.module_of(source, domains=["own"])


def graph(source: str, *domains: str) -> Module:
    return specs.module_of(source, domains=["own", *domains])


def test_a_call_becomes_the_body_with_its_arguments_and_attributes() -> None:
    """Functions call functions, subgraphs too; results keep their names, the rest gets new ones."""
    specs.becomes(
        InlineFunctions(),
        calls(
            """g (float[2] x, bool c) => (float[2] y, float[2] z) {
              h = Neg(x)  w = own.F<by = 3.0>(h)  z = own.F(w)
              y = If(c) <then_branch = t () => (float[2] p) { p = own.F<by = 5.0>(h) },
                         else_branch = e () => (float[2] r) { r = own.G(w, h) }> }""",
            """F <by: float = 2.0> (v) => (r) {
              k = Constant<value_float: float = @by>()  h = Mul(v, k)  r = own.G(h, v) }""",
            "G (a, b) => (r) { r = Sub(a, b) }",
        ),
        graph(
            """g (float[2] x, bool c) => (float[2] y, float[2] z) {
              h = Neg(x)
              k = Constant<value_float = 3.0>()  h_2 = Mul(h, k)  w = Sub(h_2, h)
              k_2 = Constant<value_float = 2.0>()  h_3 = Mul(w, k_2)  z = Sub(h_3, w)
              y = If(c) <then_branch = t () => (float[2] p) {
                           k_3 = Constant<value_float = 5.0>()  h_4 = Mul(h, k_3)
                           p = Sub(h_4, h) },
                         else_branch = e () => (float[2] r) { r = Sub(w, h) }> }"""
        ),
        [f"inline own::{name}" for name in "FGGFGFG"],
    )


def test_a_call_within_a_subgraph_of_a_body_is_inlined_too() -> None:
    specs.becomes(
        InlineFunctions(),
        calls(
            "g (float[2] x, bool c) => (float[2] y) { y = own.F(c, x) }",
            """F (c, v) => (r) {
              r = If(c) <then_branch = t () => (p) { p = own.G(v, v) },
                         else_branch = e () => (q) { q = Abs(v) }> }""",
            "G (a, b) => (r) { r = Sub(a, b) }",
        ),
        graph(
            """g (float[2] x, bool c) => (float[2] y) {
              y = If(c) <then_branch = t () => (p) { p = Sub(x, x) },
                         else_branch = e () => (q) { q = Abs(x) }> }"""
        ),
        ["inline own::F", "inline own::G"],
    )


def test_what_a_call_leaves_out_is_left_out_in_the_body() -> None:
    """An input, an attribute without a default, and a result; another result is an input itself."""
    specs.becomes(
        InlineFunctions(),
        calls(
            "g (float[2] x) => (float[2] y, float[2] z) <float lo = {-1}> { y, z = own.F(x, lo) }",
            """F <axis> (v, low, high) => (r, v, s) {
              c = Clip(v, low, high)  r = Softmax<axis: int = @axis>(c)  s = Neg(c) }""",
        ),
        graph(
            """g (float[2] x) => (float[2] y, float[2] z) <float lo = {-1}> {
              c = Clip(x, lo)  y = Softmax(c)  s = Neg(c)  z = Identity(x) }"""
        ),
        ["inline own::F"],
        ours=True,
    )


def test_a_body_of_another_version_is_said_in_the_version_of_the_model() -> None:
    """And the model imports the domains that the body uses."""
    specs.becomes(
        InlineFunctions(),
        calls(
            """g (float[2, 2] x) => (float[2, 1] y, float[1, 1] z) <int64[1] a = {0}> {
              h = ReduceMax(x, a)  y = own.F(x)  z = own.F(h) }""",
            "F (v) => (r) { n = Neg(v)  r = ReduceMax<axes = [1]>(n) }",
            more=', "com.microsoft" : 1',
            opset=13,
        ),
        graph(
            """g (float[2, 2] x) => (float[2, 1] y, float[1, 1] z)
            <int64[1] a = {0}, int64[1] weight = {1}, int64[1] weight_2 = {1}, float[1, 2] h,
             float[2, 2] n, float[1, 2] n_2> {
              h = ReduceMax(x, a)  n = Neg(x)  y = ReduceMax(n, weight)
              n_2 = Neg(h)  z = ReduceMax(n_2, weight_2) }""",
            "com.microsoft",
        ),
        [
            *["inline own::F"] * 2,
            *["its type is known"] * 3,
            *["ReduceMax 13 => 18"] * 2,
            "versions of a function's ops",
        ],
        ours=True,
    )


def test_a_model_without_calls_loses_its_functions_and_one_without_functions_is_itself() -> None:
    source = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
    made = specs.becomes(
        InlineFunctions(), calls(source, "F (v) => (r) { r = Abs(v) }"), graph(source), []
    )
    assert list(made.functions) == ["main"]
    specs.stays(InlineFunctions(), made)


NEG = "F (v) => (r) { r = Neg(v) }"
SUB = "F (v, w) => (r) { r = Sub(v, w) }"
ONE_LEFT_OUT = "F (v, w) => (r, w) { r = Neg(v) }"
CYCLE = ("F (v) => (r) { r = own.G(v) }", "G (v) => (r) { r = own.F(v) }")
WRAP = 'F (v, p) => (r) { r = Pad<mode = "wrap">(v, p) }'


@pytest.mark.parametrize(
    ("call", "functions", "what"),
    [
        ("y = own.F(x, x)", [NEG], "function own::F takes 1 tensors, a call names 2"),
        ("y, z = own.F(x)", [NEG], "function own::F returns 1 tensors, a call names 2"),
        ("y = own.F(x)", [SUB], "Sub needs its input 'B', in a call of own::F"),
        ("y, z = own.F(x)", [ONE_LEFT_OUT], "a result is an omitted input, in a call of own::F"),
        ("y = own.F(x)", CYCLE, "function own::F calls itself"),
        ("y = own.F(x, p)", [WRAP], "Pad in a function: mode is wrap"),  # not in version 18
    ],
)
def test_a_call_that_cannot_be_inlined_is_an_error(call, functions, what) -> None:
    graph = f"g (float[2] x) => (y) <int64[2] p = {{2, 2}}> {{ {call} }}"
    module = calls(graph, *functions, opset=19)
    with pytest.raises(UserError) as said:
        specs.apply(InlineFunctions(), module)
    assert said.value.what == what
