"""Training data in an order that the seed fixes, whatever the machine or the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.support.errors import UserError
from core_compiler.training.run import rows as examples
from core_compiler.training.run.rows import Wanted
from core_compiler.training.run.stream import Stream

#: The stream of random numbers that orders data: above those of a model's random ops.
STREAM = 0xFFFF_0000

_KINDS = (
    "pass arrays (inputs, targets), columns by name, a dataset with __len__ and __getitem__, or "
    "an iterable of rows"
)


@dataclass(frozen=True)
class Data:
    """Examples as arrays, one for each input and one for the targets, examples first."""

    arrays: tuple[np.ndarray, ...]
    #: Where they stand in an epoch is known of every iteration.
    place: Mapping[str, int] = field(default_factory=dict, init=False)

    @staticmethod
    def of(what: Any, wanted: Sequence[Wanted] = ()) -> Data | Stream:
        """What examples are read from, as something with batches:

        - arrays or tensors, the inputs and then the targets, or one alone;
        - columns by name: a mapping, a table (anything with ``keys``);
        - a dataset with ``__len__`` and ``__getitem__`` (of torch, of Hugging Face, a list), whose
          rows are tuples or mappings: it is read into memory;
        - an iterable of such rows, which is read as the iterations want it
          (:class:`~core_compiler.training.run.stream.Stream`).

        ``wanted``: what the model takes (:func:`for_step` knows it); columns are found by these
        names, those that have none of them in their order.  UserError where it is none of this,
        examples differ in shape or there are none.
        """
        if isinstance(what, Data | Stream):
            return what
        if isinstance(what, str | bytes) or what is None:
            raise UserError(f"unsupported type {type(what).__name__}", "data", _KINDS)
        if hasattr(what, "dataset") and getattr(what, "batch_size", None) is not None:
            raise UserError(f"expected rows, got batches from a {type(what).__name__}", "data",
                            "pass its .dataset: fit makes the batches")  # fmt: skip
        if hasattr(what, "shape") and hasattr(what, "dtype"):  # a table has a shape alone
            arrays = examples.columns([what], wanted)
        elif isinstance(what, tuple | list) and any(hasattr(a, "shape") for a in what):
            arrays = examples.columns(what, wanted)
        elif hasattr(what, "keys"):
            arrays = examples.named(what, wanted)
        elif hasattr(what, "__len__") and hasattr(what, "__getitem__"):
            with examples.theirs():
                rows = _rows(what)
            if rows is None:
                return Stream(what, wanted)
            arrays = examples.stacked(rows, wanted)
        elif hasattr(what, "__iter__"):
            return Stream(what, wanted)
        else:
            raise UserError(f"unsupported type {type(what).__name__}", "data", _KINDS)
        lengths = {len(a) if a.ndim else 0 for a in arrays}
        if len(lengths) != 1 or lengths == {0}:
            raise UserError(f"expected arrays of one length above 0, got {sorted(lengths)}", "data",
                            "pass the same number of examples in each, at least one")  # fmt: skip
        return Data(arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """The examples' numbers in the order of one epoch: sorted by as many random words of the
        contract's generator, of equal ones the first first."""
        from core_compiler.numerics.reference.random import random_bits

        words = random_bits((len(self),), seed, STREAM, epoch)
        return np.argsort(words, kind="stable")

    def check(self, number: int, size: int) -> None:
        """UserError where there can be no batch ``number`` of ``size`` examples."""
        if size > len(self):
            raise UserError(f"batch size {size} exceeds the dataset size {len(self)}", "data",
                            "pass more examples or a smaller batch")  # fmt: skip

    def begin_at(self, place: Any) -> None:
        """Where a checkpoint says that the data stand (see :class:`Stream`): nothing to find."""

    def example(self, size: int) -> tuple[np.ndarray, ...]:
        """The first examples, for a compile."""
        return tuple(a[:size] for a in self.arrays)

    def batch(self, number: int, size: int, seed: int) -> tuple[np.ndarray, ...]:
        """Batch ``number`` (from 0 on, through all epochs) of ``size`` examples; what is left over
        at the end of an epoch is left out of it."""
        self.check(number, size)
        epoch, place = divmod(number, len(self) // size)
        rows = self.order(seed, epoch)[place * size : (place + 1) * size]
        return tuple(np.ascontiguousarray(a[rows]) for a in self.arrays)


def for_step(step: Any, what: Any) -> Data | Stream:
    """:meth:`Data.of`, by the names and dtypes of what a training step takes in a batch."""
    arguments = step.compilation.module.main.arguments
    wanted = [Wanted(step.roles.arguments[i][1], arguments[i].type.dtype.numpy)
              for i in step.roles.numbers("batch")]  # fmt: skip
    return Data.of(what, wanted)


def _rows(dataset: Any) -> list[Any] | None:
    """All rows of a dataset; None where it has them only in its own order (an ``IterableDataset``
    of torch inherits a ``__getitem__`` that is not there)."""
    rows = []
    for number in range(len(dataset)):
        try:
            rows.append(dataset[number])
        except NotImplementedError:
            if number or not hasattr(dataset, "__iter__"):
                raise
            return None
    return rows
