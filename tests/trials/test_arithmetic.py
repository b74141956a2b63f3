"""Divisions, remainders, powers and casts where implementations round or wrap differently.

After pytorch/pytorch#197895, onnx/onnx#7570, onnx/tensorflow-onnx#2174, apache/tvm#17882.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from tests.frontends.onnx_models import agrees as agrees_with_onnxruntime
from tests.frontends.onnx_models import model_of, ours
from tests.frontends.programs import Program, agrees
from tests.trials.everywhere import everywhere, same

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_floor_division_of_floats(dtype):
    """It is of the exact quotient, which rounds up at times."""
    a = torch.tensor([1.0, 0.5, 6, 1, -1, -0.5, 7.5, 0, INF, NAN, 3, -3, 1e4, 5e-5], dtype=dtype)
    b = torch.tensor([0.1, 0.1, 0.2, 1 / 3, 0.1, -0.1, -2.5, 3, 2, 1, INF, INF, 7, 3], dtype=dtype)
    agrees(
        lambda a, b: (
            a // b,
            torch.div(a, b, rounding_mode="trunc"),
            torch.remainder(a, b),
            torch.fmod(a, b),
        ),
        a,
        b,
    )
    if dtype is not torch.float16:
        agrees(lambda a: torch.floor_divide(a, 0.1), a)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integer_division_rounds_as_it_is_asked_to(dtype):
    top = torch.iinfo(dtype).max
    x = torch.tensor([3, 7, 10, -3, -7, 0, -9, top - 9, -top - 1]).to(dtype)
    n = torch.tensor([3, 3, -3, 3, 2, 5, -9, 4, 3]).to(dtype)
    agrees(
        lambda x, n: (
            -((-x) // n),
            (x + n - 1) // n,
            x % n,
            x // -4,
            x % -8,
            x // 8,
            torch.div(-x, 3, rounding_mode="floor"),
            torch.fmod(x, n),
            torch.div(x, 8, rounding_mode="trunc"),
            (x * 6) // 3 // 2,
        ),
        x,
        n,
    )


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8"])
def test_division_and_both_remainders_of_onnx(kind):
    a = np.array([8, -8, 7, -7, 1, -1, 0, 100]).astype(kind)
    b = np.array([-3, 3, -2, 2, 5, 5, -4, 7]).astype(kind)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        helper.make_node("Div", ["a", "b"], ["q"]),
        helper.make_node("Mod", ["a", "b"], ["r"]),
        helper.make_node("Mod", ["a", "b"], ["f"], fmod=1),
    ]
    proto = model_of(
        nodes,
        [("a", number, a.shape), ("b", number, b.shape)],
        [(n, number, a.shape) for n in "qrf"],
    )
    wide = a.astype(np.int64), b.astype(np.int64)
    quotient = np.trunc(wide[0] / wide[1]).astype(kind)
    same(ours(proto, {"a": a, "b": b}), [quotient, np.mod(a, b), np.fmod(a, b)])


def test_powers_and_roots():
    x = torch.tensor([0.0, 1, -1, 2, -2, 0.5, INF, -INF, NAN, -8])
    y = torch.tensor([0.0, 2, 3, -1, 0.5, -INF, 0, 3, 0, 1 / 3])
    agrees(
        lambda x, y: (
            x**y,
            x**2,
            x**0.5,
            x**-1,
            2**x,
            x.abs().sqrt(),
            x.abs().rsqrt(),
            x.reciprocal(),
            x**0,
        ),
        x,
        y,
    )
    n = torch.tensor([0, 1, -1, 2, -3, 7])
    agrees(lambda n: (n**2, n**3, n**0, torch.pow(2, n.abs())), n)


@pytest.mark.slow
def test_casts_and_promotion(tmp_path):
    u = torch.tensor([0, 1, 200, 255, 7], dtype=torch.uint8)
    x = torch.tensor([1.9, -1.9, 0.0, 0.25, 100.49])

    def function(u, x):
        return (u - 1, u + 255, u * 2, (u.float() - 300).to(torch.int32), x.to(torch.int8),
                x.bool(), x.long(), u.sum(), u > -1, u // 2, ~u, u.to(torch.int8), u * 1.5,
                x.half().float(), (x > 0) + u, (x > 0).cumsum(0), (x > 0) & (u > 3), u ^ 5,
                torch.where(x > 0, u, -1))  # fmt: skip

    everywhere(Program(function), [u, x], function(u, x), tmp_path, guards=(True,))


@pytest.mark.parametrize("scale", [0.38, 0.28, 0.16, 1.0, 0.5])
def test_halves_of_a_quantised_sum_go_to_even(scale):
    a = np.arange(-40, 40, dtype=np.int8)
    b = np.roll(a, 13)
    constants = [
        ("sa", np.float32(0.08)),
        ("sb", np.float32(0.24)),
        ("so", np.float32(scale)),
        ("z", np.int8(0)),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "sa", "z"], ["ad"]),
        helper.make_node("DequantizeLinear", ["b", "sb", "z"], ["bd"]),
        helper.make_node("Add", ["ad", "bd"], ["s"]),
        helper.make_node("QuantizeLinear", ["s", "so", "z"], ["y"]),
    ]
    int8 = TensorProto.INT8
    proto = model_of(
        nodes,
        [("a", int8, a.shape), ("b", int8, b.shape)],
        [("y", int8, a.shape)],
        [_tensor(name, value) for name, value in constants],
        opset=19,
    )
    total = a.astype(np.float32) * np.float32(0.08) + b.astype(np.float32) * np.float32(0.24)
    wanted = np.clip(np.rint(total / np.float32(scale)), -128, 127).astype(np.int8)
    same(ours(proto, {"a": a, "b": b}), [wanted])


def _tensor(name: str, value: np.generic):
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor(name, kind, (), [value.item()])


@pytest.mark.parametrize("shape", [(4, 1, 1), (1,), (4,), (1, 4, 1, 1), (4, 4), (1, 1, 4), ()])
def test_prelu_broadcasts_its_slope_one_way(shape):
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 4)).astype(np.float32)
    slope = np.asarray(np.random.default_rng(1).standard_normal(shape), np.float32)
    node = helper.make_node("PRelu", ["x", "slope"], ["y"])
    infos = [("x", TensorProto.FLOAT, x.shape), ("slope", TensorProto.FLOAT, shape)]
    proto = model_of([node], infos, [("y", TensorProto.FLOAT, x.shape)], opset=16)
    same(ours(proto, {"x": x, "slope": slope}), [np.where(x < 0, x * slope, x)])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 2, -100])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_of_onnx(weighted, ignored, reduction):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 5, 4)).astype(np.float32), rng.integers(0, 5, (3, 4))
    if ignored == -100:
        y.flat[0] = -100
    arrays = {"x": x, "y": y, **({"w": rng.random(5).astype(np.float32)} if weighted else {})}
    options = {"reduction": reduction, **({} if ignored is None else {"ignore_index": ignored})}
    node = helper.make_node("SoftmaxCrossEntropyLoss", list(arrays), ["l", "p"], **options)
    infos = [(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()]
    made = [("l", TensorProto.FLOAT, None), ("p", TensorProto.FLOAT, None)]
    agrees_with_onnxruntime(model_of([node], infos, made, opset=13), arrays, rtol=1e-4, atol=1e-5)
