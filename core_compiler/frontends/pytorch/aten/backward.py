"""Gradient ops of ATen that occur in training graphs."""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.pytorch.aten.table import aten, per_axis


@aten("convolution_backward")
def convolution_backward(
    b, grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
):
    """Return the requested gradients of a convolution: for its input, weights and bias."""
    spatial = w.type.rank - 2
    strides, pads = per_axis(stride, spatial), per_axis(padding, spatial)
    dilations = per_axis(dilation, spatial)
    shape = {
        "strides": strides,
        "dilations": dilations,
        "low": pads,
        "high": pads,
        "groups": groups,
    }
    of_x = of_w = of_bias = None
    if mask[0] and transposed:
        of_x = _first(b, b.conv(grad, w, **shape), x.type.shape)
    elif mask[0]:
        each = zip(grad.type.shape[2:], strides, dilations, w.type.shape[2:], pads, strict=True)
        reached = [(g - 1) * s + d * (k - 1) + 1 - 2 * p for g, s, d, k, p in each]
        left = tuple(size - r for size, r in zip(x.type.shape[2:], reached, strict=True))
        of_x = b.conv_transpose(grad, w, output_padding=left, **shape)
    if mask[1]:
        image, given, settings = x, grad, shape
        if transposed:  # elements added at the end are not covered by a window
            ends = zip(pads, per_axis(output_padding, spatial), strict=True)
            image, given, settings = grad, x, {**shape, "high": tuple(p - e for p, e in ends)}
        of_w = b.conv_weight_gradient(image, given, kernel=w.type.shape[2:], **settings)
    if mask[2]:
        of_bias = b.reduce_sum(grad, axes=(0, *range(2, grad.type.rank)))
    return of_x, of_w, of_bias


def _first(b, x, shape):
    """Return the first elements of every axis; strides that do not fit leave some at the end."""
    rank = len(shape)
    if x.type.shape == tuple(shape):
        return x
    return b.slice(x, starts=(0,) * rank, limits=tuple(shape), strides=(1,) * rank)


@aten("avg_pool2d_backward")
def avg_pool_backward(
    b, grad, x, window, stride, padding, ceil_mode, count_include_pad, divisor=None
):
    window = per_axis(window, 2)
    strides = per_axis(stride, 2) if stride not in (None, [], ()) else window
    pads, sizes, made = per_axis(padding, 2), x.type.shape[-2:], grad.type.shape[-2:]
    counts = [
        _counted(*each, bool(count_include_pad))
        for each in zip(made, window, strides, pads, sizes, strict=True)
    ]
    number = np.outer(*counts) if divisor is None else np.full(made, divisor)
    each = b.div(grad, b.expand(b.constant(number.astype(grad.type.dtype.numpy)), grad.type.shape))
    channels = x.type.shape[-3]
    batch = x.type.shape[0] if x.type.rank == 4 else 1
    rows = b.reshape(each, shape=(batch, channels, *made))
    ones = b.expand(b.constant(1, grad.type.dtype), (channels, 1, *window))
    ends = [
        (m - 1) * s + w - p - d
        for m, s, w, p, d in zip(made, strides, window, pads, sizes, strict=True)
    ]
    found = b.conv_transpose(
        rows,
        ones,
        strides=strides,
        dilations=(1, 1),
        groups=channels,
        low=pads,
        high=tuple(max(e, 0) for e in ends),
        output_padding=(0, 0),
    )
    if any(e < 0 for e in ends):  # no window covers these elements
        none = (0, 0, 0, 0)
        found = b.pad(
            found,
            b.constant(0, grad.type.dtype),
            low=none,
            interior=none,
            high=(0, 0, *(max(-e, 0) for e in ends)),
        )
    return b.reshape(found, shape=x.type.shape)


def _counted(made: int, window: int, stride: int, pad: int, size: int, padded: bool) -> np.ndarray:
    """Return the divisor of the mean in each window of one axis."""
    start = np.arange(made) * stride - pad
    end = np.minimum(start + window, size + pad)
    return end - start if padded else np.minimum(end, size) - np.maximum(start, 0)


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(b, grad, x):
    """Distribute each mean over its elements, as a product with the weights of both axes."""
    dtype = grad.type.dtype
    rows, columns = (
        _shares(made, size).astype(dtype.numpy)
        for made, size in zip(grad.type.shape[-2:], x.type.shape[-2:], strict=True)
    )
    lead = grad.type.shape[:-2]
    left = b.expand(b.constant(np.ascontiguousarray(rows.T)), (*lead, *rows.T.shape))
    right = b.expand(b.constant(columns), (*lead, *columns.shape))
    return b.matmul(b.matmul(left, grad), right)


def _shares(made: int, size: int) -> np.ndarray:
    """Return the weight of each element in each mean of adaptive pooling (torch's windows)."""
    shares = np.zeros((made, size))
    for i in range(made):
        start, end = i * size // made, -(-(i + 1) * size // made)
        shares[i, start:end] = 1 / (end - start)
    return shares
