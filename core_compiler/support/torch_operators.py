"""Torch's libraries of operators, of which one is registered only by an import."""

from __future__ import annotations

from typing import Any

#: The library of PyTorch's quantised (PT2E) graphs.
QUANTISED = "quantized_decomposed"
#: A note in a node's ``custom`` metadata: the quantisation was exported from one that divides by
#: the scale.  Torch, which cannot, multiplies by 1 / scale, rounded.
DIVIDES = {"core_compiler.divides": True}


def library(name: str) -> Any:
    """Return ``torch.ops.NAME``; torch registers the operators of quantised graphs only on demand.

    Files with them cannot be loaded before.
    """
    import torch

    if name == QUANTISED:
        import torch.ao.quantization.fx._decomposed
    return getattr(torch.ops, name)
