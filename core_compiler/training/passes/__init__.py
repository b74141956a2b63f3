"""The passes of training: from the loss to the next state.  They stand in the meaning half."""

from __future__ import annotations

from core_compiler.passes.base import Pass
from core_compiler.training.config import Training
from core_compiler.training.passes.apply_optimizer import ApplyOptimizer
from core_compiler.training.passes.clip_gradients import ClipGradients
from core_compiler.training.passes.differentiate import Differentiate
from core_compiler.training.passes.shard_batch import ShardBatch


def pipeline(training: Training) -> tuple[Pass, ...]:
    """The passes of a training step, in their order."""
    shard = (ShardBatch(training.shards, training.sync_batch_norm),)
    clip = () if training.clip_norm is None else (ClipGradients(training.clip_norm),)
    return (
        *(shard if training.shards > 1 else ()),
        Differentiate(),
        *clip,
        ApplyOptimizer(training.optimizer),
    )
