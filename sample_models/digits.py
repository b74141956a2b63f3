"""Two small classifiers, trained on demand on the 8x8 digits of scikit-learn.

    from sample_models.digits import digits_cnn
    module, inputs = digits_cnn()

The data are the 1,797 real images of the UCI "Optical Recognition of Handwritten Digits" test set
that scikit-learn includes; the last 360 are never used for training.
"""

from __future__ import annotations

import functools
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sample_models import seeded

TRAINING_IMAGES = 1437
_CLASSES = 10
_BATCH = 32
_RATE = 0.1
_MOMENTUM = 0.9


class DigitsCnn(nn.Module):
    """Convolutions, one max-pool, one global average, one linear layer.

    The last convolution has a bias, the others a batch norm (before which a bias has no effect).

    pixels f32[batch, 1, 8, 8] in [0, 1] -> logits f32[batch, 10].
    """

    input_names = ("pixels",)
    output_names = ("logits",)
    epochs = 3

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for index in range(depth):
            last = index == depth - 1
            layers.append(nn.Conv2d(inputs, channels, 3, padding=1, bias=last))
            layers += [nn.ReLU()] if last else [nn.BatchNorm2d(channels), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if index == 0 else []
            inputs, channels = channels, 2 * channels
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, _CLASSES)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.average(self.features(pixels)).flatten(1))

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor]:
        """Return real images f32[batch, 1, 8, 8] not used for training, chosen by the seed."""
        return (_unseen_images(batch, seed).reshape(batch, 1, 8, 8),)


class DigitsMlp(nn.Module):
    """Linear layers with GELU between them.

    pixels f32[batch, 64] in [0, 1] -> logits f32[batch, 10].
    """

    input_names = ("pixels",)
    output_names = ("logits",)
    epochs = 8

    def __init__(self, features: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(64, features), nn.GELU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(features, features), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(features, _CLASSES))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels)

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor]:
        """Return real images f32[batch, 64] not used for training, chosen by the seed."""
        return (_unseen_images(batch, seed),)


def digits_cnn(
    *, width: float = 1.0, depth: int | None = None, batch: int = 1, seed: int = 0
) -> tuple[DigitsCnn, tuple[torch.Tensor]]:
    """Return a trained convolutional classifier and its example inputs.

    width: factor on the channels (16 in the first layer, at least 4). depth: convolutions, each
    after the first doubling the channels; None: 3.
    """
    module = DigitsCnn(max(4, round(16 * width)), 3 if depth is None else depth)
    _train(module, (1, 8, 8), seed)
    return module, module.make_inputs(batch, seed)


def digits_mlp(
    *, width: float = 1.0, depth: int | None = None, batch: int = 1, seed: int = 0
) -> tuple[DigitsMlp, tuple[torch.Tensor]]:
    """Return a trained multi-layer perceptron and its example inputs.

    width: factor on the hidden features (128, at least 8). depth: hidden layers; None: 2.
    """
    module = DigitsMlp(max(8, round(128 * width)), 2 if depth is None else depth)
    _train(module, (64,), seed)
    return module, module.make_inputs(batch, seed)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images f32[1797, 64] in [0, 1], in steps of 1/16, and their classes i64[1797]."""
    table = _table()
    return torch.from_numpy(table[:, :64] / np.float32(16)), torch.from_numpy(
        table[:, 64].astype(np.int64)
    )


@functools.lru_cache(maxsize=1)
def _table() -> np.ndarray:
    # Read the file directly: importing scikit-learn for it takes 1.5 s.
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            "scikit-learn, whose digits are the data of this model, is not installed:"
            " pip install 'compiler-workbench[models]'",
            name="sklearn",
        )
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as lines:
        return np.loadtxt(lines, delimiter=",", dtype=np.float32)


def _unseen_images(batch: int, seed: int) -> torch.Tensor:
    images, _ = digits()
    unseen = images[TRAINING_IMAGES:]
    return unseen[seeded.integers("images", seed, (batch,), 0, len(unseen))].contiguous()


def _train(module: DigitsCnn | DigitsMlp, shape: tuple[int, ...], seed: int) -> None:
    """Train from seeded weights for a few epochs, on one thread in f64.

    The module ends in f32, eval.

    Stochastic gradient descent with momentum, its rate falling linearly to zero; the weights are
    rounded at the end so that they are the same on any machine.
    """
    seeded.fill(module, seed)
    images, classes = digits()
    images = images[:TRAINING_IMAGES].reshape(-1, *shape).double()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        module.double().train()
        optimizer = torch.optim.SGD(module.parameters(), lr=_RATE, momentum=_MOMENTUM)
        decay = torch.optim.lr_scheduler.LinearLR(
            optimizer, 1.0, 0.0, total_iters=module.epochs * -(-TRAINING_IMAGES // _BATCH)
        )
        for epoch in range(module.epochs):
            order = torch.argsort(
                seeded.integers(f"order {epoch}", seed, (TRAINING_IMAGES,), 0, 2**31), stable=True
            )
            for chosen in order.split(_BATCH):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(module(images[chosen]), classes[chosen])
                loss.backward()
                optimizer.step()
                decay.step()
        trained = {
            name: seeded.shortened(value) if value.is_floating_point() else value.clone()
            for name, value in module.state_dict().items()
        }
        module.float().eval()
        module.load_state_dict(trained)
        for parameter in module.parameters():
            parameter.grad = None
    finally:
        torch.set_num_threads(threads)
