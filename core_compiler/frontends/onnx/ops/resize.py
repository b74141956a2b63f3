"""Resize and similar ops: along each axis a weighted sum of a few gathered slices.

Positions and weights are computed at import, in float64; they only depend on sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from core_compiler.frontends.base import MAX_EXPANDED_COPIES, need_small
from core_compiler.frontends.onnx.table import NotSupported, axis_of, onnx_op
from core_compiler.frontends.resampling import cubic, triangle, weighted_sum


@dataclass(frozen=True)
class Axis:
    """An axis to resize: sizes before and after, scale, and the region of interest."""

    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def source_positions(axis: Axis, mode: str) -> np.ndarray:
    """Return the (fractional) input position of each output position."""
    x = np.arange(axis.out, dtype=np.float64)
    width = axis.scale * axis.size
    if mode == "asymmetric":
        return x / axis.scale
    if mode == "align_corners":
        return np.zeros_like(x) if width == 1 else x * (axis.size - 1) / (width - 1)
    if mode == "half_pixel":
        return (x + 0.5) / axis.scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / axis.scale - 0.5 if axis.out > 1 else np.zeros_like(x)
    if mode == "half_pixel_symmetric":
        centre = axis.size / 2
        return centre * (1 - axis.out / width) + (x + 0.5) / axis.scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / axis.scale
    if mode == "tf_crop_and_resize":
        span = (axis.end - axis.start) * (axis.size - 1)
        moved = x * span / (width - 1) if width > 1 else np.full_like(x, span / 2)
        return moved + axis.start * (axis.size - 1)
    raise NotSupported(f"coordinate transformation {mode}")


def _rounded(x: np.ndarray, mode: str) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(x + 0.5)
    return {"floor": np.floor, "ceil": np.ceil}[mode](x)


def taps(x: np.ndarray, axis: Axis, mode: str, antialias: bool, a: float, outside: bool):
    """Return ``(positions, weights)``, each [taps, out]: slices of the axis and their weights."""
    reach = 1 if mode == "linear" else 2
    squeeze = min(axis.scale, 1.0) if antialias else 1.0
    first = math.floor(-reach / squeeze) + 1
    need_small(2 - 2 * first, "taps of a resized element", MAX_EXPANDED_COPIES)
    need_small((2 - 2 * first) * axis.out, "weights of a resized axis")
    steps = (
        np.arange(first, 2 - first)[:, None]
        if antialias
        else np.arange(1 - reach, reach + 1)[:, None]
    )
    base = np.where(x == np.floor(x), x - 1, np.floor(x))
    places = base + steps
    distance = (places - x) * squeeze
    weights = triangle(distance) if mode == "linear" else cubic(distance, a)
    if outside:
        weights = np.where((places < 0) | (places >= axis.size), 0.0, weights)
    if outside or antialias:
        weights = weights / weights.sum(0)
    return np.clip(places, 0, axis.size - 1).astype(np.int64), weights


def resize_axis(b, x, number: int, axis: Axis, options: dict):
    """Return ``x`` with one axis resized."""
    mode = options["mode"]
    need_small(axis.out, "positions of a resized axis")
    at = source_positions(axis, options["transformation"])
    if mode == "nearest":
        nearest = options["nearest"]
        if nearest == "simple":
            shrinks = axis.scale < 1
            nearest, at = "ceil" if shrinks else "floor", at.astype(np.float32) if shrinks else at
        places = np.clip(_rounded(at, nearest), 0, axis.size - 1).astype(np.int64)
        return b.take(x, b.constant(places), axis=number)
    places, weights = taps(at, axis, mode, options["antialias"], options["a"], options["exclude"])
    return weighted_sum(b, x, number, places, weights)


@onnx_op("Resize")
def resize(b, x, roi=None, scales=None, sizes=None):
    if b.opset < 11:
        roi, scales = None, roi
    rank = x.type.rank
    axes = [axis_of(a, rank) for a in b.attr("axes")] if b.attr("axes") else list(range(rank))
    plan = _plan(b, x, axes, roi, scales, sizes)
    old = b.opset < 11
    options = {
        "mode": b.attr("mode", "nearest"),
        "transformation": "asymmetric"
        if old
        else b.attr("coordinate_transformation_mode", "half_pixel"),
        # ONNX does not specify this before version 11; runtimes round up if the axis shrinks.
        "nearest": "simple" if old else b.attr("nearest_mode", "round_prefer_floor"),
        "antialias": bool(b.attr("antialias", 0)),
        "a": float(b.attr("cubic_coeff_a", -0.75)),
        "exclude": bool(b.attr("exclude_outside", 0)),
    }
    return _resized(b, x, plan, options, float(b.attr("extrapolation_value", 0.0)))


@onnx_op("Upsample")
def upsample(b, x, scales=None):
    factors = b.const(scales, "the scales") if scales is not None else np.array(b.attr("scales"))
    plan = {
        i: Axis(d, _scaled(d, float(s)), float(s))
        for i, (d, s) in enumerate(zip(x.type.shape, factors.reshape(-1), strict=True))
    }
    options = {
        "mode": b.attr("mode", "nearest"),
        "transformation": "asymmetric",
        "nearest": "floor",
        "antialias": False,
        "a": -0.75,
        "exclude": False,
    }
    return _resized(b, x, plan, options, 0.0)


def _scaled(size: int, scale: float) -> int:
    """Return the size after scaling, in f32 as ONNX infers it: 10 by 0.7 is 7, not 6.9999999."""
    return math.floor(np.float32(size) * np.float32(scale))


def _plan(b, x, axes, roi, scales, sizes) -> dict[int, Axis]:
    """Return the axes with their sizes and scales, from ``sizes`` or ``scales``."""
    shape = [x.type.shape[a] for a in axes]
    if scales is not None and scales.type.elements:
        factors = [float(s) for s in b.const(scales, "the scales").reshape(-1)]
        out = [_scaled(d, s) for d, s in zip(shape, factors, strict=True)]
    elif sizes is not None:
        out = b.ints(sizes, "the sizes")
        factors = [o / d for o, d in zip(out, shape, strict=True)]
        policy = b.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            pick = min if policy == "not_larger" else max
            factors = [pick(factors)] * len(axes)
            out = [math.floor(s * d + 0.5) for s, d in zip(factors, shape, strict=True)]
    else:
        raise NotSupported("neither scales nor sizes")
    if b.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = [float(v) for v in b.const(roi, "the region of interest").reshape(-1)]
        starts, ends = region[: len(axes)], region[len(axes) :]
    else:
        starts, ends = [0.0] * len(axes), [1.0] * len(axes)
    return {
        a: Axis(d, o, s, *r)
        for a, d, o, s, *r in zip(axes, shape, out, factors, starts, ends, strict=True)
    }


def _resized(b, x, plan: dict[int, Axis], options, extrapolation: float):
    if options["mode"] not in ("nearest", "linear", "cubic"):
        raise NotSupported(f"mode {options['mode']}")
    if not x.type.dtype.is_float and options["mode"] != "nearest":
        return _in_floats(b, x, plan, options, extrapolation)
    inside = None
    for number, axis in plan.items():
        crop = options["transformation"] == "tf_crop_and_resize"
        if axis.size == axis.out and axis.scale == 1 and not crop:
            continue
        x = resize_axis(b, x, number, axis, options)
        if crop:
            at = source_positions(axis, options["transformation"])
            held = (at >= 0) & (at <= axis.size - 1)
            if not held.all():
                inside = [*(inside or []), (number, held)]
    for number, held in inside or []:
        seen = b.broadcast(b.constant(held), shape=x.type.shape, dims=(number,))
        x = b.select(seen, x, b.scalar_like(extrapolation, x))
    return x


def _in_floats(b, x, plan, options, extrapolation: float):
    """Resize integers in floats and round to nearest even."""
    kind = x.type.dtype
    wide = b.cast(x, dtype="f64")
    return b.cast(b.round(_resized(b, wide, plan, options, extrapolation)), dtype=kind)
