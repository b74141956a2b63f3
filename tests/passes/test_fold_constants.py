"""Fold constants: text to text."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import dtype as ir_dtype
from core_compiler.ops import evaluate_block
from core_compiler.passes.fold_constants import FoldConstants
from tests.passes import specs
from tests.passes.programs import program
from tests.passes.specs import becomes


def test_ops_on_constants_are_evaluated():
    becomes(
        FoldConstants(),
        "%x: tensor<2xf32>",
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
    )


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
    assert specs.rules_fired(rewrites) == ["fold core.mul", "fold core.reduce_sum"]
    specs.assert_same_program(
        after, program(lambda b, x: b.mul(x, b.constant(4500.0, "f32")), "f32")
    )


def scaled(b, x):
    """``x`` times a factor a channel, which constants of several shapes make."""
    shape = x.type.shape
    one, many = b.constant(np.float32(0.5)), b.constant(np.arange(1, 41, dtype=np.float32))
    factor = b.mul(
        b.broadcast(one, shape=shape, dims=()), b.broadcast(many, shape=shape, dims=(1,))
    )
    return b.mul(x, b.div(factor, b.broadcast(one, shape=shape, dims=())))


def test_elementwise_ops_of_broadcasts_are_folded_before_they_are_broadcast():
    before = program(scaled, "50x40xf32")
    after, rewrites = specs.apply(FoldConstants(), before)
    assert specs.rules_fired(rewrites) == ["fold core.mul", "fold core.div"]
    assert specs.kinds(specs.live(after)) == ["broadcast", "mul"]
    specs.check(before, after, rewrites, exact=True)


def test_broadcasts_along_different_axes_stay():
    def build(b, x):
        rows = b.constant(np.arange(50, dtype=np.float32))
        columns = b.constant(np.arange(40, dtype=np.float32))
        wide = [b.broadcast(v, shape=(50, 40), dims=(i,)) for i, v in enumerate((rows, columns))]
        return b.add(x, b.mul(*wide))

    assert not specs.apply(FoldConstants(), program(build, "50x40xf32"))[1]


def test_a_broadcast_operand_as_large_as_the_result_stays():
    def build(b, x):
        large = b.iota(shape=(50, 40), dtype="f32", axis=0)
        wide = b.broadcast(large, shape=(1, 50, 40), dims=(1, 2))
        two = b.broadcast(b.constant(2.0, "f32"), shape=(1, 50, 40), dims=())
        return b.add(x, b.mul(wide, two))

    assert not specs.apply(FoldConstants(), program(build, "1x50x40xf32"))[1]


@pytest.mark.parametrize(
    ("dtype", "special"),
    [("i8", None)]
    + [(d, s) for d in ("f32", "bf16", "f16", "f8E5M2") for s in (None, np.inf, np.nan)],
)
def test_a_product_with_zeros_is_zeros_unless_a_factor_is_not_finite(dtype, special):
    kind = ir_dtype(dtype).numpy
    zeros, weights = np.zeros((3, 5), kind), np.full((5, 4), -1.5).astype(kind)
    zeros[1] = -zeros[1]
    if special is not None:
        weights[2, 3] = special

    def build(b, x):
        return b.add(x, b.cast(b.matmul(b.constant(zeros), b.constant(weights)), dtype="f32"))

    module = program(build, "3x4xf32")
    x = np.full((3, 4), -0.0, np.float32)
    after, rewrites = specs.apply(FoldConstants(), module)
    assert "fold core.matmul" in specs.rules_fired(rewrites)
    before, folded = (evaluate_block(m.main.body, [x])[0] for m in (module, after))
    np.testing.assert_array_equal(folded.view(np.int32), before.view(np.int32))
    assert np.isnan(folded).any() == (special is not None)
