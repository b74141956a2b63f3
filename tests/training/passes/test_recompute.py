"""Recompute: kernels of the forward pass run again just before gradients read their results."""

from __future__ import annotations

import pytest

from core_compiler.support.errors import UserError
from core_compiler.training.passes.recompute import FACT, Recompute
from tests.passes import specs
from tests.training.passes.steps import launched, noted, outlined

#: 1,024 bytes each.
ARGUMENTS = tuple(f"{role}: 16x16xf32" for role in ("batch x", *(f"parameter {n}" for n in "wvu")))
RESULTS = ("loss", "gradient w", "gradient v", "gradient u")


def three(b, x, w, v, u, middle="tanh"):
    """A loss of three values, each of which one gradient reads."""
    held = [b.exp(x), b.all_reduce(x, shards=2) if middle == "all_reduce" else b.tanh(x), b.sin(x)]
    loss = b.reduce_sum(b.add(b.add(*held[:2]), held[2]), axes=(0, 1))
    return loss, *(b.mul(value, p) for value, p in zip(held, (w, v, u), strict=True))


def test_values_are_computed_again_just_before_they_are_read():
    before = outlined(three, ARGUMENTS, RESULTS)
    assert launched(before) == "exp tanh sin add add reduce_sum mul mul mul"
    facts = {}
    after, rewrites = specs.apply(Recompute(0.4), before, facts=facts)
    assert launched(after) == "exp tanh sin add add reduce_sum mul tanh mul sin mul"
    assert specs.rules_fired(rewrites) == ["compute again", "compute again"]
    ops = after.main.body.ops
    _, tanh, sin, first_sum, second_sum, *_, second_tanh, of_v, second_sin, of_u = ops
    assert first_sum.operands[1] is tanh.result and second_sum.operands[1] is sin.result
    for first, second, reader in ((tanh, second_tanh, of_v), (sin, second_sin, of_u)):
        assert reader.operands[0] is second.result is not first.result
        assert (second["kernel"], second.operands) == (first["kernel"], first.operands)
        assert second.origin.rule == "computed again" and second.origin.parents == (first.origin,)
    assert facts[FACT].plan.again == {1, 2}


@pytest.mark.parametrize(
    ("budget", "severity", "held", "launches"),
    [
        (0.4, "note", "1,024 bytes are held for the backward pass, 33% of 3,072", "2 launches are"),
        (0.7, "note", "2,048 bytes are held for the backward pass, 67% of 3,072", "1 launch is"),
        (0.1, "warning", "no plan within 307 bytes: 1,024 bytes are held", "2 launches are"),
    ],
)
def test_the_bytes_that_are_held_are_told_and_a_budget_that_cannot_be_met(
    budget, severity, held, launches
):
    ((found, message),) = noted(Recompute(budget), outlined(three, ARGUMENTS, RESULTS))
    assert found == severity and message.startswith(held)
    assert message.endswith(f"; {launches} repeated")


def test_with_the_whole_budget_nothing_is_computed_again():
    before = outlined(three, ARGUMENTS, RESULTS)
    after, rewrites = specs.apply(Recompute(1.0), before)
    assert after is before and not rewrites
    assert "0 launches are repeated" in noted(Recompute(1.0), before)[0][1]


def test_a_value_that_is_a_result_of_the_step_is_in_memory_anyway():
    def reported(b, *values):
        loss, *made = three(b, *values)
        return loss, *made, next(op for op in b.ops if op.kind == "core.exp").result

    before = outlined(reported, ARGUMENTS, (*RESULTS, "metric"))
    ((_, message),) = noted(Recompute(1.0), before)
    assert message.startswith("2,048 bytes are held for the backward pass, 100% of 2,048;")


def test_what_shards_compute_together_is_not_repeated():
    def exchanged(b, *values):
        return three(b, *values, middle="all_reduce")

    after, rewrites = specs.apply(Recompute(0.4), outlined(exchanged, ARGUMENTS, RESULTS))
    assert launched(after).split().count("all_reduce") == 1 and rewrites


def test_a_view_of_a_value_that_is_computed_again_is_made_again():
    flat = (*ARGUMENTS[:3], "parameter u: 256xf32")

    def viewed(b, x, w, v, u):
        held = [b.exp(x), b.tanh(x), b.reshape(b.sin(x), shape=(256,))]
        loss = b.reduce_sum(b.mul(*held[:2]), axes=(0, 1))
        loss = b.add(loss, b.reduce_sum(held[2], axes=(0,)))
        return loss, *(b.mul(value, p) for value, p in zip(held, (w, v, u), strict=True))

    before = outlined(viewed, flat, RESULTS)
    after, rewrites = specs.apply(Recompute(0.4), before)
    *_, sin, view, reader = after.main.body.ops
    assert launched(after).endswith("sin mul") and rewrites[-1].note == "2 ops"
    assert view.kind == "core.reshape"
    assert reader.operands[0] is view.result and view.operands == sin.results
    specs.assert_same_results(before, after)


def test_every_result_keeps_its_bits_after_any_number_of_rewrites():
    before = outlined(three, ARGUMENTS, RESULTS)
    for limit in (0, 1, 2):
        after, rewrites = specs.apply(Recompute(0.4), before, limit=limit)
        assert len(rewrites) == limit
        specs.assert_same_results(before, after)


@pytest.mark.parametrize("budget", [0.0, -1.0, 1.5])
def test_a_budget_that_is_no_fraction_is_refused(budget):
    with pytest.raises(UserError, match=f"invalid budget {budget}.*above 0 and up to 1"):
        specs.apply(Recompute(budget), outlined(three, ARGUMENTS, RESULTS))


def test_a_launch_that_is_read_only_after_the_loss_is_delayed_and_not_repeated():
    """Where shards add up the loss, launches of the backward pass precede it."""

    def late(b, x, w, v, u):
        early, held = b.exp(x), b.tanh(x)
        total = b.reduce_sum(early, axes=(0, 1))
        return b.all_reduce(total, shards=2), b.mul(early, w), b.mul(held, v), b.mul(x, u)

    before = outlined(late, ARGUMENTS, RESULTS)
    assert launched(before).startswith("exp tanh reduce_sum all_reduce")
    after, rewrites = specs.apply(Recompute(0.5), before)
    assert launched(after) == "exp reduce_sum all_reduce mul tanh mul mul"
    assert specs.rules_fired(rewrites) == ["compute again", "only read later"]
    ((_, message),) = noted(Recompute(0.5), before)
    assert message.endswith("; 0 launches are repeated, 1 launch is delayed")
