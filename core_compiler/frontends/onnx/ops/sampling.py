"""Interpolation of images: GridSample, RoiAlign and DeformConv of ONNX.

Each is a weighted sum of gathered elements; the model computes positions and weights.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np

from core_compiler.frontends.base import need_small
from core_compiler.frontends.onnx.table import NotSupported, onnx_op
from core_compiler.ir import Value, dtype

I64, F32 = dtype("i64"), dtype("f32")
#: Tap: positions on an axis (integers inside it), their weights, and a validity mask (None: all).
Tap = tuple[Value, Value, Value | None]
_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # names before opset 20


@onnx_op("GridSample")
def grid_sample(b, x, grid):
    n, channels, *sizes = x.type.shape
    mode, padding = b.attr("mode", "linear"), b.attr("padding_mode", "zeros")
    mode, align = _MODES.get(mode, mode), bool(b.attr("align_corners", 0))
    if mode not in ("nearest", "linear", "cubic") or padding not in PADDINGS:
        raise NotSupported(f"mode {mode!r} with padding {padding!r}")
    out = grid.type.shape[1:-1]
    grid = b.reshape(_wide(b, grid), shape=(n, math.prod(out), len(sizes)))
    taps = []
    for axis, size in enumerate(sizes):  # the grid's last axis names the image's last axis first
        at = _column(b, grid, len(sizes) - 1 - axis)
        one = b.add(at, _like(b, 1, at))
        if align:
            at = b.mul(b.mul(one, _like(b, 0.5, at)), _like(b, size - 1, at))
        else:
            at = b.mul(b.sub(b.mul(one, _like(b, size, at)), _like(b, 1, at)), _like(b, 0.5, at))
        taps.append(_taps(b, at, size, mode, padding, align))
    return b.reshape(_summed(b, x, taps), shape=(n, channels, *out))


def _taps(b, at: Value, size: int, mode: str, padding: str, align: bool) -> list[Tap]:
    """Return the elements around positions ``at`` (N, P) of an axis, with their weights.

    In cubic mode, each element's position is moved inside separately, as in torch and onnxruntime;
    ONNX's own evaluator moves the position first.
    """
    at = b.round(at) if mode == "nearest" else at
    if padding == "border" and mode != "cubic":
        at = b.max(_like(b, 0, at), b.min(at, _like(b, size - 1, at)))
    elif padding == "reflection" and mode != "cubic":
        at = _reflected(b, at, *((0.0, size - 1.0) if align else (-0.5, size - 0.5)))
    low = b.floor(at)
    offset = b.sub(at, low)
    weights = _weights(b, offset, mode)
    first = -1 if mode == "cubic" else 0
    found: list[Tap] = []
    for step, weight in enumerate(weights, first):
        place = b.cast(low, dtype=I64)
        place = b.add(place, _like(b, step, place)) if step else place
        place, inside = PADDINGS[padding](b, place, size, align)
        found.append((place, weight, inside))
    return found


def _weights(b, offset: Value, mode: str) -> list[Value]:
    """Return the weights of the taps; ``offset`` is the distance to the next lower position."""
    one = _like(b, 1, offset)
    if mode == "nearest":
        return [one]
    rest = b.sub(one, offset)
    if mode == "linear":
        return [rest, offset]
    return [
        _far(b, b.add(offset, one)),
        _near(b, offset),
        _near(b, rest),
        _far(b, b.add(rest, one)),
    ]


#: The parameter of Keys' cubic convolution kernel (1981), as in torch.
_A = -0.75


def _near(b, x: Value) -> Value:
    """Evaluate the kernel from 0 to 1: ((a + 2) x - (a + 3)) x x + 1."""
    inner = b.sub(b.mul(_like(b, _A + 2, x), x), _like(b, _A + 3, x))
    return b.add(b.mul(b.mul(inner, x), x), _like(b, 1, x))


def _far(b, x: Value) -> Value:
    """Evaluate the kernel from 1 to 2: ((a x - 5 a) x + 8 a) x - 4 a."""
    inner = b.sub(b.mul(_like(b, _A, x), x), _like(b, 5 * _A, x))
    inner = b.add(b.mul(inner, x), _like(b, 8 * _A, x))
    return b.sub(b.mul(inner, x), _like(b, 4 * _A, x))


def _reflected(b, at: Value, low: float, high: float) -> Value:
    """Reflect positions outside ``low`` to ``high`` at the borders until they are inside."""
    span = high - low
    if span <= 0:
        return _like(b, low, at)
    away = b.abs(b.sub(at, _like(b, low, at)))
    turn = b.rem(away, _like(b, 2 * span, at))
    back = b.sub(_like(b, 2 * span, at), turn)
    folded = b.add(_like(b, low, at), b.min(turn, back))
    outside = b.or_(b.lt(at, _like(b, low, at)), b.gt(at, _like(b, high, at)))
    return b.select(outside, folded, at)


def _clamped(b, place: Value, size: int) -> Value:
    return b.max(_like(b, 0, place), b.min(place, _like(b, size - 1, place)))


def _zeros(b, place: Value, size: int, align: bool):
    inside = b.and_(b.ge(place, _like(b, 0, place)), b.lt(place, _like(b, size, place)))
    return _clamped(b, place, size), inside


def _border(b, place: Value, size: int, align: bool):
    return _clamped(b, place, size), None


def _reflection(b, place: Value, size: int, align: bool):
    period = max(2 * (size - 1), 1) if align else 2 * size
    turn = b.mod(place, _like(b, period, place))
    back = b.sub(_like(b, period - (not align), place), turn)
    return b.min(turn, back), None


#: Padding mode -> (context, positions, size, align_corners) -> positions inside, validity mask.
PADDINGS = {"zeros": _zeros, "border": _border, "reflection": _reflection}


def _summed(b, x: Value, taps: list[list[Tap]], largest: bool = False) -> Value:
    """Return (N, C, P): the weighted sum (or the ``largest``) of the elements of x (N, C, *sizes).

    The elements are those at every combination of taps for each axis, each of (N, P).
    """
    n, channels, *sizes = x.type.shape
    points = taps[0][0][0].type.shape[1]
    rows = b.reshape(x, shape=(n, channels, math.prod(sizes)))
    parts = []
    for chosen in itertools.product(*taps):
        index = None
        for size, (place, _, _) in zip(sizes, chosen, strict=True):
            index = place if index is None else b.add(b.mul(index, _like(b, size, index)), place)
        wide = {"shape": (n, channels, points), "dims": (0, 2)}
        found = b.take_along(rows, b.broadcast(index, **wide), axis=2)
        inside = [i for _, _, i in chosen if i is not None]
        if inside:  # a weight of 0 is not enough: the element at its position may be infinite
            counts = b.broadcast(reduce(b.and_, inside), **wide)
            found = b.select(counts, found, _like(b, 0, found))
        weight = b.to(reduce(b.mul, [weight for _, weight, _ in chosen]), x.type.dtype)
        parts.append(b.mul(found, b.broadcast(weight, **wide)))
    return reduce(b.max if largest else b.add, parts)


# -- RoiAlign --------------------------------------------------------------------------------------


@onnx_op("RoiAlign")
def roi_align(b, x, rois, batches):
    """Pool each region of interest to a grid.

    The value of a bin is the mean (or the largest) of samples between the elements.  With
    ``sampling_ratio`` 0 their number depends on the regions.
    """
    half = b.attr("coordinate_transformation_mode", "half_pixel" if b.opset >= 16 else "") == (
        "half_pixel"
    )
    out = [b.attr("output_height", 1), b.attr("output_width", 1)]
    ratio, mode = b.attr("sampling_ratio", 0), b.attr("mode", "avg")
    regions = b.sub(
        b.mul(rois, _like(b, b.attr("spatial_scale", 1.0), rois)),
        _like(b, 0.5 if half else 0.0, rois),
    )
    count = rois.type.shape[0]
    if not ratio and count > 1:
        raise NotSupported("sampling_ratio 0 for several regions: each needs its own grid")
    taps, steps = [], []
    for axis, (size, bins) in enumerate(zip(x.type.shape[2:], out, strict=True)):
        start, end = (_column(b, regions, place) for place in (1 - axis, 3 - axis))
        length = b.sub(end, start)
        if not half:
            length = b.max(length, _like(b, 1, length))
        samples = ratio or max(math.ceil(float(b.const(length).max()) / bins), 1)
        steps.append(samples)
        need_small(bins * samples, "samples of a region")
        places = (np.arange(bins * samples) + 0.5) / (samples * bins)
        wide = (count, bins * samples)
        share = b.constant(places.astype(rois.type.dtype.numpy))
        moved = b.mul(
            b.broadcast(length, shape=wide, dims=(0,)), b.broadcast(share, shape=wide, dims=(1,))
        )
        at = b.add(b.broadcast(start, shape=wide, dims=(0,)), moved)
        taps.append(_roi_taps(b, at, size))
    grid = [bins * samples for bins, samples in zip(out, steps, strict=True)]
    taps = [
        [_broadcast_tap(b, tap, grid, axis) for tap in found] for axis, found in enumerate(taps)
    ]
    images = b.take(x, batches, axis=0)
    channels = x.type.shape[1]
    sampled = _summed(b, images, taps, largest=mode == "max")
    parts = b.reshape(sampled, shape=(count, channels, out[0], steps[0], out[1], steps[1]))
    return (b.reduce_max if mode == "max" else b.mean)(parts, axes=(3, 5))


def _roi_taps(b, at: Value, size: int) -> list[Tap]:
    """Interpolate linearly; positions up to one outside use the border's value, others nothing."""
    inside = b.and_(b.ge(at, _like(b, -1, at)), b.le(at, _like(b, size, at)))
    at = b.max(_like(b, 0, at), b.min(at, _like(b, size - 1, at)))
    low = b.floor(at)
    above = b.sub(at, low)
    place = b.cast(low, dtype=I64)
    return [
        (place, b.sub(_like(b, 1, above), above), inside),
        (_clamped(b, b.add(place, _like(b, 1, place)), size), above, inside),
    ]


