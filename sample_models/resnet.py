"""ResNet-18 and ResNet-50 (He et al., "Deep residual learning", CVPR 2016) of `transformers`.

    from sample_models.resnet import resnet50
    module, inputs = resnet50()

Architecture and module code are the library's; weights are seeded (`sample_models.seeded`) and
nothing is downloaded. Sizes at width 1, depth None: 224x224 images, 1000 classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sample_models import seeded
from sample_models.images import ImageModel, scaled, set_batch_norm_statistics


class ImageClassifier(ImageModel):
    """`transformers`' image classifier as a function of one tensor."""

    def __init__(self, network: nn.Module, image: int) -> None:
        super().__init__(image)
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network(pixel_values=pixels).logits


def resnet18(
    *, width: float = 1.0, depth: int | None = None, image: int = 224, batch: int = 1, seed: int = 0
) -> tuple[ImageClassifier, tuple[torch.Tensor]]:
    """Return ResNet-18: basic blocks, 2 per stage. See `resnet50` for the arguments."""
    module = _classifier("basic", (64, 128, 256, 512), (2, 2, 2, 2), 8, width, depth, image, seed)
    return module, module.make_inputs(batch, seed)


def resnet50(
    *, width: float = 1.0, depth: int | None = None, image: int = 224, batch: int = 1, seed: int = 0
) -> tuple[ImageClassifier, tuple[torch.Tensor]]:
    """Return ResNet-50 in evaluation mode and its example inputs.

    width: factor on all channel counts (rounded to multiples of 8; at least 8) and on the classes
    (at least 10). depth: blocks in each of the four stages; None: 3, 4, 6, 3. image: height and
    width in pixels, at least 32. batch: images in the example input.
    """
    module = _classifier(
        "bottleneck", (256, 512, 1024, 2048), (3, 4, 6, 3), 32, width, depth, image, seed
    )
    return module, module.make_inputs(batch, seed)


def _classifier(
    block: str,
    channels: tuple[int, ...],
    depths: tuple[int, ...],
    multiple: int,
    width: float,
    depth: int | None,
    image: int,
    seed: int,
) -> ImageClassifier:
    from transformers.initialization import no_init_weights
    from transformers.models.resnet.configuration_resnet import ResNetConfig
    from transformers.models.resnet.modeling_resnet import ResNetForImageClassification

    sizes: dict[str, Any] = {
        "layer_type": block,
        "embedding_size": scaled(64, width, 8),
        "hidden_sizes": [scaled(count, width, multiple) for count in channels],
        "depths": list(depths) if depth is None else [depth] * len(depths),
        "num_labels": max(10, round(1000 * width)),
    }
    config = ResNetConfig(**sizes)
    with no_init_weights():
        network = ResNetForImageClassification(config)
    module = ImageClassifier(network, image)
    seeded.fill(module, seed)
    set_batch_norm_statistics(module, seed)
    return module.eval()
