"""Transposed convolutions, and windows taken apart tap by tap."""

from __future__ import annotations

from core_compiler.ir import Op, Value
from core_compiler.ops.builder import Builder


def conv_transpose(b: Builder, op: Op) -> Value:
    """A convolution of the image with zeros between its elements, by the reversed weights.

    Zeros meet weights that the op itself does not multiply, which shows where these are not finite.
    """
    x, w = op.operands
    (channels, per_group, *window), groups = w.type.shape, op["groups"]
    spatial = len(window)
    reach = [d * (k - 1) for d, k in zip(op["dilations"], window, strict=True)]
    low = [r - p for r, p in zip(reach, op["low"], strict=True)]
    high = [r - p + e for r, p, e in zip(reach, op["high"], op["output_padding"], strict=True)]
    zero = b.constant(0, x.type.dtype)
    spread = b.pad(x, zero, low=(0, 0, *low), high=(0, 0, *high),
                   interior=(0, 0, *(s - 1 for s in op["strides"])))  # fmt: skip
    w = b.reshape(w, shape=(groups, channels // groups, per_group, *window))
    w = b.transpose(w, permutation=(0, 2, 1, *range(3, 3 + spatial)))
    w = b.reshape(w, shape=(groups * per_group, channels // groups, *window))
    w = b.reverse(w, axes=tuple(range(2, 2 + spatial)))
    options = {"accumulate": op["accumulate"]} if op.get("accumulate") is not None else {}
    return b.conv(
        spread, w, strides=(1,) * spatial, low=(0,) * spatial, high=(0,) * spatial,
        dilations=op["dilations"], groups=groups, **options,
    )  # fmt: skip
