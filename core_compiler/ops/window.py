"""Pooling windows over [N, C, spatial..], one to three spatial axes."""

from __future__ import annotations

from core_compiler import lazy
from core_compiler.ir import tensor
from core_compiler.ops import dims
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.rules import FLOATS, NUMBERS, need, need_dtype, need_length, window_size

window = lazy.module("core_compiler.kernels.reference.window")

_WINDOW = {
    "window": Attr(tuple, doc="size of the window on each spatial axis"),
    "strides": Attr(tuple, doc="step of the window on each spatial axis"),
    "low": Attr(tuple, doc="padded positions before each spatial axis"),
    "high": Attr(tuple, doc="padded positions after each spatial axis; larger than the model's own "
                 "where the last window overhangs"),
    "dilations": Attr(tuple, doc="distance of neighbouring positions in the window"),
}  # fmt: skip


def _pool_rule(allowed):
    def rule(types, attributes):
        (x,) = types
        need_dtype("x", x, allowed)
        need(3 <= x.rank <= 5, f"x has rank {x.rank}, wanted [N, C, 1 to 3 spatial axes]")
        for name in _WINDOW:
            need_length(name, attributes[name], x.rank - 2)
            least = 0 if name in ("low", "high") else 1
            need(
                all(v >= least for v in attributes[name]),
                f"{name} {attributes[name]} holds a size below {least}",
            )
        sizes = [
            window_size(f"spatial axis {i}", size, *(attributes[n][i] for n in _WINDOW))
            for i, size in enumerate(x.shape[2:])
        ]
        return (tensor((*x.shape[:2], *sizes), x.dtype),)

    return rule


def _pool_flops(op) -> int:
    return op.result.type.elements * dims.product(op["window"])


def _geometry(attributes):
    """window, strides, pads, dilations"""
    pads = tuple(zip(attributes["low"], attributes["high"], strict=True))
    return attributes["window"], attributes["strides"], pads, attributes["dilations"]


def _max_pool(arrays, attributes, types):
    return (window.max_pool(arrays[0], *_geometry(attributes)),)


declare(
    OpDef(
        "core.max_pool",
        "Largest of each window; padded positions are no terms; NaN if any is NaN; the lowest "
        "value (-infinity) for a window of padding alone",
        ("x",),
        _pool_rule(NUMBERS),
        _max_pool,
        attributes=_WINDOW,
        flops=_pool_flops,
    )
)


def _avg_pool(arrays, attributes, types):
    counted = attributes["count_padding"]
    return (window.average_pool(arrays[0], *_geometry(attributes), counted),)


declare(
    OpDef(
        "core.avg_pool",
        "Sum of each window, row-major from +0, padded positions are no terms; divided once",
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
    )
)
