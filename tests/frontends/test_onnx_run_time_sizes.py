"""Sizes that depend on data: one import answers for every input, as onnxruntime does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import core_compiler as cc
from core_compiler.frontends.onnx import import_proto
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.frontends.onnx_models import F, I, execute, model_of, onnxruntimes

B = TensorProto.BOOL
ROWS, COLUMNS = 6, 4
NUMBERS = {
    "0": [0],
    "1": [1],
    "2": [2],
    "shape": [-1, 2, 2],
    "k": [2],
    "axis0": 0,
    "-1": [-1],
    "-4": [-4],
}

#: What is done with ``c``, the rows of x (6, 4) that a mask keeps, and ``d``, those of another.
CASES = {
    "elementwise": "Neg c a; Mul a,c y",
    "where": "Greater c,x0 b; Where b,c,x0 y",
    "softmax over rows": "Softmax c y axis=0",
    "softmax in a row": "Softmax c y axis=1",
    "sum": "ReduceSum c,0 y keepdims=0",
    "sum that keeps its axis": "ReduceSum c,0 y keepdims=1",
    "mean": "ReduceMean c,0 y keepdims=0",
    "mean of all": "ReduceMean c y keepdims=0",
    "largest": "ReduceMax c,0 y keepdims=0",
    "smallest in a row": "ReduceMin c,1 y keepdims=1",
    "place of the largest": "ArgMax c i axis=0,keepdims=0; Cast i y to=1",
    "transposed": "Transpose c y perm=[1,0]",
    "product": "MatMul c,w y",
    "product over what counts": "Transpose c t perm=[1,0]; MatMul t,c y",
    "joined": "Concat c,x,c y axis=0",
    "joined with another": "Concat d,c y axis=0",
    "joined and summed": "Concat d,c a axis=0; ReduceSum a,0 y keepdims=0",
    "side by side": "Concat c,c y axis=1",
    "one more axis": "Unsqueeze c,1 y",
    "split columns": "Reshape c,shape y",
    "shape": "Shape c s; Cast s y to=1",
    "size": "Size c s; Cast s y to=1",
    "scan": "CumSum c,axis0 y",
    "the first": "Slice c,0,2,0 y",
    "all but the last": "Slice c,0,-1,0 y",
    "all but more than there may be": "Slice c,0,-4,0 y",
    "columns": "Slice c,1,2,1 y",
    "largest ones": "TopK c,k y,i axis=0",
    "rows by places": "Squeeze n,0 p; Gather w6,p y axis=0",
    "selected again": "ReduceMax c,1 m keepdims=0; Greater m,half h; Compress c,h y axis=0",
}


def _attribute(text: str):
    name, _, value = text.partition("=")
    return name, [int(v) for v in value[1:-1].split(",")] if value[0] == "[" else int(value)


def _model(text: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Compress", ["x", "mask"], ["c"], axis=0),
        helper.make_node("Compress", ["x", "other"], ["d"], axis=0),
        helper.make_node("NonZero", ["mask"], ["n"]),
        helper.make_node("Slice", ["x", "0", "1", "0"], ["x0"]),
    ]
    for line in text.split("; "):
        kind, inputs, outputs, *more = line.split(" ")
        attributes = dict(
            map(
                _attribute,
                more[0].replace("],", "];").split(",") if more and "[" not in more[0] else more,
            )
        )
        nodes.append(helper.make_node(kind, inputs.split(","), outputs.split(","), **attributes))
    rng = np.random.default_rng(0)
    held = {n: np.array(v, np.int64) for n, v in NUMBERS.items()}
    held |= {
        "w": rng.standard_normal((COLUMNS, 3)).astype(np.float32),
        "w6": rng.standard_normal((ROWS, 5)).astype(np.float32),
        "half": np.float32(0.5).reshape(()),
    }
    infos = [("x", F, [ROWS, COLUMNS]), ("mask", B, [ROWS]), ("other", B, [ROWS])]
    return model_of(
        nodes, infos, [("y", F, None)], [numpy_helper.from_array(v, n) for n, v in held.items()]
    )


def _arrays(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask, other = (rng.random(ROWS) < rng.random() for _ in range(2))
    mask[rng.integers(ROWS)] = other[rng.integers(ROWS)] = True
    mask[:2] = True  # two rows for the largest two
    x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    x[:2, 0] = 3  # and one that is selected again
    x[~mask & ~other] = np.nan  # what does not count must not be seen
    return {"x": x, "mask": mask, "other": other}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_one_import_answers_for_every_input(name):
    proto = _model(CASES[name])
    imported = import_proto(proto)
    for seed in range(12):
        arrays = _arrays(seed)
        (made,) = imported.trimmed(execute(imported, [arrays[n] for n in imported.inputs]))
        (wanted,) = onnxruntimes(proto, arrays)
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def test_a_compiled_model_gives_results_of_the_sizes_that_the_data_make():
    proto = _model(CASES["joined with another"])
    made = cc.compile(proto)
    names = [info.name for info in proto.graph.input]
    for seed in range(4):
        arrays = _arrays(seed)
        (mine,) = made(*(arrays[n] for n in names))
        np.testing.assert_array_equal(mine, onnxruntimes(proto, arrays)[0])


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([None, 0, 1]))
def test_unique_is_onnxruntimes(seed, in_order, axis):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (5, 3)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node(
        "Unique", ["x"], ["y", "i", "r", "n"], sorted=int(in_order), **attributes
    )
    outputs = [("y", F, None), *((n, I, None) for n in "irn")]
    proto = model_of([node], [("x", F, [5, 3])], outputs)
    imported = import_proto(proto)
    made = imported.trimmed(execute(imported, [x]))
    for mine, wanted in zip(made, onnxruntimes(proto, {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.integers(0, 6))
def test_the_best_boxes_are_onnxruntimes(seed, centre, threshold, most):
    rng = np.random.default_rng(seed)
    arrays = {
        "boxes": rng.integers(0, 6, (2, 7, 4)).astype(np.float32),
        "scores": rng.integers(0, 5, (2, 3, 7)).astype(np.float32) / 4,
        "least": np.float32(0.3).reshape(1),
    }
    inputs = ["boxes", "scores", "most", "overlap", *(["least"] if threshold else [])]
    node = helper.make_node("NonMaxSuppression", inputs, ["y"], center_point_box=int(centre))
    infos = [(n, F, list(a.shape)) for n, a in arrays.items() if n in inputs]
    held = [
        numpy_helper.from_array(np.array([most], np.int64), "most"),
        numpy_helper.from_array(np.array([0.4], np.float32), "overlap"),
    ]
    proto = model_of([node], infos, [("y", I, None)], held)
    arrays = {n: arrays[n] for n, _, _ in infos}
    imported = import_proto(proto)
    (made,) = imported.trimmed(execute(imported, [arrays[n] for n in imported.inputs]))
    np.testing.assert_array_equal(made, onnxruntimes(proto, arrays)[0])


@pytest.mark.slow
def test_the_best_boxes_are_found_by_machine_code():
    """A loop that ends when no box is left; compiled for one input, right for others."""
    rng = np.random.default_rng(1)
    held = [
        numpy_helper.from_array(np.array([4], np.int64), "most"),
        numpy_helper.from_array(np.array([0.3], np.float32), "overlap"),
    ]
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["y"])
    infos = [("boxes", F, [1, 20, 4]), ("scores", F, [1, 2, 20])]
    proto = model_of([node], infos, [("y", I, None)], held)

    def example():
        corner, size = rng.uniform(0, 1, (1, 20, 2)), rng.uniform(0.1, 0.5, (1, 20, 2))
        boxes = np.concatenate([corner, corner + size], 2).astype(np.float32)
        return boxes, rng.uniform(0, 1, (1, 2, 20)).astype(np.float32)

    made = cc.compile(proto, example(), check=True)
    for boxes, scores in (example(), example()):
        wanted = onnxruntimes(proto, {"boxes": boxes, "scores": scores})[0]
        (found,) = made(boxes, scores)
        np.testing.assert_array_equal(found, wanted)


def test_what_has_no_form_is_refused_in_words():
    for text, reason in (
        ("LayerNormalization c,c y axis=0", "normalises over an axis, whose size depends on data"),
        ("Split c a,b axis=0; Identity a y", "Split .an input's size depends"),
        ("Slice c,1,2,0 y", "core.slice slices axis 0"),
        ("Flatten c y axis=0", "Flatten .an input's size depends"),
        ("Expand c,shape y", "depends on"),
        ("Add c,d y", "core.add joins two tensors along axis 0, whose size depends on data"),
    ):
        with pytest.raises(UserError, match=reason):
            import_proto(_model(text))
