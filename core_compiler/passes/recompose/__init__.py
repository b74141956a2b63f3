"""Recompose: composites that arrive as primitives are raised to the ops they implement.

Each file has the forms of one family: the primitives that ONNX, PyTorch, JAX, Keras and TensorFlow
decompose an op into.  The result has the semantics of the composite's own decomposition, which may
round differently from the primitives: every rule declares its tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.passes import canonicalise
from core_compiler.passes.base import Pass
from core_compiler.passes.recompose import (
    activation,
    attention,
    loss,
    normalization,
    rotary,
    softmax,
    special,
)
from core_compiler.passes.rules import apply_rules

#: Selections whose condition became known by folding since canonicalise ran.
DECIDED = tuple(r for r in canonicalise.RULES if r.name.startswith(("select(true", "select(false")))

RULES = (
    *DECIDED,
    *special.RULES,
    *activation.RULES,
    *softmax.RULES,
    *normalization.RULES,
    *rotary.RULES,
    *attention.RULES,
    *loss.RULES,
)

SMOOTH = tuple(rule for rule in RULES if not rule.changes_subgradient)


@dataclass(frozen=True)
class Recompose(Pass):
    """Raise softmax, normalisations, activations, attention and losses that arrive in primitives.

    The composite's own decomposition defines the result; each rule declares its tolerance.
    ``kinks`` False excludes the rules that change the subgradient where branches meet (the max(x,
    0) that would be a relu): a training step has the gradients of the model as written.
    """

    exact = False
    tolerance = (
        "the composite rounds at other points: 2e-6 per rule, 1e-5 for attention, 1e-4 where a "
        "variance was a difference of squares"
    )

    kinks: bool = True

    @override
    def table(self):
        return RULES if self.kinks else SMOOTH

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, self.table(), module.weights))
