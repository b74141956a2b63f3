"""How a model is trained: what a person says, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from core_compiler.ops.collective import MOST
from core_compiler.support.errors import UserError
from core_compiler.training.graph.initializers import rows_of
from core_compiler.training.graph.losses import loss
from core_compiler.training.graph.precision import narrow_dtype
from core_compiler.training.optimisers.loss_scale import LossScale, loss_scale
from core_compiler.training.optimisers.optimizers import optimizer
from core_compiler.training.options import SEEDS, flag, number, whole

#: What of a run is hashed in every iteration (``core_compiler.training.audit.receipts``).
RECEIPTS = ("off", "state", "gradients")
#: How: ``fast``, a 64-bit hash, finds accidents at the speed of memory; ``sha256`` withstands
#: somebody who wants two runs to look the same, at 1 to 2 GB/s a core.
LEAVES = ("fast", "sha256")


@dataclass(frozen=True)
class Training:
    """A training step: forward, loss, backward, optimiser.

    ``loss``       a :class:`~core_compiler.training.graph.losses.Loss` or its name
                   (``cross_entropy``, ``mse``, ``l1``, ``huber``, ``bce_with_logits``, ``kl``);
                   None: the model's first result is the loss.
    ``optimizer``  an :class:`~core_compiler.training.optimisers.optimizers.Optimizer` or its name
                   (``sgd``, ``adam``, ``adamw``, ``adagrad``, ``rmsprop``, ``lion``).
    ``freeze``     names of parameters that stay as they are; ``*`` stands for anything.
    ``clip_norm``  gradients whose norm over all parameters is larger are scaled down to it.
    ``initialize`` what parameters are at first, by name (``*`` stands for anything; of several
                   patterns that match the first counts): an
                   :class:`~core_compiler.training.graph.initializers.Initializer`, its name
                   (``xavier_uniform``, ``zeros``...) or a number.  The others are as the model has
                   them.
    ``seed``       of random numbers (dropout, ``initialize``).
    ``shards``     parts of equal size that each batch is cut into; part of what is computed,
                   whoever computes it: on one worker they run one after another (gradient
                   accumulation).
    ``sync_batch_norm``  batch statistics are those of all shards; else each has its own, and the
                   running ones get their mean.
    ``precision``  ``f32``, or what contractions, convolutions and attention read and activations
                   are stored in: ``bf16``, ``f16``.  Parameters, the optimiser's state, gradients
                   as it sees them and the loss are f32.
    ``recompute``  the part (above 0, up to 1) of the bytes saved for the backward pass that may be
                   held for it; kernels of the forward pass run again for the others.  None: all is
                   saved.
    ``keep_gradients``  what the optimiser is given as gradients stays in memory after each
                   iteration (``step.gradients``; receipts of gradients hash it).  It is no part of
                   what is computed: with it or without, all bits are the same.
    ``loss_scale`` a factor of the loss: a number, ``dynamic``, or a
                   :class:`~core_compiler.training.optimisers.loss_scale.Dynamic`; None: ``dynamic``
                   for f16, none for the others.
    """

    loss: Any = "cross_entropy"  # a Loss from __post_init__ on, an Optimizer the other
    optimizer: Any = "sgd"
    freeze: tuple[str, ...] = ()
    clip_norm: float | None = None
    seed: int = 0
    shards: int = 1
    sync_batch_norm: bool = True
    precision: str = "f32"
    recompute: float | None = None
    keep_gradients: bool = False
    loss_scale: Any = None  # a LossScale, or None, from __post_init__ on
    initialize: Any = ()  # pairs of a pattern and an Initializer from __post_init__ on

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", loss(self.loss))
        object.__setattr__(self, "optimizer", optimizer(self.optimizer))
        freeze = (self.freeze,) if isinstance(self.freeze, str) else tuple(self.freeze)
        object.__setattr__(self, "freeze", freeze)
        object.__setattr__(self, "initialize", rows_of(self.initialize))
        self._check_numbers()
        narrow_dtype(self.precision)
        object.__setattr__(self, "loss_scale", self._loss_scale())

    def _check_numbers(self) -> None:
        """UserError for one that is none, or out of its range; numpy's become Python's."""
        if not isinstance(self.shards, Integral) or not 1 <= self.shards <= MOST:
            raise UserError(f"expected 1 to {MOST} shards, got {self.shards!r}", "training",
                            f"pass a whole number from 1 to {MOST}")  # fmt: skip
        made: dict[str, float] = {
            "seed": whole("training", "seed", self.seed, *SEEDS),
            "shards": int(self.shards),
        }  # fmt: skip
        if self.clip_norm is not None:
            made["clip_norm"] = number("training", "clip_norm", self.clip_norm, lambda v: v > 0,
                                       "pass a number above 0")  # fmt: skip
        if self.recompute is not None:
            made["recompute"] = number("training", "recompute", self.recompute,
                                       lambda v: 0 < v <= 1, "pass the fraction of the saved bytes "
                                       "to keep, above 0 and up to 1")  # fmt: skip
        for name in ("sync_batch_norm", "keep_gradients"):
            made[name] = flag("training", name, getattr(self, name))
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def _loss_scale(self) -> LossScale | None:
        if self.precision == "f32" and self.loss_scale is not None:
            raise UserError("loss_scale is not supported with precision f32", "training",
                            "leave loss_scale out, or train with precision f16 or bf16: in f32 "
                            "small gradients do not underflow")  # fmt: skip
        what = "dynamic" if self.loss_scale is None and self.precision == "f16" else self.loss_scale
        return None if what is None else loss_scale(what)

    def facts(self) -> Mapping[str, Any]:
        """What a recording says of it."""
        return {
            "loss": repr(self.loss), "optimizer": repr(self.optimizer),
            "freeze": list(self.freeze), "clip_norm": self.clip_norm, "seed": self.seed,
            "shards": self.shards, "sync_batch_norm": self.sync_batch_norm,
            "precision": self.precision, "recompute": self.recompute,
            "keep_gradients": self.keep_gradients,
            "loss_scale": None if self.loss_scale is None else repr(self.loss_scale),
            "initialize": [[pattern, repr(how)] for pattern, how in self.initialize],
        }  # fmt: skip
