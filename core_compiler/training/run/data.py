"""Training data in an order that the seed determines, independent of machine and worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.support.errors import UserError
from core_compiler.training.run import rows as examples
from core_compiler.training.run.rows import InputSpec
from core_compiler.training.run.stream import Stream

#: The random stream that orders data, above the streams of a model's random ops.
STREAM = 0xFFFF_0000

_KINDS = (
    "pass arrays (inputs, targets), columns by name, a dataset with __len__ and __getitem__, or "
    "an iterable of rows"
)


@dataclass(frozen=True)
class Data:
    """Examples as arrays, one per input and one for the targets, with the examples on axis 0."""

    arrays: tuple[np.ndarray, ...]
    #: The position in an epoch follows from the iteration, so it is not stored.
    position: Mapping[str, int] = field(default_factory=dict, init=False)

    @staticmethod
    def of(what: Any, specs: Sequence[InputSpec] = ()) -> Data | Stream:
        """Return a source of batches for any supported kind of data.

        - arrays or tensors, the inputs and then the targets, or a single one;
        - columns by name: a mapping, a table (anything with ``keys``);
        - a dataset with ``__len__`` and ``__getitem__`` (of torch, of Hugging Face, a list), whose
          rows are tuples or mappings: it is read into memory;
        - an iterable of such rows, which is read on demand
          (:class:`~core_compiler.training.run.stream.Stream`).

        ``specs`` describes the model's inputs (:func:`for_step` returns it). Columns are found by
        these names; columns with other names are taken in order. Raise UserError if the data are of
        another kind, if examples differ in shape or if there are none.
        """
        if isinstance(what, Data | Stream):
            return what
        if isinstance(what, str | bytes) or what is None:
            raise UserError(f"unsupported type {type(what).__name__}", "data", _KINDS)
        if hasattr(what, "dataset") and getattr(what, "batch_size", None) is not None:
            raise UserError(
                f"expected rows, got batches from a {type(what).__name__}",
                "data",
                "pass its .dataset: fit makes the batches",
            )
        if hasattr(what, "shape") and hasattr(what, "dtype"):  # a table only has a shape
            arrays = examples.columns([what], specs)
        elif isinstance(what, tuple | list) and any(hasattr(a, "shape") for a in what):
            arrays = examples.columns(what, specs)
        elif hasattr(what, "keys"):
            arrays = examples.columns_by_name(what, specs)
        elif hasattr(what, "__len__") and hasattr(what, "__getitem__"):
            with examples.user_data_errors():
                rows = _rows(what)
            if rows is None:
                return Stream(what, specs)
            arrays = examples.stacked(rows, specs)
        elif hasattr(what, "__iter__"):
            return Stream(what, specs)
        else:
            raise UserError(f"unsupported type {type(what).__name__}", "data", _KINDS)
        lengths = {len(a) if a.ndim else 0 for a in arrays}
        if len(lengths) != 1 or lengths == {0}:
            raise UserError(
                f"expected arrays of one length above 0, got {sorted(lengths)}",
                "data",
                "pass the same number of examples in each, at least one",
            )
        return Data(arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """Return the examples' numbers in the order of one epoch.

        They are sorted by random words of the contract's generator; the sort is stable.
        """
        from core_compiler.numerics.reference.random import random_bits

        words = random_bits((len(self),), seed, STREAM, epoch)
        return np.argsort(words, kind="stable")

    def check(self, number: int, size: int) -> None:
        """Raise UserError if there can be no batch ``number`` of ``size`` examples."""
        if size > len(self):
            raise UserError(
                f"batch size {size} exceeds the dataset size {len(self)}",
                "data",
                "pass more examples or a smaller batch",
            )

    def remainder(self, size: int) -> int:
        """Return the number of examples that batches of ``size`` leave over in an epoch."""
        return len(self) % size

    def resume_at(self, position: Any) -> None:
        """Resume from the position in a checkpoint (see :class:`Stream`); nothing to do here."""

    def example(self, size: int) -> tuple[np.ndarray, ...]:
        """Return the first examples, for a compile."""
        return tuple(a[:size] for a in self.arrays)

    def batch(
        self, number: int, size: int, seed: int, drop_last: bool | None = True
    ) -> tuple[np.ndarray, ...]:
        """Return batch ``number`` (from 0 on, through all epochs) of ``size`` examples.

        The remainder at the end of an epoch is a smaller batch, or left out with ``drop_last``
        (None: as yet undecided, because no epoch ends before that batch).
        """
        self.check(number, size)
        rest = 0 if drop_last in (None, True) else self.remainder(size)
        epoch, index = divmod(number, len(self) // size + bool(rest))
        rows = self.order(seed, epoch)[index * size : (index + 1) * size]
        return tuple(np.ascontiguousarray(a[rows]) for a in self.arrays)


def for_step(step: Any, what: Any) -> Data | Stream:
    """Return :meth:`Data.of` with the names and dtypes of a training step's batch."""
    arguments = step.compilation.module.main.arguments
    specs = [
        InputSpec(step.roles.arguments[i][1], arguments[i].type.dtype.numpy)
        for i in step.roles.numbers("batch")
    ]
    return Data.of(what, specs)


def _rows(dataset: Any) -> list[Any] | None:
    """Return all rows of a dataset, or None if they can only be read in its own order.

    An ``IterableDataset`` of torch inherits a ``__getitem__`` that is not implemented.
    """
    rows = []
    for number in range(len(dataset)):
        try:
            rows.append(dataset[number])
        except NotImplementedError:
            if number or not hasattr(dataset, "__iter__"):
                raise
            return None
    return rows
