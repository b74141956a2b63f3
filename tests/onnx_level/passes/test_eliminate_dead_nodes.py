"""Nodes, initializers and placeholders whose results nobody reads are removed."""

from __future__ import annotations

import pytest

from core_compiler.onnx_level.passes.eliminate_dead_nodes import EliminateDeadNodes
from tests.onnx_level.passes import specs


def test_a_dead_chain_goes_from_its_end_with_the_initializer_that_only_it_reads() -> None:
    """What the chain shares with the living stays; so does an input that nobody reads any more."""
    specs.becomes(
        EliminateDeadNodes(),
        """g (float[2] x, float[2] u) => (float[2] y)
        <float[2] shared = {1, 2}, float[2] own = {3, 4}> {
          h = Add(x, shared)  c = Constant<value = float {1.0}>()  d = Mul(u, own)  e = Clip(d, , c)
          f = Sub(e, shared)  y = Neg(h) }""",
        """g (float[2] x, float[2] u) => (float[2] y) <float[2] shared = {1, 2}> {
          h = Add(x, shared)  y = Neg(h) }""",
        [f"unused onnx.{k}" for k in ("Sub", "Clip", "Mul", "Constant", "initializer", "absent")],
    )


def test_a_node_stays_for_the_sake_of_one_of_its_results() -> None:
    """The second of them is a result of the model, or read by another node."""
    module = specs.module_of(
        """g (float[4] x) => (int64[2] i, int64[2] y) <int64[1] k = {2}> {
          v, i = TopK(x, k)  w, j = TopK(x, k)  y = Neg(j) }"""
    )
    specs.stays(EliminateDeadNodes(), module)


def test_a_subgraph_keeps_what_it_reads_from_outside_and_loses_its_own_dead_nodes() -> None:
    """With them goes what they alone had read outside."""
    specs.becomes(
        EliminateDeadNodes(),
        """g (float[2] x, bool c) => (float[2] y) {
          h = Neg(x)  k = Relu(x)
          y = If(c) <then_branch = t () => (float[2] p) { d = Abs(k)  p = Add(h, x) },
                     else_branch = e () => (float[2] q) { q = Identity(x) }> }""",
        """g (float[2] x, bool c) => (float[2] y) {
          h = Neg(x)
          y = If(c) <then_branch = t () => (float[2] p) { p = Add(h, x) },
                     else_branch = e () => (float[2] q) { q = Identity(x) }> }""",
        ["unused onnx.Abs", "unused onnx.Relu"],
    )


def test_a_branch_that_nobody_reads_goes_whole() -> None:
    specs.becomes(
        EliminateDeadNodes(),
        """g (float[2] x, bool c) => (float[2] y) {
          d = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) },
                     else_branch = e () => (float[2] q) { q = Abs(x) }>
          y = Relu(x) }""",
        "g (float[2] x, bool c) => (float[2] y) { y = Relu(x) }",
        ["unused onnx.If"],
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a", "%a (onnx.initializer) is read by %h (onnx.Add)"),
        ("h", "%h (onnx.Add) is read by %y (onnx.If)"),  # in its branches
        ("y", "%y (onnx.If) is a result of the model"),
    ],
)
def test_what_is_read_is_left_with_the_reason(name: str, reason: str) -> None:
    module = specs.module_of(
        """g (float[2] x, bool c) => (float[2] y) <float[2] a = {1, 2}> {
          h = Add(x, a)
          y = If(c) <then_branch = t () => (float[2] p) { p = Neg(h) },
                     else_branch = e () => (float[2] q) { q = Abs(h) }> }"""
    )
    specs.stays(EliminateDeadNodes(), module)
    assert specs.reason(EliminateDeadNodes(), module, name) == reason
