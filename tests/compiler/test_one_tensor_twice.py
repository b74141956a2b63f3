"""Ops that are always a kernel of their own, given one tensor in several operand places."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import core_compiler as cc
from tests.frontends.programs import Program

ROWS = torch.arange(8.0).reshape(4, 2)
TURN, PLACES, MORE = (
    torch.tensor([1, 2, 3, 0]),
    torch.tensor([1, 0, 0, 3]),
    torch.tensor([5, 6, 7, 8]),
)

CASES = {
    "index_copy": (lambda x, i: torch.index_copy(x, 0, i, x), (ROWS, TURN)),
    "index_copy of a computed": (
        lambda x, i: (lambda y: torch.index_copy(y, 0, i, y))(x * 2),
        (ROWS, TURN),
    ),
    "scatter_add at itself": (
        lambda i, u: (lambda y: torch.scatter_add(y, 0, y, u))(i + 0),
        (PLACES, MORE),
    ),
    "scatter_add, all one": (lambda i: torch.scatter_add(i, 0, i, i), (PLACES,)),
    "scatter": (lambda i, u: (lambda y: torch.scatter(y, 0, i, y))(u + 0), (PLACES, MORE)),
    "index_add": (lambda v, i: torch.index_add(v, 0, i, v), (ROWS, PLACES)),
    "index_put": (lambda y, i: y.index_put((i,), y), (ROWS, TURN)),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_result_is_torchs(name, threads):
    function, inputs = CASES[name]
    made = cc.compile(Program(function), inputs, check=True, threads=threads)
    assert not [r.note for stage in made.checks.values() for r in stage if r.verdict == "failed"]
    assert np.array_equal(made(*inputs)[0], function(*inputs).numpy())


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_the_result_is_onnxruntimes(reduction):
    node = helper.make_node("ScatterElements", ["t", "i", "t"], ["y"], reduction=reduction)
    inputs = [
        helper.make_tensor_value_info(n, k, [4])
        for n, k in (("t", TensorProto.FLOAT), ("i", TensorProto.INT64))
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([node], "g", inputs, [result])
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    t, i = np.array([3, 1, 4, 1], np.float32), np.array([1, 2, 3, 0])
    (found,) = cc.compile(model)(t, i)
    assert np.array_equal(found, session.run(None, {"t": t, "i": i})[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [1, 3, 33])
def test_checks_of_a_row_that_is_sorted_find_nothing(size):
    x = torch.linspace(-1, 1, size).flip(0).clone()
    for function in (torch.sort, torch.argsort, lambda x: torch.topk(x, (size + 1) // 2)):
        made = cc.compile(Program(function), (x,), check=True)
        assert not [r for s in made.checks.values() for r in s if r.verdict == "failed"]


def test_checks_of_a_long_row_whose_larger_half_is_taken_find_nothing():
    """Sizes are made smaller for a check: of what is taken no more than of the row."""
    x = torch.linspace(-1, 1, 400).reshape(2, 200)
    made = cc.compile(Program(lambda x: torch.topk(x, 150)), (x,), check=True)
    assert not [r for stage in made.checks.values() for r in stage if r.verdict == "failed"]
