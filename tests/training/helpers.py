"""A training step evaluated by the reference: quick, and without a target."""

from __future__ import annotations

import numpy as np

from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver.legality import levels
from core_compiler.frontends.base import Imported
from core_compiler.frontends.pytorch import import_module
from core_compiler.ir import Module
from core_compiler.ir.verifier import verify
from core_compiler.passes.base import PassContext
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.training.config import Training
from core_compiler.training.graph.joint import Joint, build_joint, names
from core_compiler.training.graph.roles import Roles
from core_compiler.training.passes import pipeline


def _begun(imported: Imported, training: Training) -> Joint:
    tied = imported.facts.get("tied", ())
    return build_joint(
        imported.module, training, inputs=imported.inputs, buffers=imported.state, tied=tied
    )


def joint_of(model, inputs, training: Training) -> Joint:
    """What a training compile of a torch module begins with."""
    imported = import_module(model.train(), inputs, training=True)
    return _begun(imported, training)


def after_passes(module: Module, training: Training, context: PassContext | None = None) -> Module:
    """The module after the passes of training, verified after each."""
    context = context or PassContext()
    for pass_ in (SimplifyLoops(), *pipeline(training)):
        module = pass_.run(module, context)
        found = [str(d) for d in verify(module, levels()) if d.severity == "error"]
        assert not found, (pass_.name(), found)
    return module


class Reference:
    """A training step by the reference; called with a batch it returns the loss."""

    def __init__(self, model, inputs, training: Training):
        self._begin(joint_of(model, inputs, training), training)

    @staticmethod
    def on(imported: Imported, training: Training) -> Reference:
        """Of a model that a frontend read as it trains."""
        made = Reference.__new__(Reference)
        made._begin(_begun(imported, training), training)
        return made

    def _begin(self, joint: Joint, training: Training) -> None:
        self.places, self.first = names(joint.roles), len(joint.roles.numbers("batch"))
        self.roles, self.state = joint.roles, [np.array(a) for a in joint.state]
        self.module = after_passes(joint.module, training)

    def __call__(self, *batch) -> float:
        arrays = [np.asarray(a) for a in batch] + self.state
        made = Evaluator(self.module.weights).block(self.module.main.body, arrays)
        rows = Roles.of(self.module.main).results
        self.state = list(self.state)
        for (role, of), array in zip(rows, made, strict=True):
            if role == "next":
                self.state[of - self.first] = array
        return float(made[rows.index(("loss", -1))])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.state[self.places[name] - self.first]
