"""Random numbers of imported models: Philox of the numerics contract, one stream per random op.

A framework's own generator yields other numbers.  In inference a model draws the same ones in every
call; in training, those of the step's seed and iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from core_compiler.ir import DType, Value, dtype, tensor
from core_compiler.ops.builder import Builder

F32 = dtype("f32")
#: The names of the two numbers that the random ops of a training step use.
SEED, ITERATION = "seed", "iteration"


@dataclass
class Draws:
    """The random ops of an import.

    ``given``  the values (i64, rank 0) that they use: the seed and the iteration of a training
               step; () in inference.
    """

    given: tuple[Value, ...] = ()
    _streams: int = field(default=0, init=False)

    @staticmethod
    def of_training() -> Draws:
        number = tensor((), "i64")
        return Draws((Value(number, SEED), Value(number, ITERATION)))

    def numbers(
        self, b: Builder, kind: str, shape: Sequence[int], wanted: DType, seed: int = 0
    ) -> Value:
        """Emit ``core.random_<kind>`` of ``wanted[*shape]`` with a new stream.

        ``seed`` is used if no training step provides one.
        """
        taken = self.given or (b.constant(np.int64(seed)),)
        self._streams += 1
        return b.op(
            f"core.random_{kind}", taken, shape=tuple(shape), dtype=wanted, stream=self._streams - 1
        )

    def dropped(
        self, b: Builder, x: Value, ratio: float, shape: Sequence[int] | None = None
    ) -> tuple[Value, Value]:
        """Return ``x`` with dropout, and the kept elements (i1, of the drawn shape).

        Srivastava et al. (2014): an element is kept with probability 1 - ratio and divided by it;
        the others are 0.  ``shape`` is the drawn shape: sizes of 1 share their number (whole
        channels are dropped).
        """
        mask_shape = tuple(x.type.shape if shape is None else shape)
        if ratio == 1:  # nothing is drawn
            return b.mul(x, b.scalar_like(0, x)), b.expand(b.constant(False), mask_shape)
        kept_mask = b.ge(u := self.numbers(b, "uniform", mask_shape, F32), b.scalar_like(ratio, u))
        mask = b.select(kept_mask, b.scalar_like(1 / (1 - ratio), u), b.scalar_like(0, u))
        if mask.type.dtype is not x.type.dtype:
            mask = b.cast(mask, dtype=x.type.dtype)
        if mask_shape != x.type.shape:
            mask = b.broadcast(mask, shape=x.type.shape, dims=tuple(range(x.type.rank)))
        return b.mul(x, mask), kept_mask
