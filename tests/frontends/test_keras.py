"""Keras 3 models: values beside Keras, names and scopes, files, refusals."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.frontends.keras import backends, import_model, on_arrays, read_file
from core_compiler.support.errors import UserError
from tests.conformance.outcomes import by_cpu, by_reference
from tests.slow import slow_but

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("jax", "keras")),
    reason="Keras models are read by keras on jax",
)


@pytest.fixture(scope="module")
def keras():
    """Its import takes seconds: only in the process that runs these tests."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    if keras.config.backend() != "jax":
        pytest.skip("another backend of Keras is chosen")
    return keras


def image_model(keras):
    x = keras.Input((16, 16, 3), name="image")
    y = keras.layers.Conv2D(8, 3, strides=2, padding="same", name="stem")(x)
    y = keras.layers.BatchNormalization(name="norm")(y)
    y = keras.layers.Activation("silu", name="act")(y)
    y = keras.layers.SeparableConv2D(8, 3, padding="same", name="separable")(y)
    y = keras.layers.MaxPooling2D(name="pool")(y)
    y = keras.layers.GlobalAveragePooling2D(name="mean")(y)
    return keras.Model(x, keras.layers.Dense(5, name="head")(y), name="images")


def text_model(keras):
    x = keras.Input((12,), dtype="int32", name="tokens")
    y = keras.layers.Embedding(50, 16, name="embed")(x)
    z = keras.layers.MultiHeadAttention(2, 8, name="attend")(y, y, use_causal_mask=True)
    y = keras.layers.LayerNormalization(name="norm")(y + z)
    y = keras.layers.LSTM(6, name="lstm")(y)
    return keras.Model(x, keras.layers.Dense(3, activation="softmax", name="head")(y), name="text")


def two_inputs(keras):
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    return keras.Model([a, b], [keras.layers.Dense(2, name="left")(joined), a - b], name="two")


def shaken(model):
    """The model with random numbers in every variable: none is 0 or 1, variances are positive."""
    for variable in model.variables:
        if not np.issubdtype(np.dtype(str(variable.dtype)), np.floating):
            continue
        drawn = RNG.standard_normal(variable.shape) * (0.3 if len(variable.shape) < 2 else 1)
        scale = np.sqrt(max(1, np.prod(variable.shape[:-1])))
        if variable.path.endswith(("variance", "gamma")):
            drawn, scale = 1 + 0.3 * np.abs(drawn), 1
        variable.assign((drawn / (scale if len(variable.shape) > 1 else 1)).astype("float32"))
    return model


