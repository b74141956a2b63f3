"""A training step's program for one size of its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from core_compiler.ops.positions import Positions
from core_compiler.runtime.device import Executable
from core_compiler.runtime.program import Program
from core_compiler.runtime.shards import Join, Shards
from core_compiler.training.audit.probes import Probes, find_probes

Shapes = tuple[tuple[int, ...], ...]


@dataclass(eq=False)
class BoundStep:
    """The program for one size of the batch; it is loaded on first use.

    The state belongs to the step: all of its programs read and write the same arrays. ``load``
    loads the program, each time with its own memory.
    """

    load: Callable[[], Executable]
    positions: Positions | None = None
    #: The compile with all stages; None in a worker, which has the program only.
    compilation: Any = None
    run: Any = field(default=None, init=False)

    def loaded(self, shards: int, own: Sequence[int], join: Join) -> Program:
        """Load the program for the shards ``own`` of a batch, and return it."""
        if shards == 1:
            self.run = self.run or self.load()
        elif self.run is None or len(self.run.own) != len(own):
            self.run = Shards(self.load, own, join)
        else:
            self.run.own, self.run.join = own, join
        return self.executables[0].program

    @property
    def executables(self) -> Sequence[Executable]:
        """The loaded executables, one after another or for all shards; empty before the first."""
        if isinstance(self.run, Shards):
            return self.run.executables
        return [] if self.run is None else [self.run]

    @property
    def bytes(self) -> int:
        """The memory of the loaded program: its own, without the state."""
        return sum(
            e.program.memory_bytes(getattr(e.device, "threads", 1)) for e in self.executables
        )

    @cached_property
    def probes(self) -> Probes:
        """The values of the program that are in memory, with their locations."""
        self.compilation.finish()
        return find_probes(self.compilation)


class OtherBatches(Protocol):
    """The programs of a step for batches of other sizes."""

    def bound(self, batch: Sequence[np.ndarray]) -> BoundStep:
        """Return the program for a batch (of one shard); UserError if there can be none."""

    def loaded(self) -> Sequence[BoundStep]:
        """Return the programs that are kept."""


def shapes_of(batch: Sequence[np.ndarray]) -> Shapes:
    return tuple(array.shape for array in batch)
