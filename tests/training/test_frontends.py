"""Training models that did not come from PyTorch: as their own framework trains them."""

from __future__ import annotations

import io
import os
from functools import cache

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch.nn import functional

import core_compiler as cc
from core_compiler.frontends.keras import import_model
from core_compiler.frontends.onnx import import_proto
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.optimisers import optimizers
from sample_models.digits import DigitsCnn, digits
from tests.frontends.onnx_models import F, execute, model_of, one_node
from tests.slow import slow_but
from tests.training.helpers import Reference

os.environ.setdefault("KERAS_BACKEND", "jax")
ITERATIONS = 20
BATCH = 16
#: Ours, torch's and Keras' (by name, with its options).
OPTIMIZERS = {
    "sgd": (
        optimizers.SGD(0.05, momentum=0.9),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
        ("SGD", {"learning_rate": 0.05, "momentum": 0.9}),
    ),
    # Keras adds epsilon before the bias correction, torch and we after it: next to none of it.
    "adam": (
        optimizers.Adam(0.005, eps=1e-12),
        lambda p: torch.optim.Adam(p, 0.005, eps=1e-12),
        ("Adam", {"learning_rate": 0.005, "epsilon": 1e-12}),
    ),
}


@cache
def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    images, classes = (t.numpy() for t in digits())
    return [
        (images[rows : rows + BATCH].reshape(-1, 1, 8, 8), classes[rows : rows + BATCH])
        for rows in range(0, ITERATIONS * BATCH, BATCH)
    ]


def last(pixels: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))


def module() -> DigitsCnn:
    torch.manual_seed(0)
    return DigitsCnn(4, 3)


def exported(model: torch.nn.Module, **options) -> onnx.ModelProto:
    """As people export for inference, but that batch normalisations stay."""
    held = io.BytesIO()
    torch.onnx.export(
        model.eval(),
        (torch.from_numpy(batches()[0][0]),),
        held,
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        **options,
    )
    return onnx.load_from_string(held.getvalue())


@pytest.fixture(scope="module")
def keras():
    """Its import takes seconds: only in the process that runs these tests."""
    keras = pytest.importorskip("keras", reason="needs keras")
    if keras.config.backend() != "jax":
        pytest.skip("another backend of Keras is chosen")
    return keras


