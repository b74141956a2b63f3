"""Scale the loss: differentiate the loss times a factor."""

from __future__ import annotations

from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Module
from core_compiler.ir.claims import Formula
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.loss_scale import Dynamic, LossScale


@dataclass(frozen=True)
class ScaleLoss(Pass):
    """Multiply the differentiated loss by a factor, so that small gradients do not underflow to 0.

    The loss that the step returns is not scaled.
    """

    mandatory = True
    requires = frozenset({"tensor_ops"})
    ensures = frozenset({"scaled_loss"})
    scale: LossScale = field(default_factory=Dynamic)

    @override
    def options(self):
        return {"scale": repr(self.scale)}

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        place = roles.result("loss")
        assert place is not None
        rw = context.rewriter(main.body)
        b = Builder(module.weights)
        state = roles.scalars(main, self.scale.state)
        factor = self.scale.factor(b, state)
        loss = main.outputs[place]
        scaled = b.mul(loss, as_dtype(b, factor, loss.type.dtype))
        claim = Formula(
            "the scaled loss", {"loss": loss, **state}, {"made": scaled}, {"scale": self.scale}
        )
        rw.insert(
            b.ops,
            rule="scale the loss",
            reason="the configuration scales its gradients",
            claim=claim,
        )
        results = [*zip(roles.results, main.outputs, strict=True), (("scaled", -1), scaled)]
        return context.with_function(
            module, roles.applied(main.with_(body=rw.commit()), results), rule="roles of results"
        )
