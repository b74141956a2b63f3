"""Join taps: convolutions and their weight gradients read whole rows of taps at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.builder import Builder
from core_compiler.ops.typed import Conv, ConvWeightGradient
from core_compiler.passes.replacement import ReplaceOps

#: The most channels of a picture: of more, the channels of one tap fill vectors.
CHANNELS = 4
#: The fewest adjacent elements of a row of taps, which are copied at once or, as rows of a weight
#: gradient's product, fill vectors.
COPIED, ROW = 6, 16
#: The fewest elements that the windows of a convolution read: fewer cost less than a launch more.
READ = 1 << 16
#: The largest weight gradient of many channels beside its images dy: it is turned at the end.
TURNED = 16


@dataclass(frozen=True)
class JoinTaps(ReplaceOps):
    """Regard the channels of a pixel as more pixels: the taps of a row are adjacent then.

    Of an image with channels last, the taps of a row of the window are one run of elements for each
    pixel of the result. In a padded copy with one channel and rows of ``width * channels``
    elements, the same products are summed in the same order; taps outside of the image multiply 0,
    in both forms: exact. A convolution of a few colours copies such runs instead of single
    elements; a weight gradient reads dy once for a row of taps and not for each.
    """

    half = "implementation"

    @override
    def refused(self, op):
        convolution = Conv.match(op)
        if convolution is not None:
            outputs, *window = convolution.w.type.shape
            read = op.result.type.elements // max(outputs, 1) * prod(window)
            if read < READ:
                return refuse("many elements to read", "{0} reads {1} of its picture", op, read)
            return _few_channels(op, convolution) or _refused(op, convolution, window[-1], COPIED)
        gradient = ConvWeightGradient.match(op)
        if gradient is not None:
            turned = TURNED * gradient.dy.type.elements < op.result.type.elements
            few = _few_channels(op, gradient) if turned or gradient.kernel[-1] == 1 else None
            return few or _refused(op, gradient, gradient.kernel[-1], ROW)
        return refuse("a convolution or a weight gradient", "{0} is neither", op)

    @override
    def replacement(self, b, op):
        convolution = Conv.match(op)
        return _weight_gradient(b, op) if convolution is None else _convolution(b, convolution)

    @override
    def rule(self, op):
        return "the channels of a pixel as pixels"


def _few_channels(op: Op, found: Conv | ConvWeightGradient) -> Refusal | None:
    channels = found.x.type.shape[1]
    return refuse("few channels", "{0} has {1}", op, channels) if channels > CHANNELS else None


def _refused(op: Op, found: Conv | ConvWeightGradient, row: int, fewest: int) -> Refusal | None:
    channels = found.x.type.shape[1]
    if channels == 1 or found.groups != 1:
        return refuse("channels", "{0} has {1} in {2} groups", op, channels, found.groups)
    if found.dilations[-1] != 1 or row * channels < fewest:
        return refuse("long rows of adjacent taps", "{0} has rows of {1}", op, row)
    if min(found.low + found.high) < 0:
        return refuse("padding", "{0} crops", op)
    return None


def _joined(b: Builder, found: Conv | ConvWeightGradient) -> tuple[Value, dict]:
    """Return the padded picture with one channel, and the attributes of its windows."""
    rank, none = found.x.type.rank, (0,) * len(found.low)
    images, channels, *sizes = found.x.type.shape
    x = b.transpose(found.x, permutation=(0, *range(2, rank), 1))
    x = b.reshape(x, shape=(images, 1, *sizes[:-1], sizes[-1] * channels))
    low, high = ((0, 0, *side[:-1], side[-1] * channels) for side in (found.low, found.high))
    x = b.pad(x, b.constant(0, x.type.dtype), low=low, high=high, interior=(0,) * rank)
    return x, {
        "strides": (*found.strides[:-1], found.strides[-1] * channels),
        "low": none,
        "high": none,
        "dilations": found.dilations,
        "groups": 1,
        "accumulate": found.accumulate,
    }


def _convolution(b: Builder, found: Conv) -> Value:
    x, windows = _joined(b, found)
    outputs, channels, *kernel = found.w.type.shape
    rank = found.w.type.rank
    w = b.transpose(found.w, permutation=(0, *range(2, rank), 1))
    w = b.reshape(w, shape=(outputs, 1, *kernel[:-1], kernel[-1] * channels))
    return b.conv(x, w, **windows)


def _weight_gradient(b: Builder, op: Op) -> Value:
    found = ConvWeightGradient.of(op)
    channels, rank = found.x.type.shape[1], found.x.type.rank
    x, windows = _joined(b, found)
    *rows, row = found.kernel
    made = b.conv_weight_gradient(x, found.dy, kernel=(*rows, row * channels), **windows)
    made = b.reshape(made, shape=(made.type.shape[0], *rows, row, channels))
    return b.transpose(made, permutation=(0, rank - 1, *range(1, rank - 1)))
