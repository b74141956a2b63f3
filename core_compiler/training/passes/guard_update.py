"""Guard the update: skip it if a gradient is not finite."""

from __future__ import annotations

from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Module
from core_compiler.ir.claims import Formula
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.loss_scale import Dynamic, LossScale
from core_compiler.training.optimisers.optimizers import SGD, Optimizer


@dataclass(frozen=True)
class GuardUpdate(Pass):
    """Keep parameters and the optimiser's state if a gradient is not finite; update the loss scale.

    As in ``torch.amp.GradScaler.step`` and ``update``. The iteration and the model's own state
    still advance.
    """

    changes_semantics = True
    mandatory = True
    requires = frozenset({"finiteness", "updated"})
    invalidates = frozenset({"finiteness", "updated"})
    scale: LossScale = field(default_factory=Dynamic)
    optimizer: Optimizer = field(default_factory=SGD)

    @override
    def options(self):
        return {"scale": repr(self.scale), "optimizer": repr(self.optimizer)}

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        index = roles.result("finite")
        assert index is not None
        finite = main.outputs[index]
        scalar_indices = {roles.number("scalar", n) for n in self.optimizer.scalars}
        guarded = {*roles.numbers("parameter", "slot"), *scalar_indices}
        rw = context.rewriter(main.body)
        b = Builder(module.weights)
        state = roles.scalars(main, self.scale.state)
        made = self.scale.advance(b, state, finite)
        next_scale_state = {roles.number("scalar", name): value for name, value in made.items()}
        claim = Formula(
            "the loss's next factor",
            {"finite": finite, **state},
            made,
            {"scale": self.scale},
            frozenset(state),
        )
        rw.insert(
            b.ops, rule="the loss's next factor", reason="it depends on the gradients", claim=claim
        )
        results = []
        for (role, of), value in zip(roles.results, main.outputs, strict=True):
            if role == "finite":
                continue
            if role == "next" and of in guarded and value is not main.arguments[of]:
                b = Builder(module.weights)
                before = main.arguments[of]
                after = value
                value = b.select(b.expand(finite, before.type.shape), after, before)
                kind, name, _ = roles.arguments[of]
                given = {"finite": finite, "after": after, "before": before}
                rw.insert(
                    b.ops,
                    rule="keep what it was, unless all gradients are finite",
                    reason=f"the next value of the {kind} {name}",
                    claim=Formula("a guarded update", given, {"made": value}),
                )
            results.append(
                ((role, of), next_scale_state.get(of, value) if role == "next" else value)
            )
        return context.with_function(
            module, roles.applied(main.with_(body=rw.commit()), results), rule="roles of results"
        )
