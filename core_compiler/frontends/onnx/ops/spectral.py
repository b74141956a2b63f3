"""Spectra of ONNX: DFT, STFT and the mel weights, as products with constant matrices."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.frontends import spectra
from core_compiler.frontends.base import need_small
from core_compiler.frontends.onnx.reading import dtype_of
from core_compiler.frontends.onnx.table import FOLDED_ELEMENTS, NotSupported, axis_of, onnx_op
from core_compiler.ir import Value, dtype

F64 = dtype("f64")


@onnx_op("DFT")
def dft(b, x, length=None, axis=None):
    rank = x.type.rank
    if axis is not None:
        (place,) = b.ints(axis, "the axis")
    else:
        place = b.attr("axis", 1 if b.opset < 20 else -2)
    place = axis_of(place, rank)
    if place == rank - 1:
        raise NotSupported("a transform along the axis of real and imaginary parts")
    inverse, onesided = bool(b.attr("inverse", 0)), bool(b.attr("onesided", 0))
    size = x.type.shape[place]
    default = 2 * (size - 1) if inverse and onesided else size
    count = b.ints(length, "the length")[0] if length is not None else default
    if count < 1:
        raise NotSupported(f"a transform of length {count}")
    order = [i for i in range(rank) if i != place]
    order.insert(rank - 2, place)
    y = _transformed(b, b.transpose(x, permutation=tuple(order)), count, inverse, onesided)
    return b.transpose(y, permutation=tuple(order.index(i) for i in range(rank)))


def _transformed(b, x: Value, count: int, inverse: bool, onesided: bool) -> Value:
    """Compute the transform along the last axis but one; the last holds a real number or a pair.

    It is computed in f64: a sum of this many terms in f32 is less accurate than a fast transform.
    """
    *lead, size, parts = x.type.shape
    try:
        matrix = spectra.matrix(size, parts, count, inverse, onesided, FOLDED_ELEMENTS)
    except ValueError as error:
        raise NotSupported(str(error)) from None
    if inverse:
        matrix = matrix / count
    made = 1 if inverse and onesided else 2
    rows = b.to(b.reshape(x, shape=(math.prod(lead), size * parts)), F64)
    y = b.to(b.matmul(rows, b.constant(matrix)), x.type.dtype)
    return b.reshape(y, shape=(*lead, matrix.shape[1] // made, made))


@onnx_op("STFT")
def stft(b, x, step, window=None, length=None):
    if x.type.rank == 2:
        x = b.reshape(x, shape=(*x.type.shape, 1))
    size = x.type.shape[1]
    (hop,) = b.ints(step, "the step of the frames")
    if length is not None:
        (count,) = b.ints(length, "the length of the frames")
    else:
        count = window.type.shape[0] if window is not None else size
    if hop < 1 or not 1 <= count <= size:
        raise NotSupported(f"frames of {count} every {hop} in a signal of {size}")
    frames = 1 + (size - count) // hop
    need_small(frames * count, "elements of frames")
    places = np.arange(frames)[:, None] * hop + np.arange(count)
    y = b.take(x, b.constant(places.astype(np.int64)), axis=1)  # batch, frames, count, parts
    if window is not None:
        if window.type.shape != (count,):
            raise NotSupported(f"a window of {window.type.shape} for frames of {count}")
        y = b.mul(y, b.broadcast(window, shape=y.type.shape, dims=(2,)))
    return _transformed(b, y, count, False, bool(b.attr("onesided", 1)))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(b, bins, length, rate, low, high):
    """Return (spectrum bins, mel bins): triangles between points evenly spaced on the mel scale."""
    (mels,), (points,) = b.ints(bins, "the mel bins"), b.ints(length, "the transform's length")
    (rate,) = b.ints(rate, "the sample rate")
    edges = [float(b.const(v, "a frequency").reshape(())) for v in (low, high)]
    spectrum = points // 2 + 1
    if mels < 1 or points < 1 or rate < 1 or spectrum * mels > FOLDED_ELEMENTS:
        raise NotSupported(f"a matrix of {spectrum} by {mels} at {rate} Hz")
    first, last = (2595 * np.log10(1 + f / 700) for f in edges)
    scale = first + np.arange(mels + 2) * (last - first) / (mels + 2)
    hertz = 700 * (10 ** (scale / 2595) - 1)
    place = np.floor((points + 1) * hertz / rate).astype(np.int64)
    if place.min() < 0 or place.max() > spectrum:
        raise NotSupported(f"frequencies from {edges[0]} to {edges[1]} Hz at {rate} Hz")
    at, made = np.arange(spectrum), np.zeros((spectrum, mels))
    for i, (left, centre, right) in enumerate(zip(place, place[1:], place[2:], strict=False)):
        if left == centre:
            made[at == centre, i] = 1
        else:
            rising = (at >= left) & (at <= centre)
            made[rising, i] = (at[rising] - left) / (centre - left)
        falling = (at >= centre) & (at < right)
        made[falling, i] = (right - at[falling]) / max(right - centre, 1)
    return b.constant(made.astype(dtype_of(b.attr("output_datatype", 1), "output").numpy))
