"""The digits CNN of the catalogue, at its width, as Keras 3 and as ONNX: 20 iterations in our step
beside the framework it comes from, on the same images and from the same weights.

Called by ``python benchmarks/training.py frameworks``.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

BATCH, CHANNELS, RATE, MOMENTUM = 32, 16, 0.05, 0.9
Batches = list[tuple[np.ndarray, np.ndarray]]


def rows(iterations: int) -> Iterator[dict[str, Any]]:
    """Of each framework: the largest relative difference of a loss, and the digests of our step
    over threads and tilings."""
    import core_compiler as cc
    from core_compiler.training.config import Training
    from core_compiler.training.optimisers import optimizers

    training = Training(optimizer=optimizers.SGD(RATE, momentum=MOMENTUM))
    for name, made in (("keras", _keras), ("onnx", _onnx)):
        model, batches, theirs = made(iterations)
        digests, losses = {}, []
        for threads, tiles in itertools.product((1, 2), ("default", "small")):
            step = cc.compile(
                model, batches[0], training=training, threads=threads, options={"tiles": tiles}
            )
            losses = [step(*batch) for batch in batches]
            digests[f"{threads} threads, {tiles} tiles"] = step.digest
        yield {
            "model": f"digits-cnn ({name})",
            "batch": BATCH,
            "channels": CHANNELS,
            "iterations": iterations,
            "first_loss": theirs[0],
            "last_loss": theirs[-1],
            "worst_relative": max(abs(a - b) / b for a, b in zip(losses, theirs, strict=True)),
            "digests": digests,
            "same": len(set(digests.values())) == 1,
        }


def _batches(iterations: int) -> Batches:
    from sample_models.digits import digits

    images, classes = (t.numpy() for t in digits())
    return [
        (images[first : first + BATCH].reshape(-1, 1, 8, 8), classes[first : first + BATCH])
        for first in range(0, iterations * BATCH, BATCH)
    ]


def _onnx(iterations: int) -> tuple[Any, Batches, list[float]]:
    """The exported module, its batches, and the losses of PyTorch, which it comes from."""
    import onnx
    import torch
    from torch.nn import functional

    from sample_models.digits import DigitsCnn

    torch.manual_seed(0)
    module, batches, buffer = DigitsCnn(CHANNELS, 3), _batches(iterations), io.BytesIO()
    torch.onnx.export(
        module.eval(),
        (torch.from_numpy(batches[0][0]),),
        buffer,
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
    )
    module.train()
    theirs = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM)
    losses = []
    for x, y in batches:
        theirs.zero_grad()
        loss = functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        theirs.step()
        losses.append(loss.item())
    return onnx.load_from_string(buffer.getvalue()), batches, losses


def _keras(iterations: int) -> tuple[Any, Batches, list[float]]:
    """The same with Keras' own layers and its own training; channels last."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    def made() -> Any:
        keras.utils.set_random_seed(0)
        layers = keras.layers
        parts: list[Any] = [keras.Input((8, 8, 1))]
        for index, channels in enumerate((CHANNELS, 2 * CHANNELS)):
            parts += [
                layers.Conv2D(channels, 3, padding="same", use_bias=False),
                layers.BatchNormalization(),
                layers.ReLU(),
            ]
            parts += [layers.MaxPooling2D(2)] if index == 0 else []
        parts += [
            layers.Conv2D(4 * CHANNELS, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
        return keras.Sequential(parts)

    batches = [(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y) for x, y in _batches(iterations)]
    trained = made()
    trained.compile(
        optimizer=keras.optimizers.SGD(learning_rate=RATE, momentum=MOMENTUM),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    losses = [float(trained.train_on_batch(x, y)) for x, y in batches]
    return made(), batches, losses
