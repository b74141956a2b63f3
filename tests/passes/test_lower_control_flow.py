"""Lower control flow: conditionals become both branches and a choice, loops stay."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.ir import Block, Value, tensor
from core_compiler.ops.builder import Builder
from core_compiler.passes.lower_control_flow import LowerControlFlow
from tests.passes import specs
from tests.passes.loops import region
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
    first, second = compilation.start(before, "cpu").finish()(*map(np.asarray, arrays))
    np.testing.assert_array_equal(first, wanted)
    assert second.tobytes() == X.tobytes()


@pytest.mark.parametrize("first", [True, False])
def test_a_conditional_may_read_another(first):
    def build(b, p, x):
        def arm(factor):
            return region([x.type], lambda i, v: i.mul(v, i.scalar_like(factor, v)))

        y = b.op("core.if", (p, x), regions=(arm(2), arm(3)))
        return b.op("core.if", (p, y), regions=(arm(5), arm(7)))

    before = program(build, "i1", "3xf32")
    after, rewrites = specs.apply(LowerControlFlow(), before)
    specs.check(before, after, rewrites, exact=True)
    (made,) = compilation.start(before, "cpu").finish()(np.bool_(first), np.ones(3, np.float32))
    np.testing.assert_array_equal(made, np.full(3, 10 if first else 21, np.float32))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_a_loop_in_the_branch_that_is_not_taken_does_not_run(other, nested):
    """It would never end: what ends it, a positive step, holds in its own branch only."""
    number = tensor((), "f32")

    def build(b, x):
        def loop(i, value):
            going = region([number], lambda j, v: j.lt(v, j.scalar_like(10, v)))
            body = region([number], lambda j, v: j.add(v, x))
            return i.op("core.while", (value,), regions=(going, body))

        def once(i, value):
            """A loop around it, whose own end is known."""
            kind = tensor((), "i32")
            n, v, m, w = Value(kind), Value(number), Value(kind), Value(number)
            test, inner = Builder(), Builder()
            going = test.lt(n, test.scalar_like(2, n))
            outs = (inner.add(m, inner.scalar_like(1, m)), loop(inner, w))
            return i.op(
                "core.while",
                (i.constant(0, "i32"), value),
                trips=2,
                regions=(
                    Block((n, v), tuple(test.ops), (going,)),
                    Block((m, w), tuple(inner.ops), outs),
                ),
            )[1]

        running = region([number], once if nested else loop)
        staying = region([number], lambda i, v: i.neg(v))
        positive = b.gt(x, b.scalar_like(0, x))
        p = b.not_(positive) if other else positive
        arms = (staying, running) if other else (running, staying)
        return b.op("core.if", (p, x), regions=arms)

    before = program(build, "f32")
    made = compilation.start(before, "cpu").finish()
    np.testing.assert_array_equal(made(np.float32(4))[0], np.float32(12))
    np.testing.assert_array_equal(made(np.float32(-2))[0], np.float32(2))


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
