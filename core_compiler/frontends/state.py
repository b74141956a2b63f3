"""State of imported models, which enters main as arguments and leaves it as results."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from core_compiler.frontends.loop_trips import number_trips
from core_compiler.frontends.random_numbers import ITERATION, SEED, Draws
from core_compiler.ir import Block, Function, Op, Origin, Value, tensor
from core_compiler.ops.builder import Builder
from core_compiler.support.errors import UserError


class State:
    """The state of one model by name: statistics, counters, caches."""

    def __init__(self) -> None:
        self._initial: dict[str, tuple[Value, np.ndarray]] = {}
        self._next: dict[str, Value] = {}

    def add_state(self, name: str, array: np.ndarray, argument_name: str = "") -> Value:
        """Add a state ``name`` with the initial value ``array`` and return its argument.

        ``argument_name`` is the argument's name if it differs.
        """
        argument = Value(tensor(array.shape, array.dtype), argument_name or name)
        self._initial[name] = argument, array
        return argument

    @property
    def names(self) -> Set[str]:
        """Return the names of the states."""
        return self._initial.keys()

    def current(self, name: str) -> Value | None:
        """Return the current value of a state after all changes so far; None if it is unknown."""
        entry = self._initial.get(name)
        return None if entry is None else self._next.get(name, entry[0])

    def set_next(self, name: str, value: Value) -> None:
        self._next[name] = value

    def count_iterations(self, draws: Draws) -> list[Op]:
        """Add the seed and iteration of a training step as state; return the ops that update it.

        The iteration increases by one per step.  Raise UserError if the model has state of these
        names.
        """
        seed, iteration = draws.given
        b = Builder(origin=Origin.synthetic("import", "training counts iterations"))
        after = {SEED: seed, ITERATION: b.add(iteration, b.constant(1, "i64"))}
        for value in draws.given:
            name = str(value.name)
            if name in self._initial:
                raise UserError(
                    f"buffer name {name} is reserved for the training step",
                    "training",
                    "rename the model's buffer",
                )
            self._initial[name] = value, np.zeros((), np.int64)
            self._next[name] = after[name]
        return b.ops

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the initial values in the order of their arguments."""
        return tuple(array for _, array in self._initial.values())

    def results(self) -> dict[str, Value]:
        """Return the next value of each state, by the name of its result."""
        return {
            f"{name} (next)": self._next.get(name, argument)
            for name, (argument, _) in self._initial.items()
        }

    def function(
        self,
        arguments: Sequence[Value],
        ops: Sequence[Op],
        outputs: Sequence[Value],
        result_count: int,
    ) -> Function:
        """Return ``main`` of a model with ``result_count`` results, its state after ``arguments``.

        The results in ``outputs`` after those are the ones of :meth:`results`.
        """
        parts = tuple(value for value, _ in self._initial.values())
        block = Block((*arguments, *parts), number_trips(ops), tuple(outputs))
        aliases = tuple((result_count + i, len(arguments) + i) for i in range(len(parts)))
        facts: dict[str, Any] = {"aliases": aliases} if aliases else {}
        return Function("main", block, attributes=facts)
