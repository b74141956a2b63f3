"""Models of JAX, StableHLO and Keras from the command line."""

from __future__ import annotations

import json
import os
import sys

import pytest

pytest.importorskip("jax", reason="these models are read by jax")

JAX = """\
import jax
import jax.numpy as jnp

def step(*, units=4):
    def forward(params, x):
        return jnp.tanh(x @ params["w"])
    key = jax.random.key(0)
    return forward, ({"w": jax.random.normal(key, (3, units))}, jnp.ones((2, 3)))

def stuck():
    return (lambda x: x if x > 0 else -x), (jnp.float32(1),)
"""


@pytest.mark.slow
def test_a_jax_function_is_compared_with_jax(command, tmp_path, monkeypatch):
    (tmp_path / "own_jax.py").write_text(JAX)
    monkeypatch.chdir(tmp_path)
    try:
        words = ("own_jax:step", "--against", "jax", "--size", "units=5", "-o", "step.run")
        got, out, _ = command("run", *words, "--json")
        told = json.loads(out)
        assert got == 0 and told["worst_relative_error"] < 1e-5
        assert told["frontend"] == "jax"
        got, _, err = command("run", "own_jax:step", "--against", "torch")
        assert got == 2 and "torch cannot run this model" in err and "--against jax" in err
        got, _, err = command("compile", "own_jax:stuck")
        assert got == 2 and "jax cannot trace it: TracerBoolConversionError" in err
        assert f"{tmp_path}/own_jax.py:11" in err
        (tmp_path / "own.mlir").write_text("func.func @main( {")
        got, _, err = command("compile", "own.mlir")
        assert got == 2 and "not a StableHLO program" in err and err.count("\n") == 1
    finally:
        del sys.modules["own_jax"]


def test_a_wrong_translation_of_jax_is_the_node_that_differs(command, tmp_path, monkeypatch):
    """And shows in the outputs, which are judged by f64."""
    from core_compiler.frontends.stablehlo import table

    (tmp_path / "own_jax.py").write_text(JAX)
    monkeypatch.chdir(tmp_path)
    try:
        run = command.json("run", "own_jax:step", "--against", "jax")
        checked = command.json("compile", "--check", "own_jax:step", "--against", "jax")["against"]
        for found in (run, checked):
            assert (found["verdict"] in ("equal", "within"), found["beyond"]) == (True, None)
        monkeypatch.setitem(table.TABLE, "stablehlo.tanh", table.TABLE["stablehlo.sine"])
        found = command.json("run", "own_jax:step", "--against", "jax", code=1)
        assert found["verdict"] == "differs" and found["worst_relative_error"] > 1e-3
        found = command.json("compile", "own_jax:step", "--check", "--against", "jax", code=1)
        (failure,) = found["failures"]
        assert failure["pass"] == "import" and failure["rule"].startswith("jax tanh")
        assert failure["line"].endswith("own_jax.py:6") and "core.sin" in failure["op"]
        assert found["against"]["beyond"]["alone"]
    finally:
        del sys.modules["own_jax"]


@pytest.mark.slow
def test_a_keras_file_is_compared_with_keras_twice(command, tmp_path):
    """The second time the import comes from the cache."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="needs keras")
    if keras.config.backend() != "jax":
        pytest.skip("another backend of Keras is chosen")
    path = tmp_path / "own.keras"
    keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, activation="gelu")]).save(path)
    for _ in range(2):
        code, out, err = command("run", path, "--against", "keras", "--json")
        assert code == 0, err
        assert json.loads(out)["worst_relative_error"] < 1e-4
        assert json.loads(out)["frontend"] == "keras"
    code, _, err = command("run", path, "--against", "jax")
    assert code == 2 and "jax can only run its own models" in err
    path.write_bytes(b"this is no zip")
    code, _, err = command("compile", path)
    assert code == 2 and "keras cannot read it" in err and err.count("\n") == 1


def test_a_function_may_return_a_keras_model_alone(command, tmp_path, monkeypatch):
    """It says itself what its inputs are."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    pytest.importorskip("keras", reason="needs keras")
    (tmp_path / "own_keras.py").write_text(
        "import keras\n\ndef model():\n"
        "    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])\n"
    )
    monkeypatch.chdir(tmp_path)
    try:
        code, out, err = command("run", "own_keras:model", "--against", "keras", "--json")
        assert code == 0, err
        assert json.loads(out)["worst_relative_error"] < 1e-4
    finally:
        del sys.modules["own_keras"]
