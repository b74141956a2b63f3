"""Torch's libraries of operators, of which one is registered only by an import."""

from __future__ import annotations

from typing import Any

#: The library of PyTorch's quantised (PT2E) graphs.
QUANTISED = "quantized_decomposed"


def library(name: str) -> Any:
    """Return ``torch.ops.NAME``; torch registers the operators of quantised graphs only on demand.

    Files with them cannot be loaded before.
    """
    import torch

    if name == QUANTISED:
        import torch.ao.quantization.fx._decomposed
    return getattr(torch.ops, name)
