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
from core_compiler.training.run.rows import Wanted, stacked, theirs

#: Number of rows among which the next one is drawn.
BUFFER = 1024
#: The random stream that draws them, and the number of words generated at once.
STREAM, _TOGETHER = 0xFFFF_0001, 4096

_ANEW = "pass an object whose __iter__ starts over, such as a torch dataset"


class Stream:
    """An iterable of rows (see :func:`~core_compiler.training.run.rows.stacked`) as batches.

    Rows of past batches are not kept: an earlier batch is read again from the beginning of its
    epoch, which is impossible for an iterator (a generator).
    """

    def __init__(self, source: Any, wanted: Sequence[Wanted] = (), buffer: int = BUFFER):
        self._source, self._wanted, self._buffer = source, tuple(wanted), buffer
        self._once = hasattr(source, "__next__")
        self._peeked: list[Any] = []  # rows of an iterator that ``example`` read
        self._how: tuple[int, int] | None = None  # batch size, seed
        self._starts: dict[int, int] = {0: 0}  # epoch -> the number of its first batch
        self._epoch = self._next = 0  # of the next batch in ``_rows``
        self._rows: Iterator[Any] | None = None

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}  # a worker reads its own rows

    @property
    def place(self) -> Mapping[str, int]:
        """The position of the data: the epoch, the number of its first batch, the batch size."""
        if self._rows is None or self._how is None:
            return {}
        return {"epoch": self._epoch, "first": self._starts[self._epoch], "batch": self._how[0]}

    def begin_at(self, place: Any) -> None:
        """Start at an earlier run's :attr:`place`: the epochs before it need not be read.

        An invalid position is ignored, because everything can be found from the first row.
        """
        try:
            epoch, first, size = (int(place[name]) for name in ("epoch", "first", "batch"))
        except (TypeError, ValueError, KeyError):
            return
        if 0 < epoch <= first and self._rows is None:
            self._how, self._starts = (size, 0), {0: 0, epoch: first}

    def check(self, number: int, size: int) -> None:
        """Raise UserError if batch ``number`` cannot be reached."""
        if self._once and number != self._next:
            raise UserError(
                f"the data can be read only once, and iteration {number + 1} is out of reach",
                "data",
                _ANEW,
            )

    def example(self, size: int) -> tuple[np.ndarray, ...]:
        """Return the first rows of the data for a compile, without losing them."""
        with theirs():
            rows = list(islice(iter(self._source), size))
        if self._once:
            self._peeked += rows
        return stacked(rows, self._wanted)

    def batch(self, number: int, size: int, seed: int) -> tuple[np.ndarray, ...]:
        """Return batch ``number`` (from 0 on, through all epochs) of ``size`` rows.

        The remainder at the end of an epoch is left out.
        """
        self._reach(number, size, seed)
        while True:
            with theirs():
                rows = list(islice(self._rows or (), size))
            if len(rows) < size:
                self._end(len(rows), size)
                continue
            self._next += 1
            if self._next > number:
                return stacked(rows, self._wanted, numbered=False)

    def _reach(self, number: int, size: int, seed: int) -> None:
        """Advance to the epoch of a batch, or rewind to one before it."""
        if self._rows is not None and (size, seed) == self._how and number >= self._next:
            return
        self.check(number, size)
        if self._how is not None and self._how[0] != size:
            self._starts = {0: 0}
        self._how = size, seed
        self._begin(max(e for e, first in self._starts.items() if first <= number))

    def _end(self, rest: int, size: int) -> None:
        """End an epoch that has no further batch."""
        if self._next == self._starts[self._epoch]:
            epoch = f" in epoch {self._epoch + 1}" if self._epoch else ""
            fix = _ANEW if self._epoch else "pass more examples or a smaller batch"
            raise UserError(f"batch size {size} exceeds the {rest} examples{epoch}", "data", fix)
        if self._once:
            raise UserError(
                f"the data can be read only once, and iteration {self._next + 1} would start epoch "
                f"{self._epoch + 2}",
                "data",
                f"{_ANEW}, or run {self._next} iterations",
            )
        self._starts[self._epoch + 1] = self._next
        self._begin(self._epoch + 1)

    def _begin(self, epoch: int) -> None:
        assert self._how is not None
        with theirs():
            if hasattr(self._source, "set_epoch"):
                self._source.set_epoch(epoch)
            rows = chain(self._peeked, iter(self._source))
        self._peeked = []
        self._epoch, self._next = epoch, self._starts[epoch]
        self._rows = shuffled(rows, self._how[1], epoch, self._buffer)


def shuffled(rows: Iterator[Any], seed: int, epoch: int, buffer: int) -> Iterator[Any]:
    """Yield the rows of an epoch, each drawn from the next ``buffer`` ones."""
    words = _words(seed, epoch)
    held = list(islice(rows, buffer))
    for row in rows:
        place = next(words) % len(held)
        yield held[place]
        held[place] = row
    while held:
        place = next(words) % len(held)
        held[place], held[-1] = held[-1], held[place]
        yield held.pop()


def _words(seed: int, epoch: int) -> Iterator[int]:
    from core_compiler.numerics.reference.random import random_bits

    first = 0
    while True:
        yield from random_bits((_TOGETHER,), seed, STREAM, epoch, first=first).tolist()
        first += _TOGETHER
