"""Convolution and its gradients in the contract's order, for 1 to 3 spatial axes.

K order (cb, k0, k1, .., ci): channels in blocks of 32 inside the group, taps row-major, channels of
the block fastest; a chunk is max(1, 8 // taps) channel blocks. Columns are gathered in that order
and contracted by ``contraction.contract_matrices``, so a 1x1 convolution has matmul's bits. Padding
is stored as +0 and multiplied (fma(+0, w, acc)), as the contract specifies.

Logical layouts: x [N, C, *spatial], w [O, C / groups, *kernel], y [N, O, *out].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.numerics.reference.contraction import (
    contract_matrices,
    round_total,
    widen_for_contraction,
)

BLOCK = 32
#: Maximum number of elements of gathered columns held at once.
_COLUMN_BUDGET = 1 << 18

Pads = Sequence[tuple[int, int]]


def conv(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    dtype: np.dtype | None = None,
) -> np.ndarray:
    """Compute a cross-correlation (called convolution by frameworks), without bias.

    ``pads`` are (low, high) per spatial axis and may be negative. Dtypes as in ``matmul``.
    """
    strides, pads, dilations = _geometry(w, strides, pads, dilations)
    _check_channels(x, w, groups)
    kernel = w.shape[2:]
    padded = pad_zeros(widen_for_contraction(x, w), pads)
    out = tuple(
        _out_size(size, k, s, d)
        for size, k, s, d in zip(padded.shape[2:], kernel, strides, dilations, strict=True)
    )
    starts = [[d * i for i in range(k)] for k, d in zip(kernel, dilations, strict=True)]
    total = _correlate(padded, widen_for_contraction(w, x), starts, strides, out, groups)
    return round_total(total, x, w, dtype)


def conv_input_gradient(
    dy: np.ndarray,
    w: np.ndarray,
    input_spatial: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    dtype: np.dtype | None = None,
    taps: int | None = None,
) -> np.ndarray:
    """Return dx [N, C, *input_spatial] of ``conv``; output channels replace c in the order.

    Per input position only the taps that hit an integer output position are terms, in ascending
    order; integer positions outside dy are padding and are executed. Input positions with one
    stride phase share their taps, so each phase is a stride-1 correlation. ``taps``: the number of
    taps that determines chunks, if ``w`` has only a part of them.
    """
    strides, pads, dilations = _geometry(w, strides, pads, dilations)
    kernel, rank = w.shape[2:], w.ndim - 2
    wide_dy, wide_w = widen_for_contraction(dy, w), widen_for_contraction(w, dy)
    per_group = w.shape[1]
    # [O, C/g, ...] -> [C, O/g, ...], grouped
    turned = wide_w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    turned = turned.reshape(groups * per_group, -1, *kernel)
    dx = np.zeros((dy.shape[0], groups * per_group, *input_spatial), wide_dy.dtype)
    every = taps or math.prod(kernel)
    for phase in itertools.product(
        *(range(min(s, n)) for s, n in zip(strides, input_spatial, strict=True))
    ):
        met, starts, counts = [], [], []
        for axis in range(rank):
            stride, low, dilation = strides[axis], pads[axis][0], dilations[axis]
            offsets = [(phase[axis] + low - k * dilation) for k in range(kernel[axis])]
            met.append([k for k, at in enumerate(offsets) if at % stride == 0])
            starts.append([at // stride for at in offsets if at % stride == 0])
            counts.append(-(-(input_spatial[axis] - phase[axis]) // stride))
        if not all(met):
            continue
        room = [
            (max(0, -min(s)), max(0, max(s) + n - size))
            for s, n, size in zip(starts, counts, dy.shape[2:], strict=True)
        ]
        padded = pad_zeros(wide_dy, room)
        starts = [[at + r[0] for at in s] for s, r in zip(starts, room, strict=True)]
        chosen: tuple[Any, ...] = (slice(None), slice(None), *np.ix_(*met))
        selected = turned[chosen]
        part = _correlate(padded, selected, starts, (1,) * rank, counts, groups, every)
        places = tuple(slice(p, None, s) for p, s in zip(phase, strides, strict=True))
        dx[(slice(None), slice(None), *places)] = part
    return round_total(dx, dy, w, dtype)


def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    output_padding: Sequence[int] | None = None,
    dtype: np.dtype | None = None,
    taps: int | None = None,
) -> np.ndarray:
    """Compute a transposed convolution, ``conv``'s input gradient; w [C, O / groups, *kernel]."""
    strides, pads, dilations = _geometry(w, strides, pads, dilations)
    extra = output_padding or (0,) * (w.ndim - 2)
    spatial = [
        (size - 1) * s - low - high + d * (k - 1) + e + 1
        for size, s, (low, high), d, k, e in zip(
            x.shape[2:], strides, pads, dilations, w.shape[2:], extra, strict=True
        )
    ]
    return conv_input_gradient(x, w, spatial, strides, pads, dilations, groups, dtype, taps)


