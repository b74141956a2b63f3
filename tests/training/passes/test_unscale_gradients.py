"""Unscale gradients: the factor of the loss leaves the gradients; are all of them finite?"""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.training.optimisers.loss_scale import Dynamic, Static
from core_compiler.training.passes.unscale_gradients import UnscaleGradients
from tests.passes import specs
from tests.training.passes.steps import step

STATE = ("scalar loss_scale: f32", "scalar growth_tracker: i64", "scalar skipped_updates: i64")
TWO = ("batch x: f32", "parameter w: 2x3xf32", "parameter v: 4xf32", *STATE)
RESULTS = ("loss", "gradient w", "gradient v")
FIXED = ("batch x: f32", "parameter w: 4xf32", "scalar skipped_updates: i64")


def gradients(b, x, w, v, *_):
    return x, b.neg(w), b.neg(v)


def is_finite(b, g):
    return b.reshape(b.reduce_and(b.is_finite(g), axes=tuple(range(g.type.rank))), shape=(1,))


def over_all(b, *seen):
    return b.reduce_and(b.concat(*seen, axis=0), axes=(0,))


def test_each_gradient_is_multiplied_by_one_over_the_factor_and_tested_as_it_arrives():
    after, rewrites = specs.apply(UnscaleGradients(Dynamic()), step(gradients, TWO, RESULTS))
    assert specs.rules_fired(rewrites) == [
        "one over the loss's factor",
        "unscale a gradient",
        "unscale a gradient",
        "are all gradients finite",
        "roles of results",
    ]

    def wanted(b, x, w, v, scale, *_):
        made = gradients(b, x, w, v)[1:]
        share = b.div(b.constant(1, "f32"), scale)
        unscaled = [b.mul(g, b.expand(share, g.type.shape)) for g in made]
        return x, *unscaled, over_all(b, *(is_finite(b, g) for g in made))

    specs.assert_same_program(after, step(wanted, TWO, [*RESULTS, "finite"]))


def test_a_narrow_gradient_is_multiplied_in_f32_and_rounded_once():
    arguments = ("batch x: f32", "parameter w: 4xf16", "scalar skipped_updates: i64")

    def narrow(b, x, w, _):
        return x, b.neg(w)

    def wanted(b, x, w, _):
        g = b.neg(w)
        share = b.expand(b.div(b.constant(1, "f32"), b.constant(3, "f32")), (4,))
        made = b.cast(b.mul(b.cast(g, dtype="f32"), share), dtype="f16")
        return x, made, over_all(b, is_finite(b, g))

    before = step(narrow, arguments, ["loss", "gradient w"])
    after, rewrites = specs.apply(UnscaleGradients(Static(3.0)), before)
    specs.assert_same_program(after, step(wanted, arguments, ["loss", "gradient w", "finite"]))
    verdicts = [r.verdict for r in specs.check(before, after, rewrites, exact=True)]
    assert verdicts == ["within", "within", "within", "bitwise"]


def unscaled(factor: float, numbers) -> tuple[np.ndarray, bool]:
    """A gradient after a fixed factor, and whether it is found to be finite."""
    before = step(lambda b, x, w, _: (x, w), FIXED, ["loss", "gradient w"])
    after, _ = specs.apply(UnscaleGradients(Static(factor)), before)
    arrays = [np.float32(0), np.array(numbers, np.float32), np.int64(0)]
    _, made, finite = specs.outputs(after, arrays)
    return made, bool(finite)


def test_a_power_of_two_changes_exponents_only():
    made, finite = unscaled(1024.0, [1.1, -0.0, 7e8, -3.3e-20])
    assert made.tobytes() == (np.array([1.1, -0.0, 7e8, -3.3e-20], np.float32) / 1024).tobytes()
    assert finite


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 1])
def test_one_number_of_any_gradient_that_is_not_finite_is_found(number, place):
    after, _ = specs.apply(UnscaleGradients(Dynamic()), step(gradients, TWO, RESULTS))
    both = np.ones((2, 3), np.float32), np.ones(4, np.float32)
    arrays = [np.float32(0), *both, np.float32(8), np.int64(0), np.int64(0)]
    assert specs.outputs(after, arrays)[3]
    both[place].flat[-1] = number
    assert not specs.outputs(after, arrays)[3]


def test_a_gradient_that_overflows_as_it_is_unscaled_has_arrived_finite():
    made, finite = unscaled(2.0**-20, [3e38, 1, 1, 1])
    assert np.isinf(made[0]) and finite


def test_without_gradients_all_are_finite():
    after, rewrites = specs.apply(
        UnscaleGradients(Static(2.0)), step(lambda b, x, *_: x, FIXED, ["loss"])
    )
    assert "unscale a gradient" not in specs.rules_fired(rewrites)

    def wanted(b, x, *_):
        return x, b.reduce_and(b.constant([True]), axes=(0,))

    specs.assert_same_program(after, step(wanted, FIXED, ["loss", "finite"]))
