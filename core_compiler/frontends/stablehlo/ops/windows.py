"""Reductions over windows, and the gradient of pooling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from core_compiler.frontends.base import need_small
from core_compiler.frontends.stablehlo.ops.elementwise import binary
from core_compiler.frontends.stablehlo.ops.reduction import is_identity
from core_compiler.frontends.stablehlo.regions import combiner, signature
from core_compiler.frontends.stablehlo.table import Context, NotSupported, op
from core_compiler.ir import Value

#: The maximum number of unrolled taps of a window, on one axis or, if the axes are not separable,
#: on all.
TAPS = 512
_SCANS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Windows:
    """The window, stride, padding and dilation of every axis."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    step: tuple[int, ...]
    base: tuple[int, ...]

    def plain(self, axis: int) -> bool:
        """Return whether the window is trivial on an axis."""
        return (
            self.size[axis],
            self.stride[axis],
            self.low[axis],
            self.high[axis],
            self.base[axis],
        ) == (1, 1, 0, 0, 1)

    def taps(self, length: int, axis: int) -> list[tuple[int, int]]:
        """Return (first, end) of the positions that each tap of the window reads on an axis.

        The axis is ``length`` long including its padding.
        """
        reach = self.step[axis] * (self.size[axis] - 1) + 1
        count = (length - reach) // self.stride[axis] + 1 if length >= reach else 0
        need_small(self.size[axis], "elements of a window", TAPS)
        starts = [tap * self.step[axis] for tap in range(self.size[axis])]
        span = (count - 1) * self.stride[axis] + 1 if count > 0 else 0
        return [(start, start + span) for start in starts]


def _windows(b: Context, rank: int) -> Windows:
    padding = b.attr("padding")
    rows = [(0, 0)] * rank if padding is None else [tuple(map(int, row)) for row in padding]
    return Windows(
        b.integers("window_dimensions", rank, 1),
        b.integers("window_strides", rank, 1),
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        b.integers("window_dilations", rank, 1),
        b.integers("base_dilations", rank, 1),
    )


@op("reduce_window")
def reduce_window(b, *operands):
    count = len(operands) // 2
    xs, starts = operands[:count], operands[count:]
    if 0 in b.results[0].shape:
        return tuple(b.expand(s, made.shape) for s, made in zip(starts, b.results, strict=True))
    windows = _windows(b, xs[0].type.rank)
    kind = combiner(b.operation.regions[0]) if count == 1 else None
    if kind is not None and is_identity(b, kind, starts[0]):
        (x,), (start,) = xs, starts
        scanned = _scan(b, kind, x, windows)
        if scanned is not None:
            return scanned
        pooled = _pooled(b, kind, x, windows)
        return pooled if pooled is not None else _separable(b, kind, x, start, windows)
    return _unrolled(b, xs, starts, windows)


def _scan(b: Context, kind: str, x: Value, windows: Windows) -> Value | None:
    """Return a running fold for a window as long as its axis, else None.

    The window must end (or start) at each element.
    """
    rank = x.type.rank
    busy = [axis for axis in range(rank) if not windows.plain(axis)]
    if len(busy) != 1 or kind not in _SCANS or x.type.dtype.kind == "bool":
        return None
    (axis,) = busy
    size = x.type.shape[axis]
    if (windows.size[axis], windows.stride[axis], windows.step[axis], windows.base[axis]) != (
        size,
        1,
        1,
        1,
    ):
        return None
    edges = windows.low[axis], windows.high[axis]
    if edges not in ((size - 1, 0), (0, size - 1)):
        return None
    made = b.op(f"core.cum{_SCANS[kind]}", (x,), axis=axis, reverse=edges[0] == 0)
    return b.to(made, x.type.dtype)


