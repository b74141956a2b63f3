"""Helper functions of exported files; the ones that a file calls are copied into it.

So are those that they call.  They only use ``np`` and ``math``, and are written for the reader of
the exported file.  Floats are f32 or f64: narrower ones are widened before the call and rounded
after it.
"""

# ruff: noqa: B905  (sizes agree; `strict=True` at every zip would be in the reader's way)

from __future__ import annotations

import math

import numpy as np

# -- numbers ---------------------------------------------------------------------------------------


def erf(x):
    """Return the error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def erfc(x):
    """Return 1 - erf(x), accurate for large x."""
    return np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def divide(a, b):
    """Divide integers, truncated towards zero; x / 0 is 0."""
    quotient = a // b
    below = (a - quotient * b != 0) & ((a < 0) != (b < 0))
    return np.where(b == 0, np.zeros_like(quotient), quotient + below.astype(quotient.dtype))


def power(a, b):
    """Raise integers to a power, with wrapping; for a negative b, 0 unless a is 1 or -1."""
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse.astype(a.dtype), a ** np.maximum(b, 0).astype(a.dtype))


def shift_right(a, b):
    """Shift right; if b is not in 0..width-1 the result is 0, or -1 for a negative number."""
    last = 8 * a.dtype.itemsize - 1
    inside = (b >= 0) & (b <= last)
    return np.where(inside, a, -(a < 0).astype(a.dtype)) >> np.where(inside, b, np.zeros_like(b))


def to_integer(x, dtype, low, high):
    """Truncate floats and clip them to low..high; NaN becomes 0."""
    x = x.astype(np.float64)
    inside = (x > low - 1) & (x < high + 1)
    held = np.where(inside, x, 0).astype(np.int64 if low else np.uint64)
    return np.where(x >= high + 1, high, np.where(x <= low - 1, low, held)).astype(dtype)


def to_odd(x):
    """Round f64 to f32, with the last bit set if inexact, so that a second rounding is correct."""
    near = x.astype(np.float32)
    inexact = (near != x) & (near.view(np.int32) % 2 == 0)
    towards = np.where(x > near, np.inf, -np.inf).astype(np.float32)
    return np.where(inexact, np.nextafter(near, towards), near)


def saturated(x, dtype, limit):
    """Round to a narrow float; larger values become the largest finite one."""
    return np.clip(x, -limit, limit).astype(dtype)


# -- movement --------------------------------------------------------------------------------------


def pad(x, value, low, high, interior):
    """Pad with value before, after and between the elements; negative numbers crop."""
    shape = [n + max(n - 1, 0) * i + a + b for n, a, b, i in zip(x.shape, low, high, interior)]
    result = np.full(shape, value, x.dtype)
    target, source = [], []
    for n, size, a, i in zip(x.shape, shape, low, interior):
        first = max(0, -(a // (i + 1)))
        last = max(first, min(n, (size - 1 - a) // (i + 1) + 1))
        source.append(slice(first, last))
        begin = a + first * (i + 1)
        target.append(slice(begin, begin + (last - first) * (i + 1), i + 1))
    result[tuple(target)] = x[tuple(source)]
    return result


def box(x, starts, sizes):
    """Return the slices of a box of these sizes, each start clamped so that it fits."""
    fitting = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, sizes)]
    return tuple(slice(s, s + k) for s, k in zip(fitting, sizes))


def dynamic_slice(x, starts, sizes):
    return x[box(x, starts, sizes)]


def dynamic_update_slice(x, update, starts):
    result = x.copy()
    result[box(x, starts, update.shape)] = update
    return result


def clamped(indices, size):
    """Clamp positions to 0..size-1."""
    return np.clip(indices, 0, max(size - 1, 0)).astype(np.int64)


def take_along(x, indices, axis):
    """Return result[i, j] = x[i, indices[i, j]] (for axis 1)."""
    corner = tuple(slice(None if a == axis else n) for a, n in enumerate(indices.shape))
    return np.take_along_axis(x[corner], clamped(indices, x.shape[axis]), axis)


def gather_nd(x, indices, batch_dims=0):
    """Gather; the last axis of indices holds positions on x's axes after the batch axes."""
    at = []
    for axis, size in enumerate(indices.shape[:batch_dims]):
        column = [1] * (indices.ndim - 1)
        column[axis] = size
        at.append(np.arange(size).reshape(column))
    for i in range(indices.shape[-1]):
        at.append(clamped(indices[..., i], x.shape[batch_dims + i]))
    found = x[tuple(at)] if at else x
    return np.broadcast_to(found, indices.shape[:-1] + x.shape[len(at) :])


