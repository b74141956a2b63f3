"""Sampling between elements and the places of pooled ones, of ONNX: torch, onnxruntime and ONNX's
own evaluator as oracles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from core_compiler.frontends.onnx import import_proto
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.frontends.onnx_models import agrees, one_node, onnxruntimes, ours

torch = pytest.importorskip("torch", reason="torch is the oracle")
functional = torch.nn.functional


def _normal(*shape, scale=1.0):
    return (np.random.default_rng(3).standard_normal(shape) * scale).astype(np.float32)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.integers(0, 1000),
)
def test_any_grid_is_sampled_as_onnxruntime_does(mode, padding, align, sizes, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, *sizes)).astype(np.float32)
    grid = rng.uniform(-2.5, 2.5, (2, 4, 5, 2)).astype(np.float32)
    arrays = {"x": x, "grid": grid}
    proto = one_node(
        "GridSample",
        arrays,
        "y",
        opset=20,
        mode=mode,
        padding_mode=padding,
        align_corners=int(align),
    )
    agrees(proto, arrays, rtol=1e-4, atol=1e-4)


def test_what_lies_outside_counts_as_zero_even_beside_infinity():
    arrays = {
        "x": np.full((1, 1, 2, 2), np.inf, np.float32),
        "grid": np.full((1, 1, 1, 2), 9, np.float32),
    }
    proto = one_node("GridSample", arrays, "y", opset=20, padding_mode="zeros")
    assert ours(proto, arrays)[0].item() == 0


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("half", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_regions_are_pooled_as_onnxruntime_does(mode, half, ratio):
    regions = [[0, 0, 6, 6], [1.5, 2.25, 5, 7.75], [-2, -1, 3, 3], [4, 4, 12, 11]]
    arrays = {
        "x": np.abs(_normal(2, 3, 8, 8)),
        "rois": np.array(regions, np.float32),
        "batch": np.array([0, 1, 1, 0], np.int64),
    }
    proto = one_node(
        "RoiAlign",
        arrays,
        "y",
        output_height=2,
        output_width=3,
        mode=mode,
        sampling_ratio=ratio,
        coordinate_transformation_mode=half,
        spatial_scale=0.75,
    )
    agrees(proto, arrays)


def test_the_number_of_samples_may_follow_one_region():
    arrays = {
        "x": _normal(1, 2, 9, 9),
        "rois": np.array([[1, 1, 7.5, 6]], np.float32),
        "batch": np.array([0], np.int64),
    }
    agrees(one_node("RoiAlign", arrays, "y", output_height=2, output_width=2), arrays)
    arrays["rois"] = np.repeat(arrays["rois"], 2, 0)
    arrays["batch"] = np.zeros(2, np.int64)
    with pytest.raises(UserError, match="sampling_ratio 0 for several regions"):
        import_proto(one_node("RoiAlign", arrays, "y"), inputs=arrays)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_a_deformable_convolution_is_what_onnx_says(groups, offset_groups):
    arrays = {
        "x": _normal(2, 4, 6, 7),
        "w": _normal(6, 4 // groups, 3, 2),
        "offset": _normal(2, offset_groups * 3 * 2 * 2, 4, 4, scale=1.5),
        "b": _normal(6),
        "mask": np.abs(_normal(2, offset_groups * 3 * 2, 4, 4)),
    }
    proto = one_node(
        "DeformConv",
        arrays,
        "y",
        opset=22,
        strides=[2, 2],
        pads=[1, 1, 2, 1],
        dilations=[1, 2],
        group=groups,
        offset_group=offset_groups,
    )
    (theirs,) = ReferenceEvaluator(proto).run(None, arrays)
    np.testing.assert_allclose(ours(proto, arrays)[0], theirs, rtol=1e-4, atol=1e-4)


@settings(max_examples=examples(12), deadline=None)
@given(
    st.sampled_from(
        [
            {},
            {"pads": [1, 0, 1, 1]},
            {"strides": [2, 1]},
            {"dilations": [2, 1]},
            {"ceil_mode": 1, "strides": [2, 2]},
            {"storage_order": 1},
        ]
    ),
    st.sampled_from([np.float32, np.int8, np.uint8]),
)
def test_places_of_the_largest_elements(more, kind):
    rng = np.random.default_rng(1)
    arrays = {"x": rng.integers(0, 5, (2, 3, 7, 6)).astype(kind)}  # many are equal
    types = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(kind)), "places": TensorProto.INT64}
    proto = one_node(
        "MaxPool", arrays, "y places", opset=12, types=types, kernel_shape=[3, 2], **more
    )
    for mine, theirs in zip(ours(proto, arrays), onnxruntimes(proto, arrays), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_pooled_elements_go_back_to_their_places():
    x = torch.from_numpy(_normal(2, 3, 6, 8))
    pooled, places = functional.max_pool2d(x, 2, return_indices=True)
    wanted = functional.max_unpool2d(pooled, places, 2)
    whole = places + torch.arange(6).reshape(2, 3, 1, 1) * 48
    arrays = {"x": pooled.numpy(), "places": whole.numpy()}
    proto = one_node("MaxUnpool", arrays, "y", kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(ours(proto, arrays)[0], wanted.numpy())


@pytest.mark.parametrize("counted", [0, 1])
def test_the_last_windows_of_an_average_may_hang_over(counted):
    arrays = {"x": _normal(1, 2, 8, 8)}
    agrees(
        one_node(
            "AveragePool",
            arrays,
            "y",
            opset=19,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 0, 0],
            ceil_mode=1,
            count_include_pad=counted,
        ),
        arrays,
    )


def test_batch_statistics_update_the_running_ones():
    arrays = {"x": _normal(4, 3, 5, 5), **{n: np.abs(_normal(3)) for n in ("s", "b", "m", "v")}}
    proto = one_node(
        "BatchNormalization", arrays, "y mean var", opset=15, training_mode=1, momentum=0.8
    )
    for mine, theirs in zip(
        ours(proto, arrays), ReferenceEvaluator(proto).run(None, arrays), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