def _pooled(b: Context, kind: str, x: Value, windows: Windows) -> Value | None:
    """Return maxima of floats by ``core.max_pool`` and sums by a convolution with ones.

    They cover one to three axes; None for other windows.
    """
    rank = x.type.rank
    busy = [axis for axis in range(rank) if not windows.plain(axis)]
    padded = any(pad < 0 for pad in (*windows.low, *windows.high))
    if (
        kind not in ("max", "add")
        or not x.type.dtype.is_float
        or not 1 <= len(busy) <= 3
        or (padded or any(windows.base[axis] != 1 for axis in busy) or 0 in x.type.shape)
    ):
        return None
    idle = [axis for axis in range(rank) if axis not in busy]
    order = (*idle, *busy)
    moved = b.transpose(x, permutation=order)
    lead = [x.type.shape[axis] for axis in idle]
    sizes = [x.type.shape[axis] for axis in busy]
    batch, channels = (lead[0], prod(lead[1:])) if len(lead) > 1 else (1, prod(lead))
    if kind == "add":
        batch, channels = prod(lead), 1
    image = b.reshape(moved, shape=(batch, channels, *sizes))
    pool = {
        name: tuple(values[axis] for axis in busy)
        for name, values in (
            ("strides", windows.stride),
            ("low", windows.low),
            ("high", windows.high),
            ("dilations", windows.step),
        )
    }
    window = tuple(windows.size[axis] for axis in busy)
    if kind == "max":
        made = b.max_pool(image, window=window, **pool)
    else:
        need_small(prod(window), "elements of a window")
        ones = b.constant(np.ones((1, 1, *window)), x.type.dtype)
        made = b.conv(image, ones, **pool)
    made = b.reshape(made, shape=(*lead, *made.type.shape[2:]))
    return b.transpose(made, permutation=_inverse(order))


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    back = [0] * len(order)
    for place, axis in enumerate(order):
        back[axis] = place
    return tuple(back)


def _padded(b: Context, x: Value, start: Value, windows: Windows) -> Value:
    return b.pad(
        x,
        start,
        low=windows.low,
        high=windows.high,
        interior=tuple(base - 1 for base in windows.base),
    )


def _separable(b: Context, kind: str, x: Value, start: Value, windows: Windows) -> Value:
    """Fold one axis after another: a fold over a box is a fold of folds."""
    made = _padded(b, x, start, windows)
    for axis in range(x.type.rank):
        if windows.size[axis] == windows.stride[axis] == 1:
            continue
        taps = windows.taps(made.type.shape[axis], axis)
        if len(taps) > TAPS:
            raise NotSupported(f"a window of {len(taps)} elements")
        parts = [b.cut(made, axis, a, z, windows.stride[axis]) for a, z in taps]
        made = parts[0]
        for part in parts[1:]:
            made = binary(b, kind, made, part)
    return made


def _unrolled(b: Context, xs, starts, windows: Windows) -> tuple[Value, ...]:
    """Fold the start values, then every tap in row-major order, by any body."""
    wide = [_padded(b, x, start, windows) for x, start in zip(xs, starts, strict=True)]
    shape, boxes = wide[0].type.shape, []
    if prod(windows.size) > TAPS:
        raise NotSupported(f"a window of {prod(windows.size)} elements")
    for taps in itertools.product(*(windows.taps(n, i) for i, n in enumerate(shape))):
        boxes.append((tuple(a for a, _ in taps), tuple(z for _, z in taps)))
    made: tuple[Value, ...] = ()
    for low, high in boxes:
        parts = tuple(b.slice(x, starts=low, limits=high, strides=windows.stride) for x in wide)
        if not made:
            made = tuple(b.expand(start, parts[0].type.shape) for start in starts)
        made = b.lifted(0, (*made, *parts))
    return made


# -- the gradient of pooling -----------------------------------------------------------------------