def put(x, places, updates, mode):
    """Store (or add...) updates at places, an array per leading axis; drop those out of range."""
    result = x.copy()
    shape = updates.shape[: updates.ndim - x.ndim + len(places)]
    inside = np.ones(shape, bool)
    for place, n in zip(places, x.shape):
        inside &= (place >= 0) & (place < n)
    at = tuple(np.broadcast_to(place, shape)[inside].astype(np.int64) for place in places)
    if mode == "set":
        result[at] = updates[inside]
    else:
        function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[mode]
        function.at(result, at, updates[inside])
    return result


def scatter_along(x, indices, updates, axis, mode):
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return put(x, places, updates, mode)


def scatter_nd(x, indices, updates, mode):
    depth = indices.shape[-1]
    if depth:
        return put(x, [indices[..., i] for i in range(depth)], updates, mode)
    rows = updates.reshape(-1, *x.shape)
    return put(x[None], [np.zeros(len(rows), int)], rows, mode)[0]


# -- reductions, sorts -----------------------------------------------------------------------------


def running(function, x, axis, reverse=False, exclusive=False, start=0):
    """Accumulate function along an axis; exclusive: without the element itself."""
    x = np.flip(x, axis) if reverse else x
    result = function.accumulate(x, axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        first = np.full_like(np.take(result, [0], axis), start)
        result = np.concatenate([first, np.delete(result, -1, axis)], axis)
    return np.flip(result, axis) if reverse else result


def argsort(x, axis, descending=False):
    """Return a stable order in both directions; NaN is greatest."""
    if x.dtype.kind not in "biuf":
        x = x.astype(np.float32)  # ml_dtypes does not order NaN
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


def sort(x, axis, descending=False):
    return np.take_along_axis(x, argsort(x, axis, descending), axis)


def topk(x, k, axis, largest=True):
    """Return (values, positions); the first of equal values comes first."""
    places = np.take(argsort(x, axis, largest), np.arange(k), axis)
    return np.take_along_axis(x, places, axis), places


# -- linear algebra --------------------------------------------------------------------------------


def cholesky(a):
    """Return the lower factor; NaN from the first column whose pivot is not positive."""
    result = np.zeros_like(a)
    for j in range(a.shape[-1]):
        known = result[..., j:, :j] @ result[..., j, :j, None]
        column = a[..., j:, j] - known[..., 0]
        pivot = column[..., :1]
        root = np.sqrt(np.where(pivot > 0, pivot, np.nan))
        result[..., j:, j] = np.concatenate([root, column[..., 1:] / root], -1)
    return result


def lu(a):
    """Return (packed, order, swaps): L below the diagonal and U of a with its rows in order."""
    a, (*batch, rows, columns) = a.copy(), a.shape
    swaps = np.zeros((*batch, min(rows, columns)), np.int32)
    for index in np.ndindex(*batch):
        matrix = a[index]
        for k in range(min(rows, columns)):
            sizes = np.abs(matrix[k:, k])
            chosen = k if np.isnan(sizes[0]) else k + np.nanargmax(sizes)
            swaps[(*index, k)] = chosen
            matrix[[k, chosen]] = matrix[[chosen, k]]
            if matrix[k, k] != 0:
                matrix[k + 1 :, k] /= matrix[k, k]
            matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return a, row_order(swaps, rows), swaps


def row_order(swaps, rows):
    """Return the order of rows after exchanging rows k and swaps[k] for each k."""
    order = np.broadcast_to(np.arange(rows, dtype=np.int32), (*swaps.shape[:-1], rows)).copy()
    for index in np.ndindex(*swaps.shape[:-1]):
        for k, other in enumerate(np.clip(swaps[index], 0, rows - 1)):
            order[index][[k, other]] = order[index][[other, k]]
    return order


def triangular_solve(a, b, lower, transposed, unit_diagonal):
    """Return x with a x = b (or a' x = b) for a triangle of a, row by row."""
    a, x = np.swapaxes(a, -1, -2) if transposed else a, b.copy()
    rows = list(range(a.shape[-1]))
    if lower == transposed:
        rows.reverse()
    for count, i in enumerate(rows):
        known = rows[:count]
        x[..., i, :] -= (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
        if not unit_diagonal:
            x[..., i, :] /= a[..., i, i, None]
    return x


def householder(a):
    """Return (packed, tau): R, the vectors of the reflectors below it, and their factors."""
    a, (*batch, rows, columns) = a.copy(), a.shape
    tau = np.zeros((*batch, min(rows, columns)), a.dtype)
    for index in np.ndindex(*batch):
        matrix = a[index]
        for k in range(min(rows, columns)):
            column = matrix[k:, k].copy()
            below = np.abs(column[1:]).max(initial=0)
            if below == 0:
                continue
            scale = max(below, abs(column[0]))
            length = scale * np.sqrt(np.sum((column / scale) ** 2))
            first = length if column[0] < 0 else -length
            tau[(*index, k)] = (first - column[0]) / first
            vector = column / (column[0] - first)
            vector[0] = 1
            rest = matrix[k:, k + 1 :]
            rest -= tau[(*index, k)] * np.outer(vector, vector @ rest)
            matrix[k, k], matrix[k + 1 :, k] = first, vector[1:]
    return a, tau


def reflect(packed, tau, c, transposed=False):
    """Return Q c (or Q' c) for the product Q of the reflectors of householder."""
    c = c.copy()
    for *index, k in np.ndindex(*tau.shape) if transposed else reversed([*np.ndindex(*tau.shape)]):
        vector = packed[(*index, slice(k, None), k)].copy()
        vector[0] = 1
        rest = c[tuple(index)][k:]
        rest -= tau[(*index, k)] * np.outer(vector, vector @ rest)
    return c


def signs_of_columns(vectors):
    """Return 1, or -1 for columns whose first element of the largest magnitude is negative."""
    places = np.abs(vectors).argmax(-2, keepdims=True)
    return np.where(np.take_along_axis(vectors, places, -2) < 0, -1, 1).astype(vectors.dtype)


def eigh(a):
    """Return (w, v); the first largest element of each vector is positive."""
    w, v = np.linalg.eigh(a)
    return w, v * signs_of_columns(v) if v.size else v


def orthogonal_columns(a):
    """Return (s, a v over a's largest magnitude, v): singular values and right vectors."""
    _, s, right = np.linalg.svd(a, full_matrices=False)
    v = np.swapaxes(right, -1, -2)
    v = v * signs_of_columns(v) if v.size else v
    largest = np.abs(a).max((-1, -2), keepdims=True, initial=0)
    return s, a @ v / np.where(largest > 0, largest, 1), v


# -- convolution and pooling -----------------------------------------------------------------------


def windows(x, window, strides, dilations):
    """Return the windows: [N, C, spatial..] -> [N, C, outputs.., window..]."""
    rank = len(window)
    spans = [d * (k - 1) + 1 for k, d in zip(window, dilations)]
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + rank)))
    steps = (*strides, *dilations)
    return seen[(slice(None), slice(None), *(slice(None, None, s) for s in steps))]


