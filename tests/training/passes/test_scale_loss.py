"""Scale the loss: the loss times a factor is differentiated, and the loss itself is returned."""

from __future__ import annotations

import numpy as np

from core_compiler.training.optimisers.loss_scale import Dynamic, Static
from core_compiler.training.passes.scale_loss import ScaleLoss
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import step

SKIPPED = "scalar skipped_updates: i64"
STATE = ("scalar loss_scale: f32", "scalar growth_tracker: i64", SKIPPED)
FIXED = ("batch x: 2x3xf32", "parameter w: 2x3xf32", SKIPPED)


def loss_of(b, x, w, *_):
    return b.reduce_sum(b.mul(x, w), axes=(0, 1))


def test_a_fixed_factor_is_a_constant_and_the_product_one_more_result():
    before = step(loss_of, FIXED, ["loss"])
    after, rewrites = specs.apply(ScaleLoss(Static(1024.0)), before)
    assert specs.rules_fired(rewrites) == ["scale the loss", "roles of results"]

    def wanted(b, *values):
        loss = loss_of(b, *values)
        return loss, b.mul(loss, b.constant(1024, "f32"))

    specs.assert_same_program(after, step(wanted, FIXED, ["loss", "scaled"]))


def test_a_dynamic_factor_is_that_of_the_state_and_other_results_stay_where_they_are():
    arguments = ("batch x: 2x3xf32", "parameter w: 2x3xf32", "buffer n: i64", *STATE)

    def moved(b, x, w, n, scale, *_):
        return loss_of(b, x, w), b.add(n, n)

    def wanted(b, x, w, n, scale, *_):
        loss, after = moved(b, x, w, n, scale)
        return loss, after, b.mul(loss, scale)

    after, _ = specs.apply(ScaleLoss(Dynamic()), step(moved, arguments, ["loss", "next n"]))
    specs.assert_same_program(after, step(wanted, arguments, ["loss", "next n", "scaled"]))
    assert after.main.attributes["aliases"] == ((1, 2),)


def test_a_loss_of_f64_is_scaled_in_f64():
    arguments = ("batch x: 2x3xf64", "parameter w: 2x3xf64", *STATE)

    def wanted(b, x, w, scale, *_):
        loss = loss_of(b, x, w)
        return loss, b.mul(loss, b.cast(scale, dtype="f64"))

    after, _ = specs.apply(ScaleLoss(Dynamic()), step(loss_of, arguments, ["loss"]))
    specs.assert_same_program(after, step(wanted, arguments, ["loss", "scaled"]))


def test_the_loss_keeps_its_bits_and_is_scaled_exactly_by_a_power_of_two():
    before = step(loss_of, FIXED, ["loss"])
    after, rewrites = specs.apply(ScaleLoss(Static(2.0**20)), before)
    assert after.main.outputs[0] is before.main.outputs[0]
    arrays = inputs(before)
    (old,), (loss, scaled) = specs.outputs(before, arrays), specs.outputs(after, arrays)
    assert loss.tobytes() == old.tobytes()
    assert scaled.tobytes() == (old * np.float32(2.0**20)).tobytes() != loss.tobytes()
    assert [r.verdict for r in specs.check(before, after, rewrites, exact=True)] == [
        "within",
        "bitwise",
    ]
