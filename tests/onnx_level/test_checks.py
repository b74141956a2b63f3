"""Checks of passes from ONNX to ONNX and of the import: faults are found, sound graphs are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import parser

import core_compiler as cc
from core_compiler.ir.events import CheckRecord
from core_compiler.onnx_level.passes import rewrite_nodes
from core_compiler.support.errors import UserError
from tests.onnx_level.suite import Held, inputs, models

X = np.abs(np.random.default_rng(0).standard_normal((2, 4))).astype(np.float32) + np.float32(0.1)


def graph(source: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{source}')


def failures(model: onnx.ModelProto, given: Sequence) -> list[CheckRecord]:
    """What fails of a checked compile up to the tensor level."""
    made = cc.compile(model, given, check=True, frontend="onnx-passes", finish=False)
    while made.module.main.level != "tensor":
        made.step()
    return [c for checks in made.checks.values() for c in checks if c.verdict == "failed"]


def _changed(monkeypatch: pytest.MonkeyPatch, name: str, **facts) -> None:
    """Rules of nodes with one of them changed."""
    rules = [replace(r, **facts) if r.name == name else r for r in rewrite_nodes.RULES]
    assert rules != list(rewrite_nodes.RULES)
    monkeypatch.setattr(rewrite_nodes, "RULES", tuple(rules))


ADDED = "g (float[2,4] x) => (float[2,4] y) <float z = {0.0}> { y = Add(x, z) }"
TWICE = "g (float[2,4] x) => (float[2,4] y) { a = Relu(x) y = Relu(a) }"


@pytest.mark.parametrize(
    ("source", "rule", "facts", "said"),
    [
        (ADDED, "x + 0 => x", {"check": None}, "zeros of both signs"),
        (TWICE, "Relu(Relu(x)) => Relu(x)", {"rewrite": lambda b, m: m["x"]}, "special values"),
    ],
    ids=["zeros", "relu"],
)
def test_a_rule_of_nodes_is_tried_on_values_that_no_example_has(
    source: str, rule: str, facts: dict, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On these inputs, which are positive, the wrong rules keep every bit."""
    assert not failures(graph(source), [X])
    _changed(monkeypatch, rule, **facts)
    (found,) = failures(graph(source), [X])
    assert (found.rewrite.rule, found.adversarial) == (rule, True)
    assert said in found.note
    assert found.value.name == "y"


SOUND = {
    "a result is an input": "g (float[2,4] x) => (float[2,4] y) { y = Identity(x) }",
    "a result twice": """g (float[2,4] x) => (float[2,4] y, float[2,4] z) <float c = {1.0}>
        { y = Mul(x, c) z = Identity(y) }""",
    "an input left out": """g (float[2,4] x) => (float[2,4] y) <float c = {1.0}>
        { y = Clip(x, , c) }""",
    "a branch that the import takes": """g (float[2,4] x) => (float[2,4] y)
        { n = Size(x) w = Constant<value = int64 {8}>() b = Equal(n, w)
          y = If(b)<then_branch = t () => (float[2,4] p) { q = Exp(x) p = Neg(q) },
                    else_branch = e () => (float[2,4] r) { r = Identity(x) }> }""",
    "an optional input": """g (optional(float[2,4]) x) => (float[2,4] y)
        { y = OptionalGetElement(x) }""",
    "a size that depends on data": """g (float[2,4] x) => (float[3] y)
        { c = Constant<value = bool[8] {1, 0, 1, 0, 0, 1, 0, 0}>() n = Not(c) m = Not(n)
          y = Compress(x, m) }""",
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_graph_passes(name: str) -> None:
    assert not failures(graph(SOUND[name]), [X])


def test_a_node_that_its_definition_stands_for_passes() -> None:
    case = "test_causal_conv_with_state_silu_fp16"
    if case not in models():
        pytest.skip("this version of ONNX has no CausalConvWithState")
    assert not failures(models()[case][1], inputs(case))


def test_a_result_that_is_a_sequence_is_refused_with_what_to_do() -> None:
    model = graph("g (float[2,4] x) => (seq(float[2,4]) y) { y = SequenceConstruct(x, x) }")
    with pytest.raises(UserError, match=r"'y' is a sequence.*frontend 'onnx'"):
        failures(model, [X])


def _false_alarms(names: Sequence[str]) -> tuple[int, list[str]]:
    """How many cases of ONNX's suite were checked, and what was said against one."""
    checked, found = 0, []
    for name in names:
        given = inputs(name)
        if given is None:
            continue
        try:
            held = [list(g) if isinstance(g, Held) else g for g in given]
            said = failures(models()[name][1], held)
        except UserError:
            continue
        checked += 1
        found += [f"{name}: {c.note}" for c in said]
    return checked, found


@pytest.mark.slow
def test_no_false_alarm_for_any_case_of_the_suite() -> None:
    checked, found = _false_alarms(list(models()))
    assert not found
    assert checked >= 1770
