"""Fold constants, common subexpressions, dead code, decompose and fold batch norm: text to text."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from core_compiler.ir import Block
from core_compiler.ir.parser import parse
from core_compiler.ops import REGISTRY, Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fold_batch_norm import RULES, FoldBatchNorm
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.rules import explain
from tests.passes import specs
from tests.passes.programs import program


def module_of(arguments: str, body: str):
    """A module from main's arguments and the lines of its body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return parse(
        f'module {{\n  "core.func"() ({{\n  ^bb0({arguments}):\n{lines}\n'
        '  }) {level = "tensor", sym_name = "main"} : () -> ()\n}\n'
    )


def becomes(pass_: Pass, arguments: str, before: str, after: str, rules: list[str]) -> None:
    """``before`` -> ``after`` line by line, by just these rewrites, with the bits kept."""
    module = module_of(arguments, before)
    made, rewrites = specs.apply(pass_, module)
    assert specs.rules_fired(rewrites) == rules
    assert specs.body_text(made) == specs.body_text(module_of(arguments, after))
    specs.assert_same_results(module, made)
    if not rules:
        assert made is module


# -- fold constants --------------------------------------------------------------------------------


def test_ops_on_constants_are_evaluated():
    becomes(
        FoldConstants(), "%x: tensor<2xf32>",
        """
        %0 = "core.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %1 = "core.constant"() {value = dense<[0.5, -2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %2 = "core.mul"(%0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
        %3 = "core.neg"(%2) : (tensor<2xf32>) -> tensor<2xf32>
        %4 = "core.add"(%x, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
        "core.return"(%4) : (tensor<2xf32>) -> ()
        """,
        """
        %0 = "core.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %1 = "core.constant"() {value = dense<[0.5, -2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %2 = "core.constant"() {value = dense<[0.5, -4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %3 = "core.constant"() {value = dense<[-0.5, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
        %4 = "core.add"(%x, %3) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
        "core.return"(%4) : (tensor<2xf32>) -> ()
        """,
        ["fold core.mul", "fold core.neg"],
    )  # fmt: skip


def test_random_ops_and_ops_on_inputs_stay():
    text = """
        %0 = "core.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
        %1 = "core.random_uniform"(%0) {dtype = f32, shape = [4], stream = 0} : (tensor<i64>) -> tensor<4xf32>
        %2 = "core.add"(%x, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        "core.return"(%2) : (tensor<4xf32>) -> ()
        """  # noqa: E501
    becomes(FoldConstants(), "%x: tensor<4xf32>", text, text, [])


def big_broadcast(b, x):
    wide = b.broadcast(b.constant(2.0, "f32"), shape=(50, 40), dims=())
    return b.add(x, wide)


def test_a_constant_much_larger_than_its_parts_is_not_made():
    before = program(big_broadcast, "50x40xf32")
    after, rewrites = specs.apply(FoldConstants(), before)
    assert after is before and not rewrites


def test_growth_is_the_option_that_allows_it():
    after, rewrites = specs.apply(FoldConstants(growth=1e6), program(big_broadcast, "50x40xf32"))
    assert specs.rules_fired(rewrites) == ["fold core.broadcast"]
    assert specs.root_of(after).operands[1].type.shape == (50, 40)


def test_what_is_too_large_to_fold_is_evaluated_where_an_op_on_it_folds():
    def build(b, x):
        wide = b.broadcast(b.constant(np.float32(1.5)), shape=(50, 40), dims=())
        return b.mul(x, b.reduce_sum(b.mul(wide, wide), axes=(0, 1)))

    before = program(build, "f32")
    after, rewrites = specs.apply(FoldConstants(), before)
    assert specs.rules_fired(rewrites) == ["fold core.reduce_sum"]
    specs.assert_same_program(
        after, program(lambda b, x: b.mul(x, b.constant(4500.0, "f32")), "f32")
    )


# -- common subexpressions -------------------------------------------------------------------------


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
        EliminateCommonSubexpressions(), "%x: tensor<2xf32>",
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
    )  # fmt: skip


def test_chains_of_equal_ops_merge_in_one_run():
    def build(b, x):
        return b.sub(b.exp(b.neg(b.abs(x))), b.exp(b.neg(b.abs(x))))

    before = program(build, "4xf32")
    after, rewrites = specs.apply(EliminateCommonSubexpressions(), before)
    assert len(rewrites) == 3
    assert [op.kind for op in after.main.body.ops] == [
        "core.abs", "core.neg", "core.exp", "core.sub",
    ]  # fmt: skip


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


# -- dead code -------------------------------------------------------------------------------------


def test_chains_that_nobody_reads_are_removed_from_the_end():
    becomes(
        EliminateDeadCode(), "%x: tensor<4xf32>",
        """
        %0 = "core.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
        %1 = "core.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
        %2 = "core.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
        "core.return"(%1, %x) : (tensor<4xf32>, tensor<4xf32>) -> ()
        """,
        """
        %0 = "core.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
        "core.return"(%0, %x) : (tensor<4xf32>, tensor<4xf32>) -> ()
        """,
        ["unused core.tanh", "unused core.exp"],
    )  # fmt: skip


def test_an_op_with_one_used_result_stays():
    def build(b, x):
        values, _ = b.topk(x, axis=0, k=2, largest=True)
        return values

    before = program(build, "5xf32")
    after, rewrites = specs.apply(EliminateDeadCode(), before)
    assert after is before and not rewrites


