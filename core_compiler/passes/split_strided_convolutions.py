"""Split strided convolutions: a transposed one with strides becomes several without strides.

The results are interleaved.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import gcd, prod

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.builder import Builder
from core_compiler.ops.typed import ConvTranspose
from core_compiler.passes.replacement import ReplaceOps


@dataclass(frozen=True)
class Phase:
    """The positions ``first``, ``first + stride``, ... of an axis of the result: ``count`` of them.

    They meet the taps ``tap``, ``tap + step``, ... (``taps`` of them) at neighbouring elements of
    x, ``dilation`` apart, the first tap at element ``low`` before position 0.
    """

    first: int
    count: int
    tap: int
    step: int
    taps: int
    dilation: int
    low: int


def phases(size: int, window: int, stride: int, low: int, dilation: int) -> list[Phase]:
    """Return the phases of an axis of ``size`` positions; those without a tap have ``taps`` 0."""
    made = []
    shared = gcd(dilation, stride)
    for first in range(min(stride, size)):
        matching_taps = [t for t in range(window) if (first + low - t * dilation) % stride == 0]
        at = (first + low - matching_taps[0] * dilation) // stride if matching_taps else 0
        made.append(
            Phase(
                first,
                -(-(size - first) // stride),
                matching_taps[0] if matching_taps else 0,
                stride // shared,
                len(matching_taps),
                dilation // shared,
                at,
            )
        )
    return made


@dataclass(frozen=True)
class SplitStridedConvolutions(ReplaceOps):
    """Split a transposed convolution with strides into one without strides per phase.

    Positions a stride apart meet the same taps, so each phase is an ordinary product; the phases
    are then interleaved.  Terms, their order and their chunks do not change: exact.
    """

    half = "implementation"

    @override
    def refused(self, op):
        return refused(op)

    @override
    def replacement(self, b, op):
        return split(b, op)

    @override
    def rule(self, op):
        return "a transposed convolution by phases"


def refused(op: Op) -> Refusal | None:
    """Return why ``op`` is not split, or None."""
    convolution = ConvTranspose.match(op)
    if convolution is None:
        return refuse("transposed convolutions", "{0} is not a transposed convolution", op)
    if all(s == 1 for s in convolution.strides):
        return refuse("strides", "{0} has no strides", op)
    if op.result.type.elements == 0:
        return refuse("elements", "{0} has no elements", op)
    return None


def split(b: Builder, op: Op) -> Value:
    """Return the result of a transposed convolution with strides, computed without strides."""
    convolution = ConvTranspose.of(op)
    shape, window = op.result.type.shape, convolution.w.type.shape[2:]
    spatial = len(window)
    each = [
        phases(*axis)
        for axis in zip(
            shape[2:],
            window,
            convolution.strides,
            convolution.low,
            convolution.dilations,
            strict=True,
        )
    ]
    most = [axis[0].count for axis in each]
    zero = b.constant(0, op.result.type.dtype)
    parts: dict[tuple[int, ...], Value] = {}
    for chosen in itertools.product(*each):
        parts[tuple(p.first for p in chosen)] = _phase(b, convolution, chosen, most, zero)
    # Interleave the phases, last axis first.
    for axis in reversed(range(spatial)):
        joined: dict[tuple[int, ...], Value] = {}
        for prefix in dict.fromkeys(key[:axis] for key in parts):
            row = [v for key, v in parts.items() if key[:axis] == prefix]
            joined[prefix] = _interleaved(b, row, axis + 2)
        parts = joined
    (made,) = parts.values()
    if made.type.shape != shape:
        rank = len(shape)
        made = b.slice(made, starts=(0,) * rank, limits=shape, strides=(1,) * rank)
    return made


def _phase(b: Builder, convolution: ConvTranspose, chosen, most, zero: Value) -> Value:
    """Return one phase, padded to ``most`` positions per axis."""
    x, w = convolution.x, convolution.w
    shape = (*convolution.result.type.shape[:2], *most)
    if not all(p.taps for p in chosen):
        return b.expand(zero, shape)
    taps = b.slice(
        w,
        starts=(0, 0, *(p.tap for p in chosen)),
        limits=(*w.type.shape[:2], *(p.tap + p.step * (p.taps - 1) + 1 for p in chosen)),
        strides=(1, 1, *(p.step for p in chosen)),
    )
    high = [
        size + p.dilation * (p.taps - 1) - p.low - p.count
        for size, p in zip(x.type.shape[2:], chosen, strict=True)
    ]
    made = b.conv_transpose(
        x,
        taps,
        strides=(1,) * len(most),
        low=[p.low for p in chosen],
        high=high,
        dilations=[p.dilation for p in chosen],
        groups=convolution.groups,
        output_padding=(0,) * len(most),
        accumulate=convolution.accumulate,
        taps=prod(w.type.shape[2:]),
    )
    if made.type.shape == shape:
        return made
    ends = [want - have for want, have in zip(shape, made.type.shape, strict=True)]
    none = (0,) * len(shape)
    return b.pad(made, zero, low=none, high=ends, interior=none)


def _interleaved(b: Builder, parts: list[Value], axis: int) -> Value:
    """Return the elements of the parts interleaved along ``axis``."""
    if len(parts) == 1:
        return parts[0]
    shape = parts[0].type.shape
    wide = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    joined = b.concat(*(b.reshape(p, shape=wide) for p in parts), axis=axis + 1)
    return b.reshape(joined, shape=(*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :]))
