"""The shards of a batch on one device: the same program for each, and their exchanges.

Shards meet in rounds of exchanges (rendezvous).  If statistics of the whole batch are needed in the
middle of a program, all shards must be present: each has its own memory.  If they meet once, at the
end, they run one after another in one memory, and their contributions are added on the way: this is
gradient accumulation, in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from core_compiler.numerics.reference.collective import tree_sum
from core_compiler.numerics.reference.dtypes import cast, widen
from core_compiler.runtime.device import Executable, Parts, Watcher
from core_compiler.support.errors import InternalError

#: Maps the contributions of the caller's shards to a round, in order, to the sums over all.
Join = Callable[[Iterable[Sequence[np.ndarray]]], Sequence[np.ndarray]]


class ShardWatcher(Watcher, Protocol):
    shard: int


class Tree:
    """A sum over shards that arrive in order, keeping as few arrays as the tree allows.

    It has the same bits as :func:`tree_sum` of all, which rounds once, so partial sums are wide.
    """

    def __init__(self) -> None:
        self._held: list[tuple[int, Sequence[np.ndarray]]] = []  # number of shards, their sums
        self._dtypes: list[np.dtype] = []

    def add(self, arrays: Sequence[np.ndarray]) -> None:
        """Add one more shard; its arrays may change afterwards."""
        self._dtypes = [a.dtype for a in arrays]
        count, made = 1, arrays
        while self._held and self._held[-1][0] == count:
            count, made = 2 * count, self._joined(made)
        self._held.append((count, [np.array(widen(a)) for a in made] if count == 1 else made))

    def total(self) -> Sequence[np.ndarray]:
        _, made = self._held.pop()
        while self._held:
            made = self._joined(made)
        pairs = zip(made, self._dtypes, strict=True)
        return [a if a.dtype == dtype else cast(a, dtype) for a, dtype in pairs]

    def _joined(self, right: Sequence[np.ndarray]) -> list[np.ndarray]:
        _, left = self._held.pop()
        return [tree_sum(pair, out=pair[0]) for pair in zip(left, right, strict=True)]


def join_locally(given: Iterable[Sequence[np.ndarray]]) -> Sequence[np.ndarray]:
    """Return the sums of a round in which all shards are the caller's."""
    tree = Tree()
    for arrays in given:
        tree.add(arrays)
    return tree.total()


class Shards:
    """Some shards of a batch, run together; ``own`` are their numbers.

    ``load`` loads the program again, with its own memory.  ``join`` returns the sums of
    contributions over all shards; each must contribute to every round, in order.
    """

    #: Called with launches that have ended, and the number of their shard.
    watch: ShardWatcher | None = None

    def __init__(
        self, load: Callable[[], Executable], own: Sequence[int], join: Join = join_locally
    ):
        first, count = load(), len(own)
        self.rounds = len(first.program.rounds())
        if not self.rounds:
            raise InternalError(f"the shards of {first.program.name} have no exchange")
        self.executables = [first, *(load() for _ in range(count - 1) if self.rounds > 1)]
        self.own, self.join = own, join

    def __call__(
        self, given: Sequence[Sequence], out: Mapping[int, np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return the outputs of the given shards, each with a list of arrays.

        Outputs after an exchange are the same for all shards; others are those of the first.
        """
        if self.rounds == 1:
            return self._run_sequentially(given, out)
        return self._run_in_lockstep(given, out)

    def _listen(self, executable: Executable, shard: int) -> None:
        executable.watch = self.watch
        if self.watch is not None:
            self.watch.shard = shard

    def _run_sequentially(self, given, out) -> tuple[np.ndarray, ...]:
        """Run the shards one after another in one memory."""
        running: list[tuple[Parts, list[np.ndarray]]] = []

        def contributions() -> Iterator[list[np.ndarray]]:
            for number, arrays in zip(self.own, given, strict=True):
                while running:
                    running.pop()[0].close()
                self._listen(self.executables[0], number)
                parts = self.executables[0].parts(arrays, out)
                pairs = next(parts)
                running.append((parts, [target for _, target in pairs]))
                yield [source for source, _ in pairs]

        try:
            sums = self.join(contributions())
            parts, targets = running[0]
            _store_sums(sums, targets)
            return _finish(parts)
        finally:
            for parts, _ in running:
                parts.close()

    def _run_in_lockstep(self, given, out) -> tuple[np.ndarray, ...]:
        """Run all shards together, from exchange to exchange."""
        runs = [
            executable.parts(arrays, out, whole=executable is self.executables[0])
            for executable, arrays in zip(self.executables, given, strict=True)
        ]
        try:
            for _ in range(self.rounds):
                exchanged = []
                for number, executable, parts in zip(self.own, self.executables, runs, strict=True):
                    self._listen(executable, number)
                    exchanged.append(next(parts))
                sums = self.join([source for source, _ in pairs] for pairs in exchanged)
                for pairs in exchanged:
                    _store_sums(sums, [target for _, target in pairs])
            self._listen(self.executables[0], self.own[0])
            return _finish(runs[0])
        finally:
            for parts in runs:
                parts.close()


def _store_sums(sums: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
    for target, made in zip(targets, sums, strict=True):
        target[...] = made


def _finish(parts: Parts) -> tuple[np.ndarray, ...]:
    """Run the rest and return the outputs."""
    try:
        next(parts)
    except StopIteration as end:
        return end.value
    raise InternalError("a program runs more rounds of exchanges than it declares")
