"""Windows: pooling over [N, C, spatial..], one to three spatial axes; all windows of any axes."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import tensor
from core_compiler.ops import dims, expansions, hooks, index_maps, typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import FOLLOWS, GRADIENT
from core_compiler.ops.rules import (
    FLOATS,
    I64,
    NUMBERS,
    free,
    need,
    need_axes,
    need_dtype,
    need_length,
    need_shape,
    window_size,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

window = lazy_module.module("core_compiler.numerics.reference.window")

_WINDOW = {
    "window": Attr(tuple, doc="size of the window on each spatial axis"),
    "strides": Attr(tuple, doc="step of the window on each spatial axis"),
    "low": Attr(tuple, doc="padded positions before each spatial axis"),
    "high": Attr(
        tuple,
        doc="padded positions after each spatial axis; larger than the model's own "
        "if the last window overhangs",
    ),
    "dilations": Attr(tuple, doc="distance between adjacent positions in the window"),
}


def _pool_rule(allowed):
    def rule(types, attributes):
        (x,) = types
        need_dtype("x", x, allowed)
        need(3 <= x.rank <= 5, f"x has rank {x.rank}, expected [N, C, 1 to 3 spatial axes]")
        for name in _WINDOW:
            need_length(name, attributes[name], x.rank - 2)
            least = 0 if name in ("low", "high") else 1
            need(
                all(v >= least for v in attributes[name]),
                f"{name} {attributes[name]} contains a size below {least}",
            )
        sizes = [
            window_size(f"spatial axis {i}", size, *(attributes[n][i] for n in _WINDOW))
            for i, size in enumerate(x.shape[2:])
        ]
        return (tensor((*x.shape[:2], *sizes), x.dtype),)

    return rule


def _pool_flops(op: typed.Pool | typed.MaxPoolPositions) -> int:
    return op.result.type.elements * dims.product(op.window)


def _geometry(attributes):
    """Return window, strides, pads, dilations."""
    pads = tuple(zip(attributes["low"], attributes["high"], strict=True))
    return attributes["window"], attributes["strides"], pads, attributes["dilations"]


def _max_pool(arrays, attributes, types):
    return (window.max_pool(arrays[0], *_geometry(attributes)),)


declare(
    OpDef(
        "core.max_pool",
        "Largest of each window; padding is ignored; NaN if any is NaN; the lowest "
        "value (-infinity) for a window of only padding",
        ("x",),
        _pool_rule(NUMBERS),
        _max_pool,
        attributes=_WINDOW,
        flops=_pool_flops,
        traits=traits("exact", "selects", "windowed"),
        precision=FOLLOWS,
        lower=hooks.Window("max"),
        gradient=RULES["max_pool"],
    )
)


def _avg_pool(arrays, attributes, types):
    counted = attributes["count_padding"]
    return (window.average_pool(arrays[0], *_geometry(attributes), counted),)


declare(
    OpDef(
        "core.avg_pool",
        "Sum of each window, row-major from +0, padding is ignored; divided once",
        ("x",),
        _pool_rule(FLOATS),
        _avg_pool,
        attributes={
            **_WINDOW,
            "count_padding": Attr(
                bool, False, "divide by the window's size, not by its positions inside x"
            ),
        },
        flops=_pool_flops,
        traits=traits("windowed", "multilinear"),
        precision=FOLLOWS,
        lower=hooks.Window("mean"),
        gradient=RULES["avg_pool"],
    )
)


# -- gradients -------------------------------------------------------------------------------------


def _positions_rule(types, attributes):
    (made,) = _pool_rule(NUMBERS)(types, attributes)
    return (made.with_(dtype=I64),)


def _positions(arrays, attributes, types):
    return (window.max_pool_indices(arrays[0], *_geometry(attributes))[1],)


declare(
    OpDef(
        "core.max_pool_positions",
        "The position of the largest of each window: row-major and spatial in x; the first of "
        "equals, -0 equals +0; the last NaN, if any; -1 for a window of only padding",
        ("x",),
        _positions_rule,
        _positions,
        attributes=_WINDOW,
        flops=_pool_flops,
        traits=traits("exact", "windowed"),
        expand=expansions.max_pool_positions,
        lower=hooks.Window("positions"),
        gradient=CONSTANT,
    )
)

_SHAPE = {"shape": Attr(tuple, doc="the shape of x", of=(int, str))}


def _need_pooled(dy, attributes, allowed) -> None:
    """Check that ``dy`` has the shape of the pool's result."""
    (made,) = _pool_rule(allowed)([tensor(attributes["shape"], dy.dtype)], attributes)
    need_shape("dy", dy, made.shape)


