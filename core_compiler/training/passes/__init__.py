"""The passes of training: from the loss to the next state, and for the launches."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.passes.base import Pass
from core_compiler.training.config import Training
from core_compiler.training.passes.apply_optimizer import ApplyOptimizer
from core_compiler.training.passes.clip_gradients import ClipGradients
from core_compiler.training.passes.differentiate import Differentiate
from core_compiler.training.passes.drop_gradients import DropGradients
from core_compiler.training.passes.guard_update import GuardUpdate
from core_compiler.training.passes.mixed_precision import MixedPrecision
from core_compiler.training.passes.order_launches import OrderLaunches
from core_compiler.training.passes.recompute import Recompute
from core_compiler.training.passes.recompute_widened import RecomputeWidened
from core_compiler.training.passes.scale_loss import ScaleLoss
from core_compiler.training.passes.shard_batch import ShardBatch
from core_compiler.training.passes.unscale_gradients import UnscaleGradients
from core_compiler.training.passes.update_in_place import UpdateInPlace


def pipeline(training: Training) -> tuple[Pass, ...]:
    """Return the passes of a training step for the meaning half, in order."""
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
        *shard,
        *narrow,
        ScaleLoss(scale),
        Differentiate(),
        *again,
        UnscaleGradients(scale),
        *clip,
        ApplyOptimizer(optimizer),
        GuardUpdate(scale, optimizer),
    )


def lowered(target: Sequence[Pass], training: Training) -> tuple[Pass, ...]:
    """Return the passes of a target with those of a training step inserted at their positions."""
    drop = () if training.keep_gradients else (DropGradients(),)
    again = () if training.recompute is None else (Recompute(training.recompute),)
    after = {"outline_kernels": (OrderLaunches(), *again), "plan_memory": (UpdateInPlace(),)}
    return (*drop, *(p for one in target for p in (one, *after.get(one.name(), ()))))
