"""Shard the batch: the program of one shard, with sums over all of them for the whole batch."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import Block
from core_compiler.ops import Builder
from core_compiler.support.errors import UserError
from core_compiler.training.passes.shard_batch import ShardBatch
from core_compiler.training.run.reference import walk
from tests.passes import specs
from tests.training.passes.steps import noted, step

SHARD, W = "shard shard: i64", "parameter w: 3xf32"
MEAN = "the loss is the mean over all shards"
READS = "every shard reads the parameter"


def arguments(rows: int, *more: str) -> tuple[str, ...]:
    return (f"batch x: {rows}x3xf32", SHARD, W, *more)


def squares(b, x, w):
    """The squares of products, of which a step sums up those of its examples."""
    y = b.mul(x, b.expand(w, x.type.shape))
    return b.mul(y, y)


def mean_of(b, values):
    total = b.reduce_sum(values, axes=(0, 1))
    return b.div(total, b.constant(values.type.elements, "f32"))


def test_total_and_count_are_summed_and_the_parameter_is_read_by_every_shard():
    before = step(lambda b, x, s, w: mean_of(b, squares(b, x, w)), arguments(4), ["loss"])
    after, rewrites = specs.apply(ShardBatch(2), before)
    assert specs.rules_fired(rewrites) == [MEAN, READS, READS]

    def wanted(b, x, s, w):
        loss = mean_of(b, squares(b, x, b.distribute(w, shards=2)))
        total, count = next(op for op in b.ops if op.result is loss).operands
        return b.div(b.all_reduce(total, shards=2), b.all_reduce(count, shards=2))

    specs.assert_same_program(after, step(wanted, arguments(4), ["loss"]))


def test_a_loss_that_is_no_quotient_is_the_mean_of_the_shards_terms_one_by_one():
    def own(b, x, s, w):
        penalty = b.mul(b.constant(0.5, "f32"), b.reduce_max(w, axes=(0,)))
        return b.sub(b.add(b.mean(x, axes=(0, 1)), penalty), b.constant(3, "f32"))

    def wanted(b, x, s, w):
        most = b.reduce_max(b.distribute(w, shards=2), axes=(0,))
        whole = [b.all_reduce(term, shards=2) for term in (b.mean(x, axes=(0, 1)), most)]
        terms = [b.div(term, b.constant(2, "f32")) for term in whole]
        total = b.add(terms[0], b.mul(b.constant(0.5, "f32"), terms[1]))
        return b.sub(total, b.constant(3, "f32"))

    after, _ = specs.apply(ShardBatch(2), step(own, arguments(4), ["loss"]))
    specs.assert_same_program(after, step(wanted, arguments(4), ["loss"]))


def test_random_numbers_are_the_shards_own_rows():
    more = ("scalar seed: i64", "scalar iteration: i64")

    def drawn(b, x, s, w, seed, iteration, *shard):
        mask = b.random_uniform(seed, iteration, *shard, shape=x.type.shape, stream=3)
        return b.reduce_sum(b.mul(mask, x), axes=(0, 1))

    def wanted(b, x, s, w, seed, iteration):
        total = b.all_reduce(drawn(b, x, s, w, seed, iteration, s), shards=2)
        return b.div(total, b.constant(2, "f32"))

    after, rewrites = specs.apply(ShardBatch(2), step(drawn, arguments(4, *more), ["loss"]))
    specs.assert_same_program(after, step(wanted, arguments(4, *more), ["loss"]))
    assert "a shard's part of the whole batch's random numbers" in specs.rules_fired(rewrites)


def of_shards(module, x, *others) -> list[np.ndarray]:
    """The results of the first shard, all of them run together."""
    parts = np.split(x, 2)
    given = [[part, np.int64(i), *others] for i, part in enumerate(parts)]
    body = module.main.body
    made = dict(zip(body.arguments, given[0], strict=True))
    for op, seen in walk(module, given):
        made.update(zip(op.results, seen[0][1], strict=True))
    return [made[v] for v in body.outputs]


def normalised(b, x, s, w, held, correction=0):
    mean = b.mean(x, axes=(0,))
    variance = b.variance(x, axes=(0,), plain=True, correction=correction)
    y = b.batch_norm(x, w, w, mean, variance, axis=1, epsilon=1e-5)
    rows = x.type.shape[0]
    unbiased = b.mul(variance, b.scalar_like(rows / (rows - 1), variance))
    return mean_of(b, b.mul(y, y)), b.add(mean, b.mul(unbiased, held))


@pytest.mark.parametrize("correction", [0, 1])
def test_shards_together_compute_what_one_batch_does(correction):
    """Of these numbers all sums are exact, so that the statistics have the same bits."""
    x = np.arange(24, dtype=np.float32).reshape(8, 3) ** 2 % 8
    w, held = np.array([1, 2, -1], np.float32), np.array([0, 1, 8], np.float32)

    def build(*values):
        return normalised(*values, correction=correction)

    whole, part = (step(build, arguments(n, "buffer n: 3xf32"), ["loss", "next n"]) for n in (8, 4))
    loss, following = specs.outputs(whole, [x, np.int64(0), w, held])
    variance = x.astype(np.float64).var(0, ddof=correction) * 8 / 7
    np.testing.assert_allclose(following, x.mean(0) + variance * held, rtol=1e-6)
    after, rewrites = specs.apply(ShardBatch(2), part)
    of_parts = of_shards(after, x, w, held)
    np.testing.assert_array_max_ulp(of_parts[0], loss, 1)
    assert of_parts[1].tobytes() == following.tobytes()
    assert specs.rules_fired(rewrites).count("a statistic over all shards") == 3
    assert noted(ShardBatch(2), part) == []


def test_without_synchronisation_each_shard_has_its_own_statistics():
    before = step(normalised, arguments(2, "buffer n: 3xf32"), ["loss", "next n"])
    after, rewrites = specs.apply(ShardBatch(2, sync_batch_norm=False), before)
    assert "a statistic over all shards" not in specs.rules_fired(rewrites)
    x = np.array([[1, 4, -2], [3, 0, 2], [5, 4, -2], [9, 0, 2]], np.float32)
    w, held = np.ones(3, np.float32), np.array([0, 1, 8], np.float32)
    halves = [part.mean(0) + part.var(0, ddof=1) * held for part in np.split(x, 2)]
    np.testing.assert_array_equal(of_shards(after, x, w, held)[1], sum(halves) / 2)


@pytest.mark.parametrize(
    ("build", "averaged", "severities"),
    [
        (lambda b, x, n: b.mean(x, axes=(0,)), True, []),
        (lambda b, x, n: b.add(n, n), False, []),  # the same on every shard
        (lambda b, x, n: b.add(n, b.reduce_sum(x, axes=(0,))), True, ["warning"]),
        (lambda b, x, n: b.max(n, b.reduce_max(x, axes=(0,))), True, ["warning"]),
    ],
)
def test_a_buffer_that_differs_is_averaged_and_told_unless_it_is_a_mean(
    build, averaged, severities
):
    def moved(b, x, s, w, n):
        return mean_of(b, squares(b, x, w)), build(b, x, n)

    def wanted(b, x, s, w, n):
        loss, after = moved(b, x, s, b.distribute(w, shards=2), n)
        total, count = next(op for op in b.ops if op.result is loss).operands
        loss = b.div(b.all_reduce(total, shards=2), b.all_reduce(count, shards=2))
        if averaged:
            whole = b.all_reduce(after, shards=2)
            after = b.div(whole, b.scalar_like(2, whole))
        return loss, after

    more = arguments(4, "buffer n: 3xf32")
    before = step(moved, more, ["loss", "next n"])
    after, _ = specs.apply(ShardBatch(2), before)
    specs.assert_same_program(after, step(wanted, more, ["loss", "next n"]))
    told = noted(ShardBatch(2), before)
    assert [severity for severity, _ in told] == severities
    start = "the buffer n becomes the mean of what the shards compute from their own examples"
    assert all(message.startswith(start) for _, message in told)


def inside(b, x, s, w, seed, iteration):
    """Random numbers in a branch."""
    inner = Builder()
    drawn = inner.random_uniform(seed, iteration, shape=x.type.shape, stream=0)
    branches = (Block((), tuple(inner.ops), (drawn,)), Block((), (), (x,)))
    test = b.eq(seed, iteration)
    return mean_of(b, b.op("core.if", (test,), regions=branches)), iteration


def counted(b, x, s, w, seed, n):
    positive = b.cast(b.gt(x, b.scalar_like(0, x)), dtype="i64")
    return mean_of(b, squares(b, x, w)), b.add(n, b.reduce_sum(positive, axes=(0, 1)))


def other_statistics(b, x, s, w, seed, n):
    most = b.reduce_max(x, axes=(0,))
    y = b.batch_norm(x, w, w, most, b.mul(most, most), axis=1, epsilon=1e-5)
    return mean_of(b, y), n


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (inside, "core.random_uniform inside core.if would differ between shards"),
        (counted, "the i64 buffer n is computed from the examples and would differ"),
        (
            other_statistics,
            r"the statistics of 1 batch normalisations cannot .* all shards \(model\.py:3\)",
        ),
    ],
)
def test_what_would_differ_between_shards_is_refused(build, said):
    more = ("scalar seed: i64", "buffer n: i64")
    with pytest.raises(UserError, match=said):
        specs.apply(ShardBatch(2), step(build, arguments(4, *more), ["loss", "next n"]))
