"""Convolution and its transpose, one to three spatial axes, channels second.

K order (numerics contract): channel blocks of 32 inside the group, then the window, then the
channel in its block; a chunk is max(1, 8 // window size) channel blocks. Padding terms are
executed: fma(+0, w, acc).
"""

from __future__ import annotations

from core_compiler.ir import tensor
from core_compiler.ops import dims, expansions, hooks, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.contraction import ACCUMULATE, ARITHMETIC, result_dtype
from core_compiler.ops.gradients.table import RULES
from core_compiler.ops.precision import Narrow
from core_compiler.ops.rules import (
    need,
    need_dtype,
    need_length,
    need_rank,
    need_same_dtype,
    need_static,
    refuse,
    window_size,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

convolution = lazy_module.module("core_compiler.numerics.reference.convolution")

_SPATIAL = {
    "strides": Attr(tuple, doc="step of the window on each spatial axis"),
    "low": Attr(tuple, doc="zeros before each spatial axis (negative crops)"),
    "high": Attr(tuple, doc="zeros after each spatial axis (negative crops)"),
    "dilations": Attr(tuple, doc="distance between adjacent taps on each spatial axis"),
    "groups": Attr(int, 1, "number of independent groups of channels"),
    "accumulate": ACCUMULATE,
}


def _need_image(types, attributes, per_axis) -> int:
    """Check the operands' ranks and the attributes' lengths; return the number of spatial axes."""
    x, w = types
    need_same_dtype(("x", "w"), types)
    need_dtype("x", x, ARITHMETIC)
    need(3 <= x.rank <= 5, f"x has rank {x.rank}, expected [N, C, 1 to 3 spatial axes]")
    need_rank("w", w, x.rank)
    for name in per_axis:
        need_length(name, attributes[name], x.rank - 2)
    for name in ("strides", "dilations"):
        need(all(v >= 1 for v in attributes[name]), f"{name} {attributes[name]} are not positive")
    for axis, size in enumerate(w.shape[2:]):
        need(need_static(f"spatial axis {axis} of w", size) >= 1, f"axis {axis + 2} of w is empty")
    need(attributes["groups"] >= 1, f"groups = {attributes['groups']} is not positive")
    return x.rank - 2


def _conv_rule(types, attributes):
    x, w = types
    spatial = _need_image(types, attributes, ("strides", "low", "high", "dilations"))
    groups = attributes["groups"]
    need(
        x.shape[1] == dims.multiply(w.shape[1], groups),
        f"x has {x.shape[1]} channels but w ([O, C/groups, ...]) takes {w.shape[1]}"
        + (f" in each of {groups} groups" if groups > 1 else ""),
    )
    outputs = need_static("the number of output channels", w.shape[0])
    need(outputs % groups == 0, f"{outputs} output channels do not divide into {groups} groups")
    sizes = [
        window_size(
            f"spatial axis {i}",
            x.shape[i + 2],
            w.shape[i + 2],
            attributes["strides"][i],
            attributes["low"][i],
            attributes["high"][i],
            attributes["dilations"][i],
        )
        for i in range(spatial)
    ]
    made = result_dtype(x.dtype, attributes["accumulate"])
    return (tensor((x.shape[0], outputs, *sizes), made),)


def _conv_flops(op: typed.Conv) -> int:
    """Return 2 x outputs x taps of one group; padding is executed, so it counts."""
    return 2 * op.result.type.elements * dims.product(op.w.type.shape[1:])


def _pads(attributes):
    return tuple(zip(attributes["low"], attributes["high"], strict=True))


def _conv(arrays, attributes, types):
    made = convolution.conv(
        *arrays,
        attributes["strides"],
        _pads(attributes),
        attributes["dilations"],
        attributes["groups"],
        types[0].dtype.numpy,
    )
    return (made,)


declare(
    OpDef(
        "core.conv",
        "Cross-correlation of x [N, C, spatial..] with w [O, C/groups, spatial..]",
        ("x", "w"),
        _conv_rule,
        _conv,
        attributes=_SPATIAL,
        flops=_conv_flops,
        traits=traits("contraction", "windowed", "multilinear"),
        precision=Narrow(2),
        lower=hooks.Convolution(),
        gradient=RULES["conv"],
    )
)


def _conv_transpose_rule(types, attributes):
    x, w = types
    names = ("strides", "low", "high", "dilations", "output_padding")
    spatial = _need_image(types, attributes, names)
    groups = attributes["groups"]
    need(
        x.shape[1] == w.shape[0],
        f"x has {x.shape[1]} channels but w ([C, O/groups, ...]) takes {w.shape[0]}",
    )
    channels = need_static("the number of input channels", x.shape[1])
    need(channels % groups == 0, f"{channels} channels do not divide into {groups} groups")
    sizes = []
    for i in range(spatial):
        stride, dilation = attributes["strides"][i], attributes["dilations"][i]
        extra = attributes["output_padding"][i]
        need(
            0 <= extra < max(stride, dilation),
            f"spatial axis {i}: output_padding {extra} is not below stride {stride}"
            f" or dilation {dilation}",
        )
        if x.shape[i + 2] == 0:
            refuse(f"spatial axis {i} of x is empty")
        reach = dims.multiply(stride, dims.subtract(x.shape[i + 2], 1))
        crop = extra - attributes["low"][i] - attributes["high"][i]
        size = dims.add(reach, dilation * (w.shape[i + 2] - 1) + 1 + crop)
        need(isinstance(size, str) or size >= 1, f"spatial axis {i}: the output has size {size}")
        sizes.append(size)
    outputs = dims.multiply(w.shape[1], groups)
    made = result_dtype(x.dtype, attributes["accumulate"])
    return (tensor((x.shape[0], outputs, *sizes), made),)


def _conv_transpose_flops(op: typed.ConvTranspose) -> int:
    """Return 2 x inputs x taps of one group: every pair counts once."""
    return 2 * op.x.type.elements * dims.product(op.w.type.shape[1:])


def _conv_transpose(arrays, attributes, types):
    made = convolution.conv_transpose(
        *arrays,
        attributes["strides"],
        _pads(attributes),
        attributes["dilations"],
        attributes["groups"],
        attributes["output_padding"],
        types[0].dtype.numpy,
        attributes["taps"],
    )
    return (made,)


declare(
    OpDef(
        "core.conv_transpose",
        "The gradient of conv with respect to its input: x [N, C, spatial..], "
        "w [C, O/groups, spatial..]; low and high crop the result",
        ("x", "w"),
        _conv_transpose_rule,
        _conv_transpose,
        attributes={
            **_SPATIAL,
            "low": Attr(tuple, doc="elements cropped before each spatial axis of the result"),
            "high": Attr(tuple, doc="elements cropped after each spatial axis of the result"),
            "output_padding": Attr(tuple, doc="elements added after each spatial axis"),
            "taps": Attr(
                int,
                None,
                "taps of the window that sizes the chunks of the sum, if w has only a "
                "part of its taps; absent: those of w",
            ),
        },
        flops=_conv_transpose_flops,
        traits=traits("contraction", "windowed", "multilinear"),
        precision=Narrow(2),
        lower=hooks.Convolution(transposed=True),
        gradient=RULES["conv_transpose"],
    )
)


def _weight_gradient_rule(types, attributes):
    x, dy = types
    need_same_dtype(("x", "dy"), types)
    need_dtype("x", x, ARITHMETIC)
    need(3 <= x.rank <= 5, f"x has rank {x.rank}, expected [N, C, 1 to 3 spatial axes]")
    need_rank("dy", dy, x.rank)
    need(x.shape[0] == dy.shape[0], f"x has {x.shape[0]} images but dy has {dy.shape[0]}")
    kernel, groups = attributes["kernel"], attributes["groups"]
    for name in ("kernel", "strides", "low", "high", "dilations"):
        need_length(name, attributes[name], x.rank - 2)
    for i, size in enumerate(x.shape[2:]):
        made = window_size(
            f"spatial axis {i}",
            size,
            kernel[i],
            attributes["strides"][i],
            attributes["low"][i],
            attributes["high"][i],
            attributes["dilations"][i],
        )
        need(made == dy.shape[i + 2], f"spatial axis {i} of dy is {dy.shape[i + 2]}, not {made}")
    channels, outputs = (need_static("the number of channels", each.shape[1]) for each in (x, dy))
    need(
        groups >= 1 and channels % groups == 0 and outputs % groups == 0,
        f"{channels} and {outputs} channels do not divide into {groups} groups",
    )
    made = result_dtype(x.dtype, attributes["accumulate"])
    return (tensor((outputs, channels // groups, *kernel), made),)


def _weight_gradient_flops(op: typed.ConvWeightGradient) -> int:
    """Return 2 x weights x outputs of a channel over the batch; padding is executed."""
    dy = op.dy.type.shape
    return 2 * op.result.type.elements * dims.product((dy[0], *dy[2:]))


def _weight_gradient(arrays, attributes, types):
    made = convolution.conv_weight_gradient(
        *arrays,
        attributes["kernel"],
        attributes["strides"],
        _pads(attributes),
        attributes["dilations"],
        attributes["groups"],
        types[0].dtype.numpy,
    )
    return (made,)


declare(
    OpDef(
        "core.conv_weight_gradient",
        "The gradient of conv with respect to w: x [N, C, spatial..], dy [N, O, spatial..]; K runs "
        "over images and positions of dy in chunks of 256",
        ("x", "dy"),
        _weight_gradient_rule,
        _weight_gradient,
        attributes={"kernel": Attr(tuple, doc="size of w on each spatial axis"), **_SPATIAL},
        flops=_weight_gradient_flops,
        traits=traits("contraction", "multilinear"),
        precision=Narrow(2),
        expand=expansions.conv_weight_gradient,
        lower=hooks.WeightGradient(),
        gradient=RULES["conv_weight_gradient"],
    )
)
