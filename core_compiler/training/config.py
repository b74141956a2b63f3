"""The configuration of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from core_compiler.ops.collective import MOST
from core_compiler.support.errors import UserError
from core_compiler.training.graph.initializers import initializer_rows
from core_compiler.training.graph.losses import loss
from core_compiler.training.graph.precision import narrow_dtype
from core_compiler.training.optimisers.loss_scale import LossScale, loss_scale
from core_compiler.training.optimisers.optimizers import optimizer
from core_compiler.training.options import SEEDS, flag, number, whole

#: Data that are hashed in every iteration (``core_compiler.training.audit.receipts``).
RECEIPTS = ("off", "state", "gradients")
#: Hash functions. ``fast``, a 64-bit hash, detects accidental differences at the speed of memory;
#: ``sha256`` also resists deliberate collisions, at 1 to 2 GB/s per core.
LEAVES = ("fast", "sha256")


@dataclass(frozen=True)
class Training:
    """A training step: forward, loss, backward, optimiser.

    ``loss``       a :class:`~core_compiler.training.graph.losses.Loss` or its name
                   (``cross_entropy``, ``mse``, ``l1``, ``huber``, ``bce_with_logits``, ``kl``);
                   None: the model's first result is the loss.
    ``optimizer``  an :class:`~core_compiler.training.optimisers.optimizers.Optimizer` or its name
                   (``sgd``, ``adam``, ``adamw``, ``adagrad``, ``rmsprop``, ``lion``).
    ``freeze``     names of parameters that are not trained; ``*`` matches any text.
    ``clip_norm``  the largest norm of the gradients over all parameters; larger gradients are
                   scaled down to it.
    ``initialize`` initial values of parameters by name (``*`` matches any text; the first
                   matching pattern applies): an
                   :class:`~core_compiler.training.graph.initializers.Initializer`, its name
                   (``xavier_uniform``, ``zeros``...) or a number.  All other parameters keep the
                   values of the model.
    ``seed``       the seed of random numbers (dropout, ``initialize``).
    ``shards``     the number of equal parts of each batch; it is part of what is computed,
                   independent of the workers: a single worker runs the shards one after another
                   (gradient accumulation).
    ``sync_batch_norm``  batch statistics are computed over all shards; otherwise each shard has
                   its own, and the running statistics are averaged.
    ``precision``  ``f32``, or the dtype in which activations are stored and which contractions,
                   convolutions and attention read: ``bf16``, ``f16``.  Parameters, the
                   optimiser's state, the gradients that it receives and the loss are f32.
    ``recompute``  the fraction (above 0, up to 1) of the bytes saved for the backward pass that
                   may be kept; the other values are recomputed by kernels of the forward pass.
                   None: all values are saved.
    ``keep_gradients``  the gradients that the optimiser receives stay in memory after each
                   iteration (``step.gradients``; receipts of gradients hash them).  This is not
                   part of what is computed: all bits are the same with and without it.
    ``loss_scale`` a factor of the loss: a number, ``dynamic``, or a
                   :class:`~core_compiler.training.optimisers.loss_scale.Dynamic`; None: ``dynamic``
                   for f16, none for other precisions.
    """

    loss: Any = "cross_entropy"  # a Loss after __post_init__, and an Optimizer below
    optimizer: Any = "sgd"
    freeze: tuple[str, ...] = ()
    clip_norm: float | None = None
    seed: int = 0
    shards: int = 1
    sync_batch_norm: bool = True
    precision: str = "f32"
    recompute: float | None = None
    keep_gradients: bool = False
    loss_scale: Any = None  # a LossScale or None after __post_init__
    initialize: Any = ()  # pairs of a pattern and an Initializer after __post_init__

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", loss(self.loss))
        object.__setattr__(self, "optimizer", optimizer(self.optimizer))
        freeze = (self.freeze,) if isinstance(self.freeze, str) else tuple(self.freeze)
        object.__setattr__(self, "freeze", freeze)
        object.__setattr__(self, "initialize", initializer_rows(self.initialize))
        self._check_numbers()
        narrow_dtype(self.precision)
        object.__setattr__(self, "loss_scale", self._loss_scale())

    def _check_numbers(self) -> None:
        """Convert NumPy numbers to Python's; raise UserError for invalid or out-of-range values."""
        if not isinstance(self.shards, Integral) or not 1 <= self.shards <= MOST:
            raise UserError(
                f"expected 1 to {MOST} shards, got {self.shards!r}",
                "training",
                f"pass a whole number from 1 to {MOST}",
            )
        made: dict[str, float] = {
            "seed": whole("training", "seed", self.seed, *SEEDS),
            "shards": int(self.shards),
        }
        if self.clip_norm is not None:
            made["clip_norm"] = number(
                "training", "clip_norm", self.clip_norm, lambda v: v > 0, "pass a number above 0"
            )
        if self.recompute is not None:
            made["recompute"] = number(
                "training",
                "recompute",
                self.recompute,
                lambda v: 0 < v <= 1,
                "pass the fraction of the saved bytes to keep, above 0 and up to 1",
            )
        for name in ("sync_batch_norm", "keep_gradients"):
            made[name] = flag("training", name, getattr(self, name))
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def _loss_scale(self) -> LossScale | None:
        if self.precision == "f32" and self.loss_scale is not None:
            raise UserError(
                "loss_scale is not supported with precision f32",
                "training",
                "leave loss_scale out, or train with precision f16 or bf16: in f32 "
                "small gradients do not underflow",
            )
        what = "dynamic" if self.loss_scale is None and self.precision == "f16" else self.loss_scale
        return None if what is None else loss_scale(what)

    def facts(self) -> Mapping[str, Any]:
        """Return the configuration as recordings store it."""
        return {
            "loss": repr(self.loss),
            "optimizer": repr(self.optimizer),
            "freeze": list(self.freeze),
            "clip_norm": self.clip_norm,
            "seed": self.seed,
            "shards": self.shards,
            "sync_batch_norm": self.sync_batch_norm,
            "precision": self.precision,
            "recompute": self.recompute,
            "keep_gradients": self.keep_gradients,
            "loss_scale": None if self.loss_scale is None else repr(self.loss_scale),
            "initialize": [[pattern, repr(how)] for pattern, how in self.initialize],
        }
