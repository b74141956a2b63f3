"""Drawn modules of data movement and windows, with their inputs, for every format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from core_compiler.ir import dtype
from core_compiler.ops import TypeRuleError
from tests.exporters.test_onnx_properties import (
    FULL,
    INTEGERS,
    SEEDS,
    SHAPES,
    few,
    module_of,
    positions,
    whole,
    windows,
)

Case = tuple[Any, list[np.ndarray]]


def case(build, *arrays: np.ndarray) -> Case:
    """A module built from arrays of these types, and the arrays; not what no rule allows."""
    try:
        return module_of(build, *arrays), list(arrays)
    except TypeRuleError:  # cropped to less than nothing; a window larger than the image
        assume(False)
        raise


@st.composite
def pads_and_boxes(draw, names: Sequence[str]) -> list[Case]:
    shape, name, seed = draw(SHAPES), draw(st.sampled_from(names)), draw(SEEDS)

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in shape]

    x = whole("i64", shape, seed, 0, 1).astype(dtype(name).numpy)
    options = {"low": each(-4, 4), "high": each(-4, 4), "interior": each(0, 2)}
    sizes = tuple(draw(st.integers(0, n)) for n in shape)
    starts = [whole("ui32", (), seed + i) for i in range(len(shape))]
    return [
        case(lambda b, v: b.pad(v, b.constant(1, name), **options), x),
        case(lambda b, v, *s: b.dynamic_slice(v, *s, sizes=sizes), x, *starts),
    ]


@st.composite
def gathers_and_scatters(draw) -> list[Case]:
    shape, name, seed = draw(FULL.filter(len)), draw(st.sampled_from(INTEGERS)), draw(SEEDS)
    mode = draw(st.sampled_from(("set", "add", "mul", "max", "min")))
    axis = draw(st.integers(0, len(shape) - 1))
    x = few(shape, seed, -2.0, 1.0, 2.0)
    box = [draw(st.integers(1, n)) for n in shape]
    box[axis] = draw(st.integers(1, 5))
    places, updates = positions(name, box, seed), few(box, seed + 1, 1.0, 2.0, -2.0)
    batch = draw(st.integers(0, len(shape) - 1))
    depth = draw(st.integers(0, len(shape) - batch))
    rows = few((3, *shape[depth:]), seed + 2, 1.0, 2.0, -2.0)
    of_batch = positions(name, (*shape[:batch], 3, depth), seed)
    return [
        case(lambda b, v, i: b.take(v, i, axis=axis), x, positions(name, (3,), seed)),
        case(lambda b, v, i: b.take_along(v, i, axis=axis), x, places),
        case(lambda b, v, i, u: b.scatter_along(v, i, u, axis=axis, mode=mode), x, places, updates),
        case(lambda b, v, i: b.gather_nd(v, i, batch_dims=batch), x, of_batch),
        case(
            lambda b, v, i, u: b.scatter_nd(v, i, u, mode=mode),
            x,
            positions(name, (3, depth), seed),
            rows,
        ),
    ]


@st.composite
def sums_over_windows(draw, names: Sequence[str] = ("f32",)) -> Case:
    """Convolutions, and pools, of which integers have only maxima."""
    spatial, window, strides, low, high, dilations = draw(windows(-2))
    kind = draw(st.sampled_from(("conv", "conv_transpose", "pools")))
    seed, groups, name = draw(SEEDS), draw(st.integers(1, 2)), draw(st.sampled_from(names))
    counted = draw(st.booleans())
    x = whole("i64", (2, 2 * groups, *spatial), seed, -9, 9).astype(dtype(name).numpy)
    options = {"strides": strides, "low": low, "high": high, "dilations": dilations}
    shape = (2 * groups, 3, *window) if kind == "conv_transpose" else (3 * groups, 2, *window)
    w = whole("i64", shape, seed + 1, -9, 9).astype(dtype(name).numpy)

    def build(b, v, u):
        if kind == "conv":
            return b.conv(v, u, groups=groups, **options)
        if kind == "conv_transpose":
            return b.conv_transpose(v, u, groups=groups, output_padding=(0,) * len(low), **options)
        largest = b.max_pool(v, window=window, **options)
        if not dtype(name).is_float:
            return largest
        return largest, b.avg_pool(v, window=window, count_padding=counted, **options)

    return case(build, x, w)
