"""ViT-B/16 (Dosovitskiy et al., ICLR 2021) of `transformers`.

    from sample_models.vit import vit_b16
    module, inputs = vit_b16()

Architecture and module code are the library's; weights are seeded (`sample_models.seeded`) and
nothing is downloaded. Sizes at width 1, depth None: 12 layers, 12 heads of 64, 196 patches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sample_models import seeded

_HEAD_SIZE, _PATCH = 64, 16


class ImageTransformer(nn.Module):
    """The ViT classifier of `transformers`.

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

    def make_inputs(self, batch: int, seed: int) -> tuple[torch.Tensor, ...]:
        """Return noise, the same for the same seed."""
        return (seeded.bell("pixels", seed, (batch, 3, self.image, self.image)),)


def vit_b16(
    *,
    width: float = 1.0,
    depth: int | None = None,
    image: int = 224,
    batch: int = 1,
    seed: int = 0,
    attention: str = "sdpa",
) -> tuple[ImageTransformer, tuple[torch.Tensor, ...]]:
    """Return ViT-B/16 for 1,000 classes in evaluation mode and its example inputs.

    width: factor on the heads (12, at least 1; a head keeps its 64 features) and with them on the
    hidden size. depth: layers; None: 12. image: pixels per side, rounded down to whole patches of
    16. attention: "sdpa" keeps scaled dot product attention one op in the output of torch.export;
    "eager" decomposes it.
    """
    from transformers.initialization import no_init_weights
    from transformers.models.vit.configuration_vit import ViTConfig
    from transformers.models.vit.modeling_vit import ViTForImageClassification

    heads, side = max(1, round(12 * width)), image // _PATCH * _PATCH
    sizes: dict[str, Any] = {
        "hidden_size": heads * _HEAD_SIZE,
        "num_hidden_layers": 12 if depth is None else depth,
        "num_attention_heads": heads,
        "intermediate_size": 4 * heads * _HEAD_SIZE,
        "image_size": side,
        "patch_size": _PATCH,
        "num_labels": 1000,
        "attn_implementation": attention,
    }
    with no_init_weights():
        network = ViTForImageClassification(ViTConfig(**sizes))
    module = ImageTransformer(network, side)
    seeded.fill(module, seed)
    module.eval()
    return module, module.make_inputs(batch, seed)
