"""Training models that did not come from PyTorch: losses as their own framework's."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.training import optimizers
from core_compiler.training.config import Training

X = np.random.default_rng(0).standard_normal((8, 1, 8, 8)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 10, 8)


class Digits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 6, 3, padding=1)
        self.second = torch.nn.Conv2d(6, 8, 3, padding=1)
        self.last = torch.nn.Linear(8, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.first(x)), 2)
        return self.last(functional.gelu(self.second(x)).mean((2, 3)))


def test_an_onnx_model_trains_as_the_module_it_came_from(tmp_path):
    import onnx

    torch.manual_seed(0)
    module, held = Digits(), io.BytesIO()
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    torch.onnx.export(module, (x,), held, dynamo=False)
    model = onnx.load_from_string(held.getvalue())
    onnx.save(model, tmp_path / "digits.onnx")
    training = Training(optimizer=optimizers.SGD(0.1, momentum=0.9))
    steps = [cc.compile(m, (X, Y), training=training) for m in (model, tmp_path / "digits.onnx")]
    assert set(steps[0].state_dict()) == set(module.state_dict())
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        for step in steps:
            assert step(X, Y) == pytest.approx(loss.item(), rel=1e-4)
    assert steps[0].digest == steps[1].digest


def test_a_keras_model_trains_as_keras_does():
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="needs keras")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((8, 8, 1)), keras.layers.Conv2D(6, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(2), keras.layers.Flatten(), keras.layers.Dense(10),
    ])  # fmt: skip
    x = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    step = cc.compile(model, (x, Y), training=Training(optimizer=optimizers.SGD(0.1)))
    model.compile(
        optimizer=keras.optimizers.SGD(0.1),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    for _ in range(4):
        assert step(x, Y) == pytest.approx(float(model.train_on_batch(x, Y)), rel=1e-4)
    names = [v.path for v in model.trainable_variables]
    assert list(step.state_dict()) == names
