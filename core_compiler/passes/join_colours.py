"""Join colours: weight gradients of images with few channels read whole rows of taps at once."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir.refusal import refuse
from core_compiler.ops.typed import ConvWeightGradient
from core_compiler.passes.replacement import ReplaceOps

#: The most channels that are joined: of more, the channels of a tap fill vectors of their own.
CHANNELS = 4
#: The fewest adjacent elements of a row of taps.
ROW = 16


@dataclass(frozen=True)
class JoinColours(ReplaceOps):
    """Regard the channels of a pixel as more pixels: the taps of a row are adjacent then.

    Of a picture with channels last, the taps of a row of the window are one run of elements for
    each pixel of dy. In a padded copy with one channel and rows of ``width * channels`` elements,
    the same products are summed in the same order; taps outside of the picture multiply 0, in both
    forms: exact.
    """

    half = "implementation"

    @override
    def refused(self, op):
        found = ConvWeightGradient.match(op)
        if found is None:
            return refuse("a weight gradient", "{0} is none", op)
        channels = found.x.type.shape[1]
        if not 1 < channels <= CHANNELS or found.groups != 1:
            return refuse("few channels", "{0} has {1} in {2} groups", op, channels, found.groups)
        if found.dilations[-1] != 1 or found.kernel[-1] * channels < ROW:
            return refuse("long rows of adjacent taps", "{0} has rows of {1}", op, found.kernel[-1])
        if min(found.low + found.high) < 0:
            return refuse("padding", "{0} crops", op)
        return None

    @override
    def replacement(self, b, op):
        found = ConvWeightGradient.of(op)
        x, rank = found.x, found.x.type.rank
        zero, none = b.constant(0, x.type.dtype), (0,) * (rank - 2)
        low, high = (0, 0, *found.low), (0, 0, *found.high)
        x = b.pad(x, zero, low=low, high=high, interior=(0,) * rank)
        images, channels, *sizes = x.type.shape
        x = b.transpose(x, permutation=(0, *range(2, rank), 1))
        x = b.reshape(x, shape=(images, 1, *sizes[:-1], sizes[-1] * channels))
        *rows, row = found.kernel
        made = b.conv_weight_gradient(
            x,
            found.dy,
            kernel=(*rows, row * channels),
            strides=(*found.strides[:-1], found.strides[-1] * channels),
            low=none,
            high=none,
            dilations=found.dilations,
            groups=1,
            accumulate=found.accumulate,
        )
        outputs = made.type.shape[0]
        made = b.reshape(made, shape=(outputs, *rows, row, channels))
        return b.transpose(made, permutation=(0, rank - 1, *range(1, rank - 1)))

    @override
    def rule(self, op):
        return "the colours of a pixel as pixels"