def image(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


MODELS = {
    "images": (image_model, [image(2, 16, 16, 3)]),
    "text": (text_model, [RNG.integers(0, 50, (2, 12)).astype(np.int32)]),
    "two inputs": (two_inputs, [image(3, 4), image(3, 4)]),
}
#: Applications at the smallest size that they take.
APPLICATIONS = {
    "MobileNetV2": {"alpha": 0.35, "input_shape": (32, 32, 3)},
    "EfficientNetB0": {},
    "ResNet50": {},
    "DenseNet121": {},
    "ConvNeXtTiny": {},
    "NASNetMobile": {},
    "Xception": {"input_shape": (71, 71, 3)},
    "VGG16": {},
    "ResNet50V2": {},
    "InceptionV3": {"input_shape": (75, 75, 3)},
}


def agree(model, inputs, execute):
    """Import, execute, compare each result with Keras's, by its spread."""
    imported = import_model(model, inputs, name=model.name)
    wanted = on_arrays(model)(*inputs)
    made = execute(imported, inputs)
    assert len(made) == len(wanted) == len(imported.outputs)
    for ours, theirs in zip(made, wanted, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert theirs.std() > 1e-3, "the numbers say nothing"
        assert np.abs(ours - theirs).max() <= 1e-4 * theirs.std()
    return imported


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", slow_but(("images", "two inputs"), MODELS))
def test_a_model_agrees_with_keras(name, keras):
    make, inputs = MODELS[name]
    agree(shaken(make(keras)), inputs, by_reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_agrees_with_keras(name, keras):
    sizes = {"input_shape": (32, 32, 3), **APPLICATIONS[name]}
    make = getattr(keras.applications, name)
    model = make(weights=None, include_top=True, classes=20, classifier_activation=None, **sizes)
    agree(shaken(model), [image(2, *sizes["input_shape"])], by_cpu)


@pytest.mark.slow
def test_variables_and_layers_keep_their_names(keras):
    make, inputs = MODELS["images"]
    imported = import_model(make(keras), inputs)
    assert imported.inputs == ("image",) and imported.outputs == ("head",)
    weights = {
        op.results[0].name: op.origin.nodes()[0]
        for op in imported.module.walk()
        if op.kind == "core.constant" and op.origin.nodes()[0].kind in ("parameter", "buffer")
    }
    assert weights["stem/kernel"].scope == "stem"
    assert weights["norm/moving_variance"].kind == "buffer"
    assert {"norm/gamma", "norm/moving_variance", "head/bias"} <= weights.keys()
    (stem, *_) = [op for op in imported.module.walk() if op.kind == "core.conv"]
    assert "stem" in stem.origin.nodes()[0].scope


@pytest.mark.slow
def test_a_live_model_in_a_session(keras):
    make, inputs = MODELS["two inputs"]
    model = shaken(make(keras))
    made = cc.compile(model, inputs)
    for ours, theirs in zip(made(*inputs), on_arrays(model)(*inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert made.names[0] == ("a", "b")
    assert made.about["facts"]["frontend"] == "keras"


def test_what_keras_refuses_is_one_line(keras, tmp_path):
    path = tmp_path / "own.keras"
    path.write_bytes(b"this is no zip")
    with pytest.raises(UserError, match="keras cannot read it") as caught:
        read_file(path)
    assert "\n" not in caught.value.what
    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda v: v * 2)(x)).save(path)
    with pytest.raises(UserError, match="keras cannot read it") as caught:
        read_file(path)
    assert "--trust" in caught.value.fix
    with pytest.raises(UserError, match=r"keras cannot call it|jax cannot trace it"):
        import_model(image_model(keras), [image(2, 16, 16, 4)])


#: What a process on another backend does with a file: import, compute on the CPU, compare.
_ON_ANOTHER = """
import json, sys
from workbench.commands.cli import main
sys.exit(main(["run", sys.argv[1], "--against", "keras", "--json"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", MODELS)
def test_a_file_is_lowered_by_the_backend_that_is_chosen(name, backend, keras, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    path = tmp_path / f"{name}.keras"
    make, _ = MODELS[name]
    shaken(make(keras)).save(path)
    done = subprocess.run(
        [sys.executable, "-c", _ON_ANOTHER, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout[done.stdout.index("{") :])
    assert said["worst_relative_error"] < 1e-4


def test_variables_of_one_path_are_told_apart(keras):
    class Twice(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = keras.layers.Dense(3, name="layer")
            self.second = keras.layers.Dense(3, name="layer")

        def call(self, x):
            return self.second(self.first(x))

    model, x = Twice(), image(2, 3)
    model(x)
    shaken(model)
    assert len({v.path for v in model.variables}) < len(model.variables)
    made = by_reference(import_model(model, [x]), [x])
    np.testing.assert_allclose(made[0], on_arrays(model)(x)[0], rtol=1e-5, atol=1e-6)


_CHOSEN = """
import json, sys
import numpy as np
if sys.argv[2] == "failed":
    try:
        import keras
    except ImportError:
        pass
import core_compiler as cc
made = cc.compile(sys.argv[1])
import keras
x = np.linspace(-1, 1, 4, dtype=np.float32)[None]
want = keras.ops.convert_to_numpy(keras.saving.load_model(sys.argv[1])(x))
print(json.dumps([keras.config.backend(), made.about["facts"]["keras_backend"],
                  float(np.abs(made(x)[0] - want).max())]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "failed"])
def test_a_file_is_read_on_an_installed_backend_where_none_is_chosen(before, keras, tmp_path):
    if before == "failed" and importlib.util.find_spec("tensorflow") is not None:
        pytest.skip("Keras finds the backend that it asks for")
    path = tmp_path / "dense.keras"
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).save(path)
    done = subprocess.run(
        [sys.executable, "-c", _CHOSEN, str(path), before],
        capture_output=True,
        text=True,
        timeout=600,
        env=_without_choice(tmp_path),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    runs_on, told, apart = json.loads(done.stdout.splitlines()[-1])
    assert runs_on == told == "jax" and apart < 1e-6
    assert "KERAS_BACKEND is not set: Keras runs on jax" in done.stderr


def _without_choice(home) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    return {**environment, "KERAS_HOME": str(home)}


@pytest.mark.slow
def test_a_model_of_a_function_gets_an_installed_backend(tmp_path):
    (tmp_path / "own_keras.py").write_text(
        "import keras\n\n\ndef make():\n"
        "    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "workbench.commands.cli", "compile", "own_keras:make", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        env=_without_choice(tmp_path),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Keras runs on jax" in done.stderr


def test_the_backend_is_the_users_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr(backends, "installed", lambda: ["jax", "torch"])
    assert backends.backend() == "jax"
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    assert backends.backend() == "torch"
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}')  # as Keras writes it itself
    assert backends.backend() == "jax"
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert backends.backend() == "torch"
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with pytest.raises(UserError, match="tensorflow is not installed; set it to jax or torch"):
        backends.backend()
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(backends, "installed", list)
    with pytest.raises(UserError, match="none is installed"):
        backends.backend()
