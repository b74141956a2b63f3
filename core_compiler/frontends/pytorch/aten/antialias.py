"""Interpolation of ATen that smooths where it shrinks (``antialias=True``), as Pillow does."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from core_compiler.frontends.base import WRITTEN_OUT, need_small
from core_compiler.frontends.pytorch.aten.table import NotSupported, aten
from core_compiler.frontends.resampling import cubic, lanczos, triangle, weighted

#: Packet -> its kernel, and how many elements that reaches to either side.
KERNELS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "_upsample_bilinear2d_aa": (triangle, 1),
    "_upsample_bicubic2d_aa": (partial(cubic, a=-0.5), 2),
    "_upsample_lanczos2d_aa": (lanczos, 3),
}


@aten(*KERNELS)
def upsample(b, x, output_size, align_corners, *scales):
    """``scales``: one of height and one of width, or both in a list; None: what sizes say."""
    if not x.type.dtype.is_float:
        raise NotSupported(f"an image of {x.type.dtype.name}, which torch rounds in between")
    kernel, reach = KERNELS[str(b.node.target).split(".")[1]]
    given = scales[0] if scales and isinstance(scales[0], list | tuple) else scales
    factors = [*(given or ()), None, None][:2]
    for axis, factor, place in ((3, factors[1], 1), (2, factors[0], 0)):
        size = x.type.shape[axis]
        out = output_size[place] if output_size else math.floor(size * factor)
        step = _step(size, out, align_corners, factor)
        x = weighted(b, x, axis, *_taps(size, out, step, kernel, reach))
    return x


def _step(size: int, out: int, align_corners: bool, factor: float | None) -> float:
    """How far apart output positions are, in input elements."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1 / factor if factor else size / out


def _taps(size: int, out: int, step: float, kernel, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and weights, [taps, out]: the kernel is as much wider as the axis shrinks."""
    wide = max(step, 1.0)
    centres = step * (np.arange(out) + 0.5)
    first = np.maximum((centres - reach * wide + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach * wide + 0.5).astype(np.int64), size)
    most = int((last - first).max())
    need_small(most, "elements that a resized one is made of", WRITTEN_OUT)
    need_small(most * out, "weights of a resized axis")
    places = first + np.arange(most)[:, None]
    weights = kernel((places - centres + 0.5) / wide)
    weights = np.where(places < last, weights, 0.0)
    return np.minimum(places, size - 1), weights / weights.sum(0)
