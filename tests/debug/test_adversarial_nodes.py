"""Nodes of a framework on adversarial values: faults of translations that the example inputs do not
show, and no false alarms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core_compiler.debug import adversarial_nodes
from core_compiler.debug.framework import compare
from core_compiler.ir import dtype

torch: Any = pytest.importorskip("torch", reason="the models are torch's")
F = torch.nn.functional

#: Example inputs of one sign, between 1/4 and 3/4, no two alike.
TAME = np.linspace(0.25, 0.75, 24, dtype=np.float32).reshape(4, 6)


def imported(function, *inputs):
    from core_compiler.frontends.pytorch import import_module

    class Model(torch.nn.Module):
        def forward(self, *xs):
            return function(*xs)

    return import_module(Model().eval(), tuple(map(torch.from_numpy, inputs)))


def compared(found, *inputs):
    return compare(found.module, list(inputs), found.nodes, len(inputs), found.module)


def table():
    from core_compiler.frontends.pytorch.aten.table import TABLE

    return TABLE


#: aten's op, the model, a wrong translation, and the class that shows it.
WRONG = {
    "a bound that no element reaches": (
        "hardtanh",
        lambda x: F.hardtanh(x, -2.0, 2.0),
        lambda b, x, *_: x,
        "beside constants",
    ),
    "a bound that is off by little": (
        "hardtanh",
        lambda x: F.hardtanh(x, -2.0, 2.0),
        lambda b, x, *_: b.op("core.clamp", (x,), low=-2.0, high=2.0000002),
        "beside constants",
    ),
    "a formula for one sign": ("abs", torch.abs, lambda b, x: x, "beside constants"),
    "NaN is dropped": (
        "maximum",
        lambda x: torch.maximum(x, x * 0.5),
        lambda b, x, y: b.select(b.gt(y, x), y, x),
        "NaN and infinities",
    ),
    "infinities of one sign": (
        "isinf",
        torch.isinf,
        lambda b, x: b.eq(x, b.scalar_like(np.inf, x)),
        "NaN and infinities",
    ),
    "the last of equal elements": (
        "argmax",
        lambda x: torch.argmax(x, dim=1),
        lambda b, x, axis, *_: b.sub(
            b.scalar_like(
                5,
                made := b.op(
                    "core.argmax",
                    (b.op("core.reverse", (x,), axes=(1,)),),
                    axis=1,
                    dtype=dtype("i64"),
                ),
            ),
            made,
        ),
        "",
    ),
    "rounding of halves": (
        "round",
        torch.round,
        lambda b, x, *_: b.op("core.floor", (b.add(x, b.scalar_like(0.5, x)),)),
        "beside constants",
    ),
    "a row without a finite number": (
        "amax",
        lambda x: x.amax(1),
        lambda b, x, *_: b.max(m := b.reduce_max(x, axes=(1,)), b.scalar_like(-3e38, m)),
        "almost only infinities",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_that_the_inputs_do_not_show_is_shown(name, monkeypatch):
    op, function, wrong, class_ = WRONG[name]
    assert compared(imported(function, TAME), TAME).verdict in ("equal", "within")
    monkeypatch.setitem(table(), op, wrong)
    found = imported(function, TAME)
    monkeypatch.setattr(adversarial_nodes, "CLASSES", ())
    assert compared(found, TAME).verdict in ("equal", "within")  # not on the inputs
    monkeypatch.undo()
    result = compared(found, TAME)
    assert result.verdict == "differs" and result.beyond is not None
    assert result.beyond.node.startswith(op) and result.beyond.alone
    assert result.beyond.judgement.note.startswith("not on the inputs, but on ")
    assert class_ in result.beyond.judgement.note


def test_integers_are_tried_where_ops_work_element_by_element(monkeypatch):
    x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    monkeypatch.setitem(table(), "abs", lambda b, x: x)
    result = compared(imported(lambda x: torch.abs(x) + x, x), x)
    assert result.beyond is not None and result.beyond.node == "abs_1"
    assert "special values" in result.beyond.judgement.note


def test_ops_of_ours_that_raise_are_a_fault(monkeypatch):
    """The reference stumbles over what the example inputs do not have."""
    from core_compiler.ops.base import REGISTRY

    right = REGISTRY["core.exp"]

    def stumbles(arrays, *more):
        if not (arrays[0] > 0).all():
            raise ZeroDivisionError("a negative exponent")
        return right.reference(arrays, *more)

    found = imported(lambda x: torch.exp(x), TAME)
    monkeypatch.setitem(REGISTRY, "core.exp", replace(right, reference=stumbles))
    result = compared(found, TAME)
    assert result.beyond is not None and result.beyond.node == "exp"
    assert "our ops raise" in result.beyond.judgement.note


def test_shifts_are_tried_with_the_bits_that_integers_have(monkeypatch):
    x, by = np.full((3, 4), 3, np.int32), np.full((3, 4), 2, np.int32)
    shift = torch.bitwise_left_shift
    assert compared(imported(shift, x, by), x, by).tried == 1

    def narrow(b, x, y):
        return b.select(b.lt(y, b.scalar_like(12, y)), b.shl(x, y), b.scalar_like(0, x))

    monkeypatch.setitem(table(), "bitwise_left_shift", narrow)
    found = compared(imported(shift, x, by), x, by)
    assert found.beyond is not None and "special values" in found.beyond.judgement.note


def test_positions_keep_their_values():
    """Indices from the model's inputs stay in range, so that nothing is read outside a table."""
    rows, places = TAME, np.array([[3, 0], [1, 2]])
    result = compared(imported(lambda x, i: F.embedding(i + 0, x) * 2, rows, places), rows, places)
    assert result.verdict in ("equal", "within") and result.tried == 3


