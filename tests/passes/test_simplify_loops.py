"""What loops carry for nothing, and how often their bodies run."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import Block, Module, Op
from core_compiler.ops.costs import cost
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.passes import simplify_loops
from core_compiler.passes.base import PassContext
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.support.errors import InternalError
from tests.passes.loops import below, doubling, given_arrays, loop, next_
from tests.passes.programs import program


def simplified(build, *types) -> tuple[Module, list[str]]:
    """The module after the pass, whose results must be the same bits, and the pass's rules."""
    module, context = program(build, *types), PassContext()
    made = SimplifyLoops().run(module, context)
    arrays = given_arrays(module, 0)
    before, after = (evaluate_block(m.main.body, arrays, m.weights) for m in (module, made))
    assert [a.tobytes() for a in before] == [a.tobytes() for a in after]
    return EliminateDeadCode().run(made, context), [r.rule for r in context.rewrites]


def the_loop(block: Block) -> Op:
    (found,) = (op for op in block.ops if op.kind == "core.while")
    return found


def test_a_loop_may_read_what_another_hands_on_as_it_is():
    def adding(b, i, x, w):
        return next_(b, i), b.add(x, w), w

    def build(b, i, x, w):
        _, y, same = loop(b, (i, x, w), below(3), adding)
        return loop(b, (i, y, same), below(2), adding)[1]

    _, rules = simplified(build, "i32", "3xf32", "3xf32")
    assert rules.count("what a loop leaves as it is is read from outside") == 2


def number(b, value: int, like):
    return b.constant(value, like.type.dtype)


@pytest.mark.parametrize(
    ("start", "step", "test", "limit", "trips"),
    [
        (0, 1, "lt", 5, 5),
        (0, 3, "lt", 10, 4),
        (9, -2, "gt", 0, 5),
        (5, 1, "lt", 5, 0),
        (0, 1, "ne", 7, 7),
        (2, 2, "le", 8, 4),
    ],
)
def test_a_loop_over_constants_says_how_often_its_body_runs(start, step, test, limit, trips):
    def build(b, x):
        def go(b, i, x):
            return b.op(f"core.{test}", (i, number(b, limit, i)))

        def body(b, i, x):
            return b.add(i, number(b, step, i)), b.add(x, x)

        return loop(b, (b.constant(start, "i32"), x), go, body)[1]

    made, rules = simplified(build, "3xf32")
    assert the_loop(made.main.body)["trips"] == trips
    assert rules == ["the iterations of a loop are counted"]


@pytest.mark.slow
def test_a_counter_that_is_no_sum_and_one_that_never_ends():
    def doubles(b, x):
        def body(b, i, x):
            return b.mul(i, number(b, 2, i)), b.neg(x)

        return loop(b, (b.constant(1, "i64"), x), below(1000), body)[1]

    made, _ = simplified(doubles, "3xf32")
    assert the_loop(made.main.body)["trips"] == 10
    forever = program(
        lambda b, x: loop(
            b,
            (b.constant(0, "i32"), x),
            lambda b, i, x: b.ge(i, number(b, 0, i)),
            lambda b, i, x: (b.mul(i, i), x),
        )[1],
        "f32",
    )
    made = SimplifyLoops().run(forever, PassContext())
    assert "trips" not in the_loop(made.main.body).attributes


def test_a_loop_whose_end_depends_on_data_is_not_counted():
    made, rules = simplified(lambda b, i, x: doubling(b, i, x)[1], "i32", "2xf32")
    assert "trips" not in the_loop(made.main.body).attributes and rules == []


def test_what_stays_the_same_and_what_nobody_reads_is_not_carried():
    def build(b, x, w):
        def body(b, i, x, w, unread, y):
            return next_(b, i), b.matmul(x, w), w, b.add(unread, x), b.neg(y)

        made = loop(b, (b.constant(0, "i32"), x, w, x, x), below(3), body)
        return made[1], made[2]

    made, rules = simplified(build, "4x4xf32", "4x4xf32")
    left = the_loop(made.main.body)
    assert len(left.operands) == 2 and left["trips"] == 3
    assert rules == [
        "a loop does not carry what nobody reads",
        "what a loop leaves as it is is read from outside",
        "the iterations of a loop are counted",
    ]
    assert made.main.outputs[1] is made.main.arguments[1]
    flops = cost(left).flops
    assert flops > 3 * 2 * 4 * 4 * 4 - 1


def test_what_is_the_same_in_each_iteration_is_done_once():
    def build(b, x, w):
        def body(b, i, x):
            scaled = b.exp(b.mul(w, b.scalar_like(0.5, w)))
            return next_(b, i), b.add(b.mul(x, scaled), b.transpose(w, permutation=(1, 0)))

        return loop(b, (b.constant(0, "i32"), x), below(3), body)[1]

    made, rules = simplified(build, "4x4xf32", "4x4xf32")
    assert "the same in each iteration: done before a loop" in rules
    inside = [op.kind for op in the_loop(made.main.body).regions[1].ops]
    assert "core.exp" not in inside and "core.transpose" in inside
    assert "core.exp" in [op.kind for op in made.main.body.ops]


def test_nested_loops_are_counted_each(monkeypatch):
    def build(b, x):
        def body(b, i, x):
            inner = loop(
                b, (b.constant(0, "i32"), x), below(2), lambda b, j, x: (next_(b, j), b.mul(x, x))
            )
            return next_(b, i), inner[1]

        return loop(b, (b.constant(0, "i32"), x), below(3), body)[1]

    made, _ = simplified(build, "2xf32")
    outer = the_loop(made.main.body)
    assert (outer["trips"], the_loop(outer.regions[1])["trips"]) == (3, 2)
    monkeypatch.setattr(simplify_loops, "MOST_TRIPS", 2)
    made, _ = simplified(build, "2xf32")
    outer = the_loop(made.main.body)
    assert "trips" not in outer.attributes and the_loop(outer.regions[1])["trips"] == 2


def test_a_wrong_count_is_found_where_the_loop_is_evaluated():
    made, _ = simplified(lambda b, x: doubling(b, b.constant(2, "i32"), x)[1], "f32")
    body = made.main.body
    wrong = [o.with_(attributes={"trips": 4}) if o.kind == "core.while" else o for o in body.ops]
    with pytest.raises(InternalError, match="ran its body 3 times, expected trips = 4"):
        evaluate_block(body.with_(ops=tuple(wrong)), [np.float32(1)], made.weights)
