"""Pad images: a depthwise convolution whose lanes are pixels reads images with their padding."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.builder import Builder
from core_compiler.ops.typed import Conv
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import reuse_results

#: A pixel at an edge, which is computed alone, costs as much as these in the interior.
EDGE = 64


@dataclass(frozen=True)
class PadImages(Pass):
    """Copy the images of a depthwise convolution into padded ones, if the pixels are its lanes.

    Lanes read neighbouring pixels; those at the edges, where a tap is outside of the image, are
    computed one by one instead. In a padded copy all are alike.  A tap outside multiplies 0 in both
    forms: exact.
    """

    half = "implementation"
    refusal_arity = 1
    requires = frozenset({"tensor_ops"})

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if _refused(op) is None and not context.claims(op):
                    builder = Builder(module.weights)
                    new, values = reuse_results(op, (_padded(builder, op),), builder.ops)
                    rw.replace(op, new, values, rule="a depthwise convolution of padded images")

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        return _refused(ops[0])


def _refused(op: Op) -> Refusal | None:
    conv = Conv.match(op)
    if conv is None:
        return refuse("a convolution", "{0} is none", op)
    if conv.w.type.shape[1] != 1 or conv.groups < 2:
        return refuse("a depthwise convolution", "{0} sums over channels", op)
    if conv.x.type.order is not None:
        return refuse("pixels as lanes", "the channels of {0} are adjacent", op)
    edge = conv.low[-1] + conv.high[-1] if min(conv.low + conv.high, default=0) >= 0 else 0
    if not edge * EDGE > conv.result.type.shape[-1]:
        return refuse("enough pixels at edges", "{0} has {1} in a row", op, edge)
    return None


def _padded(b: Builder, op: Op) -> Value:
    conv = Conv(op)
    kind, none = conv.x.type, (0,) * len(conv.low)
    images = b.pad(
        conv.x,
        b.constant(0, kind.dtype),
        low=(0, 0, *conv.low),
        high=(0, 0, *conv.high),
        interior=(0,) * kind.rank,
    )
    return b.conv(images, conv.w, **{**op.attributes, "low": none, "high": none})
