"""Apply the optimiser: the next parameters, and the rest of the next state."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.debug.claims import check_next_state
from core_compiler.training.optimisers.optimizers import OPTIMIZERS, SGD, Adam
from core_compiler.training.passes.apply_optimizer import ApplyOptimizer
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import step

ITERATION = "scalar iteration: i64"
PLAIN = ("batch x: 4xf32", "parameter w: 4xf32", ITERATION)


def gradient(b, x, w, *_):
    return b.reduce_sum(x, axes=(0,)), b.mul(x, x)


def times(b, rate, x):
    """``x`` times a rate of f64, rounded once to the dtype of ``x``."""
    return b.mul(b.expand(b.cast(rate, dtype=x.type.dtype), x.type.shape), x)


def test_a_parameter_moves_by_the_rate_times_its_gradient():
    before = step(gradient, PLAIN, ["loss", "gradient w"])
    after, rewrites = specs.apply(ApplyOptimizer(SGD(0.1)), before)
    assert specs.rules_fired(rewrites) == [
        "numbers of the iteration",
        "update by SGD",
        "roles of results",
    ]

    def wanted(b, x, w, iteration):
        loss, g = gradient(b, x, w)
        following = b.add(iteration, b.constant(1, "i64"))
        return loss, b.sub(w, times(b, b.constant(0.1, "f64"), g)), following, g

    results = ["loss", "next w", "next iteration", "gradient w"]
    specs.assert_same_program(after, step(wanted, PLAIN, results))
    x, w = inputs(before)[:2]
    _, made, iteration, _ = specs.outputs(after, [x, w, np.int64(6)])
    assert made.tobytes() == (w - np.float32(0.1) * (x * x)).tobytes() and iteration == 7


def test_a_slot_moves_with_its_own_parameter():
    arguments = (
        *PLAIN[:2],
        "parameter v: 4xf32",
        "slot momentum_buffer of w: 4xf32",
        "slot momentum_buffer of v: 4xf32",
        ITERATION,
    )

    def gradients(b, x, *_):
        return b.reduce_sum(x, axes=(0,)), b.mul(x, x), b.neg(x)

    def wanted(b, x, w, v, m, n, iteration):
        loss, *made = gradients(b, x)
        rate, moved, held = b.constant(0.1, "f64"), [], []
        for p, old, g in zip((w, v), (m, n), made, strict=True):
            half, one = (b.scalar_like(number, old) for number in (0.5, 1))
            held.append(b.add(b.mul(old, half), b.mul(g, one)))
            moved.append(b.sub(p, times(b, rate, held[-1])))
        return loss, *moved, *held, b.add(iteration, b.constant(1, "i64")), *made

    results = ["loss", "next w", "next v", "next momentum_buffer of w"]
    results += ["next momentum_buffer of v", "next iteration", "gradient w", "gradient v"]
    before = step(gradients, arguments, ["loss", "gradient w", "gradient v"])
    after, _ = specs.apply(ApplyOptimizer(SGD(0.1, momentum=0.5)), before)
    specs.assert_same_program(after, step(wanted, arguments, results))


def test_what_has_no_gradient_and_no_next_value_is_carried_on_and_the_model_counts_itself():
    arguments = (*PLAIN[:2], "parameter v: 4xf32", "buffer n: i64", "buffer held: 2xf32", ITERATION)

    def counting(b, x, w, v, n, held, iteration):
        return *gradient(b, x, w), b.add(n, n), b.sub(iteration, n)

    before = step(counting, arguments, ["loss", "gradient w", "next n", "next iteration"])
    after, rewrites = specs.apply(ApplyOptimizer(SGD(0.1)), before)
    assert specs.rules_fired(rewrites).count("update by SGD") == 1
    loss, next_w, next_v, next_n, next_held, next_iteration, of_w = after.main.outputs
    assert (next_v, next_held) == (after.main.arguments[2], after.main.arguments[4])
    assert (loss, of_w, next_n, next_iteration) == before.main.outputs
    assert next_w not in (*after.main.arguments, *before.main.outputs)


@pytest.mark.parametrize(("skipped", "first"), [(5, True), (4, False)])
def test_updates_that_were_skipped_do_not_count_as_the_first(skipped, first):
    """The first gradient is not dampened."""
    slot = "slot momentum_buffer of w: 4xf32"
    arguments = (*PLAIN[:2], slot, "scalar skipped_updates: i64", ITERATION)
    before = step(gradient, arguments, ["loss", "gradient w"])
    after, _ = specs.apply(ApplyOptimizer(SGD(0.1, momentum=0.5, dampening=0.25)), before)
    x, w, m = (np.linspace(a, 2, 4, dtype=np.float32) for a in (0, 1, -1))
    _, _, held, *_ = specs.outputs(after, [x, w, m, np.int64(skipped), np.int64(5)])
    np.testing.assert_array_equal(held, x * x if first else m / 2 + x * x * 3 / 4)


def test_the_numbers_of_the_optimiser_move_once_for_all_parameters():
    arguments = (
        *PLAIN[:2],
        *(f"slot {n} of w: 4xf32" for n in ("exp_avg", "exp_avg_sq")),
        *(f"scalar beta{i}_power: f64" for i in (1, 2)),
        ITERATION,
    )
    before = step(gradient, arguments, ["loss", "gradient w"])
    after, _ = specs.apply(ApplyOptimizer(Adam()), before)
    x, w, zeros = *inputs(before)[:2], np.zeros(4, np.float32)
    powers = np.float64(0.9) ** 3, np.float64(0.999) ** 3
    made = specs.outputs(after, [x, w, zeros, zeros, *powers, np.int64(3)])
    assert made[4:6] == [powers[0] * 0.9, powers[1] * 0.999]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimiser_computes_its_formula_and_the_step_carries_the_results_on(name):
    optimizer = OPTIMIZERS[name]()
    slots = [f"slot {n} of w: 4xf32" for n in optimizer.slots]
    arguments = (*PLAIN[:2], *slots, *(f"scalar {n}: f64" for n in optimizer.scalars), ITERATION)
    before = step(gradient, arguments, ["loss", "gradient w"])
    after, rewrites = specs.apply(ApplyOptimizer(optimizer), before)
    verdicts = [r.verdict for r in specs.check(before, after, rewrites, exact=True)]
    assert verdicts == ["within", "within", "bitwise"]
    assert not list(check_next_state(rewrites, after.main))
