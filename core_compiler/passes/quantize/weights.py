"""Weights as integers: their scales, and how they are rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core_compiler.ir import Op
from core_compiler.numerics.reference.contraction import matmul
from core_compiler.numerics.reference.linear_algebra import cholesky
from core_compiler.ops import typed
from core_compiler.passes.quantize.parameters import LEAST_SCALE
from core_compiler.support.errors import UserError

#: Options of ``insert_quantization``: the scales of weights, and their rounding.
SCALES, ROUNDINGS = ("max", "mse"), ("nearest", "gptq")
#: The largest magnitude of a weight: -128 is not used.
MOST = 127
#: Fractions of the largest weight of a channel that ``mse`` tries, in steps of 1/64.
PARTS = tuple(part / 64 for part in range(63, 31, -1))
#: Added to the diagonal of a Gram matrix, times its mean: as in GPTQ.
DAMPING = 0.01
#: Rows that are rounded before the others are corrected for their errors.
BLOCK = 128


@dataclass(frozen=True)
class IntegerWeights:
    """Integers of i8 in the shape of the weights, and a scale of f32 for each channel."""

    integers: np.ndarray
    scales: np.ndarray


def quantised_weights(
    array: np.ndarray,
    axis: int | None,
    scale: str = "max",
    grams: Sequence[np.ndarray] | None = None,
) -> IntegerWeights:
    """Return weights as symmetric integers with a scale for each position of ``axis``, or with one.

    ``grams``: the Gram matrices of the inputs, [terms, terms] in f64 for each group of channels;
    None: each weight is rounded to the nearest integer. Computed in f64, with the same bits on
    every machine. Raises UserError for weights that are not finite.
    """
    if not np.isfinite(array).all():
        raise UserError(
            "weights have numbers that are not finite", "insert_quantization", "mend the model"
        )
    if axis is None:
        made = quantised_weights(array[np.newaxis], 0, scale)
        return IntegerWeights(made.integers[0], made.scales)
    moved = np.moveaxis(np.asarray(array, np.float64), axis, 0)
    rows = np.ascontiguousarray(moved.reshape(len(moved), -1))
    scales = scales_of(rows, scale)
    if grams is None:
        whole = _nearest(rows, scales.astype(np.float64))
    else:
        parts = np.split(rows, len(grams)), np.split(scales, len(grams))
        whole = np.concatenate(
            [rounded_together(*each) for each in zip(*parts, grams, strict=True)]
        )
    integers = np.moveaxis(whole.astype(np.int8).reshape(moved.shape), 0, axis)
    return IntegerWeights(np.ascontiguousarray(integers), scales)


def scales_of(rows: np.ndarray, method: str) -> np.ndarray:
    """Return the scale of each row, in f32: of its largest weight, or of the least squared error.

    A row of zeros has the scale 1.
    """
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scales = _scale(largest)
    if method == "max":
        return scales
    least = _squared_errors(rows, scales)
    for part in PARTS:
        tried = _scale(largest * part)
        errors = _squared_errors(rows, tried)
        better = errors < least
        scales, least = np.where(better, tried, scales), np.where(better, errors, least)
    return scales


def _scale(largest: np.ndarray) -> np.ndarray:
    scales = np.maximum(largest / MOST, LEAST_SCALE)
    return np.where(largest == 0, 1.0, scales).astype(np.float32)


def _nearest(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.rint(rows / scales[:, np.newaxis]).clip(-MOST, MOST)


def _squared_errors(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    wide = scales.astype(np.float64)
    errors = rows - _nearest(rows, wide) * wide[:, np.newaxis]
    return (errors**2).sum(axis=1)


def rounded_together(rows: np.ndarray, scales: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Return integers for ``rows`` [channels, terms] with a small error of the layer's output.

    The error of the sums is ``e' G e`` for the errors e of the weights and the Gram matrix G of
    the inputs. Weights are rounded one term after another, each corrected for the errors so far:
    Frantar et al., "GPTQ: accurate post-training quantization for generative pre-trained
    transformers" (2022), terms of large inputs first, as the nearest plane algorithm of Babai on
    G's Cholesky factor (Chen et al., "The geometry of LLM quantization", 2025). A row that this
    makes worse than rounding to the nearest is rounded to the nearest.
    """
    size = len(gram)
    order = np.argsort(np.diag(gram), kind="stable")
    factor = _factor(gram[np.ix_(order, order)])
    slope = factor / np.diag(factor)[:, np.newaxis]
    steps = scales.astype(np.float64)
    weights = np.ascontiguousarray(rows[:, order].T)
    whole, errors = np.empty_like(weights), np.zeros_like(weights)
    for end in range(size, 0, -BLOCK):
        start = max(0, end - BLOCK)
        wanted = weights[start:end].copy()
        if end < size:
            wanted += matmul(np.ascontiguousarray(slope[start:end, end:]), errors[end:])
        for k in range(end - 1, start - 1, -1):
            whole[k] = np.rint(wanted[k - start] / steps).clip(-MOST, MOST)
            errors[k] = weights[k] - whole[k] * steps
            wanted[: k - start] += slope[start:k, k, np.newaxis] * errors[k]
    found = np.empty_like(rows)
    found[:, order] = whole.T
    plain = _nearest(rows, steps)
    worse = _output_errors(rows, found, steps, gram) > _output_errors(rows, plain, steps, gram)
    return np.where(worse[:, np.newaxis], plain, found)


