"""The quantised ops of onnxruntime beside onnxruntime: at most one step apart."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import core_compiler as cc
from core_compiler.frontends.onnx.importer import import_proto
from core_compiler.support.errors import UserError
from tests.frontends.onnx_models import model_of, one_node, onnxruntimes, ours

DOMAIN = "com.microsoft"
KINDS = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def numbers(kind, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(kind)
    return random(seed).integers(limits.min, limits.max + 1, shape).astype(kind)


def f32(value) -> np.ndarray:
    return np.array(value, np.float32)


def one_step(kind, model, arrays) -> None:
    """Ours and onnxruntime's are integers at most one apart, and mostly the same."""
    (made,), (wanted,) = ours(model, arrays), onnxruntimes(model, arrays)
    assert made.dtype == wanted.dtype == kind and made.shape == wanted.shape
    difference = np.abs(made.astype(int) - wanted.astype(int))
    assert difference.max() <= 1
    assert (difference != 0).mean() < 0.1


def quantised(kind, op: str, arrays, **attributes):
    return one_node(op, arrays, "y", domain=DOMAIN, types={"y": KINDS[kind]}, **attributes)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_pairs(op, kind):
    arrays = {
        "x": numbers(kind, 2, 5, 7),
        "xs": f32(0.03),
        "xz": np.array(3, kind),
        "w": numbers(kind, 5, 1, seed=1),
        "ws": f32(0.05),
        "wz": np.array(7, kind),
        "s": f32(0.07),
        "z": np.array(9, kind),
    }
    one_step(kind, quantised(kind, op, arrays), arrays)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("op", "shape", "scale", "attributes"),
    [
        ("QLinearLeakyRelu", (3, 50), 0.04, {"alpha": 0.2}),
        ("QLinearSigmoid", (3, 50), 1 / 256, {}),
        ("QLinearSoftmax", (3, 50), 1 / 256, {"axis": -1}),
        ("QLinearAveragePool", (1, 3, 9, 9), 0.03, {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ("QLinearGlobalAveragePool", (2, 3, 5, 5), 0.01, {}),
    ],
)
def test_one_operand(op, shape, scale, attributes, kind):
    arrays = {
        "x": numbers(kind, *shape),
        "xs": f32(0.03),
        "xz": np.array(3, kind),
        "s": f32(scale),
        "z": np.array(np.iinfo(kind).min + 1, kind),
    }
    model = quantised(kind, op, arrays, **attributes)
    if op == "QLinearSoftmax":
        model.graph.node[0].attribute.append(helper.make_attribute("opset", 13))
    one_step(kind, model, arrays)


def test_concatenation():
    arrays = {
        "s": f32(0.05),
        "z": np.array(128, np.uint8),
        "a": numbers(np.uint8, 2, 3),
        "as": f32(0.03),
        "az": np.array(100, np.uint8),
        "b": numbers(np.uint8, 2, 4, seed=1),
        "bs": f32(0.06),
        "bz": np.array(128, np.uint8),
    }
    one_step(np.uint8, quantised(np.uint8, "QLinearConcat", arrays, axis=1), arrays)


def test_a_choice():
    condition = random().integers(0, 2, (4, 6)).astype(bool)
    arrays = {
        "c": condition,
        "x": numbers(np.uint8, 4, 6),
        "xs": f32(0.03),
        "xz": np.array(9, np.uint8),
        "w": numbers(np.uint8, 4, 6, seed=1),
        "ws": f32(0.05),
        "wz": np.array(7, np.uint8),
        "s": f32(0.07),
        "z": np.array(9, np.uint8),
    }
    one_step(np.uint8, quantised(np.uint8, "QLinearWhere", arrays), arrays)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(turned, channels):
    w = numbers(np.int8, 20, 30, seed=1)
    scale = random(2).uniform(0.01, 0.02, 30).astype(np.float32) if channels else f32(0.015)
    arrays = {
        "x": numbers(np.uint8, 6, 20),
        "xs": f32(0.03),
        "xz": np.array(117, np.uint8),
        "w": w.T.copy() if turned else w,
        "ws": scale,
        "wz": np.zeros(30, np.int8) if channels else np.array(0, np.int8),
        "b": random(3).integers(-900, 900, 30).astype(np.int32),
        "s": f32(0.9),
        "z": np.array(120, np.uint8),
    }
    one_step(np.uint8, quantised(np.uint8, "QGemm", arrays, transB=turned), arrays)
    bare = {k: v for k, v in arrays.items() if k not in ("s", "z")}
    model = one_node("QGemm", bare, "y", domain=DOMAIN, transB=turned)
    (made,), (wanted,) = ours(model, bare), onnxruntimes(model, bare)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize("columns", [False, True])
def test_products_with_float_results(columns):
    x = random().standard_normal((5, 24)).astype(np.float32)
    w = numbers(np.int8, 24, 16, seed=1)
    scale = random(2).uniform(0.01, 0.02, 16).astype(np.float32) if columns else f32(0.015)
    zero = np.zeros(16, np.int8) if columns else np.array(0, np.int8)
    bias = random(3).standard_normal(16).astype(np.float32)
    dynamic = {"x": x, "w": w, "ws": scale, "wz": zero, "b": bias}
    model = one_node("DynamicQuantizeMatMul", dynamic, "y", domain=DOMAIN)
    (made,), (wanted,) = ours(model, dynamic), onnxruntimes(model, dynamic)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    q = numbers(np.uint8, 5, 24)
    arrays = {
        "q": q,
        "w": w,
        "xs": f32(0.1),
        "ws": scale,
        "xz": np.array(99, np.uint8),
        "wz": zero,
        "b": bias,
    }
    model = one_node("MatMulIntegerToFloat", arrays, "y", domain=DOMAIN)
    (made,), (wanted,) = ours(model, arrays), onnxruntimes(model, arrays)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("points", ["none", "packed"])
@pytest.mark.parametrize(("bits", "rows", "block"), [(4, 64, 16), (4, 72, 32), (8, 64, 32)])
def test_weights_in_blocks(bits, rows, block, points):
    columns, blocks = 24, -(-rows // block)
    arrays = {
        "x": random().standard_normal((3, rows)).astype(np.float32),
        "w": numbers(np.uint8, columns, blocks, block * bits // 8, seed=1),
        "s": random(2).uniform(0.01, 0.1, columns * blocks).astype(np.float32),
    }
    if points == "packed":
        arrays["z"] = numbers(np.uint8, columns * -(-blocks * bits // 8), seed=3)
    model = one_node(
        "MatMulNBits", arrays, "y", domain=DOMAIN, K=rows, N=columns, bits=bits, block_size=block
    )
    (made,), (wanted,) = ours(model, arrays), onnxruntimes(model, arrays)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("points", [False, True])
def test_rows_of_a_table_in_blocks(points):
    arrays = {
        "w": numbers(np.uint8, 10, 32),
        "i": np.array([[3, 0], [9, 3]]),
        "s": random(2).uniform(0.01, 0.1, (10, 2)).astype(np.float32),
    }
    if points:
        arrays["z"] = numbers(np.uint8, 10, 1, seed=3)
    model = one_node(
        "GatherBlockQuantized",
        arrays,
        "y",
        domain=DOMAIN,
        bits=4,
        block_size=32,
        gather_axis=0,
        quantize_axis=1,
    )
    (made,), (wanted,) = ours(model, arrays), onnxruntimes(model, arrays)
    np.testing.assert_array_equal(made, wanted)


def test_what_is_not_read_says_so():
    arrays = {
        "x": numbers(np.uint8, 1, 3, 9, 9),
        "xs": f32(0.03),
        "xz": np.array(3, np.uint8),
        "s": f32(0.03),
        "z": np.array(3, np.uint8),
    }
    model = quantised(np.uint8, "QLinearGlobalAveragePool", arrays, channels_last=1)
    with pytest.raises(UserError, match="channels_last"):
        import_proto(model)
    arrays["xs"] = f32([0.03, 0.04])
    with pytest.raises(UserError, match=r"a scale of shape \(2,\), expected one number"):
        import_proto(quantised(np.uint8, "QLinearGlobalAveragePool", arrays))


def test_a_model_that_is_quantised_becomes_one_of_integers():
    """QuantizeLinear and DequantizeLinear around a convolution, a sum and a relu."""
    w = numbers(np.int8, 4, 3, 3, 3)
    facts = {
        "s": f32(0.02),
        "z": np.array(-3, np.int8),
        "w": w,
        "ws": f32([0.01, 0.02, 0.015, 0.01]),
        "wz": np.zeros(4, np.int8),
        "b": random(1).integers(-500, 500, 4).astype(np.int32),
        "bs": f32([2e-4, 4e-4, 3e-4, 2e-4]),
        "ys": f32(0.05),
        "yz": np.array(-100, np.int8),
    }

    def node(kind, inputs, output, **attributes):
        return helper.make_node(kind, inputs.split(), [output], **attributes)

    nodes = [
        node("QuantizeLinear", "x s z", "xq"),
        node("DequantizeLinear", "xq s z", "xd"),
        node("DequantizeLinear", "w ws wz", "wd", axis=0),
        node("DequantizeLinear", "b bs", "bd", axis=0),
        node("Conv", "xd wd bd", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r ys yz", "yq"),
        node("DequantizeLinear", "yq ys yz", "yd"),
        node("Add", "yd yd", "a"),
        node("QuantizeLinear", "a ys yz", "aq"),
    ]
    x = random(2).standard_normal((1, 3, 8, 8)).astype(np.float32)
    model = model_of(
        nodes,
        [("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [("aq", TensorProto.INT8, [1, 4, 8, 8])],
        [numpy_helper.from_array(v, n) for n, v in facts.items()],
    )
    made = cc.compile(model, (x,), quantize=cc.Quantization(), check=True)
    assert made.finding is None
    stages = {stage.name: stage for stage in made.stages}
    assert not stages["insert_quantization"].rewrites
    rules = [r.rule for r in stages["integerize"].rewrites]
    assert rules == ["a product in integers", "a function in integers"]  # x + x: a table
    (wanted,) = onnxruntimes(model, {"x": x})
    difference = np.abs(np.asarray(made(x)[0]).astype(int) - wanted)
    assert difference.max() <= 2 and (difference > 1).mean() < 0.01
