"""Signed zeros, NaN, infinities and counts beyond the width through whole compiles, beside the
framework that a model comes from (numerics contract, version 2)."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as arrays_of
from onnx import TensorProto, helper

import core_compiler as cc
from core_compiler.training.optimisers import optimizers
from tests.examples import examples
from tests.kernels.kernel_helpers import assert_same_bits

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

INF, NAN = float("inf"), float("nan")
SPECIAL = [-0.0, 0.0, INF, -INF, NAN, 1.0, -1.0]
_FLOATS = st.sampled_from(SPECIAL) | st.floats(width=32)


def _numpy(results) -> list[np.ndarray]:
    return [np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else (results,))]


def _module(forward) -> torch.nn.Module:
    return type("Model", (torch.nn.Module,), {"forward": lambda self, *x: forward(*x)})()


@functools.cache
def _compiled(forward, shape, dtype=torch.float32):
    x = torch.zeros(shape, dtype=dtype)
    return cc.compile(_module(forward), (x,), check=True)


def _as_in_torch(forward, x: np.ndarray) -> None:
    given = torch.tensor(x)
    made = _compiled(forward, x.shape, given.dtype)
    assert_same_bits(_numpy(made(given)), _numpy(forward(given)))


# -- torch -----------------------------------------------------------------------------------------


def extremes(x):
    return (x.argmax(1), x.argmin(1), x.argmax(), *x.max(1), *x.min(1))


def ordered(x):
    return (
        *torch.sort(x, dim=1, stable=True),
        *torch.sort(x, dim=1, stable=True, descending=True),
        torch.argsort(x, dim=0, stable=True),
    )


def pooled(x):
    return torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)


def pooled_in_a_row(x):
    values, places = torch.nn.functional.max_pool1d(x, 3, 2, 1, return_indices=True)
    return values, places, torch.gather(x, 2, places)


def adaptive(x):
    return torch.nn.functional.adaptive_max_pool2d(x, (3, 2), return_indices=True)


def unpooled(x):
    values, places = torch.nn.functional.max_pool1d(x, 2, return_indices=True)
    return torch.nn.functional.max_unpool1d(values, places, 2)


def zeros(x):
    return x + 0.0, x + (-0.0), x - 0.0, x - (-0.0), 0.0 + x


def sums(x):
    return x.sum(1), x.sum(1, keepdim=True), x.sum(), x.mean(1), x.prod(1)


@given(arrays_of(np.float32, (4, 5), elements=_FLOATS))
@settings(max_examples=examples(30))
def test_extremes_and_their_places(x):
    _as_in_torch(extremes, x)


@given(arrays_of(np.float32, (4, 5), elements=_FLOATS))
@settings(max_examples=examples(30))
def test_sorts(x):
    _as_in_torch(ordered, x)


@pytest.mark.slow
@given(arrays_of(np.float32, (1, 2, 5, 6), elements=_FLOATS))
@settings(max_examples=examples(30))
def test_pooling_with_places(x):
    _as_in_torch(pooled, x)
    _as_in_torch(adaptive, x)


@pytest.mark.slow
@given(arrays_of(np.float32, (1, 2, 6), elements=_FLOATS))
@settings(max_examples=examples(30))
def test_places_are_inside_and_lead_to_the_element(x):
    _as_in_torch(pooled_in_a_row, x)
    _as_in_torch(unpooled, x)


@pytest.mark.parametrize("value", [-INF, NAN, -0.0])
def test_windows_of_one_value(value):
    x = np.full((1, 2, 5, 6), value, np.float32)
    _as_in_torch(pooled, x)
    _as_in_torch(adaptive, x)


@given(arrays_of(np.float32, (7,), elements=_FLOATS))
@settings(max_examples=examples(30))
def test_adding_zeros_keeps_their_sign_as_ieee_754_says(x):
    _as_in_torch(zeros, x)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (1, 1)])
def test_sums_of_minus_zeros(shape):
    x = torch.full(shape, -0.0)
    got, want = _numpy(_compiled(sums, shape)(x)), _numpy(sums(x))
    assert_same_bits(got[:4], want[:4])
    assert np.array_equal(got[4], want[4])  # torch's product of many starts from 1 too


def test_the_sum_of_a_number():
    x = torch.tensor(-0.0)
    made = cc.compile(_module(lambda v: (v.sum(), v.mean())), (x,), check=True)
    assert_same_bits(_numpy(made(x)), _numpy((x.sum(), x.mean())))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_shifts_beyond_the_width(dtype):
    info = torch.iinfo(dtype)
    values = torch.tensor([info.min, info.max, 0, 1, 5, info.min + 1], dtype=dtype)
    counts = torch.tensor([0, 1, info.bits - 1, info.bits, info.bits + 3, 100], dtype=dtype)
    a, n = (v.reshape(-1) for v in torch.meshgrid(values, counts, indexing="ij"))
    forward = _module(lambda a, n: (a << n, a >> n, a >> info.bits, a << info.bits))
    made = cc.compile(forward, (a, n), check=True)
    assert_same_bits(_numpy(made(a, n)), _numpy(forward(a, n)))


class _Pooling(torch.nn.Module):
    def __init__(self, x, pool):
        super().__init__()
        self.p, self.pool = torch.nn.Parameter(x), pool

    def forward(self, k):
        return (self.pool(self.p).clamp(min=-5) * k).sum()


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: torch.nn.functional.max_pool1d(x, 3, 2, 1),
        lambda x: torch.nn.functional.adaptive_max_pool1d(x, 4),
        lambda x: torch.nn.functional.max_pool1d(x, 3, 2, 1, return_indices=True)[0],
    ],
    ids=["padded", "adaptive", "with places"],
)
@pytest.mark.parametrize(
    "row",
    [
        [-INF, -INF, 3.0, -INF, -INF, -INF],
        [-0.0, 0.0, -0.0, 0.0, 0.0, -0.0],
        [1.0, 2, 2, 2, 1, 1],
    ],
    ids=["infinities", "zeros", "ties"],
)
def test_gradients_go_to_the_chosen_element(pool, row):
    model = _Pooling(torch.tensor([[row]]), pool)
    k = torch.full((1,), 3.0)
    model(k).backward()
    step = cc.compile(
        model,
        (k,),
        check=True,
        training=cc.Training(loss="own", optimizer=optimizers.SGD(0.0), keep_gradients=True),
    )
    step(k)
    assert np.array_equal(step.gradients["p"], model.p.grad.numpy())


# -- ONNX ------------------------------------------------------------------------------------------


def _onnx(node, shape, outputs, kind=TensorProto.FLOAT, opset=18, constants=()):
    graph = helper.make_graph(
        list(node),
        "case",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, t, None) for name, t in outputs],
        [onnx.numpy_helper.from_array(a, name) for name, a in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _in_onnxruntime(model, x):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})


@functools.cache
def _onnx_orders():
    nodes = [
        helper.make_node("ArgMax", ["x"], ["a"], axis=1, keepdims=0),
        helper.make_node("ArgMin", ["x"], ["b"], axis=1, keepdims=0),
        helper.make_node("TopK", ["x", "k"], ["v", "i"]),
    ]
    outputs = [
        ("a", TensorProto.INT64),
        ("b", TensorProto.INT64),
        ("v", TensorProto.FLOAT),
        ("i", TensorProto.INT64),
    ]
    model = _onnx(nodes, (4, 5), outputs, constants=[("k", np.array([3], np.int64))])
    return model, cc.compile(model, (np.zeros((4, 5), np.float32),), check=True)


@pytest.mark.slow
@given(arrays_of(np.float32, (4, 5), elements=_FLOATS.filter(lambda v: v == v)))
@settings(max_examples=examples(30))
def test_places_of_onnx(x):
    """Of NaN onnxruntime and the standard say nothing."""
    model, made = _onnx_orders()
    assert_same_bits(_numpy(made(x)), _in_onnxruntime(model, x))


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_of_onnx_never_chooses_padding(order):
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    x[..., :3, :3] = -INF
    x[0, 0, 4, 4:] = 40, 40
    node = helper.make_node(
        "MaxPool",
        ["x"],
        ["y", "i"],
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        storage_order=order,
    )
    model = _onnx([node], x.shape, [("y", TensorProto.FLOAT), ("i", TensorProto.INT64)], opset=12)
    values, places = _numpy(cc.compile(model, (x,), check=True)(x))
    flat = x.reshape(6, 6).ravel(order="F" if order else "C")
    assert np.array_equal(flat[places.ravel()], values.ravel())
    _, wanted = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, 1, return_indices=True)
    rows, columns = np.divmod(wanted.numpy(), 6)
    assert np.array_equal(places, rows + 6 * columns if order else wanted.numpy())


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift_of_onnx(direction):
    x = np.array([0, 1, 200, 255], np.uint8)
    node = helper.make_node("BitShift", ["x", "n"], ["y"], direction=direction)
    model = _onnx(
        [node],
        x.shape,
        [("y", TensorProto.UINT8)],
        TensorProto.UINT8,
        constants=[("n", np.array([7, 3, 1, 0], np.uint8))],
    )
    made = cc.compile(model, (x,), check=True)
    assert_same_bits(_numpy(made(x)), _in_onnxruntime(model, x))


# -- JAX -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_positions_shifts_and_zeros_of_jax():
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax

    def orders(x):
        return (
            jnp.argmax(x, 1),
            jnp.argmin(x, 1),
            jnp.argsort(x, 1),
            x + 0.0,
            x - 0.0,
            lax.top_k(x, 3)[1],
        )

    x = np.array(
        [[-0.0, 0.0, -0.0, 1], [0.0, -0.0, -1, 0], [NAN, 1, NAN, INF], [-INF, -INF, -INF, -INF]],
        np.float32,
    )
    made = cc.compile(orders, (x,), check=True)
    with jax.disable_jit():
        wanted = _numpy(orders(jnp.asarray(x)))
    assert_same_bits(_numpy(made(x))[:5], wanted[:5])

    def shifts(a, n):
        return (
            lax.shift_right_arithmetic(a, n),
            lax.shift_right_logical(a, n),
            lax.shift_left(a, n),
        )

    a = np.array([-(2**31), -1, -5, 5, 2**31 - 1], np.int32).repeat(6)
    n = np.tile(np.array([0, 1, 31, 32, 40, -1], np.int32), 5)
    made = cc.compile(shifts, (a, n), check=True)
    assert_same_bits(_numpy(made(a, n)), _numpy(shifts(jnp.asarray(a), jnp.asarray(n))))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "row",
    [
        [-INF, -INF, 3.0, -INF, -INF, -INF],
        [-0.0, 0.0, -0.0, 0.0, 0.0, -0.0],
        [1.0, 2, 2, 2, 1, 1],
        [NAN, 1, 2, NAN, 0, 3],
        [1, NAN, 2, 0, NAN, NAN],
    ],
    ids=["infinities", "zeros", "ties", "nan", "nan last"],
)
def test_gradients_of_windows_of_jax(row):
    jax = pytest.importorskip("jax")

    def chosen(x, dy):
        def pool(v):
            return jax.lax.reduce_window(v, -np.inf, jax.lax.max, (3,), (2,), [(1, 1)])

        return jax.vjp(pool, x)[1](dy)[0]

    x, dy = np.array(row, np.float32), np.array([1, 2, 4], np.float32)
    made = cc.compile(chosen, (x, dy), check=True)
    assert_same_bits(_numpy(made(x, dy)), _numpy(jax.jit(chosen)(x, dy)))