def _max_gradient_rule(types, attributes):
    positions, dy = types
    need_dtype("positions", positions, (I64,))
    need_shape("positions", positions, dy.shape)
    _need_pooled(dy, attributes, NUMBERS)
    return (tensor(attributes["shape"], dy.dtype),)


def _max_gradient(arrays, attributes, types):
    return (window.positions_gradient(*arrays, attributes["shape"]),)


def _avg_gradient_rule(types, attributes):
    _need_pooled(types[0], attributes, FLOATS)
    return (tensor(attributes["shape"], types[0].dtype),)


def _avg_gradient(arrays, attributes, types):
    made = window.average_pool_gradient(
        arrays[0], attributes["shape"], *_geometry(attributes), attributes["count_padding"]
    )
    return (made,)


def _windows_of(op: typed.AvgPoolGradient | typed.MaxPoolGradient) -> int:
    """Return the maximum number of windows that contain an element."""
    taps = zip(op.window, op.strides, strict=True)
    return op.result.type.elements * dims.product(-(-k // s) for k, s in taps)


declare(
    OpDef(
        "core.max_pool_gradient",
        "The gradient of max_pool: each element of dy goes to its position (of max_pool_positions, "
        "with the same windows); contributions in ascending order of dy, from +0, chunks of 256",
        ("positions", "dy"),
        _max_gradient_rule,
        _max_gradient,
        attributes={**_SHAPE, **_WINDOW},
        flops=_windows_of,
        traits=traits("windowed", "multilinear"),
        precision=GRADIENT,
        expand=expansions.max_pool_gradient,
        lower=hooks.WindowGradient("max"),
        gradient=RULES["max_pool_gradient"],
    )
)

declare(
    OpDef(
        "core.avg_pool_gradient",
        "The gradient of avg_pool: dy / count goes to each position of its window; contributions "
        "in ascending order of dy, from +0, chunks of 256",
        ("dy",),
        _avg_gradient_rule,
        _avg_gradient,
        attributes={
            **_SHAPE,
            **_WINDOW,
            "count_padding": Attr(bool, False, "as in avg_pool"),
        },
        flops=_windows_of,
        traits=traits("windowed", "multilinear"),
        precision=GRADIENT,
        expand=expansions.avg_pool_gradient,
        lower=hooks.WindowGradient("mean"),
        gradient=RULES["avg_pool_gradient"],
    )
)


def _windows_rule(types, attributes):
    (x,), axes = types, attributes["axes"]
    need_axes(axes, x.rank)
    shape = list(x.shape)
    for name in ("sizes", "strides", "dilations"):
        need_length(name, attributes[name], len(axes))
    for axis, size, stride, dilation in _per_axis(attributes):
        span = dilation * (size - 1) + 1
        given = f"windows of {size} elements, stride {stride}, dilation {dilation}"
        need(min(size, stride, dilation) > 0, f"axis {axis}: {given}; each is at least 1")
        need(shape[axis] >= span, f"windows of {span} of the {shape[axis]} elements of axis {axis}")
        shape[axis] = (shape[axis] - span) // stride + 1
    return (tensor((*shape, *attributes["sizes"]), x.dtype),)


def _per_axis(attributes):
    return zip(*(attributes[n] for n in ("axes", "sizes", "strides", "dilations")), strict=True)


def _windows(arrays, attributes, types):
    made = arrays[0].view(f"V{arrays[0].itemsize}")  # as_strided does not know floats of 8 bits
    shape, steps, inside = list(types[0].shape[: made.ndim]), list(made.strides), []
    for axis, _, stride, dilation in _per_axis(attributes):
        inside.append(made.strides[axis] * dilation)
        steps[axis] = made.strides[axis] * stride
    shape += attributes["sizes"]
    windows = np.lib.stride_tricks.as_strided(made, shape, (*steps, *inside)).copy()
    return (windows.view(arrays[0].dtype),)


declare(
    OpDef(
        "core.windows",
        "All windows along the axes: element [.., i, .., k] is x[.., i * stride + k * dilation, ..]"
        ", with one axis for the positions in a window, at the end, for each of the axes",
        ("x",),
        _windows_rule,
        _windows,
        attributes={
            "axes": Attr(tuple, doc="which axes, ascending"),
            "sizes": Attr(tuple, doc="elements of a window along each of the axes"),
            "strides": Attr(tuple, doc="distance between windows along each of the axes"),
            "dilations": Attr(tuple, doc="distance between elements of a window"),
        },
        traits=traits("view", "multilinear"),
        precision=FOLLOWS,
        flops=free,
        lower=hooks.IndexMap(index_maps.windows),
        expand=expansions.windows,
        gradient=RULES["windows"],
    )
)