def test_equal_nodes_are_tried_once_and_large_ones_not():
    def model(x):
        for _ in range(3):
            x = torch.tanh(x)
        return x

    assert compared(imported(model, TAME), TAME).tried == 1
    large = np.full((1 << 9, 1 << 10), 0.5, np.float32)
    assert compared(imported(model, large), large).tried == 0


def test_loops_are_not_run_on_values_that_may_not_end_them():
    def model(x):
        from torch._higher_order_ops.while_loop import while_loop

        (y,) = while_loop(lambda y: y.sum() < 100, lambda y: (y * 2,), (x,))
        return torch.relu(y) + x

    result = compared(imported(model, TAME), TAME)
    assert result.verdict in ("equal", "within") and result.tried >= 2


def test_other_parts_of_a_node_and_complex_numbers_are_replaced_alike():
    def model(x):
        values, _ = torch.sort(x * 2, dim=1, stable=True)
        low, high = values.split(3, dim=1)
        wave = torch.fft.rfft(x - low.sum(), dim=1)
        return torch.fft.irfft(wave * 2, n=6, dim=1) + high.amax(), torch.view_as_real(wave)

    result = compared(imported(model, TAME), TAME)
    assert result.verdict in ("equal", "within"), result.beyond
    assert result.tried >= 6


def test_what_a_framework_computes_otherwise_is_no_fault():
    """oneDNN's GELU of an infinity is NaN; a cast of what no integer holds is undefined; the
    magnitude of a complex number with an infinite part is infinite, whatever the other is."""

    def model(x):
        z = torch.fft.rfft(x)
        return (
            F.gelu(x),
            (x * 100).to(torch.int8),
            (x - 1).to(torch.uint8),
            z.abs(),
            torch.view_as_real(z * z.conj()),
        )

    assert compared(imported(model, TAME), TAME).verdict in ("equal", "within")


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_other_dtypes_are_no_false_alarm(name):
    def model(x):
        y = x.to(getattr(torch, name))
        z = torch.softmax(y @ y.T, dim=0) + F.layer_norm(y, (6,)).sum()
        return torch.cumsum(torch.sigmoid(z), 0), F.silu(z) * torch.exp(-z)

    result = compared(imported(model, TAME), TAME)
    assert result.verdict in ("equal", "within") and result.tried > 8, result.beyond


