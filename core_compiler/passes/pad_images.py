"""Pad images: depthwise convolutions and pools whose lanes are pixels read padded images."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ir.refusal import refuse
from core_compiler.ops.reduction import lowest
from core_compiler.ops.rules import F32
from core_compiler.ops.typed import AvgPool, Conv, MaxPool
from core_compiler.passes.replacement import ReplaceOps

#: A pixel at an edge, which is computed alone, costs as much as these in the interior.
EDGE = 64


@dataclass(frozen=True)
class PadImages(ReplaceOps):
    """Copy the images of a depthwise convolution or a pool into padded ones, if pixels are lanes.

    Lanes read neighbouring pixels; those at the edges, where a tap is outside of the image, are
    computed one by one instead, and with strides all of them. In a padded copy all are alike.  A
    tap outside multiplies or adds 0 (to a sum that begins with +0 and so is never -0), or is the
    lowest number of a maximum, which padding never is: exact.  The copy of a narrow image that is
    convolved is in f32, in which it is summed: it is widened once, and not for every tap.
    """

    half = "implementation"

    @override
    def refused(self, op):
        found = _view(op)
        if found is None:
            return refuse("a convolution or pool", "{0} is none", op)
        conv, average = Conv.match(op), AvgPool.match(op)
        if conv is not None and (conv.w.type.shape[1] != 1 or conv.groups < 2):
            return refuse("a depthwise convolution", "{0} sums over channels", op)
        if average is not None and not average.count_padding:
            return refuse("padding that counts", "{0} divides by the elements inside", op)
        if found.op.operands[0].type.order is not None:
            return refuse("pixels as lanes", "the channels of {0} are adjacent", op)
        if min(found.low + found.high, default=0) < 0 or not any(found.low + found.high):
            return refuse("padding", "{0} has none", op)
        edge = found.low[-1] + found.high[-1]
        if conv is not None and not edge * EDGE > op.result.type.shape[-1]:
            return refuse("enough pixels at edges", "{0} has {1} in a row", op, edge)
        return None

    @override
    def replacement(self, b, op):
        found = _view(op)
        assert found is not None
        x, *rest = op.operands
        narrow, none = x.type.dtype, (0,) * len(found.low)
        is_widened = Conv.match(op) is not None and narrow.is_float and narrow.bits < F32.bits
        if is_widened:
            x, *rest = (b.cast(v, dtype=F32) for v in op.operands)
        kind = x.type
        value = lowest(kind.dtype) if op.kind == MaxPool.kind else 0
        images = b.pad(
            x,
            b.constant(value, kind.dtype),
            low=(0, 0, *found.low),
            high=(0, 0, *found.high),
            interior=(0,) * kind.rank,
        )
        attributes = {**op.attributes, "low": none, "high": none}
        made = b.op(op.kind, [images, *rest], **attributes)
        return b.cast(made, dtype=narrow, saturate=False) if is_widened else made

    @override
    def rule(self, op):
        return f"{op.kind.split('.')[1]} of padded images"


def _view(op: Op) -> Conv | MaxPool | AvgPool | None:
    return Conv.match(op) or MaxPool.match(op) or AvgPool.match(op)
