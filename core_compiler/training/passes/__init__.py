"""The passes of training: from the loss to the next state.  They stand in the meaning half."""

from __future__ import annotations

from core_compiler.passes.base import Pass
from core_compiler.training.config import Training
from core_compiler.training.passes.apply_optimizer import ApplyOptimizer
from core_compiler.training.passes.clip_gradients import ClipGradients
from core_compiler.training.passes.differentiate import Differentiate
from core_compiler.training.passes.guard_update import GuardUpdate
from core_compiler.training.passes.mixed_precision import MixedPrecision
from core_compiler.training.passes.recompute_widened import RecomputeWidened
from core_compiler.training.passes.scale_loss import ScaleLoss
from core_compiler.training.passes.shard_batch import ShardBatch
from core_compiler.training.passes.unscale_gradients import UnscaleGradients


def pipeline(training: Training) -> tuple[Pass, ...]:
    """The passes of a training step, in their order."""
    optimizer, scale = training.optimizer, training.loss_scale
    narrow: tuple[Pass, ...] = ()
    again: tuple[Pass, ...] = ()
    if training.precision != "f32":
        narrow, again = (MixedPrecision(training.precision),), (RecomputeWidened(),)
    shard: tuple[Pass, ...] = ()
    if training.shards > 1:
        shard = (ShardBatch(training.shards, training.sync_batch_norm),)
    clip = () if training.clip_norm is None else (ClipGradients(training.clip_norm),)
    if scale is None:
        return (*shard, *narrow, Differentiate(), *again, *clip, ApplyOptimizer(optimizer))
    return (
        *shard, *narrow, ScaleLoss(scale), Differentiate(), *again, UnscaleGradients(scale), *clip,
        ApplyOptimizer(optimizer), GuardUpdate(scale, optimizer),
    )  # fmt: skip
