"""The compiled training step: state in, state out, the loss of every call."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.errors import UserError
from core_compiler.training.joint import names
from core_compiler.training.roles import ITERATION, Roles


class TrainingStep:
    """A compilation in training mode, as a callable that keeps its state.

    ``step(*batch)`` runs one iteration on a batch (the model's inputs, then the targets where the
    loss has some) and returns the loss, a Python float.
    """

    def __init__(self, compilation: Any, roles: Roles, state: Sequence[np.ndarray]):
        self.compilation, self.roles = compilation, roles
        self.batch = len(roles.numbers("batch"))
        self.state = [np.array(a) for a in state]
        self._places = names(roles)

    def __call__(self, *batch: Any) -> float:
        if len(batch) != self.batch:
            wanted = ", ".join(self.roles.arguments[i][1] for i in self.roles.numbers("batch"))
            raise UserError(f"{len(batch)} tensors given, a batch is {wanted}", "training step",
                            "give the model's inputs, then the targets")  # fmt: skip
        results = self.compilation.executable(*batch, *self.state)
        rows = Roles.of(self.compilation.stages[-1].module.main).results
        for (role, of), array in zip(rows, results, strict=True):
            if role == "next":
                self.state[of - self.batch] = array
        return float(results[rows.index(("loss", -1))])

    @property
    def iteration(self) -> int:
        """How many iterations have been done."""
        return int(self.state[self._places[ITERATION] - self.batch])

    def state_dict(self) -> dict[str, np.ndarray]:
        """Parameters and buffers by the model's names, copied."""
        return {
            name: np.array(self.state[place - self.batch])
            for name, place in self._places.items()
            if self.roles.arguments[place][0] in ("parameter", "buffer")
        }

    def whole_state(self) -> dict[str, np.ndarray]:
        """All that the next iteration depends on, by name, copied."""
        return {n: np.array(self.state[p - self.batch]) for n, p in self._places.items()}

    def load_state_dict(self, held: Mapping[str, Any]) -> None:
        """Set parameters, buffers or any other state by name.  UserError names what does not fit;
        then nothing is changed."""
        fresh = {}
        for name, given in held.items():
            if name not in self._places:
                raise UserError(f"the step has no {name!r}", "load_state_dict",
                                "give the names of state_dict or whole_state")  # fmt: skip
            place = self._places[name] - self.batch
            array, old = np.asarray(given), self.state[place]
            if array.shape != old.shape or array.dtype != old.dtype:
                raise UserError(f"{name} is {array.dtype}{list(array.shape)}, wanted "
                                f"{old.dtype}{list(old.shape)}", "load_state_dict",
                                "give arrays of the model's own shapes and dtypes")  # fmt: skip
            fresh[place] = array
        for place, array in fresh.items():
            self.state[place] = np.array(array)

    @property
    def digest(self) -> str:
        """SHA-256 over all parameters, buffers and the optimiser's state, in order."""
        from core_compiler.kernels.reference.digest import digest

        parts = [digest([a]) for a in self.state]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
