"""ONNX's light models with random weights on the whole CPU path, beside onnxruntime.

The suite's own check of them says little: every weight there is one constant.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import core_compiler as cc
from tests.conformance import light_models

#: The largest difference, of the largest value of the result.  Our bits are the same everywhere;
#: onnxruntime's follow the processor, and with AVX2 its own error in VGG-19 is larger than this:
#: then the model in f64 is the judge.
CLOSE = 1e-5


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", light_models.NAMES)
def test_a_light_model_computes_what_onnxruntime_computes(name: str) -> None:
    model = light_models.random_model(name)
    given = light_models.random_inputs(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, given)
    assert np.std(want) > 1e-3 * np.abs(want).max()  # it is no constant, as the suite's own are
    (found,) = cc.compile(model, list(given.values()))(*given.values())
    allowed = CLOSE * np.abs(want).max()
    if np.abs(found - want).max() > allowed:  # whose error is it?
        wide = {name: array.astype(np.float64) for name, array in given.items()}
        (exact,) = cc.compile(light_models.in_f64(model), list(wide.values()))(*wide.values())
        assert exact.dtype == np.float64
        error = np.abs(found - exact).max()
        assert error <= allowed and error <= np.abs(want - exact).max()
