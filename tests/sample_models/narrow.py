"""The sample models as small as they go, for tests that need the structure and not the size."""

from __future__ import annotations

from typing import Any

import torch

from sample_models import Built

NARROW: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 0.125, "depth": 1, "image": 64},
    "resnet18": {"width": 0.125, "depth": 1, "image": 64},
    "mobilenet-v2": {"width": 0.125, "depth": 1, "image": 64},
    "bert-base": {"width": 0.125, "depth": 2, "sequence": 32},
    "gpt2": {"width": 0.125, "depth": 1, "sequence": 32},
    "gpt2-decode": {"width": 0.125, "depth": 2, "past": 31},
    "vit-b16": {"width": 0.125, "depth": 1, "image": 64},
    "llama-4l": {"width": 0.5, "depth": 1, "sequence": 32},
    "digits-cnn": {"width": 0.25},
    "digits-mlp": {"width": 0.25},
}


def outputs(built: Built, inputs: tuple[torch.Tensor, ...] | None = None) -> list[torch.Tensor]:
    """What the module gives for `inputs` (None: its example inputs), always as a list."""
    with torch.no_grad():
        result = built.module(*(built.example_inputs if inputs is None else inputs))
    return [result] if isinstance(result, torch.Tensor) else list(result)