def conv_weight_gradient(
    x: np.ndarray,
    dy: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    dtype: np.dtype | None = None,
) -> np.ndarray:
    """Return dw [O, C / groups, *kernel] of ``conv``: contraction over (n, *out), chunks of 256."""
    rank = len(kernel)
    shape = np.empty((0, 0, *kernel))
    strides, pads, dilations = _geometry(shape, strides, pads, dilations)
    padded = pad_zeros(widen_for_contraction(x, dy), pads)
    wide_dy = widen_for_contraction(dy, x)
    n, channels, outputs = x.shape[0], x.shape[1] // groups, dy.shape[1] // groups
    out, taps = dy.shape[2:], math.prod(kernel)
    terms = n * math.prod(out)
    moved = wide_dy.reshape(n, groups, outputs, math.prod(out)).transpose(1, 0, 3, 2)
    rows = np.ascontiguousarray(moved).reshape(groups, terms, outputs)
    grouped = padded.reshape(n, groups, channels, *padded.shape[2:])
    dw = np.empty((groups, channels, taps, outputs), wide_dy.dtype)
    index = np.arange(groups)
    step = max(1, 64 * _COLUMN_BUDGET // max(1, groups * terms * taps))
    for c0 in range(0, channels, step):
        part = grouped[:, :, c0 : c0 + step]
        columns = np.empty((groups, part.shape[2], taps, n, math.prod(out)), wide_dy.dtype)
        for t, tap in enumerate(itertools.product(*(range(k) for k in kernel))):
            window = _window(
                part, [i * d for i, d in zip(tap, dilations, strict=True)], strides, out, rank
            )
            columns[:, :, t] = window.reshape(*window.shape[:3], -1).transpose(1, 2, 0, 3)
        left = columns.reshape(groups, -1, terms)
        total = contract_matrices(left, rows, index, index)
        dw[:, c0 : c0 + step] = total.reshape(groups, -1, taps, outputs)
    dw = dw.transpose(0, 3, 1, 2).reshape(groups * outputs, channels, *kernel)
    return round_total(np.ascontiguousarray(dw), x, dy, dtype)


def pad_zeros(x: np.ndarray, pads: Pads) -> np.ndarray:
    """Return x with (low, high) zeros around its last axes.

    Negative pads crop, also zeros of the other side if they exceed the axis.
    """
    lead = x.ndim - len(pads)
    sizes = [n + low + high for n, (low, high) in zip(x.shape[lead:], pads, strict=True)]
    made = np.zeros((*x.shape[:lead], *sizes), x.dtype)
    target: list[Any] = [...]
    source: list[Any] = [...]
    for n, size, (low, _) in zip(x.shape[lead:], sizes, pads, strict=True):
        first, last = max(0, -low), min(n, size - low)
        source.append(slice(first, max(first, last)))
        target.append(slice(first + low, max(first, last) + low))
    made[tuple(target)] = x[tuple(source)]
    return made


def _correlate(
    x: np.ndarray,
    w: np.ndarray,
    starts: Sequence[Sequence[int]],
    steps: Sequence[int],
    counts: Sequence[int],
    groups: int,
    all_taps: int | None = None,
) -> np.ndarray:
    """Correlate x and w with separate starts for each tap.

    y[n, o, p] = sum over (cb, taps, ci) of x[n, c, starts[tap] + steps * p] * w[o, c, tap].
    ``all_taps`` counts the kernel's taps including those that are not terms: chunks consist of
    whole channel blocks, whose number depends on it.
    """
    n, channels = x.shape[0], x.shape[1] // groups
    outputs, kernel = w.shape[0] // groups, w.shape[2:]
    taps = math.prod(kernel)
    chunk = max(1, 8 // (all_taps or taps)) * BLOCK * taps
    blocks = [(c, min(c + BLOCK, channels)) for c in range(0, channels, BLOCK)]
    parts = [np.moveaxis(w[:, a:b], 1, -1).reshape(groups, outputs, -1) for a, b in blocks]
    weights = (
        np.ascontiguousarray(np.concatenate(parts, 2))
        if blocks
        else np.zeros((groups, outputs, 0), w.dtype)
    )
    y = np.zeros((n, groups * outputs, *counts), x.dtype)
    if not y.size:
        return y
    grouped = x.reshape(n, groups, channels, *x.shape[2:])
    index = np.arange(groups)
    row = groups * channels * taps * math.prod(counts[1:])
    rows = max(1, min(counts[0], _COLUMN_BUDGET // max(1, row)))
    for i, first in itertools.product(range(n), range(0, counts[0], rows)):
        sizes = (min(rows, counts[0] - first), *counts[1:])
        columns = np.empty((groups, channels * taps, math.prod(sizes)), x.dtype)
        at = 0
        for a, b in blocks:
            for tap in itertools.product(*starts):
                begin = [tap[0] + steps[0] * first, *tap[1:]]
                window = _window(grouped[i][:, a:b], begin, steps, sizes, len(sizes))
                columns[:, at : at + b - a] = window.reshape(groups, b - a, -1)
                at += b - a
        part = contract_matrices(weights, columns, index, index, chunk)
        y[i, :, first : first + sizes[0]] = part.reshape(groups * outputs, *sizes)
    return y


def _window(x, begin, steps, sizes, rank):
    """Return the strided box of x's last ``rank`` axes that starts at ``begin``."""
    box = [
        slice(b, b + s * (n - 1) + 1, s) for b, s, n in zip(begin[:rank], steps, sizes, strict=True)
    ]
    return x[(..., *box)]


def _geometry(w, strides, pads, dilations):
    rank = w.ndim - 2
    return (
        tuple(strides or (1,) * rank),
        tuple(pads or ((0, 0),) * rank),
        tuple(dilations or (1,) * rank),
    )


def _out_size(size: int, kernel: int, stride: int, dilation: int) -> int:
    return max(0, (size - dilation * (kernel - 1) - 1) // stride + 1)


def _check_channels(x: np.ndarray, w: np.ndarray, groups: int) -> None:
    if x.ndim != w.ndim or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError(
            f"conv of x {x.shape} with w {w.shape} in {groups} groups: x needs "
            f"{w.shape[1] * groups} channels and groups must divide {w.shape[0]}"
        )