# -- decompose -------------------------------------------------------------------------------------


def test_a_linear_layer_becomes_a_product_and_a_sum():
    before = program(lambda b, x, w, v: b.linear(x, w, v), "2x3xf32", "3x4xf32", "4xf32")
    after, rewrites = specs.apply(Decompose(), before)
    assert specs.rules_fired(rewrites) == ["decompose core.linear"]
    assert [op.kind for op in after.main.body.ops] == ["core.matmul", "core.broadcast", "core.add"]
    specs.assert_same_results(before, after)


def test_kinds_is_an_option_and_other_composites_stay():
    before = program(lambda b, x: b.gelu(b.softmax(x, axis=0), approximate="none"), "4xf32")
    assert specs.apply(Decompose(), before)[0] is before
    after, rewrites = specs.apply(Decompose(kinds="softmax"), before)
    assert specs.rules_fired(rewrites) == ["decompose core.softmax"]
    assert "core.gelu" in [op.kind for op in after.main.body.ops]


def test_decompositions_of_the_default_list_exist():
    for kind in Decompose().kinds.split(","):
        assert f"core.{kind}" not in REGISTRY or REGISTRY[f"core.{kind}"].decompose is not None


# -- fold batch norm -------------------------------------------------------------------------------

IMAGE = "2x3x5x5xf32"


def normalised(shifted: bool = False, constant: bool = True, axis: int = 1, dims=(1,), twice=False):
    random = np.random.default_rng(3)

    def build(b, x, *free):
        data = random.standard_normal((4, 3, 3, 3)).astype(np.float32)
        w = b.constant(data) if constant else free[0]
        y = conv = b.conv(x, w, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=1)
        if shifted:
            size = tuple(y.type.shape[d] for d in dims)
            shift = b.constant(random.standard_normal(size).astype(np.float32))
            y = b.add(y, b.broadcast(shift, shape=y.type.shape, dims=dims))
        channels = y.type.shape[axis]
        numbers = [b.constant(random.uniform(0.5, 2, channels).astype(np.float32)) for _ in "sbmv"]
        y = b.batch_norm(y, *numbers, axis=axis, epsilon=1e-5)
        return (y, conv) if twice else y

    return build


@pytest.mark.parametrize(("shifted", "rule"), [(False, RULES[0]), (True, RULES[1])])
def test_batch_norm_goes_into_the_weights(shifted, rule):
    before = program(normalised(shifted), IMAGE)
    after, rewrites = specs.apply(FoldBatchNorm(), before)
    assert specs.rules_fired(rewrites) == [rule.name]
    folded, _ = specs.apply(FoldConstants(), after)
    kinds = [op.kind for op in specs.live(folded).main.body.ops if op.kind != "core.constant"]
    assert kinds == ["core.conv", "core.broadcast", "core.add"]
    (record,) = specs.check(before, after, rewrites, exact=False)
    assert record.verdict == "within" and 0 < record.worst_error <= rule.tolerance


@pytest.mark.parametrize(
    ("rule", "build", "types", "reason"),
    [
        (0, normalised(constant=False), (IMAGE, "4x3x3x3xf32"), "operand w is not a constant"),
        (0, normalised(axis=3), (IMAGE,), "the attributes or types of this core.batch_norm"),
        (0, normalised(twice=True), (IMAGE,), "the result of this core.conv has other uses"),
        (1, normalised(True, dims=(3,)), (IMAGE,), "the addend is not one number a channel"),
    ],
)
def test_batch_norm_stays_with_a_reason(rule, build, types, reason):
    before = program(build, *types)
    assert reason in explain(RULES, before, specs.root_of(before))[rule][1]
    assert specs.apply(FoldBatchNorm(), before)[0] is before


def test_without_an_addend_the_second_rule_refuses():
    before = program(normalised(), IMAGE)
    answers = [answer for _, answer, _ in explain(RULES, before, specs.root_of(before))]
    assert answers == ["fires here", "found core.conv where the rule wants core.add"]


def test_grouped_convolutions_fold_too():
    def build(b, x):
        data = np.random.default_rng(1).standard_normal((4, 1, 3, 3)).astype(np.float32)
        y = b.conv(x, b.constant(data), strides=(2, 2), low=(1, 1), high=(1, 1), dilations=(1, 1),
                   groups=4)  # fmt: skip
        numbers = [b.constant(np.linspace(0.5, 2, 4, dtype=np.float32)) for _ in "sbmv"]
        return b.batch_norm(y, *numbers, axis=1, epsilon=1e-3)

    before = program(build, "1x4x6x6xf32")
    after, rewrites = specs.apply(FoldBatchNorm(), before)
    assert len(rewrites) == 1
    specs.check(before, after, rewrites, exact=False)


# -- control flow ----------------------------------------------------------------------------------


def test_passes_go_into_branches():
    def build(b, p, x):
        inner = Builder()
        then = inner.neg(inner.neg(x))
        branches = (Block((), tuple(inner.ops), (then,)), Block((), (), (x,)))
        return b.op("core.if", (p,), regions=branches)

    before = program(build, "i1", "3xf32")
    after, rewrites = specs.apply(Canonicalise(), before)
    assert specs.rules_fired(rewrites) == ["-(-x) => x"]
    assert rewrites[0].function == "main/core.if"
    assert not list(after.main.body.ops[0].regions[0].ops)
    specs.check(before, after, rewrites, exact=True)
    specs.assert_same_results(before, after)
