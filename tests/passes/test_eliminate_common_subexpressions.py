"""Eliminate common subexpressions: text to text."""

from __future__ import annotations

import pytest

from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from tests.passes import specs
from tests.passes.programs import program
from tests.passes.specs import becomes


def test_equal_ops_become_one_that_comes_from_both():
    def build(b, x, y):
        return b.mul(b.add(x, y), b.neg(b.add(y, x)))

    before = program(build, "4xf32", "4xf32")
    after, rewrites = specs.apply(EliminateCommonSubexpressions(), before)
    assert specs.rules_fired(rewrites) == ["merge equal core.add"]
    assert [op.kind for op in after.main.body.ops] == ["core.add", "core.neg", "core.mul"]
    assert [n.name for n in after.main.body.ops[0].origin.nodes()] == ["node_1", "node_2"]
    specs.assert_same_results(before, after)


def test_a_narrow_value_is_widened_for_each_reader():
    """Rounding twice is one op; widening is a way to read, and its result is no value to keep."""
    cast = '"core.cast"({0}) {{dtype = {1}, saturate = false}} : (tensor<2x{2}>) -> tensor<2x{1}>'
    narrow, wide = cast.format("%x", "bf16", "f32"), cast.format("%0", "f32", "bf16")
    becomes(
        EliminateCommonSubexpressions(),
        "%x: tensor<2xf32>",
        f"""
        %0 = {narrow}
        %1 = {narrow}
        %2 = {wide}
        %3 = {wide.replace("%0", "%1")}
        "core.return"(%2, %3) : (tensor<2xf32>, tensor<2xf32>) -> ()
        """,
        f"""
        %0 = {narrow}
        %1 = {wide}
        %2 = {wide}
        "core.return"(%1, %2) : (tensor<2xf32>, tensor<2xf32>) -> ()
        """,
        ["merge equal core.cast"],
    )


def test_chains_of_equal_ops_merge_in_one_run():
    def build(b, x):
        return b.sub(b.exp(b.neg(b.abs(x))), b.exp(b.neg(b.abs(x))))

    before = program(build, "4xf32")
    after, rewrites = specs.apply(EliminateCommonSubexpressions(), before)
    assert len(rewrites) == 3
    assert [op.kind for op in after.main.body.ops] == [
        "core.abs",
        "core.neg",
        "core.exp",
        "core.sub",
    ]


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x, y: b.mul(b.sub(x, y), b.sub(y, x)),
        lambda b, x, y: b.mul(
            b.transpose(x, permutation=(0, 1)), b.transpose(x, permutation=(1, 0))
        ),
        lambda b, x, y: b.mul(
            *(
                b.random_uniform(b.constant(1, "i64"), shape=(3, 3), dtype="f32", stream=s)
                for s in (0, 1)
            )
        ),
        lambda b, x, y: (b.clamp(x, low=0.0, high=6.0), b.clamp(x, low=-0.0, high=6.0)),
    ],
    ids=["operand order", "attributes", "random streams", "sign of zero"],
)
def test_ops_that_differ_stay_apart(build):
    before = program(build, "3x3xf32", "3x3xf32")
    after, rewrites = specs.apply(EliminateCommonSubexpressions(), before)
    assert [r for r in rewrites if "constant" not in r.rule] == []
    specs.assert_same_results(before, after)


def test_zeros_of_two_signs_are_not_the_same_constant():
    def build(b, x):
        return b.div(x, b.constant(0.0, "f32")), b.div(x, b.constant(-0.0, "f32"))

    assert not specs.apply(EliminateCommonSubexpressions(), program(build, "f32"))[1]
