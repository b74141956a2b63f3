"""ONNX's light models with random weights on the whole CPU path, beside onnxruntime.

The suite's own check of them says little: every weight there is one constant.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import core_compiler as cc
from tests.conformance import light_models
from tests.slow import slow_but

#: The largest difference, of the largest value of the result.
CLOSE = 1e-5


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", slow_but(("squeezenet",), light_models.NAMES))
def test_a_light_model_computes_what_onnxruntime_computes(name: str) -> None:
    model = light_models.random_model(name)
    given = light_models.random_inputs(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, given)
    assert np.std(want) > 1e-3 * np.abs(want).max()  # it is no constant, as the suite's own are
    (found,) = cc.compile(model, list(given.values()))(*given.values())
    assert np.abs(found - want).max() <= CLOSE * np.abs(want).max()
