"""Models that are quantised already: bad parameters are named, other scales are rescaled."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators
from onnx import helper, numpy_helper

import core_compiler as cc
from core_compiler.driver.quantization_report import report
from core_compiler.support.errors import UserError
from tests.passes.quantised import broken

F32 = np.float32
X = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(F32)
W = np.random.default_rng(0).integers(-127, 127, (4, 4, 3, 3)).astype(np.int8)


def _saved(path, nodes, constants):
    """Write a model of ``x`` and ``y``; return its path."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, X.shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **n[3]) for n in nodes], "g", [x], [y], held
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = 9
    file = path / "model.onnx"
    onnx.save(model, file)
    return str(file)


def _pair(value, made, scale, zero="z"):
    """Quantise a value and dequantise it again."""
    return [
        ("QuantizeLinear", [value, scale, zero], [f"{made}_q"], {}),
        ("DequantizeLinear", [f"{made}_q", scale, zero], [made], {}),
    ]


def _convolution(path, axis=None, **constants):
    held = {"W": W, "s": F32(0.1), "sw": F32(0.01), "sy": F32(0.2), "z": np.int8(0), **constants}
    weights = ["W", "sw", *(["zw"] if "zw" in held else [])]
    nodes = [
        *_pair("x", "a", "s"),
        ("DequantizeLinear", weights, ["w"], {} if axis is None else {"axis": axis}),
        ("Conv", ["a", "w"], ["c"], {"pads": [1] * 4}),
        *_pair("c", "y", "sy"),
    ]
    return _saved(path, nodes, held)


def _compiled(file):
    return cc.compile(file, (X,), quantize=cc.Quantization(), check=True)


CHANNELS = np.full(4, 0.01, F32)
BAD = {
    "a scale of 0": ({"s": F32(0)}, "the scale of core.dequantize is 0.0: quantise it with a"),
    "a negative scale": ({"s": F32(-0.5)}, "the scale of core.dequantize is -0.5"),
    "no number": ({"s": F32(np.nan)}, "the scale of core.dequantize is nan"),
    "a channel's scale of 0": (
        {"sw": CHANNELS * [1, 0, 1, 1], "axis": 0},
        "a channel of the weights of core.conv has the scale 0.0",
    ),
    "another axis": (
        {"sw": CHANNELS, "axis": 1},
        "the scales of core.conv are along axis 1 of its weights, expected 0",
    ),
    "zero points of weights": (
        {"sw": CHANNELS, "zw": np.ones(4, np.int8), "axis": 0},
        "the weights of core.conv have zero points",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_leave_an_op_in_floats_and_are_named_with_its_line(name, tmp_path):
    given, reason = BAD[name]
    given = {k: v.astype(F32) if k == "sw" else v for k, v in given.items()}
    (row,) = report(_compiled(_convolution(tmp_path, **given)))["left_float"]
    assert row["op"] == "core.conv" and reason in row["reason"]
    assert row["line"] == "model.onnx:4"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sw": CHANNELS, "axis": 9}, r"axis 9 is out of range for rank 4; model.onnx:3"),
        ({"sw": CHANNELS[:3], "axis": 0}, r"scale has shape \(3\), expected \(4\).*model.onnx:3"),
    ],
    ids=["no such axis", "too few scales"],
)
def test_what_is_no_quantisation_is_refused(given, message, tmp_path):
    with pytest.raises(UserError, match=message):
        _compiled(_convolution(tmp_path, **given))


@pytest.mark.parametrize("zero", [300, -129])
def test_a_zero_point_out_of_range_is_refused(zero):
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.ops.quantized_decomposed.quantize_per_tensor(
                x, 0.1, zero, -128, 127, torch.int8
            )

    with pytest.raises(UserError, match=f"zero point {zero} is out of the range -128 to 127 of i8"):
        cc.compile(Model(), (torch.from_numpy(X),))


def test_parameters_that_are_computed_stay_in_floats_with_the_reason(tmp_path):
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["a"], {}),
        ("DequantizeLinear", ["W", "sw"], ["w"], {}),
        ("Conv", ["a", "w"], ["c"], {"pads": [1] * 4}),
        *_pair("c", "y", "sy", "zy"),
    ]
    held = {"W": W, "sw": F32(0.01), "sy": F32(0.2), "zy": np.int8(0)}
    rows = report(_compiled(_saved(tmp_path, nodes, held)))["left_float"]
    (row,) = (r for r in rows if r["op"] == "core.conv")
    assert "computed as the model runs: integers need constant ones" in row["reason"]


SCALES = {"s1": F32(0.1), "s2": F32(0.03), "s3": F32(0.07), "z": np.int8(5)}
MOVED = {
    "a concatenation": [
        *_pair("x", "a", "s1"),
        *_pair("x", "b", "s2"),
        ("Concat", ["a", "b"], ["c"], {"axis": 1}),
        *_pair("c", "y", "s3"),
    ],
    "maxima": [
        *_pair("x", "a", "s1"),
        ("MaxPool", ["a"], ["c"], {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}),
        *_pair("c", "y", "s3"),
    ],
    "a transposition": [
        *_pair("x", "a", "s3"),
        ("Transpose", ["a"], ["c"], {"perm": [0, 2, 3, 1]}),
        *_pair("c", "y", "s2"),
    ],
}


@pytest.mark.parametrize("name", MOVED)
def test_what_is_moved_to_another_scale_is_rescaled(name, tmp_path):
    """At most a step from onnxruntime, which computes between in floats."""
    file = _saved(tmp_path, MOVED[name], SCALES)
    made = _compiled(file)
    assert report(made)["left_float"] == [] and not broken(made) and made.finding is None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"x": X})
    step = SCALES["s2"] if name == "a transposition" else SCALES["s3"]
    assert np.abs(np.rint((np.array(made(X)[0]) - theirs) / step)).max() <= 1