def digits_of(keras, dropout: float = 0.0):
    """The digits CNN of the samples as a Keras model."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    parts = [keras.Input((8, 8, 1))]
    for index, channels in enumerate((4, 8)):
        parts += [
            layers.Conv2D(channels, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
        ]
        parts += [layers.MaxPooling2D(2)] if index == 0 else []
    parts += [
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.GlobalAveragePooling2D(),
    ]
    parts += [layers.Dropout(dropout)] if dropout else []
    return keras.Sequential([*parts, layers.Dense(10)])


def torch_losses(optimizer: str) -> list[float]:
    model = module().train()
    theirs, losses = OPTIMIZERS[optimizer][1](model.parameters()), []
    for x, y in batches():
        theirs.zero_grad()
        loss = functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        theirs.step()
        losses.append(loss.item())
    return losses


def keras_losses(keras, model, optimizer: str, count: int = ITERATIONS) -> list[float]:
    name, options = OPTIMIZERS[optimizer][2]
    model.compile(
        optimizer=getattr(keras.optimizers, name)(**options),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return [float(model.train_on_batch(last(x), y)) for x, y in batches()[:count]]


# -- the digits CNN --


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_onnx_model_trains_as_the_module_it_came_from(optimizer):
    imported = import_proto(exported(module()), inputs=[batches()[0][0]], training=True)
    step = Reference.on(imported, Training(optimizer=OPTIMIZERS[optimizer][0]))
    names = {n for n in module().state_dict() if "num_batches" not in n}
    assert names <= step.places.keys()
    assert [step(*batch) for batch in batches()] == pytest.approx(torch_losses(optimizer), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_keras_model_trains_as_keras_does(keras, optimizer):
    model = digits_of(keras)
    imported = import_model(model, [last(batches()[0][0])], training=True)
    step = Reference.on(imported, Training(optimizer=OPTIMIZERS[optimizer][0]))
    ours = [step(last(x), y) for x, y in batches()]
    assert ours == pytest.approx(keras_losses(keras, model, optimizer), rel=1e-3)


@pytest.mark.slow
def test_variables_of_keras_move_as_its_own(keras):
    model = digits_of(keras)
    imported = import_model(model, [last(batches()[0][0])], training=True)
    step = Reference.on(imported, Training(optimizer=OPTIMIZERS["sgd"][0]))
    for x, y in batches()[:3]:
        step(last(x), y)
    before = {v.path: v.numpy() for v in model.variables}
    keras_losses(keras, model, "sgd", 3)
    assert len(before) == 14
    for variable in model.variables:
        assert not np.array_equal(before[variable.path], variable.numpy())
        np.testing.assert_allclose(step[variable.path], variable.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["onnx", "keras"])
def test_the_compiled_step_has_the_same_bits_over_threads_and_tilings(framework, keras):
    if framework == "onnx":
        model, given = exported(module()), batches()
    else:
        model = digits_of(keras, dropout=0.2)
        given = [(last(x), y) for x, y in batches()]
    training = Training(optimizer=OPTIMIZERS["adam"][0])
    found = {}
    for threads in (1, 2):
        for tiles in ("default", "small"):
            step = cc.compile(
                model, given[0], training=training, threads=threads, options={"tiles": tiles}
            )
            losses = [step(*batch) for batch in given]
            found[threads, tiles] = (step.digest, tuple(losses))
    assert len(set(found.values())) == 1
    if framework == "onnx":
        theirs = torch_losses("adam")
    else:  # whose masks are the same
        theirs = keras_losses(keras, digits_of(keras, dropout=0.2), "adam")
    assert losses == pytest.approx(theirs, rel=1e-3)


# -- batch normalisation of ONNX --

RNG = np.random.default_rng(3)
X = (2 * RNG.standard_normal((4, 3, 5, 5)) + 1).astype(np.float32)
AFFINE = {n: RNG.uniform(0.5, 2, 3).astype(np.float32) for n in ("scale", "bias", "mean", "var")}
NORM = ["x", "scale", "bias", "mean", "var"]


def norms(opset: int, outputs: str = "y", layers: int = 1, **attributes) -> onnx.ModelProto:
    """Batch normalisations one after another, with the same stored tensors."""
    nodes, x = [], "x"
    for layer in range(layers):
        made = [n if layer == layers - 1 else f"{n}{layer}" for n in outputs.split()]
        nodes.append(helper.make_node("BatchNormalization", [x, *NORM[1:]], made, **attributes))
        x = made[0]
    held = [onnx.numpy_helper.from_array(a, n) for n, a in AFFINE.items()]
    made = [(n, F, None) for n in outputs.split()]
    return model_of(nodes, [("x", F, X.shape)], made, opset=opset, initializers=held)


def by_onnx(x: np.ndarray, **attributes) -> list[np.ndarray]:
    """What ONNX's own reference makes of a batch normalisation that trains: y, mean, variance."""
    proto = one_node(
        "BatchNormalization", {"x": x, **AFFINE}, "y m v", opset=15, training_mode=1, **attributes
    )
    return ReferenceEvaluator(proto).run(None, {"x": x, **AFFINE})