def _output_errors(
    rows: np.ndarray, whole: np.ndarray, steps: np.ndarray, gram: np.ndarray
) -> np.ndarray:
    errors = np.ascontiguousarray(rows - whole * steps[:, np.newaxis])
    return (matmul(errors, gram) * errors).sum(axis=1)


def _factor(gram: np.ndarray) -> np.ndarray:
    """Return the upper factor R with ``R' R`` = the damped Gram matrix.

    Terms that are 0 on all data have no influence. The damping grows until the matrix is positive.
    """
    diagonal = np.diag(gram)
    mean = float(np.cumsum(diagonal)[-1]) / len(gram) or 1.0
    damping = DAMPING
    while True:
        lower = cholesky(gram + np.diag(np.full(len(gram), damping * mean)))
        if np.isfinite(lower).all():
            return np.ascontiguousarray(lower.T)
        damping *= 10


# -- inputs ----------------------------------------------------------------------------------------


def gram_matrices(op: Op, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the Gram matrix of a product's inputs for each group of its channels, in f64.

    ``inputs``: the first operand on each sample. Terms are in the order of the weights'.
    """
    found: list[np.ndarray] = []
    for array in inputs:
        terms = _terms(op, np.asarray(array, np.float64))
        each = [matmul(np.ascontiguousarray(t.T), t) for t in terms]
        found = [a + b for a, b in zip(found, each, strict=True)] if found else each
    return found


def _terms(op: Op, x: np.ndarray) -> list[np.ndarray]:
    """Return the terms of a product's sums, [positions, terms] for each group."""
    conv = typed.Conv.match(op)
    if conv is None:
        return [np.ascontiguousarray(x.reshape(-1, x.shape[-1]))]
    kernel = conv.w.type.shape[2:]
    spatial = range(len(kernel))
    x = np.pad(x, [(0, 0), (0, 0), *zip(conv.low, conv.high, strict=True)])
    spans = [1 + (k - 1) * d for k, d in zip(kernel, conv.dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(2 + a for a in spatial))
    steps = (slice(None, None, step) for step in (*conv.strides, *conv.dilations))
    windows = windows[(slice(None), slice(None), *steps)]
    # [N, C, *out, *kernel] -> [N, *out, C, *kernel]
    moved = np.moveaxis(windows, 1, 1 + len(kernel))
    each = x.shape[1] // conv.groups
    positions = int(np.prod(moved.shape[: 1 + len(kernel)]))
    rows = moved.reshape(positions, conv.groups, each * int(np.prod(kernel)))
    return [np.ascontiguousarray(rows[:, group]) for group in range(conv.groups)]