def conv(x, w, strides, low, high, dilations, groups=1):
    """Convolve x [N, C, spatial..] with w [O, C / groups, window..] -> [N, O, outputs..]."""
    nothing = (0,) * len(low)
    x = pad(x, 0, (0, 0, *low), (0, 0, *high), (0, 0, *nothing))
    seen = windows(x, w.shape[2:], strides, dilations)
    rank = len(strides)
    summed = (1, *range(2 + rank, 2 + 2 * rank)), (1, *range(2, 2 + rank))
    parts = zip(np.split(seen, groups, 1), np.split(w, groups, 0))
    return np.concatenate(
        [np.moveaxis(np.tensordot(s, v, summed), -1, 1) for s, v in parts], 1
    ).astype(x.dtype)


def conv_transpose(x, w, strides, low, high, dilations, output_padding, groups=1):
    """Return the input gradient of conv: x [N, C, spatial..], w [C, O / groups, window..]."""
    reach = [d * (k - 1) for k, d in zip(w.shape[2:], dilations)]
    before = [r - a for r, a in zip(reach, low)]
    behind = [r - a + e for r, a, e in zip(reach, high, output_padding)]
    apart = (0, 0, *(s - 1 for s in strides))
    x = pad(x, 0, (0, 0, *before), (0, 0, *behind), apart)
    turned = np.flip(w, tuple(range(2, w.ndim)))
    turned = np.concatenate([v.swapaxes(0, 1) for v in np.split(turned, groups, 0)], 0)
    ones, nothing = (1,) * len(strides), (0,) * len(strides)
    return conv(x, turned, ones, nothing, nothing, dilations, groups)


