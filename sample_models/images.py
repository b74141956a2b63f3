"""Image classifiers: their inputs, and batch-norm statistics of data."""

from __future__ import annotations

import torch
from torch import nn

from sample_models import seeded

_CALIBRATION_BATCH = 4
#: Patches along an image's side, and their standard deviation.
_SCALES = ((1, 0.5), (2, 0.5), (4, 0.5), (8, 0.25), (16, 0.25))


class ImageModel(nn.Module):
    """A classifier of square images.

    pixels f32[batch, 3, image, image] -> logits f32[batch, classes].
    """

    input_names = ("pixels",)
    output_names = ("logits",)

    def __init__(self, image: int) -> None:
        super().__init__()
        self.image = image

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


def scaled(count: int, width: float, multiple: int) -> int:
    """Return ``count * width`` as a multiple of ``multiple``, at least that."""
    return max(multiple, round(count * width / multiple) * multiple)


def set_batch_norm_statistics(module: ImageModel, seed: int) -> None:
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
