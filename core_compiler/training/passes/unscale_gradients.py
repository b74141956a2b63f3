"""Unscale gradients: remove the factor of the loss from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Module, Value
from core_compiler.ir.claims import Formula
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.gradients.table import Term, rounded
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.loss_scale import Dynamic, LossScale


@dataclass(frozen=True)
class UnscaleGradients(Pass):
    """Multiply the gradients by the reciprocal of the loss scale, and report non-finite ones.

    Whether all gradients are finite is a separate result. As in
    ``torch.amp.GradScaler.unscale_``, both happen before clipping, on the gradients as they
    arrive.
    """

    mandatory = True
    changes_semantics = True
    requires = frozenset({"gradients", "scaled_loss"})
    ensures = frozenset({"finiteness"})
    invalidates = frozenset({"scaled_loss"})
    scale: LossScale = field(default_factory=Dynamic)

    @override
    def options(self):
        return {"scale": repr(self.scale)}

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        outputs = list(main.outputs)
        rw = context.rewriter(main.body)
        b = Builder(module.weights)
        state = roles.scalars(main, self.scale.state)
        factor = self.scale.factor(b, state)
        inverse = (1 / Term(b, factor)).value
        claim = Formula(
            "one over the loss's factor",
            state,
            {"made": inverse},
            {"scale": self.scale},
            frozenset(state),
        )
        rw.insert(
            b.ops,
            rule="one over the loss's factor",
            reason="gradients are multiplied by it",
            claim=claim,
        )
        seen: list[Value] = []
        for parameter, place in roles.gradients().items():
            b = Builder(module.weights)
            g = outputs[place]
            whole = b.reduce_and(b.is_finite(g), axes=tuple(range(g.type.rank)))
            seen.append(b.reshape(whole, shape=(1,)))
            wide = widened(b, g)
            share = b.expand(as_dtype(b, inverse, wide.type.dtype), g.type.shape)
            outputs[place] = rounded(b, b.mul(wide, share), g)
            name = roles.arguments[parameter][1]
            claim = Formula(
                "an unscaled gradient",
                {"x": g, "factor": inverse},
                {"made": outputs[place], "finite": seen[-1]},
            )
            rw.insert(
                b.ops, rule="unscale a gradient", reason=f"the gradient of {name}", claim=claim
            )
        b = Builder(module.weights)
        joined = b.concat(*seen, axis=0) if seen else b.constant([True])
        finite = b.reduce_and(joined, axes=(0,))
        claim = Formula(
            "whether all are finite", {str(i): v for i, v in enumerate(seen)}, {"made": finite}
        )
        rw.insert(
            b.ops,
            rule="are all gradients finite",
            reason="otherwise the parameters do not change",
            claim=claim,
        )
        results = [*zip(roles.results, outputs, strict=True), (("finite", -1), finite)]
        return context.with_function(
            module, roles.applied(main.with_(body=rw.commit()), results), rule="roles of results"
        )
