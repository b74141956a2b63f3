"""Functions of JAX and models of Keras become integers like those of torch."""

from __future__ import annotations

import os

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.driver.quantization_report import report

RNG = np.random.default_rng(0)


def _numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _become_integers(model, samples, wanted, least_db):
    """Check that a model has nothing in floats, and that its checks and results are good."""
    quantize = cc.Quantization(calibration=samples)
    made = cc.compile(model, samples[0], quantize=quantize, check=True)
    assert made.finding is None
    assert report(made)["left_float"] == []
    ours = np.concatenate([np.asarray(made(*sample)[0]).ravel() for sample in samples])
    exact = np.concatenate([np.asarray(wanted(*sample)).ravel() for sample in samples])
    noise = np.square(ours - exact, dtype=np.float64).sum()
    assert 10 * np.log10(np.square(exact, dtype=np.float64).sum() / noise) > least_db


@pytest.mark.slow
def test_a_block_of_a_transformer_in_jax():
    jax = pytest.importorskip("jax", reason="needs jax")
    from jax import numpy as jnp

    w, back, wide = _numbers(3, 16, 2, 8) / 4, _numbers(2, 8, 16) / 4, _numbers(16, 32) / 4
    bias, narrow, scale = _numbers(2, 8), _numbers(32, 16) / 6, _numbers(16)

    def norm(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale

    def block(x):
        q, k, v = (jnp.einsum("btd,dhk->bthk", norm(x), each) + bias for each in w)
        shares = jax.nn.softmax(jnp.einsum("bqhk,bthk->bhqt", q, k) / 8**0.5)
        x = x + jnp.einsum("bhqt,bthk,hkd->bqd", shares, v, back)
        return x + jax.nn.gelu(norm(x) @ wide) @ narrow

    _become_integers(block, [(_numbers(2, 5, 16),) for _ in range(3)], block, 27)


@pytest.mark.slow
def test_pictures_in_jax():
    jax = pytest.importorskip("jax", reason="needs jax")
    filters, last = _numbers(8, 3, 3, 3), _numbers(8, 4)

    def network(x):
        y = jax.nn.relu(jax.lax.conv_general_dilated(x, filters, (1, 1), "SAME"))
        y = jax.lax.reduce_window(y, -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return y.mean((2, 3)) @ last

    _become_integers(network, [(_numbers(2, 3, 8, 8),) for _ in range(3)], network, 35)


def test_loops_and_branches_stay_in_floats():
    jax = pytest.importorskip("jax", reason="needs jax")
    from jax import numpy as jnp

    w = _numbers(8, 8)

    def network(x):
        h, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((2, 8)), x)
        return jax.lax.cond(x[0, 0, 0] > 0, lambda h: h @ w, lambda h: h - w[0, 0], h) @ w

    x = _numbers(5, 2, 8)
    made = cc.compile(network, (x,), quantize=cc.Quantization(), check=True)
    found = report(made)
    assert made.finding is None and found["ops"]
    assert {left["op"] for left in found["left_float"]} == {"core.while", "core.if"}
    exact = np.asarray(network(x))
    assert np.square(made(x)[0] - exact).sum() < 1e-3 * np.square(exact).sum()


@pytest.mark.slow
def test_pictures_in_keras():
    pytest.importorskip("jax", reason="Keras models are read by keras on jax")
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="needs keras")
    if keras.config.backend() != "jax":
        pytest.skip("another backend of Keras is chosen")
    x = keras.Input((16, 16, 3))
    y = keras.layers.Conv2D(8, 3, strides=2, padding="same")(x)
    y = keras.layers.Activation("silu")(keras.layers.BatchNormalization()(y))
    y = keras.layers.SeparableConv2D(8, 3, padding="same")(y)
    y = keras.layers.GlobalAveragePooling2D()(keras.layers.MaxPooling2D()(y))
    model = keras.Model(x, keras.layers.Dense(5)(y))
    _become_integers(model, [(_numbers(2, 16, 16, 3),) for _ in range(3)], model, 30)
