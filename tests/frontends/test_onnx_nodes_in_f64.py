"""Single nodes of ONNX in f64, as onnxruntime computes them: what a value is judged by."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.frontends.onnx.nodes import run_nodes

onnx = pytest.importorskip("onnx")


#: What the standard has by default, as attributes hold it.
EPSILON = float(np.float32(1e-5))


def _normalised(x: np.ndarray, axes: tuple[int, ...], centred: bool = True) -> np.ndarray:
    x = x.astype(np.float64)
    d = x - x.mean(axes, keepdims=True) if centred else x
    return d / np.sqrt((d * d).mean(axes, keepdims=True) + EPSILON)


@pytest.mark.parametrize(
    ("kind", "attributes", "parameters", "wanted"),
    [
        ("LayerNormalization", {}, 2, lambda x: _normalised(x, (1,))),
        ("RMSNormalization", {}, 1, lambda x: _normalised(x, (1,), centred=False)),
        (
            "GroupNormalization",
            {"num_groups": 2},
            2,
            lambda x: _normalised(x.reshape(8, 2, 3), (2,)).reshape(8, 6),
        ),
        ("LayerNormalization", {"stash_type": 1}, 2, lambda x: _normalised(x, (1,))),
    ],
)
def test_norms_that_compute_in_f32_on_their_way_are_asked_for_f64(
    kind, attributes, parameters, wanted
):
    helper, float_ = onnx.helper, onnx.TensorProto.FLOAT
    random = np.random.default_rng(0)
    x = random.standard_normal((8, 6)).astype(np.float32)
    numbers = [random.standard_normal(6).astype(np.float32) for _ in range(parameters)]
    names = ["x", "scale", "bias"][: 1 + parameters]
    infos = [
        helper.make_tensor_value_info(n, float_, a.shape)
        for n, a in zip(names, (x, *numbers), strict=True)
    ]
    node = helper.make_node(kind, names, ["y"], **attributes)
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_tensor_value_info("y", float_, x.shape)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    found = []

    def tell(name, values, in_f64) -> list[bool]:
        found.extend(in_f64() or ())
        return [True]

    run_nodes(model, None, ["y"], (x, *numbers), tell)
    expected = wanted(x) * numbers[0].astype(np.float64)
    if parameters == 2:
        expected = expected + numbers[1].astype(np.float64)
    assert found[0].dtype == np.float64
    assert np.max(np.abs(found[0] - expected)) < 1e-12
