"""Training data that are read in their own order, on demand.

An epoch is one pass: a new ``iter()``, after ``set_epoch(n)`` if the data have it. Its rows go
through a buffer from which a random one is taken each time (as in ``IterableDataset.shuffle(seed,
buffer_size)`` of Hugging Face), so an epoch is reproducible if the data are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.support.errors import UserError
from core_compiler.training.run.rows import InputSpec, stacked, user_data_errors

#: Number of rows among which the next one is drawn.
BUFFER = 1024
#: The random stream that draws them, and the number of words generated at once.
STREAM, _WORDS_PER_CALL = 0xFFFF_0001, 4096

_RESTART_FIX = "pass an object whose __iter__ starts over, such as a torch dataset"


class Stream:
    """An iterable of rows (see :func:`~core_compiler.training.run.rows.stacked`) as batches.

    Rows of past batches are not kept: an earlier batch is read again from the beginning of its
    epoch, which is impossible for an iterator (a generator).
    """

    def __init__(self, source: Any, specs: Sequence[InputSpec] = (), buffer: int = BUFFER):
        self._source, self._specs, self._buffer = source, tuple(specs), buffer
        self._is_iterator = hasattr(source, "__next__")
        self._peeked: list[Any] = []  # rows of an iterator that ``example`` read
        self._batching: tuple[int, int] | None = None  # batch size, seed
        self._first_batches: dict[int, int] = {0: 0}  # epoch -> the number of its first batch
        self._epoch = self._next = 0  # of the next batch in ``_rows``
        self._rows: Iterator[Any] | None = None

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}  # a worker reads its own rows

    @property
    def position(self) -> Mapping[str, int]:
        """The position of the data: the epoch, the number of its first batch, the batch size."""
        if self._rows is None or self._batching is None:
            return {}
        return {
            "epoch": self._epoch,
            "first": self._first_batches[self._epoch],
            "batch": self._batching[0],
        }

    def resume_at(self, position: Any) -> None:
        """Start at an earlier run's :attr:`position`: the epochs before it need not be read.

        An invalid position is ignored, because everything can be found from the first row.
        """
        try:
            epoch, first, size = (int(position[name]) for name in ("epoch", "first", "batch"))
        except (TypeError, ValueError, KeyError):
            return
        if 0 < epoch <= first and self._rows is None:
            self._batching, self._first_batches = (size, 0), {0: 0, epoch: first}

    def check(self, number: int, size: int) -> None:
        """Raise UserError if batch ``number`` cannot be reached."""
        if self._is_iterator and number != self._next:
            raise UserError(
                f"the data can be read only once, and iteration {number + 1} is out of reach",
                "data",
                _RESTART_FIX,
            )

    def example(self, size: int) -> tuple[np.ndarray, ...]:
        """Return the first rows of the data for a compile, without losing them."""
        with user_data_errors():
            rows = list(islice(iter(self._source), size))
        if self._is_iterator:
            self._peeked += rows
        return stacked(rows, self._specs)

    def batch(
        self, number: int, size: int, seed: int, drop_last: bool | None = True
    ) -> tuple[np.ndarray, ...]:
        """Return batch ``number`` (from 0 on, through all epochs) of ``size`` rows.

        The remainder at the end of an epoch is a smaller batch, or left out with ``drop_last``
        (and by default: how many rows there are is unknown).
        """
        self._seek(number, size, seed)
        while True:
            with user_data_errors():
                rows = list(islice(self._rows or (), size))
            is_first = self._next == self._first_batches[self._epoch]
            if len(rows) < size and (drop_last is not False or is_first or not rows):
                self._end_epoch(len(rows), size)
                continue
            self._next += 1
            if self._next > number:
                return stacked(rows, self._specs, numbered=False)

    def _seek(self, number: int, size: int, seed: int) -> None:
        """Advance to the epoch of a batch, or rewind to one before it."""
        if self._rows is not None and (size, seed) == self._batching and number >= self._next:
            return
        self.check(number, size)
        if self._batching is not None and self._batching[0] != size:
            self._first_batches = {0: 0}
        self._batching = size, seed
        self._begin_epoch(max(e for e, first in self._first_batches.items() if first <= number))

    def _end_epoch(self, rest: int, size: int) -> None:
        """End an epoch that has no further batch."""
        if self._next == self._first_batches[self._epoch]:
            epoch = f" in epoch {self._epoch + 1}" if self._epoch else ""
            fix = _RESTART_FIX if self._epoch else "pass more examples or a smaller batch"
            raise UserError(f"batch size {size} exceeds the {rest} examples{epoch}", "data", fix)
        if self._is_iterator:
            raise UserError(
                f"the data can be read only once, and iteration {self._next + 1} would start epoch "
                f"{self._epoch + 2}",
                "data",
                f"{_RESTART_FIX}, or run {self._next} iterations",
            )
        self._first_batches[self._epoch + 1] = self._next
        self._begin_epoch(self._epoch + 1)

    def _begin_epoch(self, epoch: int) -> None:
        assert self._batching is not None
        with user_data_errors():
            if hasattr(self._source, "set_epoch"):
                self._source.set_epoch(epoch)
            rows = chain(self._peeked, iter(self._source))
        self._peeked = []
        self._epoch, self._next = epoch, self._first_batches[epoch]
        self._rows = shuffled(rows, self._batching[1], epoch, self._buffer)


def shuffled(rows: Iterator[Any], seed: int, epoch: int, buffer: int) -> Iterator[Any]:
    """Yield the rows of an epoch, each drawn from the next ``buffer`` ones."""
    words = _words(seed, epoch)
    held = list(islice(rows, buffer))
    for row in rows:
        index = next(words) % len(held)
        yield held[index]
        held[index] = row
    while held:
        index = next(words) % len(held)
        held[index], held[-1] = held[-1], held[index]
        yield held.pop()


def _words(seed: int, epoch: int) -> Iterator[int]:
    from core_compiler.numerics.reference.random import random_bits

    first = 0
    while True:
        yield from random_bits((_WORDS_PER_CALL,), seed, STREAM, epoch, first=first).tolist()
        first += _WORDS_PER_CALL