def test_an_onnx_node_is_tried_with_all_its_tensors():
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from core_compiler.frontends.onnx import import_proto
    from tests.frontends.onnx_models import one_node

    proto = one_node("IsInf", {"x": TAME}, "y", opset=20, types={"y": 9}, detect_negative=0)
    found = import_proto(proto, inputs={"x": TAME})
    right = compared(found, TAME)
    assert (right.verdict, right.tried) == ("equal", 1)
    other = import_proto(
        one_node("IsInf", {"x": TAME}, "y", opset=20, types={"y": 9}, detect_positive=0),
        inputs={"x": TAME},
    )
    values = dict(zip(other.nodes.values, found.nodes.values.values(), strict=True))
    wrong = compare(found.module, [TAME], replace(other.nodes, values=values), 1)
    assert wrong.beyond is not None and "NaN and infinities" in wrong.beyond.judgement.note
    several = one_node(
        "TopK", {"x": TAME, "k": np.array([2])}, "v i", opset=11, types={"i": 7}, axis=1
    )
    made = import_proto(several, inputs={"x": TAME, "k": np.array([2])})
    inputs = [TAME, np.array([2])][: len(made.module.main.arguments)]
    assert compare(made.module, inputs, made.nodes, len(inputs)).verdict == "equal"


def test_where_the_sources_of_onnx_disagree_is_no_fault():
    """onnxruntime leaves out the 1e-9 of a normalisation, bounds an infinity where ``Clip`` has no
    bound and where a window has no finite number (``coverage.DISAGREE``)."""
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from core_compiler.frontends.onnx import import_proto
    from tests.frontends.onnx_models import one_node

    x = TAME.reshape(1, 4, 3, 2)
    proto = one_node("MeanVarianceNormalization", {"x": x}, "y", opset=13, axes=[3])
    found = compared(import_proto(proto, inputs={"x": x}), x)
    assert found.verdict in ("equal", "within") and found.tried == 0
    proto = one_node("Clip", {"x": TAME, "low": np.float32(0.5)}, "y", opset=13)
    made = import_proto(proto, inputs={"x": TAME, "low": np.float32(0.5)})
    found = compare(made.module, [TAME, np.float32(0.5)], made.nodes, 2)
    assert (found.verdict, found.tried) == ("equal", 1)
    x = TAME.reshape(1, 1, 4, 6)
    proto = one_node("MaxPool", {"x": x}, "y", opset=13, kernel_shape=[2, 3])
    found = compared(import_proto(proto, inputs={"x": x}), x)
    assert (found.verdict, found.tried) == ("equal", 1)


def test_a_count_of_elements_keeps_its_value():
    """What a framework would count is a tensor of our own choice."""
    onnx = pytest.importorskip("onnx", reason="the model is ONNX's")
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from core_compiler.frontends.onnx import import_proto

    node, kind = onnx.helper.make_node, onnx.TensorProto
    graph = onnx.helper.make_graph(
        [node("NonZero", ["x"], ["places"]), node("Shape", ["places"], ["count"], start=1)],
        "counted",
        [onnx.helper.make_tensor_value_info("x", kind.FLOAT, TAME.shape)],
        [onnx.helper.make_tensor_value_info("count", kind.INT64, [1])],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    x = TAME * (TAME > 0.5)
    assert compared(import_proto(proto, inputs={"x": x}), x).verdict == "equal"


def test_a_jax_model_is_tried_op_by_op(monkeypatch):
    jax = pytest.importorskip("jax", reason="the model is JAX's")
    from core_compiler.frontends.stablehlo.jax import import_function
    from core_compiler.frontends.stablehlo.table import TABLE

    def model(x):
        y = jax.numpy.clip(x, -2.0, 2.0)
        q = jax.numpy.linalg.cholesky(y.T @ y + 4 * jax.numpy.eye(6))
        return jax.numpy.where(y > 0.5, y, jax.numpy.round(y)), q.sum()

    found = import_function(model, (TAME,))
    result = compared(found, TAME)
    assert result.verdict in ("equal", "within") and result.tried >= 5, result.beyond
    monkeypatch.setitem(TABLE, "stablehlo.minimum", lambda b, x, y: b.select(b.gt(x, y), y, x))
    result = compared(import_function(model, (TAME,)), TAME)
    assert result.beyond is not None and result.beyond.node.startswith("minimum")
    assert "NaN and infinities" in result.beyond.judgement.note
