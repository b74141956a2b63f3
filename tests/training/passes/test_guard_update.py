"""Guard the update: the old state stays if a gradient is not finite, and the factor moves."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.loss_scale import Dynamic, Static
from core_compiler.training.optimisers.optimizers import SGD, Adagrad
from core_compiler.training.passes.guard_update import GuardUpdate
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import step

SKIPPED = "scalar skipped_updates: i64"
FIXED = (
    "batch x: 4xf32",
    "parameter w: 4xf32",
    "slot m of w: 4xf32",
    "buffer n: i64",
    SKIPPED,
    "scalar iteration: i64",
)
RESULTS = (
    "loss",
    "finite",
    "next w",
    "next m of w",
    "next n",
    "next skipped_updates",
    "next iteration",
)


def updated(b, x, w, m, n, skipped, iteration):
    finite = b.reduce_and(b.is_finite(x), axes=(0,))
    loss = b.reduce_sum(x, axes=(0,))
    return loss, finite, b.sub(w, x), b.mul(m, x), b.add(n, n), skipped, b.add(iteration, n)


def guarded():
    before = step(updated, FIXED, RESULTS)
    return before, *specs.apply(GuardUpdate(Static(8.0), SGD()), before)


def test_parameters_and_slots_are_chosen_by_the_gradients_and_nothing_else_is():
    _, after, rewrites = guarded()
    keep = "keep what it was, unless all gradients are finite"
    assert specs.rules_fired(rewrites) == ["the loss's next factor", keep, keep, "roles of results"]

    def wanted(b, x, w, m, n, skipped, iteration):
        loss, finite, *made, of_n, _, of_iteration = updated(b, x, w, m, n, skipped, iteration)
        pairs = zip(made, (w, m), strict=True)
        kept = [b.select(b.expand(finite, (4,)), new, old) for new, old in pairs]
        count = b.add(skipped, b.cast(b.not_(finite), dtype="i64"))
        return loss, *kept, of_n, count, of_iteration

    left = [row for row in RESULTS if row != "finite"]
    specs.assert_same_program(after, step(wanted, FIXED, left))


@pytest.mark.parametrize("number", [1.5, np.nan])
def test_the_old_bits_stay_or_the_new_ones_come(number):
    before, after, rewrites = guarded()
    arrays = inputs(before)
    arrays[0][2] = number
    loss, finite, next_w, next_m, *counts = specs.outputs(before, arrays)
    assert finite == np.isfinite(number)
    made = specs.outputs(after, arrays)
    assert made[0].tobytes() == loss.tobytes()
    for new, old, there in zip((next_w, next_m), arrays[1:3], made[1:3], strict=True):
        assert there.tobytes() == (new if finite else old).tobytes()
        assert new.tobytes() != old.tobytes()
    assert made[3:] == [counts[0], counts[1] + (not finite), counts[2]]
    verdicts = [r.verdict for r in specs.check(before, after, rewrites, exact=True)]
    assert verdicts == ["within"] * 3 + ["bitwise"]


def test_the_numbers_of_the_optimiser_are_guarded_with_its_slots():
    arguments = ("parameter w: 4xf32", "scalar steps: f64", SKIPPED)

    def counted(b, w, steps, skipped):
        return b.reduce_sum(w, axes=(0,)), b.constant(False), w, b.add(steps, steps), skipped

    results = ["loss", "finite", "next w", "next steps", "next skipped_updates"]
    before = step(counted, arguments, results)
    guard = GuardUpdate(Static(8.0), Adagrad(rate_decay=0.5))
    after, rewrites = specs.apply(guard, before)
    row = Roles.of(after.main).result("next", 1)
    chosen = after.main.body.producers()[after.main.outputs[row]]
    assert chosen.kind == "core.select" and chosen.operands[2] is after.main.arguments[1]
    assert "a guarded update" in [r.claim.name for r in rewrites if r.claim]


def test_a_parameter_that_does_not_move_needs_no_choice():
    arguments = ("batch x: 4xf32", "parameter w: 4xf32", SKIPPED)

    def still(b, x, w, skipped):
        finite = b.reduce_and(b.is_finite(x), axes=(0,))
        return b.reduce_sum(x, axes=(0,)), finite, w, skipped

    before = step(still, arguments, ["loss", "finite", "next w", "next skipped_updates"])
    after, rewrites = specs.apply(GuardUpdate(Static(8.0), SGD()), before)
    assert specs.rules_fired(rewrites) == ["the loss's next factor", "roles of results"]
    assert after.main.outputs[1] is after.main.arguments[1]


@pytest.mark.parametrize(
    ("good", "scale", "count", "wanted"),
    [
        (True, 16, 0, (16, 1, 5)),
        (True, 16, 2, (32, 0, 5)),
        (True, 2.0**127, 2, (2.0**127, 0, 5)),  # twice that is infinite
        (False, 16, 2, (8, 0, 6)),
    ],
)
def test_a_dynamic_factor_grows_after_a_run_and_falls_at_once(good, scale, count, wanted):
    names = ("loss_scale", "growth_tracker", "skipped_updates")
    arguments = ("batch x: 2xf32", "scalar loss_scale: f32", "scalar growth_tracker: i64", SKIPPED)

    def same(b, x, *state):
        return b.reduce_sum(x, axes=(0,)), b.reduce_and(b.is_finite(x), axes=(0,)), *state

    before = step(same, arguments, ["loss", "finite", *(f"next {n}" for n in names)])
    after, _ = specs.apply(GuardUpdate(Dynamic(interval=3), SGD()), before)
    x = np.array([1, 2 if good else np.inf], np.float32)
    arrays = [x, np.float32(scale), np.int64(count), np.int64(5)]
    with np.errstate(over="ignore"):
        _, *made = specs.outputs(after, arrays)
    assert tuple(made) == wanted and made[0].dtype == np.float32