def _broadcast_tap(b, tap: Tap, grid: list[int], axis: int) -> Tap:
    """Broadcast a tap of each region and position of one axis to the grid, row-major."""

    def wide(x: Value) -> Value:
        count = x.type.shape[0]
        made = b.broadcast(x, shape=(count, *grid), dims=(0, 1 + axis))
        return b.reshape(made, shape=(count, math.prod(grid)))

    place, weight, inside = tap
    return wide(place), wide(weight), None if inside is None else wide(inside)


# -- DeformConv ------------------------------------------------------------------------------------


@onnx_op("DeformConv")
def deform_conv(b, x, w, offset, bias=None, mask=None):
    """Convolve elements that are displaced by ``offset``.

    They are gathered into columns, and the rest is a convolution of size one.
    """
    n, channels, *sizes = x.type.shape
    if len(sizes) != 2:
        raise NotSupported(f"a deformable convolution over {len(sizes)} axes")
    kernel = list(w.type.shape[2:])
    taps, out = math.prod(kernel), list(offset.type.shape[2:])
    need_small(taps * math.prod(out), "positions of a convolution")
    groups = b.attr("offset_group", 1)
    pads, strides = b.attr("pads") or [0] * 4, b.attr("strides") or [1, 1]
    dilations = b.attr("dilations") or [1, 1]
    images = b.reshape(x, shape=(n * groups, channels // groups, *sizes))
    points = (n * groups, taps * math.prod(out))
    moved = b.reshape(offset, shape=(n * groups, taps, 2, math.prod(out)))
    found = []
    for axis, size in enumerate(sizes):
        start = np.arange(out[axis]) * strides[axis] - pads[axis]
        inner = np.arange(kernel[axis]) * dilations[axis]
        shape = [1, 1, 1, 1]
        shape[axis], shape[2 + axis] = kernel[axis], out[axis]
        places = np.broadcast_to((inner[:, None] + start).reshape(shape), (*kernel, *out))
        own = b.reshape(b.cut(moved, 2, axis, axis + 1), shape=points)
        fixed = b.constant(np.ascontiguousarray(places).reshape(-1).astype(own.type.dtype.numpy))
        at = b.add(own, b.broadcast(fixed, shape=points, dims=(1,)))
        found.append(_taps(b, _wide(b, at), size, "linear", "zeros", True))
    columns = b.reshape(
        _summed(b, images, found), shape=(n * groups, channels // groups, taps, *out)
    )
    if mask is not None:
        held = b.reshape(mask, shape=(n * groups, taps, *out))
        columns = b.mul(columns, b.broadcast(held, shape=columns.type.shape, dims=(0, 2, 3, 4)))
    columns = b.reshape(columns, shape=(n, channels * taps, *out))
    flat = b.reshape(w, shape=(w.type.shape[0], w.type.shape[1] * taps, 1, 1))
    made = b.conv(
        columns,
        flat,
        strides=(1, 1),
        low=(0, 0),
        high=(0, 0),
        dilations=(1, 1),
        groups=b.attr("group", 1),
    )
    return b.bias(made, bias, 1)


# -- parts -----------------------------------------------------------------------------------------


def _like(b, number, x: Value) -> Value:
    return b.scalar_like(number, x)


def _wide(b, x: Value) -> Value:
    """Convert positions to at least f32: half precision cannot represent an image's indices."""
    return b.cast(x, dtype=F32) if x.type.dtype.bits < 32 else x


def _column(b, x: Value, place: int) -> Value:
    """Return one column of the last axis, without that axis."""
    return b.reshape(b.cut(x, x.type.rank - 1, place, place + 1), shape=x.type.shape[:-1])
