"""The models that `benchmarks/models.py` measures, and what it writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.model_variants import DTYPES, LARGE, LINEAR, variant, with_int8_weights
from benchmarks.models import MODELS, write_rows
from tests.slow import slow_but

torch = pytest.importorskip("torch")

#: The largest difference from the framework that executes the same form.
#: Two steps of a byte where both sides are quantised, each with parameters of its own.
ERRORS = {
    "f32": 1e-6,
    "bf16": 0.02,
    "int8": 1e-6,
    "int8-weights": 1e-6,
    "int8-static": 2 / 127,
}


@pytest.mark.parametrize("dtype", slow_but(("int8-weights",), DTYPES))
def test_each_dtype_is_what_the_peers_compute(dtype):
    found = variant("digits-mlp", dtype, 3)
    assert found is not None and found.inputs[0].shape[0] == 3
    (ours,) = found.compile(1)(*found.inputs)
    for peer in found.peers.values():
        (theirs,) = peer(1)(*found.inputs)
        wanted = np.float32(theirs)
        assert np.abs(ours - wanted).max() <= ERRORS[dtype] * np.abs(wanted).max()


def test_integer_weights_are_within_half_a_step():
    layer = torch.nn.Linear(40, 7)
    rows = layer.weight.detach().abs().amax(1)
    (made,) = with_int8_weights(torch.nn.Sequential(layer))
    assert made.weight.dtype is torch.int8
    apart = (made.weight * made.scale[:, None] - layer.weight).abs().amax(1)
    assert (apart <= rows / 127 * 0.5001).all()


def test_only_forms_that_exist_are_measured():
    assert set(LINEAR) < set(MODELS)
    assert (
        variant("resnet18", "int8", 1) is None and variant("digits-cnn", "int8-weights", 1) is None
    )
    assert all(variant(name, "f32", 1) is None for name in LARGE)


def test_rows_take_the_place_of_earlier_ones_of_the_same_model(tmp_path):
    path, row = tmp_path / "models-2026-01-02.json", {"model": "one", "dtype": "f32", "batch": 1}
    write_rows(path, "models", [{**row, "ours_ms": 1.0}, {**row, "batch": 8, "ours_ms": 2.0}], 2)
    write_rows(path, "decode", [{**row, "ours_ms": 3.0}], 2)
    write_rows(path, "models", [{**row, "ours_ms": 4.0}], 2)
    held = json.loads(path.read_text())
    assert [r["ours_ms"] for r in held["models"]] == [4.0, 2.0]
    assert [r["ours_ms"] for r in held["decode"]] == [3.0] and held["machine"]["threads"] == 2
