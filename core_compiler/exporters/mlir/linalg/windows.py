"""Convolutions and pooling: named ops if they exist, else generic ops over the windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from core_compiler.exporters.mlir.linalg import scalars
from core_compiler.exporters.mlir.linalg.context import PARALLEL, REDUCTION, Linalg, identity, op
from core_compiler.exporters.mlir.linalg.contraction import added_product, named, zeros
from core_compiler.exporters.mlir.linalg.reduction import accumulated, least, rounded
from core_compiler.exporters.mlir.linalg.shape import cut, padded, reshaped
from core_compiler.exporters.mlir.literals import constant_text, type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.exporters.shapes import kept_ranges, positions_inside
from core_compiler.ir import DType, TensorType, tensor
from core_compiler.ops import typed
from core_compiler.ops.rules import accumulator

#: Spatial axes -> the named op, by the grouping of the channels.
_PLAIN = {1: "conv_1d_ncw_fcw", 2: "conv_2d_nchw_fchw", 3: "conv_3d_ncdhw_fcdhw"}
_DEPTHWISE = {
    1: "depthwise_conv_1d_ncw_cw",
    2: "depthwise_conv_2d_nchw_chw",
    3: "depthwise_conv_3d_ncdhw_cdhw",
}
_POOLS = {1: "pooling_ncw", 2: "pooling_nchw"}


def _geometry(op: typed.Conv | typed.Pool) -> str:
    rank = len(op.strides)
    given = op.pick("dilations", "strides").items()
    facts = (f"{n} = dense<{list(held)}> : tensor<{rank}xi64>" for n, held in given)
    return f" {{{', '.join(facts)}}}"


def _reached(op: typed.Conv | typed.Pool, outputs: int, taps: int) -> list[str]:
    """Return the positions that a window reads.

    The loops from ``outputs`` on are the window's position, those from ``taps`` on the position
    inside it.
    """
    rows = enumerate(zip(op.strides, op.dilations, strict=True))
    return [f"d{outputs + i} * {s} + d{taps + i} * {d}" for i, (s, d) in rows]


def with_border(b: Linalg, x: Ref, scalar: Ref, op: typed.Conv | typed.Pool) -> Ref:
    """Pad the spatial axes of ``x`` [N, C, spatial..] with ``scalar``; negative sizes crop."""
    low, high = (0, 0, *op.low), (0, 0, *op.high)
    extents = [sum(parts) for parts in zip(x.type.shape, low, high, strict=True)]
    kept = kept_ranges(x.type.shape, low, extents, (0,) * x.type.rank)
    if any(count == 0 for _, count, _ in kept):
        return b.filled(scalar, tensor(extents, x.type.dtype))
    first, sizes, begin = ([row[i] for row in kept] for i in range(3))
    if tuple(sizes) != x.type.shape:
        x = cut(b, x, first, sizes)
    behind = [e - p - n for e, p, n in zip(extents, begin, sizes, strict=True)]
    return padded(b, x, scalar, begin, behind)


# -- convolution -----------------------------------------------------------------------------------


@op("conv")
def conv(b: Linalg, op: typed.Conv, x: Ref, w: Ref) -> Ref:
    made, kind, groups = op.result.type, x.type.dtype, op.groups
    spatial, total = x.type.rank - 2, tensor(made.shape, accumulator(kind))
    if made.elements == 0 or x.type.shape[1] == 0:
        return zeros(b, made.shape, made.dtype)
    x = with_border(b, x, b.scalar(0, kind), op)
    if kind.kind == "uint":  # the named ops read signed integers
        product = _by_groups(b, op, x, w, total)
    elif groups == 1:
        product = named(b, _PLAIN[spatial], x, w, total, _geometry(op))
    elif w.type.shape[:2] == (groups, 1):
        taps = reshaped(b, w, (groups, *w.type.shape[2:]))
        product = named(b, _DEPTHWISE[spatial], x, taps, total, _geometry(op))
    else:
        product = _by_groups(b, op, x, w, total)
    return rounded(b, product, made.dtype)


def _by_groups(b: Linalg, op: typed.Conv, x: Ref, w: Ref, total: TensorType) -> Ref:
    """Emit a convolution with the groups as a separate axis."""
    (n, _, *sizes), (outputs, inner, *window) = x.type.shape, w.type.shape
    groups, spatial = op.groups, len(window)
    x = reshaped(b, x, (n, groups, inner, *sizes))
    w = reshaped(b, w, (groups, outputs // groups, inner, *window))
    parts = tensor((n, groups, outputs // groups, *total.shape[2:]), total.dtype)
    if spatial == 2 and x.type.dtype.kind != "uint":
        made = named(b, "conv_2d_ngchw_gfchw", x, w, parts, _geometry(op))
        return reshaped(b, made, total.shape)
    # Loops: image, group, output, positions, channel, window.
    channel, taps = 3 + spatial, 4 + spatial

    made = b.generic(
        [
            (x, ["d0", "d1", f"d{channel}", *_reached(op, 3, taps)]),
            (w, ["d1", "d2", f"d{channel}", *(f"d{taps + i}" for i in range(spatial))]),
        ],
        [(zeros(b, parts.shape, parts.dtype), identity(channel))],
        [PARALLEL] * channel + [REDUCTION] * (1 + spatial),
        lambda value, weight, sum_: added_product(b, value, weight, sum_),
    )[0]
    return reshaped(b, made, total.shape)


# -- pooling ---------------------------------------------------------------------------------------


@op("max_pool")
def max_pool(b: Linalg, op: typed.MaxPool, x: Ref) -> Ref:
    return _pooled(b, op, x, "max", least(x.type.dtype))


@op("avg_pool")
def avg_pool(b: Linalg, op: typed.AvgPool, x: Ref) -> Ref:
    kind = x.type.dtype
    sums = _pooled(b, op, accumulated(b, x, "sum"), "sum", 0)
    sizes = x.type.shape[2:]
    counts = np.full(sums.type.shape[2:], float(prod(op.window)))
    if not op.count_padding:
        counts = positions_inside(
            sizes, op.window, op.strides, op.dilations, op.low, sums.type.shape[2:]
        )
    return rounded(b, _divided(b, sums, counts), kind)


def _divided(b: Linalg, x: Ref, counts: np.ndarray) -> Ref:
    """Divide ``x`` by the counts of its spatial positions."""
    kind, made = x.type.dtype, x.type
    if (counts == counts.flat[0]).all():
        count = b.scalar(counts.flat[0], kind)
        return b.each(lambda v: b.same("arith.divf", v, count), x, dtype=kind)
    held = tensor(counts.shape, kind)
    text = f"arith.constant {constant_text(counts.astype(kind.numpy), kind)}"
    same = identity(made.rank)
    return b.generic(
        [(x, same), (b.writer.constant(text, held), same[2:])],
        [(b.empty(made), same)],
        [PARALLEL] * made.rank,
        lambda v, count, _: b.same("arith.divf", v, count),
    )[0]


def _pooled(b: Linalg, op: typed.Pool, x: Ref, name: str, start: object) -> Ref:
    """Combine windows by ``max`` or ``sum``, in ``x``'s dtype; padding holds ``start``."""
    kind: DType = x.type.dtype
    made, window = tensor(op.result.type.shape, kind), tensor(op.window, kind)
    fill = b.scalar(start, kind)
    x = with_border(b, x, fill, op)
    spatial, init, taps = x.type.rank - 2, b.filled(fill, made), b.empty(window)
    if spatial in _POOLS and kind.kind != "uint":
        return b.writer.line(
            f"linalg.{_POOLS[spatial]}_{name}{_geometry(op)} ins({x}, {taps} : "
            f"{type_text(x.type)}, {type_text(window)}) outs({init} : {type_text(made)}) -> "
            f"{type_text(made)}",
            made,
        )
    join: Callable = scalars.scalar({"max": "max", "sum": "add"}[name], kind)
    rank: int = made.rank
    inside: Sequence[str] = [f"d{rank + i}" for i in range(spatial)]
    return b.generic(
        [(x, ["d0", "d1", *_reached(op, 2, rank)]), (taps, inside)],
        [(init, identity(rank))],
        [PARALLEL] * rank + [REDUCTION] * spatial,
        lambda v, _, acc: join(b, acc, v),
    )[0]