@pytest.mark.parametrize(
    ("opset", "outputs", "more"),
    [
        (1, "y", {"is_test": 1}),
        (6, "y", {"is_test": 1}),
        (6, "y a b c d", {}),
        (7, "y", {}),
        (8, "y a b c d", {}),
        (9, "y", {}),
        (13, "y a b c d", {}),
        (14, "y", {}),
        (14, "y a b", {"training_mode": 1}),
        (15, "y", {"training_mode": 0}),
        (15, "y a b", {"training_mode": 1}),
        (20, "y", {}),
    ],
)
def test_batch_normalisation_of_every_version_goes_by_the_batch(opset, outputs, more):
    attributes = {"momentum": 0.7, "epsilon": 1e-3}
    imported = import_proto(norms(opset, outputs, **attributes, **more), training=True)
    wanted = by_onnx(X, **attributes)
    assert imported.inputs == ("x", "mean", "var", "seed", "iteration")
    made = execute(imported, [X, *imported.state])
    after = made[len(outputs.split()) :]
    for ours, theirs in zip((made[0], *after[:2]), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert after[3] == 1  # the iteration


def test_statistics_that_layers_share_move_once_for_each():
    imported = import_proto(norms(15, layers=2), training=True)
    made = execute(imported, [X, *imported.state])
    between, mean, _ = by_onnx(X)
    _, again, _ = by_onnx(between)
    both = 0.9 * mean + (again - 0.9 * AFFINE["mean"])
    np.testing.assert_allclose(made[1], both, rtol=1e-5, atol=1e-6)


def test_statistics_are_no_parameters_and_numbers_of_formulas_neither():
    nodes = [
        helper.make_node("BatchNormalization", NORM, ["a"]),
        helper.make_node("Mul", ["a", "half"], ["b"]),
        helper.make_node("Dropout", ["b", "ratio"], ["c"]),
        helper.make_node("Identity", ["scale"], ["slope"]),
        helper.make_node("Reshape", ["slope", "shape"], ["wide"]),
        helper.make_node("Mul", ["c", "wide"], ["y"]),
    ]
    stored = {
        **AFFINE,
        "half": np.float32(0.5),
        "ratio": np.float32(0.25),
        "shape": np.array([3, 1, 1]),
    }
    held = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()]
    proto = model_of(nodes, [("x", F, X.shape)], [("y", F, None)], initializers=held)
    step = Reference.on(import_proto(proto, training=True), Training("mse"))
    rows = {name: role for role, name, _ in step.roles.arguments}
    assert rows == {
        "x": "batch",
        "targets": "batch",
        "scale": "parameter",
        "bias": "parameter",
        "slope": "parameter",
        "mean": "buffer",
        "var": "buffer",
        "seed": "scalar",
        "iteration": "scalar",
    }


def test_a_weight_that_is_a_statistic_too_is_refused():
    node = helper.make_node("BatchNormalization", ["x", "scale", "bias", "bias", "var"], ["y"])
    held = [onnx.numpy_helper.from_array(a, n) for n, a in AFFINE.items()]
    proto = model_of([node], [("x", F, X.shape)], [("y", F, None)], initializers=held)
    import_proto(proto)
    with pytest.raises(UserError, match=r"bias is both a weight and a running statistic.*merged"):
        import_proto(proto, training=True)


def test_statistics_inside_a_branch_are_refused():
    inner = helper.make_graph(
        [helper.make_node("BatchNormalization", NORM, ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", F, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", F, None)],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)
    held = [onnx.numpy_helper.from_array(a, n) for n, a in AFFINE.items()]
    proto = model_of(
        [node],
        [("c", TensorProto.BOOL, []), ("x", F, X.shape)],
        [("y", F, None)],
        initializers=held,
    )
    import_proto(proto)
    with pytest.raises(UserError, match="running statistics that change inside a branch"):
        import_proto(proto, training=True)


# -- dropout of ONNX --


def drops(opset: int, ratio: float, mode: bool | None = None) -> onnx.ModelProto:
    if opset < 12:
        return one_node(
            "Dropout",
            {"x": X},
            "y mask",
            opset=opset,
            ratio=ratio,
            types={"mask": F if opset < 10 else TensorProto.BOOL},
        )
    names = ["x", "ratio"] + (["mode"] if mode is not None else [])
    held = [onnx.numpy_helper.from_array(np.float32(ratio), "ratio")]
    held += [onnx.numpy_helper.from_array(np.array(mode), "mode")] if mode is not None else []
    node = helper.make_node("Dropout", names, ["y", "mask"])
    return model_of(
        [node],
        [("x", F, X.shape)],
        [("y", F, None), ("mask", TensorProto.BOOL, None)],
        opset=opset,
        initializers=held,
    )