def max_pool(x, window, strides, low, high, dilations):
    """Return the maximum of each window; padding is ignored."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    x = pad(x, lowest, (0, 0, *low), (0, 0, *high), (0,) * x.ndim)
    return windows(x, window, strides, dilations).max(tuple(range(-len(window), 0)))


def avg_pool(x, window, strides, low, high, dilations, count_padding=False):
    """Return the mean of each window; padding only counts in the divisor, with count_padding."""
    axes, around = tuple(range(-len(window), 0)), ((0, 0, *low), (0, 0, *high), (0,) * x.ndim)
    total = windows(pad(x, 0, *around), window, strides, dilations).sum(axes)
    if count_padding:
        return total / math.prod(window)
    inside = pad(np.ones_like(x[:1, :1]), 0, *around)
    return total / windows(inside, window, strides, dilations).sum(axes)


# -- activations, softmax --------------------------------------------------------------------------


def leaky_relu(x, slope):
    return np.where(x > 0, x, slope * x)


def hard_sigmoid(x, alpha, beta):
    return np.clip(alpha * x + beta, 0, 1)


def hard_swish(x):
    return x * np.clip(x / 6 + 0.5, 0, 1)


def gelu(x):
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x * sigmoid(x)


def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(x))


def selu(x):
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def celu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(x / alpha))


def softplus(x, beta=1.0):
    """Return log(1 + exp(beta * x)) / beta, without overflow."""
    x = x * beta
    return (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))) / beta


def mish(x):
    return x * np.tanh(softplus(x))


def softsign(x):
    return x / (1 + np.abs(x))


def softmax(x, axis):
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def softmax_or_zero(x, axis):
    """Return the softmax; a row of -inf alone is 0."""
    empty = x.max(axis, keepdims=True) == -np.inf
    return np.where(empty, np.zeros_like(x), softmax(x, axis))


def log_softmax(x, axis):
    d = x - x.max(axis, keepdims=True)
    return d - np.log(np.exp(d).sum(axis, keepdims=True))


def logsumexp(x, axis):
    top = x.max(axis, keepdims=True)
    top = np.where(np.isinf(top), np.zeros_like(top), top)
    return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


def attention(q, k, v, mask=None, scale=None, causal=False, hidden=-np.inf, normalise=softmax):
    """Return softmax(scale * q @ k^T + mask) @ v.

    A boolean mask selects the visible keys; the scores of the others become hidden.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * (q @ k.swapaxes(-1, -2))
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, scores.dtype.type(hidden))
    elif mask is not None:
        scores = scores + mask
    if causal:
        seen = np.tri(*scores.shape[-2:], dtype=np.bool_)
        scores = np.where(seen, scores, scores.dtype.type(hidden))
    return normalise(scores, -1) @ v


# -- normalisations --------------------------------------------------------------------------------


