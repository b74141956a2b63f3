"""Batch normalisations with ``momentum=None``, whose running statistics are plain averages.

Torch's layer reads its count of batches as a Python number, which an export cannot represent.
While a module is exported, such a layer has a ``forward`` that does the same on tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any


@contextmanager
def averages_on_tensors(module: Any) -> Iterator[None]:
    """Make layers of ``module`` that average over all batches exportable in this context."""
    layers = [part for part in module.modules() if _averages(part)]
    for layer in layers:
        layer.forward = partial(_forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _averages(layer: Any) -> bool:
    """Return whether ``layer`` is torch's own, in training mode, and has a count of batches."""
    from torch.nn.modules.batchnorm import _BatchNorm

    own = type(layer).forward is _BatchNorm.forward and "forward" not in vars(layer)
    return (
        own
        and layer.training
        and layer.momentum is None
        and layer.track_running_stats
        and layer.num_batches_tracked is not None
    )


def _forward(layer: Any, x: Any) -> Any:
    """Normalise a batch by its own statistics and update the running ones.

    The batch's mean and unbiased variance have the weight 1 / (batches so far).
    """
    from torch.nn.functional import batch_norm

    layer._check_input_dim(x)
    layer.num_batches_tracked.add_(1)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    count = prod(x.shape[axis] for axis in axes)
    held = x.detach().to(layer.running_mean.dtype)
    unbiased = held.var(axes, correction=0) * (count / max(count - 1, 1))
    share = layer.num_batches_tracked.to(held.dtype).reciprocal()
    for running, new in ((layer.running_mean, held.mean(axes)), (layer.running_var, unbiased)):
        running.mul_(1 - share).add_(new * share)
    return batch_norm(x, None, None, layer.weight, layer.bias, True, 0.0, layer.eps)
