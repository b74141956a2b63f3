"""Lower control flow: conditionals become both branches and a choice, loops stay."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler import compiler
from core_compiler.ir import Block, Value, tensor
from core_compiler.ops.builder import Builder
from core_compiler.passes.lower_control_flow import LowerControlFlow
from tests.passes import specs
from tests.passes.programs import program

X = np.array([[1.5, -0.0, np.nan], [np.inf, -2.0, 3.0]], np.float32)


def _nested(b, p, q, x):
    """if p: (if q: -x else x), 2 x  else: x * x, captured x; branches read values around them."""
    inner, deepest = Builder(), Builder()
    negated = deepest.neg(x)
    arms = (Block((), tuple(deepest.ops), (negated,)), Block((), (), (x,)))
    chosen = inner.op("core.if", (q,), regions=arms)
    taken = Value(x.type)
    then = Block((taken,), tuple(inner.ops), (chosen, taken))
    other, own = Builder(), Value(x.type)
    squared = other.mul(own, x)
    return b.op("core.if", (p, x), regions=(then, Block((own,), tuple(other.ops), (squared, x))))


@pytest.mark.parametrize("p", [True, False])
@pytest.mark.parametrize("q", [True, False])
def test_nested_conditionals_keep_their_bits_on_the_cpu(p, q):
    before = program(_nested, "i1", "i1", "2x3xf32")
    after, rewrites = specs.apply(LowerControlFlow(), before)
    assert not [op for op in after.main.body.ops if op.regions]
    specs.check(before, after, rewrites, exact=True)
    arrays = (np.bool_(p), np.bool_(q), X)
    wanted = np.where(q, -X, X) if p else X * X
    first, second = compiler.start(before, "cpu").finish()(*map(np.asarray, arrays))
    np.testing.assert_array_equal(first, wanted)
    assert second.tobytes() == X.tobytes()


def test_one_block_may_be_both_branches():
    def build(b, p, x):
        inner = Builder()
        made = inner.neg(x)
        block = Block((), tuple(inner.ops), (made,))
        return b.op("core.if", (p,), regions=(block, block))

    before = program(build, "i1", "3xf32")
    after, rewrites = specs.apply(LowerControlFlow(), before)
    specs.check(before, after, rewrites, exact=True)
    specs.assert_same_results(before, after)


def test_a_loop_keeps_its_place_and_branches_inside_it_go():
    def build(b, go, x):
        inner, scalar = Builder(), tensor((), "i1")
        flag, carried = Value(scalar), Value(x.type)
        arms = (Block((), (), (carried,)), Block((), (), (x,)))
        chosen = inner.op("core.if", (flag,), regions=arms)
        body = Block((flag, carried), tuple(inner.ops), (flag, chosen))
        test = [Value(scalar), Value(x.type)]
        return b.op("core.while", (go, x), regions=(Block(tuple(test), (), (test[0],)), body))

    after, rewrites = specs.apply(LowerControlFlow(), program(build, "i1", "3xf32"))
    (loop,) = [op for op in after.main.body.ops if op.regions]
    assert loop.kind == "core.while"
    assert "core.select" in [op.kind for op in loop.regions[1].ops]
    assert not [op for op in loop.regions[1].ops if op.regions]
    assert [r.function for r in rewrites] == ["main/core.while"]