def standardised(x, axis, epsilon):
    d = x - x.mean(axis, keepdims=True)
    return d / np.sqrt((d * d).mean(axis, keepdims=True) + epsilon)


def layer_norm(x, scale=1, bias=0, *, axis, epsilon):
    """Normalise over axis and all axes after it."""
    return standardised(x, tuple(range(axis, x.ndim)), epsilon) * scale + bias


def rms_norm(x, scale=1, *, axis, epsilon):
    """Normalise over axis and all axes after it."""
    axes = tuple(range(axis, x.ndim))
    squares = (x * x).mean(axes, keepdims=True)
    return x / np.sqrt(squares + epsilon) * scale


def by_channel(parameter, x, axis):
    """Return a vector, expanded to broadcast along one axis of x."""
    return parameter.reshape([-1 if a == axis else 1 for a in range(x.ndim)])


def batch_norm(x, scale, bias, mean, variance, *, axis, epsilon):
    scale, bias, mean, variance = (by_channel(p, x, axis) for p in (scale, bias, mean, variance))
    return (x - mean) / np.sqrt(variance + epsilon) * scale + bias


def group_norm(x, scale=None, bias=None, *, groups, epsilon, axis=1):
    """Normalise over the channels (on axis) of a group and all spatial axes."""
    first = np.moveaxis(x, axis, 1)
    apart = first.reshape(x.shape[0], groups, -1)
    result = np.moveaxis(standardised(apart, 2, epsilon).reshape(first.shape), 1, axis)
    result = result if scale is None else result * by_channel(scale, x, axis)
    return result if bias is None else result + by_channel(bias, x, axis)


def instance_norm(x, scale=None, bias=None, *, epsilon, axis=1):
    """Normalise over the spatial axes."""
    return group_norm(x, scale, bias, groups=x.shape[axis], epsilon=epsilon, axis=axis)


# -- random numbers --------------------------------------------------------------------------------


def random_words(first, count, seed, stream, iteration, trip):
    """Return words of Philox4x32-10 (Salmon et al., SC 2011) from index ``first`` on.

    The key is the seed, the counter is (index / 4, stream, iteration, trip).
    """
    word = 2**32 - 1
    a = np.arange(first // 4, -(-(first + count) // 4), dtype=np.uint64)
    b, c, d = (np.full_like(a, int(n) & word) for n in (stream, iteration, trip))
    k, m = int(seed) & word, int(seed) >> 32 & word
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = q >> 32 ^ b ^ k, q & word, p >> 32 ^ d ^ m, p & word
        k, m = k + 0x9E3779B9 & word, m + 0xBB67AE85 & word
    return np.stack([a, b, c, d], 1).reshape(-1)[first % 4 :][:count].astype(np.uint32)


def random_bits(shape, seed, stream, iteration=0, shard=0, trip=0):
    """Return 32 bits per element; those of a shard follow those of the shards before it."""
    count = math.prod(shape)
    words = random_words(int(shard) * count, count, seed, stream, iteration, trip)
    return words.reshape(shape)


def random_uniform(shape, seed, stream, iteration=0, shard=0, trip=0):
    """Return uniform values in [0, 1) with 24 bits."""
    bits = random_bits(shape, seed, stream, iteration, shard, trip)
    return (bits >> 8).astype(np.float32) * np.float32(2.0**-24)


def random_normal(shape, seed, stream, iteration=0, shard=0, trip=0):
    """Return standard normal values (Box and Muller, 1958)."""
    count = math.prod(shape)
    first = int(shard) * count
    odd = first % 2  # values are generated in pairs
    pairs = -(-(odd + count) // 2)
    words = random_words(first - odd, 2 * pairs, seed, stream, iteration, trip)
    bits = words.reshape(-1, 2) >> 8
    radius = np.sqrt(-2 * np.log((bits[:, 0] + 1.0) * 2.0**-24))
    angle = 2 * math.pi * 2.0**-24 * bits[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return pairs.reshape(-1)[odd:][:count].astype(np.float32).reshape(shape)
