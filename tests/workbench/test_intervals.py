"""Intervals of medians, against the coverage that they promise and published ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from workbench.support import intervals


# Ranks of the 95 % interval of the median: Conover, "Practical Nonparametric Statistics", A3, by
# the binomial distribution with p = 1/2.
@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (10, 2), (12, 3), (20, 6), (40, 14)])
def test_the_interval_lies_between_the_ranks_of_the_binomial_distribution(count, rank):
    samples = np.random.default_rng(count).permutation(np.arange(1, count + 1))
    assert intervals.median(samples) == (rank, count + 1 - rank)


@pytest.mark.parametrize("count", range(6))
def test_five_samples_are_too_few(count):
    assert intervals.median([1.0] * count) is None
    assert intervals.ratio([1.0] * count, [1.0] * 10) is None


def test_as_many_intervals_as_promised_hold_the_true_median():
    generator = np.random.default_rng(7)
    runs = generator.lognormal(size=(2000, 15))  # skewed, as times are: its median is 1
    held = [low <= 1 <= high for low, high in map(intervals.median, runs)]
    assert np.mean(held) >= intervals.CONFIDENCE - 0.015  # three standard errors of 2,000


@given(some.floats(1.01, 50), some.integers(0, 2**32 - 1))
def test_the_interval_of_a_ratio_turns_round_with_it(factor, seed):
    generator = np.random.default_rng(seed)
    a, b = factor * generator.uniform(0.9, 1.1, 12), generator.uniform(0.9, 1.1, 12)
    low, high = intervals.ratio(a, b)
    assert low <= np.median(a) / np.median(b) <= high
    assert intervals.ratio(a, b) == (low, high)  # one recording, one figure
    again = intervals.ratio(3 * a, 3 * b)
    assert again == pytest.approx((low, high))


def test_a_ratio_of_times_that_are_no_times_has_no_interval():
    assert intervals.ratio([0.0] * 10, [1.0] * 10) is None
