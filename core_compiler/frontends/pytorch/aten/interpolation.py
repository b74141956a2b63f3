"""Interpolation ops of ATen with no decomposition in torch, or a different one.

With ``antialias=True`` the kernel widens if an image shrinks, as in Pillow.  Byte images are
resized in fixed point, with the rows rounded to bytes before the columns, as in Pillow too: torch's
decomposition would round once (ATen, ``cpu/UpSampleKernel.cpp``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from core_compiler.frontends.base import MAX_EXPANDED_COPIES, need_small
from core_compiler.frontends.pytorch.aten.table import NotSupported, aten
from core_compiler.frontends.resampling import (
    cubic,
    lanczos,
    triangle,
    weighted_sum,
    weighted_sum_in_fixed_point,
)

Kernel = Callable[[np.ndarray], np.ndarray]

#: Packet -> its kernel, and the kernel's radius in elements.
WIDENING: dict[str, tuple[Kernel, int]] = {
    "_upsample_bilinear2d_aa": (triangle, 1),
    "_upsample_bicubic2d_aa": (partial(cubic, a=-0.5), 2),
    "_upsample_lanczos2d_aa": (lanczos, 3),
}
PLAIN: dict[str, tuple[Kernel, int]] = {
    "upsample_bilinear2d": (triangle, 1),
    "upsample_bicubic2d": (partial(cubic, a=-0.75), 2),
}


@aten(*WIDENING, *PLAIN)
def upsample(b, x, output_size, align_corners, *scales):
    """Resize an image.

    ``scales``: one of height and one of width, or both in a list; None: derived from sizes.
    """
    name, dtype = str(b.node.target).split(".")[1], x.type.dtype
    is_bytes = dtype.name == "ui8"
    if not is_bytes and (name in PLAIN or not dtype.is_float):
        raise NotSupported(f"an image of {dtype.name} is left to torch's decomposition")
    kernel, reach = (PLAIN | WIDENING)[name]
    taps = partial(_plain_taps, align_corners=align_corners) if name in PLAIN else _taps
    make = weighted_sum_in_fixed_point if is_bytes else weighted_sum
    given = scales[0] if scales and isinstance(scales[0], list | tuple) else scales
    factors = [*(given or ()), None, None][:2]
    for axis, factor, place in ((3, factors[1], 1), (2, factors[0], 0)):
        size = x.type.shape[axis]
        out = output_size[place] if output_size else math.floor(size * factor)
        step = _step(size, out, align_corners, factor)
        x = make(b, x, axis, *taps(size, out, step, kernel, reach))
    return x


#: Packet -> its spatial axes, and where in an output element its position is taken.
NEAREST: dict[str, tuple[int, float]] = {
    f"{name}{rank}d": (rank, offset)
    for rank in (1, 2, 3)
    for name, offset in (("upsample_nearest", 0.0), ("_upsample_nearest_exact", 0.5))
}


@aten(*NEAREST)
def nearest(b, x, output_size, *scales):
    """Resize by copies of the nearest element.

    ``scales``: one for each axis, or all in a list; None: derived from sizes.  Positions are
    computed in f32 like torch's (ATen, ``cpu/UpSampleKernel.cpp``).
    """
    rank, offset = NEAREST[str(b.node.target).split(".")[1]]
    given = scales[0] if scales and isinstance(scales[0], list | tuple) else scales
    factors = [*(given or ()), *[None] * rank][:rank]
    for place, factor in enumerate(factors):
        axis = x.type.rank - rank + place
        size = x.type.shape[axis]
        out = output_size[place] if output_size else math.floor(size * factor)
        need_small(out, "positions of a resized axis")
        step = size / (size * factor) if factor is not None and factor > 0 else size / out
        positions = (np.arange(out, dtype=np.float32) + np.float32(offset)) * np.float32(step)
        x = b.take(x, b.constant(positions.astype(np.int64)), axis=axis)
    return x


def _step(size: int, out: int, align_corners: bool, factor: float | None) -> float:
    """Return the distance of output positions, in input elements."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1 / factor if factor else size / out


def _taps(
    size: int, out: int, step: float, kernel: Kernel, reach: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and weights, [taps, out]; the kernel widens as the axis shrinks."""
    wide = max(step, 1.0)
    centres = step * (np.arange(out) + 0.5)
    first = np.maximum((centres - reach * wide + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach * wide + 0.5).astype(np.int64), size)
    most = int((last - first).max())
    need_small(most, "taps of a resized element", MAX_EXPANDED_COPIES)
    need_small(most * out, "weights of a resized axis")
    places = first + np.arange(most)[:, None]
    weights = kernel((places - centres + 0.5) / wide)
    weights = np.where(places < last, weights, 0.0)
    return np.minimum(places, size - 1), weights / weights.sum(0)


def _plain_taps(
    size: int, out: int, step: float, kernel: Kernel, reach: int, align_corners: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and weights, [taps, out]; positions outside use the element at the edge."""
    positions = step * np.arange(out) if align_corners else step * (np.arange(out) + 0.5) - 0.5
    if reach == 1:  # a linear kernel has no slope at the edge
        positions = np.clip(positions, 0, size - 1)
    need_small(2 * reach * out, "weights of a resized axis")
    near = np.floor(positions) + np.arange(1 - reach, 1 + reach)[:, None]
    inside = np.clip(near, 0, size - 1).astype(np.int64)
    weights = np.zeros(near.shape)
    np.add.at(weights, (inside - inside[0], np.arange(out)), kernel(near - positions))
    return np.minimum(inside[0] + np.arange(2 * reach)[:, None], size - 1), weights
