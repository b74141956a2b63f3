"""How a model is trained: what a person says, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_compiler.errors import UserError
from core_compiler.training.initializers import rows_of
from core_compiler.training.losses import loss
from core_compiler.training.optimizers import optimizer


@dataclass(frozen=True)
class Training:
    """A training step: forward, loss, backward, optimiser.

    ``loss``       a :class:`~core_compiler.training.losses.Loss` or its name (``cross_entropy``,
                   ``mse``, ``l1``, ``huber``, ``bce_with_logits``, ``kl``); None: the model's first
                   result is the loss.
    ``optimizer``  an :class:`~core_compiler.training.optimizers.Optimizer` or its name (``sgd``,
                   ``adam``, ``adamw``, ``adagrad``, ``rmsprop``, ``lion``).
    ``freeze``     names of parameters that stay as they are; ``*`` stands for anything.
    ``clip_norm``  gradients whose norm over all parameters is larger are scaled down to it.
    ``initialize`` what parameters are at first, by name (``*`` stands for anything; of several
                   patterns that match the first counts): an
                   :class:`~core_compiler.training.initializers.Initializer`, its name
                   (``xavier_uniform``, ``zeros``...) or a number.  The others are as the model has
                   them.
    ``seed``       of random numbers (dropout, ``initialize``).
    """

    loss: Any = "cross_entropy"  # a Loss from __post_init__ on, an Optimizer the other
    optimizer: Any = "sgd"
    freeze: tuple[str, ...] = ()
    clip_norm: float | None = None
    seed: int = 0
    initialize: Any = ()  # pairs of a pattern and an Initializer from __post_init__ on

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", loss(self.loss))
        object.__setattr__(self, "optimizer", optimizer(self.optimizer))
        object.__setattr__(self, "freeze", tuple(self.freeze))
        object.__setattr__(self, "initialize", rows_of(self.initialize))
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise UserError(f"clip_norm = {self.clip_norm}", "training", "give a number above 0")

    def facts(self) -> Mapping[str, Any]:
        """What a recording says of it."""
        return {
            "loss": repr(self.loss), "optimizer": repr(self.optimizer),
            "freeze": list(self.freeze), "clip_norm": self.clip_norm, "seed": self.seed,
            "initialize": [[pattern, repr(how)] for pattern, how in self.initialize],
        }  # fmt: skip
