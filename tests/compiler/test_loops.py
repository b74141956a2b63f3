"""Loops whose end depends on data: the device repeats a stretch of launches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import Module
from core_compiler.ops.evaluation import evaluate_block
from core_compiler.passes.find_lifetimes import lifetimes
from core_compiler.passes.plan_memory import PLANNERS
from core_compiler.runtime.program import Loop, Program, Ref
from core_compiler.support.errors import InternalError
from tests.examples import examples
from tests.passes.loops import CASES, below, doubling, given_arrays, loop, next_, product
from tests.passes.programs import program


def wanted(module: Module, arrays) -> tuple[np.ndarray, ...]:
    return evaluate_block(module.main.body, arrays, module.weights)


def same(found, expected) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == np.asarray(b).tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_loop_gives_the_references_bits_and_every_rewrite_is_checked(name):
    build, *types = CASES[name]
    module = program(build, *types)
    arrays = given_arrays(module, 0)
    made = compilation.start(module, "cpu", Options(check=True, threads=2), arrays).finish()
    for first in (0, 3, 9):  # 9: the condition does not hold even once
        again = given_arrays(module, first)
        same(made(*again), wanted(module, again))
    records = [r for stage in made.checks.values() for r in stage]
    assert [r for r in records if r.verdict != "bitwise"] == []
    assert [x.flag for x in made.facts["program"][0].loops if x.trips is None]


@pytest.mark.slow
@pytest.mark.parametrize("trips", [0, 1, 7, 5000])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_counted_loop_asks_nothing_and_gives_the_references_bits(trips, threads):
    """Also one of more launches than one native call runs, and one in another."""

    def build(b, x, y):
        def inner(b, i, x):
            return next_(b, i), b.tanh(b.add(x, b.mul(x, y)))

        def outer(b, i, x):
            return next_(b, i), b.neg(loop(b, (b.constant(0, "i32"), x), below(trips), inner)[1])

        return loop(b, (b.constant(0, "i32"), x), below(2), outer)[1]

    module = program(build, "40xf32", "40xf32")
    arrays = given_arrays(module, 0)
    made = compilation.start(module, "cpu", Options(threads=threads), arrays).finish()
    same(made(*arrays), wanted(module, arrays))
    linked = made.facts["program"][0]
    assert [(x.flag, x.trips) for x in linked.loops] == [(None, 2), (None, trips)]
    assert Program.from_json(linked.to_json()) == linked
    spent = made.profile(repeats=2).samples.loops.spent
    assert spent is not None and (np.all(spent > 0) or not trips)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("planner", PLANNERS)
def test_what_a_loop_reads_from_outside_is_not_overwritten(planner):
    module = program(product, "i64", "7x7xf32", "7x7xf32")
    edit = compilation.PipelineEdit(options={"plan_memory": {"planner": planner}})
    arrays = given_arrays(module, 0)
    made = compilation.start(module, "cpu", Options(threads=1, edit=edit), arrays).finish()
    same(made(*arrays), wanted(module, arrays))


@settings(max_examples=examples(15))
@given(st.data())
def test_any_permutation_of_what_is_carried(data):
    count = data.draw(st.integers(1, 5))
    places = data.draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
    changed = data.draw(st.sets(st.integers(0, count - 1)))

    def build(b, i, *values):
        def body(b, i, *values):
            moved = [values[p] for p in places]
            return next_(b, i), *(b.neg(v) if n in changed else v for n, v in enumerate(moved))

        return loop(b, (i, *values), below(3), body)

    module = program(build, "i32", *["2xf32"] * count)
    arrays = given_arrays(module, 0)
    made = compilation.start(module, "cpu", Options(check=True, threads=1), arrays).finish()
    same(made(*arrays), wanted(module, arrays))
    assert all(r.verdict == "bitwise" for stage in made.checks.values() for r in stage)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["carried", "read later", "two", "square"])
def test_a_part_of_what_a_loop_carries_is_written_where_it_lies(case):
    """Only the part is moved, and only where nobody reads later what was there."""

    def build(b, i, xs, x):
        def body(b, i, xs, ys, x):
            zero = b.constant(0, "i32")
            row = b.reshape(b.tanh(x), shape=(1, 5))
            new = b.dynamic_update_slice(xs, row, i, zero)
            other = ys
            if case == "read later":
                x = b.add(x, b.reduce_sum(b.mul(xs, new), axes=(0,)))
            elif case == "two":
                new, other = b.dynamic_update_slice(new, b.neg(row), b.constant(1, "i32"), zero), xs
            elif case == "square":
                other = b.transpose(new, permutation=(1, 0))
            return next_(b, i), new, other, b.add(x, x)

        return loop(b, (i, xs, xs, x), below(4), body)

    module = program(build, "i32", "5x5xf32", "5xf32")
    arrays = given_arrays(module, 0)
    made = compilation.start(module, "cpu", Options(check=True, threads=2), arrays).finish()
    same(made(*arrays), wanted(module, arrays))
    assert all(r.verdict == "bitwise" for stage in made.checks.values() for r in stage)
    ops = made.stages[-1].module.main.body.ops
    begin, end = (
        next(i for i, op in enumerate(ops) if op.kind == f"target.{k}") for k in ("loop", "repeat")
    )
    whole = [
        op["reason"]
        for op in ops[begin:end]
        if op.kind == "target.copy" and op.operands[1].type.shape == (5, 5)
    ]
    extra = {
        "carried": [],
        "square": ["the next iteration reads it"],
        "read later": ["the launch writes a part of it", "the next iteration reads it"],
        "two": [
            "its place is written next",
            "the launch writes a part of it",
            *["the next iteration reads it"] * 2,
        ],
    }
    assert sorted(whole) == sorted(extra[case])


def test_lifetimes_reach_to_the_end_of_the_loop_that_reads_again():
    module = program(product, "i64", "7x7xf32", "7x7xf32")
    made = compilation.start(module, "cpu", Options(threads=1)).finish()
    ops = list(made.stages[-1].module.main.body.ops)
    begin, end = (
        next(i for i, op in enumerate(ops) if op.kind == f"target.{k}") for k in ("loop", "repeat")
    )
    lives = [x for x in lifetimes(ops) if x.space == "arena"]
    outside = [x for x in lives if x.start < begin]
    inside = [x for x in lives if begin < x.start < end]
    assert outside and all(x.end > end for x in outside)
    assert inside and all(x.end <= end for x in inside)


@pytest.mark.slow
def test_launches_in_a_loop_are_timed_and_the_program_survives_as_json():
    module = program(doubling, "i32", "3x4xf32")
    made = compilation.start(module, "cpu", Options(threads=2), given_arrays(module, 0)).finish()
    profile = made.profile(repeats=3)
    assert all(x.timing.median_us > 0 for x in profile.launches)
    # the last iteration of each launch, one after the other, and what they took in all
    samples = profile.samples
    times = samples.times
    assert np.all(times[..., 0].max(axis=2) >= times[..., 0].max(axis=2)[:, :1])
    assert samples.loops is not None
    assert np.all(samples.loops.spent.sum(axis=1) <= samples.totals)
    linked = made.facts["program"][0]
    assert Program.from_json(linked.to_json()) == linked


def test_a_program_whose_loops_do_not_fit_is_refused():
    flag = Ref("arena", 0, 0)
    for wrong in (
        Loop(0, 2, 1, flag),
        Loop(0, 0, 1, flag),
        Loop(0, 0, 0, Ref("arena", 0, 64)),
        Loop(0, 0, 0, None),
        Loop(0, 0, 0, None, -1),
    ):
        with pytest.raises(InternalError, match="Loop"):
            Program("p", (), (), (), (), arena_bytes=64, loops=(wrong,)).check()
