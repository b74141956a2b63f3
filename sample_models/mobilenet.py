"""MobileNetV2 (Sandler et al., "Inverted residuals and linear bottlenecks", CVPR 2018).

    from sample_models.mobilenet import mobilenet_v2
    module, inputs = mobilenet_v2()

Written in torch; its parameters are those of torchvision's `mobilenet_v2`, in the same order.
Weights are seeded (`sample_models.seeded`) and nothing is downloaded. Sizes at width 1, depth None:
224x224 images, 1000 classes.
"""

from __future__ import annotations

import torch
from torch import nn

from sample_models import seeded
from sample_models.images import ImageModel, scaled, set_batch_norm_statistics

#: Table 2 of the paper: expansion, channels, blocks and first stride of each stage.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
#: Batch norms before a ReLU6 have weights around 1.5 and biases around 2: most values are between
#: its limits, some at each. Around 1 and 0 none is at 6, so a compiler that forgot this limit would
#: go unnoticed, and half of them are at 0, which makes seeded weights amplify errors from layer to
#: layer as trained ones do not: as integers of 8 bits, the results would be lost.
_WEIGHT, _BIAS = 1.5, 2.0


class InvertedResidual(nn.Module):
    """Expand the channels by 1x1, filter each by 3x3, project them by 1x1, which ends linearly.

    f32[batch, inputs, h, w] -> f32[batch, outputs, h / stride, w / stride], plus the input if
    the shapes are equal.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *([] if expansion == 1 else [_convolution(inputs, wide)]),
            _convolution(wide, wide, 3, stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(ImageModel):
    """MobileNetV2 without the dropout before its linear layer, which has no effect here."""

    def __init__(self, width: float, depth: int | None, image: int) -> None:
        super().__init__(image)
        channels = scaled(32, width, 8)
        layers: list[nn.Module] = [_convolution(3, channels, 3, stride=2)]
        for expansion, count, blocks, first in _STAGES:
            outputs = scaled(count, width, 8)
            for block in range(blocks if depth is None else depth):
                stride = first if block == 0 else 1
                layers.append(InvertedResidual(channels, outputs, stride, expansion))
                channels = outputs
        last = scaled(1280, width, 8)
        self.features = nn.Sequential(*layers, _convolution(channels, last))
        self.classifier = nn.Linear(last, max(10, round(1000 * width)))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(pixels).mean((2, 3)))


def mobilenet_v2(
    *, width: float = 1.0, depth: int | None = None, image: int = 224, batch: int = 1, seed: int = 0
) -> tuple[MobileNetV2, tuple[torch.Tensor]]:
    """Return MobileNetV2 in evaluation mode and its example inputs.

    width: factor on all channel counts (rounded to multiples of 8; at least 8) and on the classes
    (at least 10). depth: blocks in each of the seven stages; None: 1, 2, 3, 4, 3, 3, 1. image:
    height and width in pixels, at least 32. batch: images in the example input.
    """
    module = MobileNetV2(width, depth, image)
    seeded.fill(module, seed)
    for layer in module.modules():
        if isinstance(layer, nn.Sequential) and isinstance(layer[-1], nn.ReLU6):
            norm = layer[-2]
            assert isinstance(norm, nn.BatchNorm2d)
            norm.weight.data *= _WEIGHT
            norm.bias.data += _BIAS
    set_batch_norm_statistics(module, seed)
    return module.eval(), module.make_inputs(batch, seed)


def _convolution(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution with a batch norm and a ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )
