"""Iterations of a training step on batches of other sizes than the example's.

The last batch of an epoch may be smaller, say.  The step is begun again for the new sizes and takes
the same passes; its kernels are generic in sizes.  The state is the step's: parameters, statistics
and the optimiser's state have the same sizes in all of its programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from core_compiler.driver.other_sizes import OtherSizes
from core_compiler.frontends.base import Imported
from core_compiler.support.errors import UserError
from core_compiler.training.graph.joint import Joint
from core_compiler.training.graph.roles import Roles
from core_compiler.training.run.bound import BoundStep

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation
    from core_compiler.training.run.step import TrainingStep

Reopen = Callable[[Sequence[np.ndarray]], tuple[Imported, Joint]]


class OtherBatches(OtherSizes):
    """The programs of a training step at other sizes of its batch.

    ``reopen`` begins the step again for a batch of one shard.
    """

    def __init__(self, step: TrainingStep, reopen: Reopen):
        super().__init__(step.compilation, self._begin)
        self._step, self._begin_step = step, reopen

    def bound(self, batch: Sequence[np.ndarray]) -> BoundStep:
        """Return the program for a batch (of one shard); UserError if the model permits none."""
        self._check_dtypes(batch)
        self._made.finish()
        found: Any = self.bind(batch, batch)
        return found

    def loaded(self) -> Sequence[BoundStep]:
        programs: list[Any] = list(self._bound.values())
        return programs

    def _check_dtypes(self, batch: Sequence[np.ndarray]) -> None:
        arguments = self._made.stages[0].module.main.arguments
        for argument, array, name in zip(arguments, batch, self._made.names[0], strict=False):
            wanted = argument.type.dtype.numpy
            if array.dtype != wanted:
                raise UserError(
                    f"expected {wanted}, got {array.dtype}",
                    f"training step, input {name!r}",
                    f"convert it, for example with .astype('{wanted}')",
                )

    def _begin(self, batch: Sequence[np.ndarray]) -> Imported:
        """Return the start of the step as an import, whose state is that of the step."""
        imported, joint = self._begin_step(batch)
        shapes = [a.type.shape for a in joint.module.main.arguments[len(batch) :]]
        own = self._made.stages[0].module.main.arguments[len(batch) :]
        if shapes != [a.type.shape for a in own]:
            raise UserError(
                "the model has parameters of other sizes for this batch",
                "training step",
                "compile a step for it",
            )
        self._check_fixed(joint)
        assert self._made.inputs is not None
        state = tuple(self._made.inputs[len(batch) :])
        return replace(imported, module=joint.module, state=state)

    def _check_fixed(self, joint: Joint) -> None:
        """Raise UserError if what is not trained has changed since the step was compiled."""
        for name, held in self._step.fixed.items():
            now = joint.fixed.get(name)
            if now is None or now().tobytes() != held().tobytes():
                raise UserError(
                    f"{name} is not trained and has changed since the compile",
                    "training step",
                    "compile the step again",
                )

    @override
    def _make(self, shapes, arrays) -> tuple[Any, str, int]:
        imported = self.open(arrays)
        made, fresh = self._compile(imported, (*arrays, *imported.state))
        if Roles.of(made.module.main) != Roles.of(self._made.module.main):
            raise UserError(
                "the step has other results at these sizes", "training step", "compile it for them"
            )
        program, constants, *_ = made.facts["program"]

        def load() -> Any:
            own = self._step.executable
            like = own if self._step.shards == 1 else None  # shards have memory of their own
            return own.device.load(program, constants, like)

        return BoundStep(load, imported.positions, made), "compiled", fresh

    @override
    def _name(self, made: Compilation, imported: Imported) -> None:
        made.set_names(self._made.names[0], [])
        made.check_import(imported)

    @override
    def _bytes(self, bound: Any) -> int:
        return bound.bytes or bound.compilation.facts["program"][0].memory_bytes(1)