@op("select_and_scatter")
def select_and_scatter(b, x, source, start):
    """Add each element of ``source`` at the position that its window of ``x`` selects."""
    select, scatter = (combiner(region) for region in b.operation.regions)
    word = _chosen(b)
    if scatter != "add" or word is None or select is not None:
        raise NotSupported("anything but sums at the maximum or minimum of each window")
    rank = x.type.rank
    windows = _windows(b, rank)
    if prod(windows.size) > TAPS:
        raise NotSupported(f"a window of {prod(windows.size)} elements")
    if not x.type.dtype.is_float:
        raise NotSupported(f"windows of {x.type.dtype}")
    wide = _padded(b, x, b.constant(0, x.type.dtype), windows)
    shape = wide.type.shape
    taps = list(itertools.product(*(windows.taps(n, i) for i, n in enumerate(shape))))
    chosen = _chosen_taps(b, word, x, wide, taps, windows)
    made = b.broadcast(start, shape=shape, dims=())
    flat = b.reshape(made, shape=(prod(shape),))
    steps = [prod(shape[i + 1 :]) for i in range(rank)]
    offsets = b.constant(
        np.array(
            [sum(a * step for (a, _), step in zip(box, steps, strict=True)) for box in taps],
            np.int64,
        )
    )
    place = b.take(offsets, chosen, axis=0)
    for axis in range(rank):
        count = b.iota(shape=place.type.shape, dtype="i64", axis=axis)
        place = b.add(place, b.mul(count, b.scalar_like(steps[axis] * windows.stride[axis], count)))
    total = prod(place.type.shape)
    flat = b.scatter_nd(
        flat, b.reshape(place, shape=(total, 1)), b.reshape(source, shape=(total,)), mode="add"
    )
    whole = b.reshape(flat, shape=shape)
    inside = b.pad(
        whole,
        b.reshape(start, shape=()),
        low=tuple(-n for n in windows.low),
        high=tuple(-n for n in windows.high),
        interior=(0,) * rank,
    )
    return inside


def _chosen_taps(b: Context, word: str, x: Value, wide: Value, taps, windows: Windows) -> Value:
    """Return the number of the tap that each window selects.

    Of its elements inside x, in order, the next one is selected if the comparison of the current
    one with it is false.
    """
    shape = b.slice(
        wide,
        starts=tuple(a for a, _ in taps[0]),
        limits=tuple(z for _, z in taps[0]),
        strides=windows.stride,
    ).type.shape
    best: Value | None = None
    chosen, seen = b.expand(b.constant(0, "i64"), shape), np.zeros((1,) * len(shape), bool)
    for number, box in enumerate(taps):
        inside = np.ones((1,) * len(shape), bool)
        for axis, (first, end) in enumerate(box):
            at = np.arange(first, end, windows.stride[axis]) - windows.low[axis]
            held = (at >= 0) & (at < x.type.shape[axis])
            if not held.all():
                inside = inside & held.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        if not inside.any():
            continue
        part = b.slice(
            wide,
            starts=tuple(a for a, _ in box),
            limits=tuple(z for _, z in box),
            strides=windows.stride,
        )
        if best is None:
            better = _everywhere(b, inside, shape)
        else:
            better = b.not_(b.ge(best, part) if word == "GE" else b.le(best, part))
            better = b.or_(better, _everywhere(b, ~seen, shape)) if not seen.all() else better
            better = b.and_(better, _everywhere(b, inside, shape)) if not inside.all() else better
        best = part if best is None else b.select(better, part, best)
        chosen = b.select(better, b.expand(b.constant(number, "i64"), shape), chosen)
        seen = seen | inside
    return chosen


def _everywhere(b: Context, mask: np.ndarray, shape) -> Value:
    """Broadcast a mask with axes of size 1 to ``shape``."""
    axes = tuple(axis for axis, size in enumerate(mask.shape) if size != 1)
    held = b.constant(mask.reshape([mask.shape[axis] for axis in axes]))
    return b.broadcast(held, shape=shape, dims=axes)


def _chosen(b: Context) -> str | None:
    """Return the direction of the single comparison by which windows select, else None."""
    rows = signature(b.operation.regions[0])
    for word in ("GE", "LE"):
        if rows == (("compare", word, (0, 1)), ("return", "", (2,))):
            return word
    return None
