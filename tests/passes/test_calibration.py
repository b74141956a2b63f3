"""Ranges from histograms, and weights as integers: against onnxruntime, and by properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization.calibrate import HistogramCollector

from core_compiler.passes.quantize.histograms import (
    BINS,
    Histogram,
    entropy_range,
    least_divergence,
    mse_range,
    percentile_range,
    squared_error,
)
from core_compiler.passes.quantize.parameters import Range
from core_compiler.passes.quantize.weights import quantised_weights
from tests.examples import examples

SHAPES = {
    "normal": lambda r: r.standard_normal(20000),
    "heavy": lambda r: r.standard_normal(20000) ** 3,
    "relu": lambda r: np.maximum(r.standard_normal(20000), 0),
    "shifted": lambda r: r.standard_normal(20000) + 2,
}


def _numbers(name: str, seed: int = 0) -> np.ndarray:
    return SHAPES[name](np.random.default_rng(seed)).astype(np.float32)


def _histogram(*arrays: np.ndarray) -> tuple[Histogram, Range]:
    full = Range(min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays))
    made = Histogram(full.largest)
    for array in arrays:
        made.add(array)
    return made, full


@pytest.mark.parametrize("name", list(SHAPES))
def test_percentiles_are_those_of_onnxruntime_within_a_bin(name):
    x = _numbers(name)[:19997]  # no share of so many numbers is the percentile
    theirs = HistogramCollector("percentile", False, BINS, 128, 99.9, "same")
    theirs.collect({"x": x})
    low, high = theirs.compute_collection_result()["x"][:2]
    histogram, full = _histogram(x)
    ours = percentile_range(histogram, full, 99.9)
    width = 2 * full.largest / BINS * 1.001
    assert abs(ours.low - low) <= width and abs(ours.high - high) <= width


@pytest.mark.parametrize("name", list(SHAPES))
def test_the_least_divergence_is_that_of_onnxruntime(name):
    """Of many numbers: onnxruntime cuts counts for each bin to integers."""
    histogram, _ = _histogram(_numbers(name))
    counts = 100_000 * histogram.counts.reshape(512, -1).sum(1)
    edges = histogram.edges(512).astype(np.float32)
    theirs = HistogramCollector("entropy", False, 512, 64, 99.9, "same")
    ends = np.float32(-np.inf), np.float32(np.inf)
    wanted = theirs.get_entropy_threshold((counts, edges, *ends), 64)
    low, high = least_divergence(counts, 64)
    assert (edges[low], edges[high]) == wanted


@given(st.sampled_from(list(SHAPES)), st.integers(0, 1000))
@settings(max_examples=examples(20), deadline=None)
def test_the_least_squared_error_is_near_that_of_a_search_over_the_numbers(name, seed):
    """The oracle narrows both ends together, with the numbers themselves."""
    x = _numbers(name, seed)[:4000]
    histogram, full = _histogram(x)
    found = squared_error(x, mse_range(histogram, full))
    parts = [1 - k / 64 for k in range(63)]
    least = min(squared_error(x, Range(full.low * p, full.high * p)) for p in parts)
    assert found <= 1.05 * least


def test_histograms_of_parts_add_up():
    x = _numbers("heavy")
    whole, _ = _histogram(x)
    parts, _ = _histogram(x[:7000], x[7000:])
    assert (whole.counts == parts.counts).all() and whole.counts.sum() == x.size


def test_zeros_and_few_numbers_cut_no_range():
    """Half of the numbers are 0, without error in any range; of 200 there is no distribution."""
    for name, seed in (("relu", 0), ("relu", 1)):
        histogram, full = _histogram(_numbers(name, seed))
        found = entropy_range(histogram, full)
        assert found.low == 0 and 0.75 * full.high < found.high <= full.high
    histogram, full = _histogram(_numbers("heavy")[:200])
    assert entropy_range(histogram, full) == full


def test_numbers_that_are_all_zero_have_a_range():
    histogram, full = _histogram(np.zeros(10, np.float32))
    assert mse_range(histogram, full) == entropy_range(histogram, full) == Range(0, 0)


# -- weights ---------------------------------------------------------------------------------------


def _weights(seed: int, channels: int = 6, terms: int = 40) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(seed)
    w = r.standard_normal((channels, terms)).astype(np.float32)
    x = r.standard_normal((200, terms)) @ r.standard_normal((terms, terms))  # correlated
    return w, x


def _errors(w, found, x) -> np.ndarray:
    wide = found.integers * found.scales[:, np.newaxis].astype(np.float64)
    return (((w - wide) @ x.T) ** 2).sum(axis=1)


@given(st.integers(0, 1000))
@settings(max_examples=examples(20), deadline=None)
def test_rounding_together_lessens_the_error_of_every_output(seed):
    w, x = _weights(seed)
    together = _errors(w, quantised_weights(w, 0, grams=[x.T @ x]), x)
    nearest = _errors(w, quantised_weights(w, 0), x)
    assert (together <= nearest * (1 + 1e-9)).all()
    assert together.sum() < 0.7 * nearest.sum()


@given(st.integers(0, 1000))
@settings(max_examples=examples(20), deadline=None)
def test_scales_of_least_squared_error_are_never_worse(seed):
    w = np.random.default_rng(seed).standard_normal((4, 300)).astype(np.float32) ** 3
    eye = np.eye(300)
    assert (
        _errors(w, quantised_weights(w, 0, "mse"), eye)
        <= _errors(w, quantised_weights(w, 0), eye) * (1 + 1e-12)
    ).all()


def test_a_channel_of_zeros_and_one_of_subnormals_have_scales():
    w = np.array([[0, 0], [1e-40, -1e-41], [1, 2]], np.float32)
    for scale in ("max", "mse"):
        found = quantised_weights(w, 0, scale)
        assert found.scales[0] == 1 and (found.scales >= np.finfo(np.float32).tiny).all()
        assert not found.integers[0].any() and np.abs(found.integers).max() <= 127
