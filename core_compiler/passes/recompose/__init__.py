"""Recompose: composites that arrive in primitives are raised to the ops they are.

Each file has the spellings of one family: what ONNX, PyTorch, JAX, Keras and TensorFlow make of an
op when they take it apart.  The composite's own decomposition is then its meaning, which may round
differently from the primitives: every rule states its tolerance.
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

#: Choices that folding has decided since canonicalise ran.
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

SMOOTH = tuple(rule for rule in RULES if not rule.kink)


@dataclass(frozen=True)
class Recompose(Pass):
    """Raises softmax, normalisations, activations, attention and losses that arrive in primitives.

    The composite's own decomposition becomes the meaning; each rule states its tolerance.
    ``kinks`` False leaves out the rules whose result has another slope where branches meet (the
    max(x, 0) that would be a relu): a training step has the gradients of what was written.
    """

    exact = False
    tolerance = (
        "the composite rounds in its own places: 2e-6 a rule, 1e-5 for attention, 1e-4 where a "
        "variance was a difference of squares"
    )

    kinks: bool = True

    @override
    def table(self):
        return RULES if self.kinks else SMOOTH

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, self.table(), module.weights))
