"""The values of JAX functions and StableHLO programs beside XLA's, op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.debug.framework import compare
from core_compiler.frontends.stablehlo import import_file, import_function
from core_compiler.frontends.stablehlo.nodes import on_arrays, with_results
from core_compiler.frontends.stablehlo.table import TABLE

jax: Any = pytest.importorskip("jax", reason="XLA comes with jax")
jnp = jax.numpy

X = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)
W = np.random.default_rng(4).standard_normal((6, 4)).astype(np.float32)


def compared(function, *arrays):
    found = import_function(function, arrays)
    inputs = [np.asarray(a) for a in jax.tree.leaves(arrays)]
    return compare(found.module, inputs, found.nodes, len(inputs))


def inner(x, w):
    return jax.nn.gelu(x @ w)


def forms(x, w):
    """A call, reductions, integers, several results, an op of CHLO, a branch's comparison."""
    y = jax.jit(inner)(x, w)
    values, places = jax.lax.top_k(y, 2)
    return values, jnp.sort(x), places.sum(), jax.lax.erf_inv(jnp.tanh(x)), jnp.where(x > 0, x, 0.1)


def counted(x, w):
    """A loop that ends when nothing changes, with a weight that it carries, and one that counts."""

    def unsettled(state):
        return jnp.abs(state[0] - state[1]).max() > 1e-7 * jnp.abs(state[0]).max()

    def halved(state):
        y, _, w = state
        return (y + 1 / (1 + y * y)) / 2 + 0 * w.sum(), y, w

    y, _, _ = jax.lax.while_loop(unsettled, halved, (x, x + 1, w))
    return y, jax.lax.fori_loop(0, 9, lambda i, s: jnp.tanh(s) + i, x)


def test_every_op_of_a_function_is_near_its_value():
    result = compared(forms, X, W)
    assert result.verdict in ("equal", "within") and result.left_out == 0
    kinds = {record.node.rpartition("_")[0] for record in result.records}
    assert {"dot_general", "tanh", "sort", "compare", "select", "reduce"} <= kinds
    assert all(record.framework == "jax" for record in result.records)


def test_a_loop_is_right_where_each_iteration_is():
    result = compared(counted, X, W)
    assert result.verdict in ("equal", "within") and result.left_out == 0
    assert any(record.node.startswith("while") for record in result.records)


@pytest.mark.parametrize(
    ("function", "op", "other", "node", "note"),
    [
        (forms, "stablehlo.tanh", "stablehlo.logistic", "tanh", ""),
        (counted, "stablehlo.tanh", "stablehlo.logistic", "while", "body of the loop, iteration 1"),
        (counted, "stablehlo.compare", None, "while", "condition of the loop, iteration 10"),
    ],
)
def test_a_wrong_translation_is_the_first_node_that_differs(
    monkeypatch, function, op, other, node, note
):
    def at_least(context, x, y):
        """Less is less or equal: a loop that counts goes round once more."""
        return context.le(x, y) if x.type.dtype.is_integer else right(context, x, y)

    right = TABLE[op]
    monkeypatch.setitem(TABLE, op, TABLE[other] if other else at_least)
    result = compared(function, X, W)
    assert result.verdict == "differs"
    assert result.beyond.node.startswith(node) and note in result.beyond.judgement.note


def grown(x, w):
    """One value doubles while another is halved, until the first is large."""
    return jax.lax.while_loop(
        lambda s: jnp.abs(s[0]).max() < 100, lambda s: (2 * s[0] + 1, s[1] / 2, s[2]), (x, x + 1, w)
    )


@pytest.mark.parametrize("place", ["begins", "leaves"])
def test_a_loop_begins_and_ends_as_the_framework_s(monkeypatch, place):
    """Each iteration may be right of a loop that takes its values in another order."""
    right = TABLE["stablehlo.while"]

    def wrong(context, *carried):
        *rest, one, other = carried
        if place == "begins":
            return right(context, *rest, other, one)
        *rest, one, other = right(context, *carried)
        return *rest, other, one

    monkeypatch.setitem(TABLE, "stablehlo.while", wrong)
    result = compared(grown, X, W)
    assert result.verdict == "differs" and result.beyond.node.startswith("while")


def test_the_results_are_those_of_the_function_itself():
    """What gets lost before there is a program shows there: the nodes are right."""
    found = import_function(inner, (X, W))
    nodes = with_results(found.nodes, "keras", lambda x, w: (np.asarray(inner(x, w)) * 1.01,))
    result = compare(found.module, [X, W], nodes, 2)
    assert result.verdict == "differs" and not result.beyond.alone
    assert result.beyond.node == "result 0 of the model" and result.counts["differs"] == 0


PROGRAM = """module {
  func.func public @forward(%arg0: tensor<?x6xf32>) -> tensor<?x6xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<?x6xf32>
    %1 = stablehlo.multiply %0, %arg0 : tensor<?x6xf32>
    return %1 : tensor<?x6xf32>
  }
}
"""


def test_a_program_in_a_file_is_executed_with_the_sizes_that_it_is_given(tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    found = import_file(path, [X])
    result = compare(found.module, [X], found.nodes, 1)
    assert result.verdict in ("equal", "within") and len(result.records) == 2
    (made,) = on_arrays(path)(X)
    np.testing.assert_allclose(made, np.tanh(X) * X, rtol=1e-5)


def test_values_that_a_loop_carries_unchanged_are_seen_through():
    """Weights become constants of the model: what reads them in the body is tried beside these."""
    bias = jnp.asarray(W[0])

    def summed(x):
        def body(state):
            i, bias, total = state
            return i + 1, bias, total + (x[i][None] @ jnp.asarray(W) + bias)

        return jax.lax.while_loop(lambda s: s[0] < 5, body, (0, bias, jnp.zeros((1, 4))))[2]

    found = import_function(summed, (X,))
    made = cc.compile(found.module, [X], check=True)
    failed = [r.note for rs in made.checks.values() for r in rs if r.verdict == "failed"]
    assert failed == []
    np.testing.assert_allclose(made(X)[0], np.asarray(summed(jnp.asarray(X))), rtol=1e-5)
