"""Pooling of ATen."""

from __future__ import annotations

import math

from core_compiler.frontends import windows
from core_compiler.frontends.pytorch.aten.table import aten, per_axis


def _overhang(size, window, stride, pad, dilation, ceil_mode) -> int:
    """Return the extra padding at the end with which floor division yields torch's output size.

    With ``ceil_mode`` a last window may overhang if it starts inside the image or its left padding.
    """
    reach = dilation * (window - 1) + 1
    span = size + 2 * pad - reach
    if not ceil_mode:
        return 0
    count = math.ceil(span / stride) + 1
    if (count - 1) * stride >= size + pad:
        count -= 1
    return max(0, (count - 1) * stride - span)


def _pool_shape(x, window, stride, padding, dilation, ceil_mode):
    spatial = len(window) if not isinstance(window, int) else x.type.rank - 2
    window = per_axis(window, spatial)
    strides = per_axis(stride, spatial) if stride not in (None, [], ()) else window
    pads, dilations = per_axis(padding, spatial), per_axis(dilation, spatial)
    extra = tuple(
        _overhang(
            x.type.shape[-spatial + i], window[i], strides[i], pads[i], dilations[i], ceil_mode
        )
        for i in range(spatial)
    )
    high = tuple(p + e for p, e in zip(pads, extra, strict=True))
    return {
        "window": window,
        "strides": strides,
        "low": pads,
        "high": high,
        "dilations": dilations,
    }, extra


def _batched(b, x, spatial):
    """Return ``x`` with a batch axis (optional in torch), and a function that removes it again."""
    if x.type.rank == spatial + 1:
        return b.reshape(x, shape=(1, *x.type.shape)), lambda y: b.reshape(
            y, shape=y.type.shape[1:]
        )
    return x, lambda y: y


def _spatial(b) -> int:
    """Return the number of axes that the op pools over, from its name."""
    return int(str(b.node.target).split("pool")[1][0])


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(b, x, window, stride=(), padding=0, dilation=1, ceil_mode=False):
    spatial = _spatial(b)
    x, drop = _batched(b, x, spatial)
    pool, _ = _pool_shape(x, per_axis(window, spatial), stride, padding, dilation, ceil_mode)
    return drop(b.max_pool(x, **pool))


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def max_pool_with_indices(b, x, window, stride=(), padding=0, dilation=1, ceil_mode=False):
    spatial = _spatial(b)
    x, drop = _batched(b, x, spatial)
    pool, _ = _pool_shape(x, per_axis(window, spatial), stride, padding, dilation, ceil_mode)
    return _max_pool_with_positions(b, x, pool, drop)


def _max_pool_with_positions(b, x, pool, drop):
    """Return the largest element of each window and its position, if that is used."""
    if not b.uses(1):
        return drop(b.max_pool(x, **pool)), None
    places = windows.positions_of_largest(b, x, pool)
    return drop(windows.elements_at(b, x, places, pool)), drop(places)


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    b, x, window, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None
):
    spatial = _spatial(b)
    x, drop = _batched(b, x, spatial)
    pool, _ = _pool_shape(x, per_axis(window, spatial), stride, padding, 1, ceil_mode)
    kind = x.type.dtype
    wide = x if kind.is_float else b.cast(x, dtype="f64")
    made = windows.average(b, wide, pool, pool["low"], count_include_pad, divisor)
    return drop(b.to(made, kind))


@aten(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool3d",
)
def adaptive_avg_pool(b, x, size):
    spatial = _spatial(b)
    size = per_axis(size, spatial)
    if all(s == 1 for s in size):
        return b.reshape(b.mean(x, axes=_last(x, spatial)), shape=b.shape)
    window = _even_windows(x.type.shape, size)
    if window is None:
        return windows.adaptive(b, x, size, "mean")
    x, drop = _batched(b, x, spatial)
    return drop(b.avg_pool(x, **_side_by_side(window)))


@aten("adaptive_max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool3d")
def adaptive_max_pool(b, x, size):
    spatial = _spatial(b)
    size = per_axis(size, spatial)
    window = _even_windows(x.type.shape, size)
    if window is None and not b.uses(1) and not b.symbols.training:
        return windows.adaptive(b, x, size, "max"), None
    x, drop = _batched(b, x, spatial)
    pool = _side_by_side(window or size)
    if window is not None:
        return _max_pool_with_positions(b, x, pool, drop)
    places = windows.adaptive_max_positions(b, x, size)  # needed for the gradient too
    return drop(windows.elements_at(b, x, places, pool)), drop(places)


def _last(x, count: int) -> tuple[int, ...]:
    return tuple(range(x.type.rank - count, x.type.rank))


def _side_by_side(window) -> dict:
    zero, one = (0,) * len(window), (1,) * len(window)
    return {"window": window, "strides": window, "low": zero, "high": zero, "dilations": one}


def _even_windows(shape, size):
    """Return the window if ``size`` of them tile the last axes, else None."""
    sizes = shape[len(shape) - len(size) :]
    if any(d % s for d, s in zip(sizes, size, strict=True)):
        return None
    return tuple(d // s for d, s in zip(sizes, size, strict=True))
