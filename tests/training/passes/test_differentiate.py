"""Differentiate: the backward pass, op by op from the loss to the parameters."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.support.errors import UserError
from core_compiler.training.passes.differentiate import Differentiate
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import noted, step

ONE = ("batch x: 2x3xf32", "parameter w: 2x3xf32")
TWO = (*ONE, "parameter v: 2x3xf32")


def total(b, x):
    return b.reduce_sum(x, axes=tuple(range(x.type.rank)))


def ones(b, like):
    return b.expand(b.constant(1, "f32"), like.type.shape)


def test_the_gradient_of_a_sum_of_products_is_the_other_factor():
    before = step(lambda b, x, w: total(b, b.mul(x, w)), ONE, ["loss"])
    after, rewrites = specs.apply(Differentiate(), before)
    assert specs.rules_fired(rewrites) == [
        "the loss's own gradient",
        "gradient of core.reduce_sum",
        "gradient of core.mul",
        "roles of results",
    ]

    def wanted(b, x, w):
        return total(b, b.mul(x, w)), b.mul(ones(b, x), x)

    specs.assert_same_program(after, step(wanted, ONE, ["loss", "gradient w"]))
    assert noted(Differentiate(), before) == []


def test_a_value_with_two_uses_gets_the_sum_last_use_first():
    def twice(b, x, w):
        return total(b, b.add(b.mul(x, w), b.neg(w)))

    def wanted(b, x, w):
        dy = ones(b, x)
        return twice(b, x, w), b.add(b.neg(dy), b.mul(dy, x))

    after, _ = specs.apply(Differentiate(), step(twice, ONE, ["loss"]))
    specs.assert_same_program(after, step(wanted, ONE, ["loss", "gradient w"]))


def test_the_scaled_loss_is_differentiated_and_no_longer_a_result():
    def scaled(b, x, w):
        loss = total(b, b.mul(x, w))
        return loss, b.mul(loss, b.constant(8, "f32"))

    def wanted(b, x, w):
        factor = b.constant(8, "f32")
        dy = b.expand(b.mul(b.constant(1, "f32"), factor), (2, 3))
        return total(b, b.mul(x, w)), b.mul(dy, x)

    after, _ = specs.apply(Differentiate(), step(scaled, ONE, ["loss", "scaled"]))
    specs.assert_same_program(after, step(wanted, ONE, ["loss", "gradient w"]))


def test_the_loss_keeps_its_bits_and_the_gradients_are_the_slopes():
    def curved(b, x, w, v):
        return total(b, b.mul(b.tanh(b.mul(x, w)), b.exp(v)))

    before = step(curved, TWO, ["loss"])
    after, rewrites = specs.apply(Differentiate(), before)
    arrays = inputs(before)
    loss, of_w, of_v = specs.outputs(after, arrays)
    assert loss.tobytes() == specs.outputs(before, arrays)[0].tobytes()
    x, w, v = (a.astype(np.float64) for a in arrays)
    slope = 1 - np.tanh(x * w) ** 2
    np.testing.assert_allclose(of_w, x * slope * np.exp(v), rtol=1e-5)
    np.testing.assert_allclose(of_v, np.tanh(x * w) * np.exp(v), rtol=1e-5)
    assert len(specs.check(before, after, rewrites, exact=True)) == len(rewrites) == 7


@pytest.mark.parametrize(
    ("build", "severity", "said"),
    [
        (
            lambda b, x, w, v: total(b, b.mul(x, w)),
            "warning",
            "the loss does not depend on v: it does not change",
        ),
        (
            lambda b, x, w, v: total(b, b.mul(w, b.sign(v))),
            "warning",
            "v: no gradient passes core.sign (its derivative is 0 wherever it exists; {}",
        ),
        (
            lambda b, x, w, v: total(b, b.mul(w, b.stop_gradient(v))),
            "note",
            "v: no gradient passes core.stop_gradient (it stops gradients intentionally; {}",
        ),
    ],
)
def test_a_parameter_that_no_gradient_reaches_is_named_with_the_reason(build, severity, said):
    before = step(build, TWO, ["loss"])
    after, _ = specs.apply(Differentiate(), before)
    assert after.main.attributes["results"] == (("loss", -1), ("gradient", 1))
    said = said.format("model.py:1, in net); it does not change")
    assert noted(Differentiate(), before) == [(severity, said)]
    assert not [op for op in after.main.body.ops if op.kind == "core.stop_gradient"]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda b, x, w: total(b, x), "the loss does not depend on any trained parameter"),
        (
            lambda b, x, w: total(b, b.mul(x, b.floor(w))),
            r"no parameter gets a gradient: the gradient of the loss stops at core\.floor",
        ),
        (
            lambda b, x, w: total(b, b.bitcast(w, dtype="f32")),
            r"1 op between .* core\.bitcast \(it has no gradient rule; model\.py:1\)",
        ),
    ],
)
def test_a_loss_without_any_gradient_is_refused(build, said):
    with pytest.raises(UserError, match=said):
        specs.apply(Differentiate(), step(build, ONE, ["loss"]))
