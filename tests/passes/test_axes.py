"""Axes in digits: chains of views are followed, and what they moved can be moved at once."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core_compiler.ir import Op, Rewriter, Value, tensor
from core_compiler.passes.axes import (
    canonical_digits,
    covers,
    flatten_axes,
    identity_axes,
    length,
    operand_axes,
    rearrange,
    refine_axes,
    split_digits,
    view_chain,
)
from core_compiler.passes.rules import View
from tests.passes import specs
from tests.passes.programs import program

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def chains(draw):
    """(shape of x, a function that moves x in a few steps): reshapes, transposes, repetitions."""
    shape = current = draw(SIZES)
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["reshape", "transpose", "broadcast"]))
        if kind == "transpose":
            order = tuple(draw(st.permutations(range(len(current)))))
            steps.append((kind, {"permutation": order}))
            current = tuple(current[a] for a in order)
        elif kind == "reshape":
            target = list(current)
            place = draw(st.integers(0, len(target) - 1))
            divisors = [d for d in range(1, target[place] + 1) if target[place] % d == 0]
            part = draw(st.sampled_from(divisors))
            target[place : place + 1] = [part, target[place] // part]
            if draw(st.booleans()):
                at = draw(st.integers(0, len(target) - 2))
                target[at : at + 2] = [target[at] * target[at + 1]]
            current = tuple(target)
            steps.append((kind, {"shape": current}))
        else:
            assume(len(current) < 6 and prod(current) < 500)
            place = draw(st.integers(0, len(current)))
            wide = (*current[:place], draw(st.integers(1, 3)), *current[place:])
            dims = tuple(a for a in range(len(wide)) if a != place)
            steps.append((kind, {"shape": wide, "dims": dims}))
            current = wide

    def build(b, x):
        for kind, attributes in steps:
            x = getattr(b, kind)(x, **attributes)
        return x

    return shape, build


def text(shape) -> str:
    return "x".join([*map(str, shape), "f32"])


@given(chains())
def test_a_chain_of_views_is_one_rearrangement(drawn):
    shape, build = drawn
    module = program(build, text(shape))
    view = View(Rewriter(module.main.body), module.weights)
    (value,) = module.main.outputs
    target = axes = identity_axes(value.type.shape)
    while (maker := view.producer(value)) is not None:
        axes = operand_axes(maker, axes)
        assume(axes is not None)
        assert tuple(map(length, axes)) == maker.operands[0].type.shape
        (value,) = maker.operands
    assume(covers(target, axes))
    at_once = program(lambda b, x: rearrange(b, x, axes, target), text(shape))
    assert len(at_once.main.body.ops) <= 4
    array = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    wanted, got = (specs.outputs(m, [array])[0] for m in (module, at_once))
    np.testing.assert_array_equal(got, wanted)


def test_an_axis_that_a_reshape_cuts_has_two_digits():
    assert split_digits(flatten_axes(identity_axes((6, 4))), (2, 3, 4)) == (
        ((0, 3, 2),),
        ((0, 1, 3),),
        ((1, 1, 4),),
    )
    assert split_digits(flatten_axes(identity_axes((2, 3))), (6,)) == (((0, 1, 2), (1, 1, 3)),)
    assert identity_axes((2, 1)) == (((0, 1, 2),), ())


def test_digits_that_do_not_divide_say_nothing():
    assert split_digits(flatten_axes(identity_axes((2, 3))), (3, 2)) is None
    assert refine_axes([((0, 2, 3),)], [((0, 3, 2),)]) is None
    assert not covers([((0, 2, 3),)], [((0, 3, 2),)])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([((0, 3, 2),), ((0, 1, 3),)], [((0, 1, 6),)], True),
        ([((0, 1, 3),), ((0, 3, 2),)], [((0, 1, 6),)], True),
        ([((0, 1, 3),)], [((0, 1, 6),)], False),
        ([((0, 1, 2),), ((1, 1, 2),)], [((1, 1, 2),), ((0, 1, 2),)], True),
    ],
)
def test_what_axes_cover_does_not_depend_on_how_they_lie(one, other, same):
    assert (canonical_digits(one) == canonical_digits(other)) == same


def test_a_digit_covers_its_part():
    assert covers([((0, 1, 6),)], [((0, 3, 2),)])
    assert not covers([((0, 3, 2),)], [((0, 1, 6),)])


def test_views_of_a_value_that_is_a_view_of_itself_end():
    """Among the forms of an e-graph's class may be one that reads the class."""
    value = Value(tensor((3,), "f32"))
    again = Op("core.reshape", (value,), (value,), {"shape": (3,)})
    view = SimpleNamespace(producer=lambda of: again)
    assert list(view_chain(value, identity_axes((3,)), view, repeats=True)) == [
        (value, identity_axes((3,)))
    ]
