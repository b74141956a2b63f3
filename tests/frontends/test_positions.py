"""Positions out of range: a call of a model is refused where its own framework refuses it, and the
error names the input, the element and the line of the model."""

from __future__ import annotations

import json
import linecache
import pickle
import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort
from torch import nn
from torch.nn import functional as F

import core_compiler as cc
from core_compiler.frontends.onnx import import_proto
from core_compiler.frontends.pytorch import import_module
from core_compiler.ops.positions import Positions
from core_compiler.support.errors import UserError
from core_compiler.training.fit import fit
from core_compiler.training.graph.losses import Own


class Words(nn.Module):
    """A language model with its loss: positions are looked up, targets are shifted by one."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, ids, labels):
        logits = self.out(self.words(ids))
        return F.cross_entropy(logits[:, :-1].reshape(-1, 50), labels[:, 1:].reshape(-1))


def _words(rows=4):
    ids = np.random.default_rng(0).integers(0, 50, (rows, 6))
    labels = ids.copy()
    labels[0, 1] = -100
    return ids, labels


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Words()


@pytest.fixture(scope="module")
def compiled(model):
    return cc.compile(model, _words())


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("which", "at", "value", "said"),
    [
        (0, (1, 2), 50, "50 at [1, 2] of input ids is out of range for aten.embedding (size 50)"),
        (0, (3, 5), -1, "-1 at [3, 5] of input ids is out of range for aten.embedding (size 50)"),
        (1, (2, 3), 50, "(size 50)"),
        (1, (2, 3), -3, "(size 50)"),
    ],
)
def test_what_torch_refuses_is_refused(which, at, value, said, model, compiled):
    batch = _words()
    compiled(*batch)
    batch[which][at] = value
    with pytest.raises(IndexError):
        model(*map(torch.from_numpy, batch))
    with pytest.raises(UserError) as refused:
        compiled(*batch)
    assert said in refused.value.what and "indices from 0 to 49" in refused.value.fix
    line = int(re.search(r"test_positions\.py:(\d+)$", refused.value.where)[1])
    text = linecache.getline(__file__, line)
    assert ("self.words(ids)" if which == 0 else "F.cross_entropy") in text


def test_what_the_loss_does_not_read_may_be_anything(model, compiled):
    """The first labels are shifted away, and -100 is what torch ignores."""
    batch = _words()
    batch[1][:, 0] = 99
    batch[1][2, 3] = -100
    (loss,) = compiled(*batch)
    assert loss == pytest.approx(model(*map(torch.from_numpy, batch)).item(), rel=1e-6)


class Indexed(nn.Module):
    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, x, i, j):
        return self.read(x, i, j)


READS = {
    "index": lambda x, i, j: x[i, j],
    "index-last": lambda x, i, j: x[:, j],
    "index-computed": lambda x, i, j: x[i - 1],
    "gather": lambda x, i, j: x.gather(0, i[:, None].expand(3, 5)),
    "index_select": lambda x, i, j: torch.index_select(x, 1, j),
    "one_hot": lambda x, i, j: torch.nn.functional.one_hot(i, 4),
    "take": lambda x, i, j: torch.take(x, i * 5 + j),
    "index_put": lambda x, i, j: x.index_put((i, j), x[:3, 0]),
    "scatter_add": lambda x, i, j: x.scatter_add(1, j[:, None], x[:3, :1]),
    "index_fill": lambda x, i, j: x.index_fill(1, j, 0.0),
    "narrow": lambda x, i, j: x[torch.where(i < 3, i, 0)],
    "clamped": lambda x, i, j: x[i.clamp(0, 3)],
    "in a branch": lambda x, i, j: torch.cond(
        (i.max() < 4) & (i.min() >= 0), lambda x, i: x[i], lambda x, i: x[:3] * 2, (x, i)
    ),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", READS)
def test_every_position_is_judged_as_torch_judges_it(name):
    model = Indexed(READS[name])
    x = torch.arange(20.0).reshape(4, 5)
    first = x, torch.tensor([0, 2, 3]), torch.tensor([4, 0, 1])
    made = cc.compile(model, first)
    for i, j in (
        ([0, 2, 3], [4, 0, 1]),
        ([0, 4, 3], [4, 0, 1]),
        ([0, 2, 3], [4, 5, 1]),
        ([-4, 2, 3], [4, -5, 1]),
        ([-5, 2, 3], [4, 0, 1]),
        ([0, 2, 3], [4, 0, -6]),
    ):
        batch = x, torch.tensor(i), torch.tensor(j)
        try:
            wanted = model(*batch)
        except (IndexError, RuntimeError):
            with pytest.raises(UserError, match="is out of range for"):
                made(*batch)
        else:
            assert np.array_equal(made(*batch)[0], wanted.numpy())


REFUSED = (ort.InvalidArgument, ort.Fail)


def _graph(kind: str, *, others=(), **attributes):
    """x (4, 5) read, or written to, at ``i`` by a node of ONNX."""
    shape = {"GatherND": [3, 2], "ScatterND": [3, 2], "Gather": [3]}.get(kind, [3, 5])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5]),
        helper.make_tensor_value_info("i", TensorProto.INT64, shape),
    ]
    stored = []
    if "Scatter" in kind:
        updates = np.ones([3] if kind == "ScatterND" else shape, np.float32)
        stored.append(onnx.numpy_helper.from_array(updates, "updates"))
    names = ["x", "i", *(t.name for t in stored)]
    node = helper.make_node(kind, names, ["y"], name="reads", **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [result], stored)
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9), shape


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "kind", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]
)
def test_what_onnxruntime_refuses_is_refused(kind):
    model, shape = _graph(kind)
    made = cc.compile(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x, first = np.arange(20, dtype=np.float32).reshape(4, 5), np.zeros(shape, np.int64)
    seen = set()
    for value in (-5, -4, -1, 3, 4, 7):
        i = first.copy()
        i[(2,) + (0,) * (len(shape) - 1)] = value
        try:
            wanted = session.run(None, {"x": x, "i": i})[0]
        except REFUSED:
            said = rf"index {value} at \[2.*of input i .*for {kind} \(size 4\)"
            with pytest.raises(UserError, match=said):
                made(x, i)
            seen.add("refused")
        else:
            assert np.array_equal(made(x, i)[0], wanted)
            seen.add("done")
    assert seen == {"refused", "done"}


def test_targets_of_a_loss_of_onnx_may_be_what_it_ignores():
    node = helper.make_node(
        "SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], ignore_index=-1, reduction="mean"
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5]),
            helper.make_tensor_value_info("t", TensorProto.INT64, [3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    made = cc.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    )
    x = np.eye(3, 5, dtype=np.float32)
    wanted = F.cross_entropy(torch.from_numpy(x), torch.tensor([0, -1, 4]), ignore_index=-1)
    assert made(x, np.array([0, -1, 4]))[0] == pytest.approx(wanted.item(), rel=1e-6)
    with pytest.raises(UserError, match=r"index 5 at \[2\] of input t.*to 4, or -1, which"):
        made(x, np.array([0, -1, 5]))


def test_a_run_without_positions_of_inputs_checks_nothing(model):
    assert import_module(nn.Linear(3, 2), [torch.zeros(1, 3)]).positions is None
    fixed = Indexed(lambda x, i, j: x[torch.tensor([0, 2])])
    given = [torch.zeros(4, 5), torch.zeros(3, dtype=torch.int64), torch.zeros(3)]
    assert import_module(fixed, given).positions is None


def test_what_is_checked_is_plain_data(model):
    held = import_module(model, [torch.from_numpy(a) for a in _words()]).positions
    assert held is not None
    assert pickle.loads(pickle.dumps(held)) == held
    assert Positions.from_json(json.loads(json.dumps(held.to_json()))) == held


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_batch_with_an_unknown_word_changes_no_state(model, workers, tmp_path):
    """The row is the one of the whole batch, whichever shard has it."""
    step = cc.compile(
        model, _words(), training=cc.Training(loss=Own(), optimizer="adamw", shards=2)
    )
    ids, labels = _words(8)
    ids[7, 3] = 61
    digest = step.digest
    with pytest.raises(UserError, match=r"index 61 at \[3, 3\] of input ids"):
        step(ids[4:], labels[4:])
    assert (step.digest, step.iteration) == (digest, 0)
    with pytest.raises(UserError, match=r"index 61 at \[\d, 3\] of input ids"):
        fit(step, (ids, labels), iterations=4, batch=4, seed=0, workers=workers, folder=tmp_path)
    assert step.iteration < 2


def test_the_graph_of_an_onnx_model_is_checked_as_its_import():
    model, shape = _graph("Gather")
    made = cc.compile(model, frontend="onnx-passes")
    x = np.zeros((4, 5), np.float32)
    made(x, np.zeros(shape, np.int64))
    with pytest.raises(UserError, match=r"index 4 at \[0\] of input i"):
        made(x, np.array([4, 0, 0]))
    assert import_proto(model).positions is not None


def _takes(kind: str, second: str, shape: list[int]):
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3]),
        helper.make_tensor_value_info(second, TensorProto.INT64, shape),
    ]
    node = helper.make_node(kind, ["x", second], ["y"], name="asks")
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


@pytest.mark.parametrize(
    ("kind", "shape", "first", "second"),
    [("CumSum", [], 0, 1), ("Tile", [2], [1, 2], [2, 1]), ("Expand", [2], [4, 3], [1, 3])],
)
def test_values_that_were_compiled_in_are_held_against_a_calls(kind, shape, first, second):
    """Axes and shapes come from the example inputs."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    model = _takes(kind, "k", shape)
    made = cc.compile(model, [x, np.array(first)])
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    given = np.array(first)
    assert np.array_equal(made(x + 1, given)[0], session.run(None, {"x": x + 1, "k": given})[0])
    if kind == "Expand":  # another value that means the same shape
        return
    with pytest.raises(UserError, match=f"{kind} asks was compiled for .* from input k, got"):
        made(x, np.array(second))


def test_the_branch_that_was_compiled_in_is_held_against_a_calls():
    """Its condition is computed again: other numbers with the same answer are welcome."""
    empty = helper.make_empty_tensor_value_info
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "t", [], [empty("a")])
    part = helper.make_node("Slice", ["x", "s", "e"], ["z"])
    other = helper.make_graph([part], "e", [], [empty("z")])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["q"], keepdims=0),
        helper.make_node("Greater", ["q", "zero"], ["b"]),
        helper.make_node("If", ["b"], ["y"], then_branch=then, else_branch=other),
    ]
    stored = {"s": np.array([0]), "e": np.array([2]), "zero": np.float32(0)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [empty("y")],
        [onnx.numpy_helper.from_array(np.array(v), k) for k, v in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
    made = cc.compile(model, [x])
    assert made(x - 1)[0].shape == (2, 3)
    with pytest.raises(UserError, match="If was compiled for False from input x, got True"):
        made(x + 9)
