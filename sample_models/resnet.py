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

_CALIBRATION_BATCH = 4
#: Patches along an image's side, and their standard deviation.
_SCALES = ((1, 0.5), (2, 0.5), (4, 0.5), (8, 0.25), (16, 0.25))


class ImageClassifier(nn.Module):
    """`transformers`' image classifier as a function of one tensor.

    pixels f32[batch, 3, image, image] -> logits f32[batch, classes].
    """

    input_names = ("pixels",)
    output_names = ("logits",)

    def __init__(self, network: nn.Module, image: int) -> None:
        super().__init__()
        self.network = network
        self.image = image

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network(pixel_values=pixels).logits

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor]:
        """Return images f32[batch, 3, image, image], the same for the same seed.

        They are noise at several scales, as in photographs. With plain noise the network's final
        average has little contrast: the logits of two images then differ so little that errors
        relative to that difference say more about the images than about the computation.
        """
        size = self.image
        pixels = torch.zeros(batch, 3, size, size)
        for cells, weight in (*_SCALES, (size, 0.25)):
            if size % cells == 0:
                patch = seeded.bell(f"pixels/{cells}", seed, (batch, 3, cells, cells))
                side = size // cells
                pixels += weight * patch.repeat_interleave(side, 2).repeat_interleave(side, 3)
        return (pixels,)


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
        "embedding_size": _scaled(64, width, 8),
        "hidden_sizes": [_scaled(count, width, multiple) for count in channels],
        "depths": list(depths) if depth is None else [depth] * len(depths),
        "num_labels": max(10, round(1000 * width)),
    }
    config = ResNetConfig(**sizes)
    with no_init_weights():
        network = ResNetForImageClassification(config)
    module = ImageClassifier(network, image)
    seeded.fill(module, seed)
    _set_batch_norm_statistics(module, seed)
    return module.eval()


def _scaled(count: int, width: float, multiple: int) -> int:
    return max(multiple, round(count * width / multiple) * multiple)


def _set_batch_norm_statistics(module: ImageClassifier, seed: int) -> None:
    """Set the statistics of every batch norm to those of one seeded batch.

    They come from one pass in training mode.

    With the initial mean 0 and variance 1 a wrongly folded batch norm could go unnoticed. The pass
    runs in f64 on one thread and its result is rounded, so that it is the same on any machine.
    """
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            module.double().train()
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # the plain average over batches, here a single one
            (pixels,) = module.make_inputs(_CALIBRATION_BATCH, seed + 1)
            module(pixels.double())
            statistics = [
                {
                    key: seeded.shortened(buffer)
                    for key, buffer in norm.named_buffers()
                    if buffer.dim()
                }
                for norm in norms
            ]
            module.float()
            for norm, statistic in zip(norms, statistics, strict=True):
                norm.load_state_dict(statistic, strict=False)
                norm.momentum = 0.1
            for name, parameter in module.named_parameters():
                parameter.copy_(weights[name])
    finally:
        torch.set_num_threads(threads)
