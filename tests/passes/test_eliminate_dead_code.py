"""Eliminate dead code: text to text."""

from __future__ import annotations

from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from tests.passes import specs
from tests.passes.programs import program
from tests.passes.specs import becomes


def test_chains_that_nobody_reads_are_removed_from_the_end():
    becomes(
        EliminateDeadCode(),
        "%x: tensor<4xf32>",
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
    )


def test_an_op_with_one_used_result_stays():
    def build(b, x):
        values, _ = b.topk(x, axis=0, k=2, largest=True)
        return values

    before = program(build, "5xf32")
    after, rewrites = specs.apply(EliminateDeadCode(), before)
    assert after is before and not rewrites
