"""Training data in an order that the seed fixes, whatever the machine or the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler.errors import UserError

#: The stream of random numbers that orders data: above those of a model's random ops.
STREAM = 0xFFFF_0000


@dataclass(frozen=True)
class Data:
    """Examples as arrays, one for each input and one for the targets, examples first."""

    arrays: tuple[np.ndarray, ...]

    @staticmethod
    def of(what: Any) -> Data:
        """Arrays or tensors, or a sequence of examples (a torch ``Dataset``, rows of a table): each
        a tuple, or a mapping whose values are taken in their order.  UserError where examples
        differ in shape or there are none."""
        if isinstance(what, Data):
            return what
        if isinstance(what, tuple | list) and what and all(hasattr(a, "shape") for a in what):
            arrays = tuple(np.asarray(a) for a in what)
        else:
            arrays = _stacked(what)
        lengths = {len(a) if a.ndim else 0 for a in arrays}
        if len(lengths) != 1 or lengths == {0}:
            raise UserError(f"arrays of {sorted(lengths)} examples", "data",
                            "give as many examples in each, at least one")  # fmt: skip
        return Data(arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """The examples' numbers in the order of one epoch: sorted by as many random words of the
        contract's generator, of equal ones the first first."""
        from core_compiler.kernels.reference.random import random_bits

        words = random_bits((len(self),), seed, STREAM, epoch)
        return np.argsort(words, kind="stable")

    def batch(self, number: int, size: int, seed: int) -> tuple[np.ndarray, ...]:
        """Batch ``number`` (from 0 on, through all epochs) of ``size`` examples; what is left over
        at the end of an epoch is left out of it."""
        each = len(self) // size
        if not each:
            raise UserError(f"{len(self)} examples are no batch of {size}", "data",
                            "give more examples or a smaller batch")  # fmt: skip
        epoch, place = divmod(number, each)
        rows = self.order(seed, epoch)[place * size : (place + 1) * size]
        return tuple(np.ascontiguousarray(a[rows]) for a in self.arrays)


def _stacked(examples: Any) -> tuple[np.ndarray, ...]:
    rows: list[Sequence] = []
    for example in (examples[i] for i in range(len(examples))):
        parts = example.values() if hasattr(example, "values") else example
        rows.append([np.asarray(part) for part in parts])
    try:
        return tuple(np.stack(column) for column in zip(*rows, strict=True))
    except ValueError as error:
        raise UserError(f"the examples do not stack: {error}", "data",
                        "give examples of one shape each") from None  # fmt: skip
