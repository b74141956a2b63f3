"""Pad images: a depthwise convolution reads images with their padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.numerics.reference.digest import same_bits
from core_compiler.pipelines.pipeline import PipelineEdit
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import inputs, program


def depthwise(low=(1, 1), high=(1, 1), strides=(1, 1), groups=4):
    def made(b, x, w):
        none = (1, 1)
        return b.conv(x, w, strides=strides, low=low, high=high, dilations=none, groups=groups)

    return made


IMAGE, WEIGHT = "1x4x9x9xf32", "4x1x3x3xf32"


def kinds(build, *types: str) -> list[str]:
    made = specs.reach("pad_images", build, *types)
    made.step()
    return specs.kinds(made.module)


def test_its_padding_becomes_an_op_of_its_own() -> None:
    made = specs.reach("pad_images", depthwise(), IMAGE, WEIGHT)
    stage = made.step()
    assert specs.rules_fired(stage.rewrites) == ["conv of padded images"]
    found = [op for op in made.module.main.body.ops if op.kind in ("core.pad", "core.conv")]
    pad, conv = found
    assert (pad["low"], pad["high"]) == ((0, 0, 1, 1), (0, 0, 1, 1))
    assert (conv["low"], conv["high"]) == ((0, 0), (0, 0)) and conv.operands[0] is pad.result


def test_others_are_left_alone() -> None:
    assert "pad" not in kinds(depthwise(low=(0, 0), high=(0, 0)), IMAGE, WEIGHT)
    assert "pad" not in kinds(depthwise(groups=1), IMAGE, "2x4x3x3xf32")  # channels are summed
    assert "pad" not in kinds(depthwise(), "1x4x9x200xf32", WEIGHT)  # few pixels are at edges
    # A channel that is adjacent to the next: the lanes are channels.
    assert "pad" not in kinds(
        lambda b, x, w: depthwise()(
            b, b.conv(x, w, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=4), w
        ),
        "1x4x9x200xf32",
        WEIGHT,
    )


@settings(max_examples=examples(12), deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 40),
    window=st.integers(1, 5),
    stride=st.integers(1, 2),
    sides=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    dtype=st.sampled_from(["f32", "bf16", "f16", "f8E4M3FN", "f64"]),
)
def test_the_bits_do_not_change(rows, columns, window, stride, sides, dtype) -> None:
    low, high = tuple(sides[:2]), tuple(sides[2:])
    if min(rows + low[0] + high[0], columns + low[1] + high[1]) < window:
        return
    types = f"1x4x{rows}x{columns}x{dtype}", f"4x1x{window}x{window}x{dtype}"
    module = program(depthwise(low, high, (stride, stride)), *types)
    given_arrays = inputs(module)
    results = []
    for edit in (PipelineEdit(), PipelineEdit(skip=("pad_images",))):
        made = compilation.start(module, "cpu", Options(edit=edit, check=True), given_arrays)
        made.finish()
        assert not [r for rs in made.checks.values() for r in rs if r.verdict == "failed"]
        results.append(made(*given_arrays)[0])
    assert same_bits(*results)


def test_a_tap_outside_of_infinite_weight_is_not_a_number_in_both_forms() -> None:
    module = program(depthwise(), IMAGE, WEIGHT)
    x, w = (np.array(a) for a in inputs(module))
    w[1] = np.inf
    found = []
    for skip in ((), ("pad_images",)):
        made = compilation.start(module, "cpu", Options(edit=PipelineEdit(skip=skip))).finish()
        found.append(made(x, w)[0])
    assert np.isnan(found[0][0, 1, 0, 0]) and same_bits(*found)


@pytest.mark.parametrize("target", ["cuda"])
def test_a_gpu_has_no_such_pass(target: str) -> None:
    made = compilation.start(program(depthwise(), IMAGE, WEIGHT), target)
    assert "pad_images" not in [step.label for step in made.steps]


@settings(max_examples=examples(12), deadline=None)
@given(
    kind=st.sampled_from(["max_pool", "avg_pool"]),
    rows=st.integers(3, 9),
    columns=st.integers(3, 40),
    window=st.integers(1, 4),
    stride=st.integers(1, 3),
    pad=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    counts=st.booleans(),
    dtype=st.sampled_from(["f32", "bf16"]),
)
def test_pools_keep_their_bits(kind, rows, columns, window, stride, pad, counts, dtype) -> None:
    low, high = (tuple(min(p, window - 1) for p in part) for part in (pad[:2], pad[2:]))
    more = {"count_padding": counts} if kind == "avg_pool" else {}

    def build(b, x):
        sizes = {"window": (window,) * 2, "strides": (stride,) * 2, "dilations": (1, 1)}
        return getattr(b, kind)(x, low=low, high=high, **sizes, **more)

    module = program(build, f"1x3x{rows}x{columns}x{dtype}")
    (x,) = (np.array(a) for a in inputs(module))
    x.reshape(-1)[:4] = [np.nan, -np.inf, -0.0, np.inf]
    results = []
    for skip in ((), ("pad_images",)):
        how = Options(edit=PipelineEdit(skip=skip), check=not skip)
        made = compilation.start(module, "cpu", how, (x,)).finish()
        assert not [r for rs in made.checks.values() for r in rs if r.verdict == "failed"]
        results.append(made(x)[0])
    assert same_bits(*results)


def test_an_average_of_the_elements_inside_is_left_alone() -> None:
    def build(b, x, counts):
        sizes = {"window": (3, 3), "strides": (2, 2), "dilations": (1, 1)}
        return b.avg_pool(x, low=(1, 1), high=(1, 1), count_padding=counts, **sizes)

    assert "pad" in kinds(lambda b, x: build(b, x, True), "1x3x9x9xf32")
    assert "pad" not in kinds(lambda b, x: build(b, x, False), "1x3x9x9xf32")
