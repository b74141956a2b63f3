"""ONNX sequences of tensors: taken apart at import, with onnxruntime as the oracle."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from core_compiler.debug.evaluate import Evaluator
from core_compiler.frontends.onnx import import_proto
from core_compiler.support.errors import UserError

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741
X = np.arange(24, dtype=np.float32).reshape(4, 6)
NUMBERS = {"0": 0, "1": 1, "2": 2, "-1": -1, "4": 4, "9": 9}


def _node(kind: str, inputs: str, outputs: str, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def _model(nodes, outputs=(("y", F),), inputs=(("x", F, (4, 6)),), **arrays):
    held = [numpy_helper.from_array(np.array(n, np.int64), name) for name, n in NUMBERS.items()]
    held += [numpy_helper.from_array(np.array(a), name) for name, a in arrays.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _agrees(model: onnx.ModelProto) -> None:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    module = import_proto(model, inputs={"x": X}).module
    made = Evaluator(module.weights).block(module.main.body, [X])
    for ours, theirs in zip(made, session.run(None, {"x": X}), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [
        ("2", {}),  # parts of two
        ("4", {"axis": 1}),  # the last part is smaller
        ("parts", {"axis": -1}),
        ("", {"axis": 1}),  # one by one
        ("", {"axis": 1, "keepdims": 0}),
    ],
)
def test_split_to_sequence(sizes: str, attributes: dict) -> None:
    nodes = [
        _node("SplitToSequence", f"x {sizes}", "s", **attributes),
        _node("SequenceAt", "s 1", "y"),
        _node("SequenceAt", "s -1", "z"),
        _node("SequenceLength", "s", "n"),
    ]
    parts = np.array([1, 3, 2], np.int64)
    _agrees(_model(nodes, [("y", F), ("z", F), ("n", I)], parts=parts))


def test_construct_insert_erase_and_join() -> None:
    nodes = [
        _node("Neg", "x", "m"),
        _node("Exp", "x", "e"),
        _node("SequenceConstruct", "x m", "a"),
        _node("SequenceInsert", "a e 1", "b"),  # x e m
        _node("SequenceInsert", "b m", "c"),  # x e m m
        _node("SequenceErase", "c -1", "d"),  # x e m
        _node("SequenceErase", "d 0", "f"),  # e m
        _node("Identity", "f", "g"),
        _node("ConcatFromSequence", "g", "y", axis=1),
        _node("ConcatFromSequence", "g", "z", axis=-1, new_axis=1),
    ]
    model = _model(nodes, [("y", F), ("z", F)])
    module = import_proto(model, inputs={"x": X}).module
    made = Evaluator(module.weights).block(module.main.body, [X])
    wanted = [np.exp(X.astype(np.float64)), -X]
    np.testing.assert_allclose(made[0], np.concatenate(wanted, 1), rtol=1e-6)
    np.testing.assert_allclose(made[1], np.stack(wanted, -1), rtol=1e-6)


def test_a_loop_that_gathers_into_a_sequence_is_unrolled() -> None:
    body = helper.make_graph(
        [
            _node("Identity", "go", "on"),
            _node("Cast", "i", "f", to=F),
            _node("Mul", "x f", "t"),
            _node("SequenceInsert", "s t", "grown"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", I, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_sequence_value_info("s", F, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_sequence_value_info("grown", F, None),
        ],
    )
    nodes = [
        _node("SequenceEmpty", "", "empty", dtype=F),
        _node("Loop", "4 true empty", "all", body=body),
        _node("ConcatFromSequence", "all", "y", axis=0),
    ]
    _agrees(_model(nodes, true=np.array(True)))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [_node("SequenceConstruct", "x x", "s"), _node("SequenceAt", "s 9", "y")],
            "SequenceAt .position 9 of a sequence of length 2",
        ),
        (
            [_node("SplitToSequence", "x 2", "s"), _node("Neg", "s", "y")],
            "Neg .an input is a sequence of tensors",
        ),
        ([_node("SequenceAt", "x 0", "y")], "SequenceAt .expected a sequence, got a tensor"),
        (
            [_node("SplitToSequence", "x parts", "s"), _node("SequenceAt", "s 0", "y")],
            r"SplitToSequence .parts of lengths \[1, 3, 2\] of an axis of size 4",
        ),
        (
            [_node("SequenceEmpty", "", "s"), _node("ConcatFromSequence", "s", "y", axis=0)],
            "ConcatFromSequence .joining an empty sequence",
        ),
    ],
)
def test_what_a_sequence_cannot_do_is_said(nodes, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        import_proto(_model(nodes, parts=np.array([1, 3, 2], np.int64)), inputs={"x": X})
    assert "\n" not in str(caught.value)


def test_sequences_and_optional_values_cross_the_boundary_as_tensors() -> None:
    """Each tensor of a sequence is an argument or a result of its own."""
    some, none = (helper.make_tensor_sequence_value_info(n, F, None) for n in ("some", "result"))
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F, None))
    model = _model(
        [
            _node("SequenceInsert", "some x 0", "result"),
            _node("OptionalHasElement", "left", "has"),
            _node("SequenceEmpty", "", "empty"),
        ],
        outputs=[("has", TensorProto.BOOL)],
    )
    model.graph.input.extend([some, helper.make_value_info("left", kind)])
    model.graph.output.extend([none, helper.make_tensor_sequence_value_info("empty", F, None)])
    given = {"x": X, "some": [X[:1], X[:2, :2]], "left": None}
    imported = import_proto(model, inputs=given)
    assert imported.inputs == ("x", "some[0]", "some[1]")
    assert imported.outputs == ("has", "result[0]", "result[1]", "result[2]")
    assert imported.facts["sequences"] == {"result": 3, "empty": 0}
    module = imported.module
    has, *made = Evaluator(module.weights).block(module.main.body, [X, *given["some"]])
    assert not has
    for mine, wanted in zip(made, [X, *given["some"]], strict=True):
        np.testing.assert_array_equal(mine, wanted)
    given["left"] = X
    assert "left" in import_proto(model, inputs=given).inputs


def test_a_position_that_is_data_is_refused() -> None:
    nodes = [_node("SplitToSequence", "x 1", "s"), _node("SequenceAt", "s p", "y")]
    model = _model(nodes, inputs=[("x", F, (4, 6)), ("p", I, ())])
    with pytest.raises(UserError, match="the position depends on the values of the model's inputs"):
        import_proto(model)
