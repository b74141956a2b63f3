"""TensorFlow functions and SavedModels: values beside TensorFlow, names, lines, refusals."""

from __future__ import annotations

import os

import numpy as np
import pytest

from core_compiler.support.errors import UserError
from tests.conformance.outcomes import by_cpu, by_reference

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("tensorflow", reason="needs tensorflow (no part of the test extra: 0.3 GB)")
pytest.importorskip("jax", reason="StableHLO is read by jaxlib")

import tensorflow as tf

import core_compiler as cc
from core_compiler.frontends.tensorflow import import_function, on_arrays, read_saved_model

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
IMAGES = RNG.standard_normal((2, 9, 9, 3)).astype(np.float32)


class Dense(tf.Module):
    def __init__(self):
        self.w = tf.Variable(RNG.standard_normal((4, 5)).astype("f"), name="w")
        self.b = tf.Variable(RNG.standard_normal(5).astype("f"), name="b")

    @tf.function
    def __call__(self, x):
        with tf.name_scope("dense"):
            h = tf.nn.relu(x @ self.w + self.b)
        return {"y": tf.nn.softmax(h), "s": tf.reduce_sum(h)}


DENSE = Dense()
FILTERS = tf.constant(RNG.standard_normal((3, 3, 3, 6)).astype("f"))
FUNCTIONS = {
    "dense": (DENSE.__call__, X),
    "images": (
        lambda x: tf.nn.max_pool2d(tf.nn.conv2d(x, FILTERS, 2, "SAME"), 2, 2, "SAME"),
        IMAGES,
    ),
    "average": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), IMAGES),
    "while": (
        lambda x: tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 1.1), (0, x))[1],
        X,
    ),
    "gather": (lambda x: tf.gather(x, [2, 0, 2]), X),
    "top": (lambda x: tf.math.top_k(x, 2), X),
    "cumulative": (lambda x: tf.cumsum(x, 1, exclusive=True), X),
    "einsum": (lambda x: tf.einsum("ij,kj->ik", x, x), X),
    "strided": (lambda x: x[:, ::-2] + tf.one_hot([1, 0, 1], 2), X),
    "resize": (lambda x: tf.image.resize(x, (5, 7)), IMAGES),
}


@pytest.mark.parametrize("execute", [by_reference, pytest.param(by_cpu, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_agrees_with_tensorflow(name, execute):
    function, x = FUNCTIONS[name]
    made = execute(import_function(function, [x]), [x])
    wanted = on_arrays(function)(x)
    assert len(made) == len(wanted)
    for ours, theirs in zip(made, wanted, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_names_lines_and_scopes():
    imported = import_function(DENSE.__call__, [X])
    assert (imported.inputs, imported.outputs) == (("x",), ("s", "y"))
    named = [op.results[0].name for op in imported.module.walk() if op.kind == "core.constant"]
    assert {"w", "b"} <= set(named)
    (product,) = [op for op in imported.module.walk() if op.kind == "core.contract"]
    node = product.origin.nodes()[0]
    assert node.scope == "dense" and node.file == __file__
    with open(__file__) as own:
        assert "x @ self.w" in own.readlines()[node.line - 1]


def test_a_saved_model_by_its_folder(tmp_path):
    held = Dense()
    spec = tf.TensorSpec((None, 4), name="x")
    tf.saved_model.save(held, tmp_path, signatures=held.__call__.get_concrete_function(spec))
    wanted = on_arrays(held)(X)
    for ours, theirs in zip(cc.compile(tmp_path, (X,))(X), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="unknown signature 'other'"):
        read_saved_model(tmp_path, "other")
    (tmp_path / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(UserError, match="tensorflow cannot read it"):
        read_saved_model(tmp_path)


def test_refusals_are_one_line():
    for function, says in (
        (lambda x: tf.strings.as_string(x), "XLA cannot compile it"),
        (lambda x: x.no_such_thing, "tensorflow cannot trace it: AttributeError"),
    ):
        with pytest.raises(UserError, match=says) as caught:
            import_function(function, [X])
        assert caught.value.what.count("\n") == 0 and caught.value.fix