@pytest.mark.parametrize(
    ("opset", "mode"),
    [(6, None), (7, None), (10, None), (12, None), (12, False), (13, True), (22, True)],
)
def test_dropout_of_every_version_draws_as_that_of_pytorch_does(opset, mode):
    from core_compiler.frontends.pytorch import import_module

    imported = import_proto(drops(opset, 0.3, mode), training=True)
    torchs = import_module(torch.nn.Dropout(0.3).train(), [torch.from_numpy(X)], training=True)
    seen = []
    for seed, iteration in ((1, 0), (1, 1), (2, 0)):
        given = [X, np.int64(seed), np.int64(iteration)]
        y, mask, *after = execute(imported, given)
        assert y.tobytes() == execute(torchs, given)[0].tobytes()
        assert np.array_equal(mask != 0, y != 0) and 0.2 < np.mean(y == 0) < 0.4
        np.testing.assert_allclose(y[y != 0], (X / 0.7)[y != 0], rtol=1e-6)
        assert [int(a) for a in after] == [seed, iteration + 1]
        seen.append(y.tobytes())
    assert len(set(seen)) == 3


def test_a_ratio_of_0_drops_nothing():
    imported = import_proto(drops(13, 0.0), training=True)
    assert np.array_equal(execute(imported, [X, *imported.state])[0], X)


def test_random_ops_of_a_model_draw_anew_in_each_iteration():
    proto = one_node("RandomNormalLike", {"x": X}, "y", opset=18, seed=4.0)
    imported = import_proto(proto, training=True)
    one, two = (execute(imported, [X, np.int64(0), np.int64(i)])[0] for i in (0, 1))
    assert not np.array_equal(one, two)


# -- Keras --


@pytest.mark.slow
def test_masks_of_keras_are_its_own_and_seeds_are_carried(keras):
    model = digits_of(keras, dropout=0.3)
    imported = import_model(model, [last(batches()[0][0])], training=True)
    step = Reference.on(imported, Training(optimizer=optimizers.SGD(0.0)))
    (seed,) = (v for v in model.non_trainable_variables if "seed" in v.path)
    before = np.array(step[seed.path])
    theirs = keras_losses(keras, model, "sgd", 1)  # the first loss is of the weights as they were
    ours = [step(last(batches()[0][0]), batches()[0][1]) for _ in range(3)]
    assert ours[:1] == pytest.approx(theirs, rel=1e-5)
    assert len(set(ours)) == 3  # other masks each time
    assert step[seed.path][1] == before[1] + 3


@pytest.mark.slow
def test_frozen_layers_of_keras_stay_and_are_no_state(keras):
    model = digits_of(keras)
    frozen = model.layers[1]
    frozen.trainable = False
    imported = import_model(model, [last(batches()[0][0])], training=True)
    assert not [n for n in imported.inputs if frozen.name + "/" in n]
    step = Reference.on(imported, Training(optimizer=OPTIMIZERS["sgd"][0]))
    ours = [step(last(x), y) for x, y in batches()[:4]]
    assert ours == pytest.approx(keras_losses(keras, model, "sgd", 4), rel=1e-4)


@pytest.mark.slow
def test_what_keras_models_cannot_do_in_training_is_refused(keras, monkeypatch):
    regular = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, kernel_regularizer="l2")])
    x = np.zeros((3, 4), np.float32)
    import_model(regular, [x])
    with pytest.raises(UserError, match=r"its layers add 1 losses, which are not.*weight_decay"):
        import_model(regular, [x], training=True)
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    with pytest.raises(UserError, match=r"training is not supported on the backend torch.*jax"):
        import_model(regular, [x], training=True)


@pytest.mark.parametrize("framework", slow_but(("onnx",), ("onnx", "keras")))
def test_files_and_models_compile_to_the_same_step(framework, request, tmp_path):
    if framework == "onnx":
        model, batch = exported(module()), batches()[0]
        path = tmp_path / "digits.onnx"
        onnx.save(model, path)
    else:
        model = digits_of(request.getfixturevalue("keras"))
        batch = last(batches()[0][0]), batches()[0][1]
        path = tmp_path / "digits.keras"
        model.save(path)
    steps = [cc.compile(what, batch, training=Training(), finish=False) for what in (model, path)]
    assert len(steps[0].state_dict()) >= 12
    held = [[a.tobytes() for a in step.state] for step in steps]
    assert held[0] == held[1]
