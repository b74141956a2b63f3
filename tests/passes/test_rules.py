"""The pattern matcher: alternatives, looking through ops, names that are asked for twice."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import Rewriter
from core_compiler.ir.refusal import Refusal
from core_compiler.passes.rules import (
    Any_,
    Const,
    Match,
    MatchFailure,
    Rule,
    View,
    either,
    fits,
    op,
    views,
)
from tests.passes import specs
from tests.passes.programs import program

X = "2x3xf32"


def found(pattern, build, *types) -> Match | Refusal:
    module = program(build, *types)
    rule = Rule("x => x", pattern, lambda b, m: m["x"])
    return rule.attempt(specs.root_of(module), View(Rewriter(module.main.body), module.weights))


def moved(b, x):
    return b.transpose(b.reshape(x, shape=(3, 2)), permutation=(1, 0))


ROOT = either(op("exp", "x"), op("tanh", "x"))


@pytest.mark.parametrize("kind", ["exp", "tanh"])
def test_any_alternative_will_do(kind):
    got = found(op("neg", ROOT), lambda b, x: b.neg(getattr(b, kind)(x)), X)
    assert isinstance(got, Match) and [o.kind for o in got.ops] == ["core.neg", f"core.{kind}"]


def test_a_refusal_of_alternatives_is_that_of_one():
    got = found(op("neg", ROOT), lambda b, x: b.neg(b.abs(x)), X)
    assert isinstance(got, Refusal)
    assert "found core.abs where the rule expects core.tanh" in str(got)


def test_what_a_name_is_in_one_alternative_it_is_after_it():
    """An alternative that matches is given up where the rest of the pattern does not."""
    pattern = op("sub", either(op("exp", "y"), "y"), "y")
    got = found(pattern, lambda b, x: b.sub(e := b.exp(x), e), X)
    assert isinstance(got, Match) and set(got.values) == {"y"}


def test_ops_that_are_looked_through_belong_to_the_match():
    pattern = op("neg", op("exp", "x", through=views))
    got = found(pattern, lambda b, x: b.neg(moved(b, b.exp(x))), X)
    assert isinstance(got, Match)
    kinds = [o.kind[5:] for o in got.ops]
    assert kinds == ["neg", "transpose", "reshape", "exp"]
    assert isinstance(
        found(op("neg", op("exp", "x")), lambda b, x: b.neg(moved(b, b.exp(x))), X), Refusal
    )


def test_a_value_behind_views_is_bound_as_it_is_there():
    pattern = op("mul", Any_("x", views), Any_("x", views))
    got = found(pattern, lambda b, x: b.mul(moved(b, x), b.reshape(x, shape=(2, 3))), X)
    assert isinstance(got, Match) and got["x"].name == "x"


def test_a_value_that_views_share_is_used_more_than_once():
    pattern = op("neg", op("exp", "x", through=views, one_use=True))

    def build(b, x):
        shared = b.reshape(b.exp(x), shape=(3, 2))
        return b.neg(shared), b.abs(shared)

    got = found(pattern, build, X)
    assert isinstance(got, Refusal) and got.condition == "one use"
    assert "has other uses" in str(got)


@pytest.mark.parametrize(("second", "same"), [(2.0, True), (3.0, False)])
def test_a_constant_named_twice_is_the_same_number(second, same):
    pattern = op("div", op("sub", "x", Const("c")), Const("c"))

    def build(b, x):
        shifted = b.sub(x, b.scalar_like(2.0, x))
        return b.div(shifted, b.constant(np.full((2, 3), second, np.float32)))

    got = found(pattern, build, X)
    assert isinstance(got, Match) == same
    assert same or "c would have to be two different constants" in str(got)


@pytest.mark.parametrize(("axes", "same"), [((1,), True), ((0,), False)])
def test_an_op_named_twice_does_the_same(axes, same):
    mean = op("mean", "x", name="mean")

    def build(b, x):
        return b.sub(b.mean(x, axes=(1,)), b.mean(x, axes=axes))

    got = found(op("sub", mean, mean), build, "3x3xf32")
    assert isinstance(got, Match) == same
    assert same or "mean would have to be two different ops" in str(got)


def test_a_check_may_be_refused_from_deep_inside():
    def read(m):
        if m["x"].type.rank == 2:
            raise MatchFailure("it has two axes")

    rule = Rule("-x => |x|", op("neg", "x"), lambda b, m: b.abs(m["x"]), fits(read))
    module = program(lambda b, x: b.neg(x), X)
    view = View(Rewriter(module.main.body), module.weights)
    assert str(rule.attempt(specs.root_of(module), view)) == "it has two axes"
