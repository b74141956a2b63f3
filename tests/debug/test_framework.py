"""The import's values beside the framework's: what is right is near, what is wrong is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core_compiler.debug.framework import compare

torch: Any = pytest.importorskip("torch", reason="the models are torch's")


class Forms(torch.nn.Module):
    """In-place ops, nodes with several results, a node that is given on as it is, integers."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 8)
        self.drop = torch.nn.Dropout()

    def forward(self, x):
        y = self.drop(self.layer(x))
        y = y.add_(1.0).relu_()
        left, right = y.split(4, dim=1)
        values, places = torch.topk(left * torch.tanh(right), 2)
        return values, torch.nn.functional.gelu(y) + places.sum()


X = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)


def imported(module=Forms, x=X):
    from core_compiler.frontends.pytorch import import_module

    torch.manual_seed(0)
    return import_module(module().eval(), (torch.from_numpy(x),))


def compared(found, x=X, of=None):
    own = len(found.module.main.arguments) - len(found.state)
    inputs = [x, *found.state]
    return compare(found.module, inputs, (of or found).nodes, own, (of or found).module)


def test_every_node_of_a_torch_model_is_near_its_value():
    found = imported()
    result = compared(found)
    nodes = {r.node for r in result.records}
    for kind in ("linear", "add", "relu", "split", "topk", "tanh", "gelu"):
        assert any(node.startswith(kind) for node in nodes), kind
    assert max(r.error for r in result.records) < 1e-5
    assert len({r.value for r in result.records}) == len(result.records)
    topk = [r for r in result.records if r.node == "topk"]
    assert [r.value.type.dtype.name for r in topk] == ["f32", "i64"] and topk[1].same
    for record in result.records:
        assert record.framework == "torch"
        if not record.same:
            assert record.theirs == pytest.approx(record.ours, rel=1e-3, abs=1e-6)
            assert len(record.index) == len(record.value.type.shape)


def test_values_of_another_import_of_the_same_model_are_found():
    """As when the import came from a cache and the framework is imported only to compare."""
    first, second = imported(), imported()
    result = compared(first, of=second)
    mine = {v for op in first.module.main.body.ops for v in op.results}
    assert result.records and all(r.value in mine for r in result.records)
    other = imported(torch.nn.Tanh)
    with pytest.raises(ValueError, match="of different models"):
        compared(first, of=other)


def test_the_first_node_that_is_far_off_is_the_one_with_the_wrong_translation(monkeypatch):
    from core_compiler.frontends.pytorch.aten import table

    right = table.TABLE["tanh"]
    monkeypatch.setitem(table.TABLE, "tanh", lambda context, x: right(context, right(context, x)))
    far = [r.node for r in compared(imported()).records if r.error > 1e-3]
    assert far[0] == "tanh" and "relu" not in far


def test_state_is_what_it_is_at_first():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.full((5, 6), 2.0))

        def forward(self, x):
            self.seen.add_(x)
            return self.seen * 2

    found = imported(Counts)
    assert len(found.state) == 1
    result = compared(found)
    assert result.records and all(r.same for r in result.records)


def test_every_tensor_of_an_onnx_model_is_near_its_value(tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    onnx = pytest.importorskip("onnx", reason="the model is an ONNX file")
    from core_compiler.frontends.onnx import import_file

    weights = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    graph = onnx.parser.parse_graph(
        "g (float[5,6] x) => (float[5,8] z, int64[5,1] k) "
        "{ y = MatMul(x, w) r = Relu(y) k = ArgMax<axis=1>(r) z = Softmax<axis=1>(r) }"
    )
    graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    found = import_file(path)
    result = compared(found)
    assert [r.node for r in result.records] == ["y", "r", "k", "z"]
    assert {r.framework for r in result.records} == {"onnxruntime"}
    assert max(r.error for r in result.records) < 1e-5 and result.left_out == 0
