"""Drop gradients: those that nobody asked for are no results of the step."""

from __future__ import annotations

from core_compiler.training.graph.roles import Roles
from core_compiler.training.passes.drop_gradients import DropGradients
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import noted, step

ARGUMENTS = ("batch x: 4xf32", "parameter w: 4xf32", "parameter v: 4xf32")


def updated(b, x, w, v):
    g, h = b.exp(x), b.sin(x)
    return b.reduce_sum(x, axes=(0,)), g, b.sub(w, g), h, b.sub(v, h)


WITH = ("loss", "gradient w", "next w", "gradient v", "next v")


def without(b, x, w, v):
    loss, _, next_w, _, next_v = updated(b, x, w, v)
    return loss, next_w, next_v


def test_the_gradients_are_no_longer_results_and_the_optimiser_reads_them_still():
    before = step(updated, ARGUMENTS, WITH)
    after, rewrites = specs.apply(DropGradients(), before)
    assert specs.rules_fired(rewrites) == ["roles of results"]
    specs.assert_same_program(after, step(without, ARGUMENTS, ["loss", "next w", "next v"]))
    assert after.main.body.ops == before.main.body.ops
    told = [("note", "2 gradients are no longer results")]
    assert noted(DropGradients(), before) == told


def test_the_memory_of_the_old_state_goes_to_the_results_of_the_new_numbers():
    before = step(updated, ARGUMENTS, WITH)
    assert before.main.attributes["aliases"] == ((2, 1), (4, 2))
    after, rewrites = specs.apply(DropGradients(), before)
    assert after.main.attributes["aliases"] == ((1, 1), (2, 2))
    assert rewrites[0].attributes == {
        "results": (("loss", -1), ("next", 1), ("next", 2)),
        "aliases": ((1, 1), (2, 2)),
    }


def test_a_step_without_gradients_stays_the_same_module():
    before = step(without, ARGUMENTS, ["loss", "next w", "next v"])
    after, rewrites = specs.apply(DropGradients(), before)
    assert after is before and not rewrites
    assert noted(DropGradients(), before) == []


def test_what_is_left_has_the_same_bits():
    before = step(updated, ARGUMENTS, WITH)
    after, _ = specs.apply(DropGradients(), before)
    arrays = inputs(before, special=True)
    held = dict(zip(Roles.of(before.main).results, specs.outputs(before, arrays), strict=True))
    left = dict(zip(Roles.of(after.main).results, specs.outputs(after, arrays), strict=True))
    assert list(left) == [("loss", -1), ("next", 1), ("next", 2)]
    for row, array in left.items():
        assert array.tobytes() == held[row].tobytes(), row
