"""The compiled training step: state in, state out, the loss of every call."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.errors import UserError
from core_compiler.ir import Module, dtype
from core_compiler.kernels.reference.dtypes import widen
from core_compiler.ops.base import evaluate
from core_compiler.training.joint import names
from core_compiler.training.roles import ITERATION, Roles


def first_not_finite(module: Module, arrays: Sequence[np.ndarray]) -> str | None:
    """The first op of main, as a person finds it, that makes a NaN of none, or an infinity of
    finite numbers; None where there is none."""
    values = dict(zip(module.main.arguments, arrays, strict=True))
    for op in module.main.body.ops:
        given = [values[v] for v in op.operands]
        made = evaluate(op, given, module.weights, values if op.regions else None)
        values.update(zip(op.results, made, strict=True))
        if given and _spoils(given, made):
            nodes = op.origin.nodes() if op.origin is not None else ()
            place = next((f" ({n.file}:{n.line})" for n in nodes if n.file), "")
            return f"{op.kind}{place}"
    return None


def _spoils(given: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> bool:
    def has(arrays: Sequence[np.ndarray], test: Any) -> bool:
        return any(dtype(a.dtype).is_float and bool(test(widen(a)).any()) for a in arrays)

    if has(made, np.isnan):
        return not has(given, np.isnan)
    return has(made, np.isinf) and not (has(given, np.isinf) or has(given, np.isnan))


class TrainingStep:
    """A compilation in training mode, as a callable that keeps its state.

    ``step(*batch)`` runs one iteration on a batch (the model's inputs, then the targets where the
    loss has some) and returns the loss, a Python float.
    """

    def __init__(
        self, compilation: Any, roles: Roles, state: Sequence[np.ndarray],
        tied: Sequence[Sequence[str]] = (),
    ):  # fmt: skip
        self.compilation, self.roles = compilation, roles
        self.batch = len(roles.numbers("batch"))
        self.state = [np.array(a) for a in state]
        self._places = names(roles)
        #: Further names of parts of the state -> the name here.
        self._further: dict[str, str] = {}
        for group in tied:
            here = [name for name in group if name in self._places]
            if len(here) == 1:
                self._further |= {name: here[0] for name in group if name != here[0]}
        self._spare: dict[int, np.ndarray] = {}

    def __call__(self, *batch: Any) -> float:
        if len(batch) != self.batch:
            wanted = ", ".join(self.roles.arguments[i][1] for i in self.roles.numbers("batch"))
            raise UserError(f"{len(batch)} tensors given, a batch is {wanted}", "training step",
                            "give the model's inputs, then the targets")  # fmt: skip
        rows = Roles.of(self.compilation.module.main).results
        nexts = {i: of - self.batch for i, (role, of) in enumerate(rows) if role == "next"}
        spare = {i: self._spare[place] for i, place in nexts.items() if place in self._spare}
        results = self.compilation.executable(*batch, *self.state, out=spare)
        loss = float(results[rows.index(("loss", -1))])
        if not math.isfinite(loss):
            raise self._not_finite(loss, [np.asarray(b) for b in batch])
        for i, place in nexts.items():
            # What it was takes the next results: two arrays for each, in turn.
            self._spare[place], self.state[place] = self.state[place], results[i]
        return loss

    def _not_finite(self, loss: float, batch: Sequence[np.ndarray]) -> UserError:
        """Which op first made a number that is not finite of finite ones: by the reference, on the
        state before this iteration, which is kept."""
        meaning = [s for s in self.compilation.stages if s.step is None or s.step.half == "meaning"]
        module = meaning[-1].module
        found = first_not_finite(module, [*batch, *self.state])
        said = f"the loss of iteration {self.iteration + 1} is {loss:g}"
        if found is not None:
            said += f": {found} is the first op that makes such numbers of others"
        return UserError(said, "training step", "lower the learning rate, clip the gradients, or "
                         "mend that op; the state is that of before the iteration")  # fmt: skip

    @property
    def iteration(self) -> int:
        """How many iterations have been done."""
        return int(self.state[self._places[ITERATION] - self.batch])

    def state_dict(self) -> dict[str, np.ndarray]:
        """Parameters and buffers by the model's names, copied; what has several names (tied
        embeddings) by each of them."""
        made = {
            name: np.array(self.state[place - self.batch])
            for name, place in self._places.items()
            if self.roles.arguments[place][0] in ("parameter", "buffer")
        }
        return made | {further: made[name].copy() for further, name in self._further.items()}

    def whole_state(self) -> dict[str, np.ndarray]:
        """All that the next iteration depends on, by name, copied."""
        return {n: np.array(self.state[p - self.batch]) for n, p in self._places.items()}

    def load_state_dict(self, held: Mapping[str, Any]) -> None:
        """Set parameters, buffers or any other state by name, by any name of what has several.
        UserError names what does not fit; then nothing is changed."""
        fresh: dict[int, np.ndarray] = {}
        for name, given in held.items():
            own = self._further.get(name, name)
            if own not in self._places:
                raise UserError(f"the step has no {name!r}", "load_state_dict",
                                "give the names of state_dict or whole_state")  # fmt: skip
            place = self._places[own] - self.batch
            array, old = np.asarray(given), self.state[place]
            if array.shape != old.shape or array.dtype != old.dtype:
                raise UserError(f"{name} is {array.dtype}{list(array.shape)}, wanted "
                                f"{old.dtype}{list(old.shape)}", "load_state_dict",
                                "give arrays of the model's own shapes and dtypes")  # fmt: skip
            before = fresh.setdefault(place, array)
            if before is not array and before.tobytes() != array.tobytes():
                group = [own, *(n for n, tied in self._further.items() if tied == own)]
                raise UserError(f"{' and '.join(group)} are one, and two values are given",
                                "load_state_dict", "give it once")  # fmt: skip
        for place, array in fresh.items():
            self.state[place] = np.array(array)

    @property
    def digest(self) -> str:
        """SHA-256 over all parameters, buffers and the optimiser's state, in order."""
        from core_compiler.kernels.reference.digest import digest

        parts = [digest([a]) for a in self.state]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
