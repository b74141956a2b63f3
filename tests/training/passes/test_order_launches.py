"""Order launches: those that let memory go, and tiny ones, run as early as possible."""

from __future__ import annotations

import pytest

from core_compiler.training.passes.order_launches import OrderLaunches
from tests.passes import specs
from tests.training.passes.steps import launched, outlined

#: 1,024 bytes each, so that no launch of one is tiny.
ARGUMENTS = ("batch x: 16x16xf32", "parameter w: 16x16xf32", "parameter v: 16x16xf32")


def total(b, x):
    return b.reduce_sum(x, axes=(0, 1))


def late(b, x, w, v):
    """Both updates come after both gradients."""
    loss, of_w, of_v = total(b, x), b.exp(x), b.tanh(x)
    return loss, b.sub(w, of_w), b.add(v, of_v), of_v


LATE = ("loss", "next w", "next v", "gradient v")


def test_an_update_that_lets_its_gradient_go_comes_right_after_it():
    before = outlined(late, ARGUMENTS, LATE)
    assert launched(before) == "reduce_sum exp tanh sub add"
    after, rewrites = specs.apply(OrderLaunches(), before)
    assert launched(after) == "reduce_sum exp sub tanh add"
    assert [(r.rule, r.note) for r in rewrites] == [("launch earlier", "frees 1,024 bytes")]
    specs.assert_same_program(after, before)


def early(b, x, w, v):
    """The update of v takes nothing away: its gradient is a result."""
    loss, of_w = total(b, x), b.exp(x)
    next_w, of_v = b.sub(w, of_w), b.tanh(x)
    return loss, next_w, b.add(v, of_v), of_v


def read_again(b, x, w, v):
    loss, of_w = total(b, x), b.exp(x)
    other = b.mul(w, x)
    return loss, b.sub(w, of_w), v, other


def read_through_a_view(b, x, w, v):
    flat = b.reshape(w, shape=(256,))
    loss, of_w = total(b, x), b.exp(x)
    other = b.neg(flat)
    return loss, b.sub(w, of_w), v, other


def before_the_loss(b, x, w, v):
    of_w = b.exp(x)
    twice = b.add(x, v)
    return total(b, b.mul(v, twice)), b.sub(w, of_w), v, twice


def exchanged(b, x, w, v):
    one, other = b.all_reduce(x, shards=2), b.all_reduce(w, shards=2)
    negated = b.neg(one)
    return total(b, v), negated, other


def before_an_exchange(b, x, w, v):
    loss, of_w, met = total(b, x), b.exp(x), b.all_reduce(x, shards=2)
    return loss, b.sub(w, of_w), v, met


def two_readers(b, x, w, v):
    loss, value, other = total(b, x), b.exp(x), b.tanh(x)
    return loss, b.neg(value), b.sin(value), other


@pytest.mark.parametrize(
    ("build", "results"),
    [
        (early, LATE),
        (read_again, LATE),  # the old w is read after its gradient is known
        (read_through_a_view, ("loss", "next w", "next v", "metric")),
        (before_the_loss, LATE),  # a loss that is not finite must leave w as it was
        (before_an_exchange, LATE),  # no shard may change w while others can still fail
        (two_readers, ("loss", "metric", "metric", "metric")),  # the first frees nothing
        (exchanged, ("loss", "gradient w", "gradient v")),  # shards meet side by side
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_order_that_is_right_stays(build, results):
    before = outlined(build, ARGUMENTS, results)
    after, rewrites = specs.apply(OrderLaunches(), before)
    assert not rewrites and after is before


def test_the_last_of_several_readers_lets_a_value_go():
    def readers(b, x, w, v):
        loss, value = total(b, x), b.exp(x)
        first, other = b.neg(value), b.tanh(x)
        return loss, first, b.sin(value), other

    before = outlined(readers, ARGUMENTS, ("loss", "metric", "metric", "metric"))
    assert launched(before) == "reduce_sum exp neg tanh sin"
    after, _ = specs.apply(OrderLaunches(), before)
    assert launched(after) == "reduce_sum exp neg sin tanh"


def test_launches_that_shards_do_not_compute_together_need_not_stay_side_by_side():
    def apart(b, x, w, v):
        one, other = b.exp(x), b.exp(w)
        negated = b.neg(one)
        return total(b, v), negated, other

    before = outlined(apart, ARGUMENTS, ("loss", "gradient w", "gradient v"))
    after, _ = specs.apply(OrderLaunches(), before)
    assert launched(before) == "exp exp neg reduce_sum"
    assert launched(after) == "exp neg exp reduce_sum"


def test_an_update_does_not_wait_for_what_reads_the_new_value_too():
    def both(b, x, w, v):
        made = late(b, x, w, v)[:3]
        return *made, b.mul(w, made[1])

    after, _ = specs.apply(OrderLaunches(), outlined(both, ARGUMENTS, LATE))
    assert launched(after) == "reduce_sum exp sub tanh add mul"


def test_a_launch_of_a_few_numbers_comes_as_early_as_it_can():
    """The rate, which updates wait for."""

    def rated(b, x, w, rate):
        made = b.exp(x), b.tanh(x)
        return total(b, w), *made, b.neg(rate)

    arguments = (*ARGUMENTS[:2], "scalar rate: f32")
    before = outlined(rated, arguments, ("loss", "metric", "metric", "metric"))
    assert launched(before) == "exp tanh reduce_sum neg"
    after, rewrites = specs.apply(OrderLaunches(), before)
    assert launched(after) == "exp neg tanh reduce_sum"
    assert [r.note for r in rewrites] == [""]


def test_every_result_keeps_its_bits_after_any_number_of_rewrites():
    def later(b, x, w, v):
        loss, of_w, of_v = total(b, x), b.exp(x), b.tanh(x)
        other = b.sin(x)
        return loss, b.sub(w, of_w), b.add(v, of_v), other

    before = outlined(later, ARGUMENTS, LATE)
    orders = []
    for limit in (0, 1, 2):
        after, rewrites = specs.apply(OrderLaunches(), before, limit=limit)
        assert len(rewrites) == limit
        orders.append(launched(after))
        specs.assert_same_results(before, after)
    assert orders == [
        "reduce_sum exp tanh sin sub add",
        "reduce_sum exp sub tanh sin add",
        "reduce_sum exp sub tanh add sin",
    ]
