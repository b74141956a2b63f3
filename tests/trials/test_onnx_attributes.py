"""Attributes on which the sources of ONNX disagree: whom we follow, pinned.

`core_compiler.frontends.coverage.DISAGREE` says why.  After iree-org/iree#18441,
microsoft/onnxruntime#17564, #25264 and onnx/onnx#7570.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from core_compiler.frontends.coverage import DISAGREE, PAGE
from tests.frontends.onnx_models import F, model_of, one_node, onnxruntimes, ours

STEPS, BATCH, WIDTH, HIDDEN = 3, 2, 2, 4


def _reference(proto, arrays):
    return ReferenceEvaluator(proto).run(None, arrays)


def _far(made, other) -> bool:
    return not np.allclose(made, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "gates", "more"),
    [
        *(
            (*cell, more)
            for cell in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
            for more in ({}, {"direction": "bidirectional"})
        ),
        ("GRU", 3, {"linear_before_reset": 1}),
    ],
)
def test_clip_is_that_of_onnxruntime(kind, gates, more):
    ways = 2 if "direction" in more else 1
    drawn = np.random.default_rng(0).standard_normal
    arrays = {
        "x": drawn((STEPS, BATCH, WIDTH)),
        "w": drawn((ways, gates * HIDDEN, WIDTH)),
        "r": drawn((ways, gates * HIDDEN, HIDDEN)),
        "b": drawn((ways, 2 * gates * HIDDEN)),
    }
    arrays = {name: (2 * array).astype(np.float32) for name, array in arrays.items()}
    attributes = {"hidden_size": HIDDEN, "clip": 0.5, **more}
    proto = one_node(kind, arrays, outputs="y", **attributes)
    made, theirs = ours(proto, arrays), onnxruntimes(proto, arrays)
    np.testing.assert_allclose(made[0], theirs[0], rtol=1e-4, atol=1e-5)
    del attributes["clip"]
    free = ours(one_node(kind, arrays, outputs="y", **attributes), arrays)
    assert _far(made[0], free[0])
    if not more:  # the reference evaluator does not know the attribute
        np.testing.assert_allclose(_reference(proto, arrays)[0], free[0], rtol=1e-4, atol=1e-5)


def test_clip_leaves_the_cell_of_an_lstm_alone():
    """What the last activation reads may be beyond it."""
    arrays = {
        "x": np.full((8, 1, 1), 9, np.float32),
        "w": np.full((1, 4, 1), 9, np.float32),
        "r": np.zeros((1, 4, 1), np.float32),
    }
    proto = one_node("LSTM", arrays, outputs="y h c", hidden_size=1, clip=1.0)
    y, h, c = ours(proto, arrays)
    assert c.item() > 1
    wanted = np.tanh(c) / (1 + np.exp(-1))
    np.testing.assert_allclose(h, wanted, rtol=1e-5)
    np.testing.assert_allclose(y, onnxruntimes(proto, arrays)[0], rtol=1e-5)


def _resize(x, scale, **attributes):
    constants = [
        onnx.numpy_helper.from_array(np.array(values, np.float32), name)
        for name, values in (("roi", [0, 0, 0, 0.2, 1, 1, 1, 0.8]), ("scales", [1, 1, 1, scale]))
    ]
    node = onnx.helper.make_node("Resize", ["x", "roi", "scales"], ["y"], **attributes)
    return model_of([node], [("x", F, x.shape)], [("y", F, None)], constants, opset=19)


LINE = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5) ** 2


@pytest.mark.parametrize("mode", ["align_corners", "tf_crop_and_resize"])
@pytest.mark.parametrize("kind", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("scale", [0.5, 0.7, 1.5, 2.3])
def test_lengths_with_a_fraction_are_those_of_the_reference_evaluator(mode, kind, scale):
    proto = _resize(LINE, scale, mode=kind, coordinate_transformation_mode=mode)
    made = ours(proto, {"x": LINE})[0]
    np.testing.assert_allclose(made, _reference(proto, {"x": LINE})[0], rtol=1e-4, atol=1e-5)


def test_where_onnxruntime_rounds_the_length():
    proto = _resize(LINE, 0.5, mode="linear", coordinate_transformation_mode="align_corners")
    made, theirs = ours(proto, {"x": LINE})[0], onnxruntimes(proto, {"x": LINE})[0]
    np.testing.assert_allclose(theirs.reshape(-1), [0, 16])  # 5 * 0.5 is 2: the last is the last
    # Of length 2.5: the second position is 1 * (5 - 1) / (2.5 - 1), between 4 and 9.
    np.testing.assert_allclose(made.reshape(-1), [0, 4 + (8 / 3 - 2) * 5], rtol=1e-6)


@pytest.mark.parametrize("mode", ["align_corners", "tf_crop_and_resize"])
@pytest.mark.parametrize("scale", [0.4, 0.6, 2.0, 3.0])
def test_whole_lengths_are_those_of_all(mode, scale):
    proto = _resize(LINE, scale, mode="linear", coordinate_transformation_mode=mode)
    made = ours(proto, {"x": LINE})[0]
    for other in (_reference, onnxruntimes):
        np.testing.assert_allclose(made, other(proto, {"x": LINE})[0], rtol=1e-4, atol=1e-5)


def test_an_axis_of_one_position_under_pytorch_half_pixel_follows_the_text():
    proto = _resize(LINE, 0.3, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
    made, theirs = ours(proto, {"x": LINE})[0], onnxruntimes(proto, {"x": LINE})[0]
    assert made.item() == theirs.item() == 0.0
    assert _reference(proto, {"x": LINE})[0].item() != 0.0


def test_the_page_lists_them():
    text = PAGE.read_text(encoding="utf-8")
    assert all(" | ".join(row) in text for row in DISAGREE)
