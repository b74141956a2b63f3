"""A quantised model as ONNX: QuantizeLinear and DequantizeLinear, which come back as they were."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

import core_compiler as cc
from core_compiler.driver.export import export
from tests.passes.quantised import MODELS, QUICK, compiled
from tests.slow import slow_but


@pytest.mark.parametrize("name", slow_but(QUICK, MODELS))
def test_the_quantised_floats_run_in_onnxruntime_and_come_back_as_the_same_integers(name, tmp_path):
    made, _, samples = compiled(name, check=False)
    stage = next(s for s in made.stages if s.name == "insert_quantization")
    path = tmp_path / "model.onnx"
    export(stage.module, path, inputs=["x"], outputs=["y"])
    kinds = Counter(node.op_type for node in onnx.load(path).graph.node)
    ops = Counter(op.kind for op in stage.module.main.body.ops)
    assert kinds["QuantizeLinear"] == ops["core.quantize"] > 0
    assert kinds["DequantizeLinear"] == ops["core.dequantize"] > 0

    (theirs,) = onnxruntime.InferenceSession(path).run(None, {"x": samples[1][0]})
    ours = np.asarray(
        made(*samples[1])[0] if isinstance(made(*samples[1]), tuple) else made(*samples[1])
    )
    assert np.square(ours - theirs).sum() < 0.01 * np.square(theirs).sum()

    again = cc.compile(path, samples[0], quantize=cc.Quantization())
    back = again(*samples[1])
    back = np.asarray(back[0] if isinstance(back, tuple) else back)
    assert back.tobytes() == ours.tobytes()
