"""Apply the optimiser: compute the next parameters and the rest of the next state."""

from __future__ import annotations

from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Module, Value
from core_compiler.ir.claims import Formula
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import Term
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import ITERATION, STATE, Result, Roles
from core_compiler.training.optimisers.loss_scale import SKIPPED
from core_compiler.training.optimisers.optimizers import SGD, IterationScalars, Optimizer


@dataclass(frozen=True)
class ApplyOptimizer(Pass):
    """Compute the next parameters from the gradients by the optimiser's formula.

    State that a step carries on (parameters, buffers, the optimiser's state, the iteration) may
    reuse the memory of its old value.
    """

    mandatory = True
    requires = frozenset({"gradients"})
    ensures = frozenset({"updated"})
    invalidates = frozenset({"gradients"})
    optimizer: Optimizer = field(default_factory=SGD)

    @override
    def options(self):
        return {"optimizer": repr(self.optimizer)}

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        arguments, outputs = main.arguments, main.outputs
        rw = context.rewriter(main.body)
        nexts: dict[int, Value] = {
            of: v for (role, of), v in zip(roles.results, outputs, strict=True) if role == "next"
        }
        b = Builder(module.weights)
        place = roles.number("scalar", ITERATION)
        iteration = arguments[place]
        if place not in nexts:
            nexts[place] = b.add(iteration, b.constant(1, iteration.type.dtype))
        done, given = iteration, {"iteration": iteration}
        # Torch skips the update as well.
        if ("scalar", SKIPPED) in (row[:2] for row in roles.arguments):
            given["skipped"] = arguments[roles.number("scalar", SKIPPED)]
            done = b.sub(iteration, given["skipped"])
        first = b.eq(done, b.constant(0, done.type.dtype))
        scalar_indices = {n: roles.number("scalar", n) for n in self.optimizer.scalars}
        before = {n: Term(b, arguments[i]) for n, i in scalar_indices.items()}
        after = self.optimizer.advance(b, before)
        nexts |= {scalar_indices[n]: term.value for n, term in after.items()}
        rate = Term(b, self.optimizer.schedule.rate(b, iteration))
        options = {"optimizer": self.optimizer}
        shared = {f"before.{n}": t.value for n, t in before.items()}
        advanced = {f"after.{n}": t.value for n, t in after.items()}
        claim_of_scalars = Formula(
            "the numbers of an iteration",
            {**given, **shared},
            {"iteration": nexts[place], "first": first, "rate": rate.value, **advanced},
            options,
            frozenset(shared),
        )
        rw.insert(
            b.ops,
            rule="numbers of the iteration",
            reason="the optimiser's rate and state",
            claim=claim_of_scalars,
        )
        for parameter, gradient in roles.gradients().items():
            b = Builder(module.weights)
            slots = roles.slots(parameter)
            numbers = IterationScalars(
                _in(b, rate),
                first,
                {n: _in(b, t) for n, t in before.items()},
                {n: _in(b, t) for n, t in after.items()},
            )
            made, moved = self.optimizer.update(
                Term(b, arguments[parameter]),
                Term(b, outputs[gradient]),
                {n: Term(b, arguments[i]) for n, i in slots.items()},
                numbers,
            )
            nexts[parameter] = made.value
            nexts |= {slots[n]: term.value for n, term in moved.items()}
            role, name, _ = roles.arguments[parameter]
            slot_values = {f"slot.{n}": arguments[i] for n, i in slots.items()}
            read = {
                "parameter": arguments[parameter],
                "gradient": outputs[gradient],
                "rate": rate.value,
                "first": first,
                **shared,
                **advanced,
                **slot_values,
            }
            never_negative = {*shared, *advanced, "rate"}
            never_negative |= {f"slot.{n}" for n in self.optimizer.squares}
            claim = Formula(
                "the optimiser's update",
                read,
                {"parameter": made.value, **{f"slot.{n}": t.value for n, t in moved.items()}},
                options,
                frozenset(never_negative),
            )
            rw.insert(
                b.ops,
                rule=f"update by {type(self.optimizer).__name__}",
                reason=f"the next value of the {role} {name}",
                claim=claim,
            )
        rows: list[tuple[Result, Value]] = list(zip(roles.results, outputs, strict=True))
        kept = [row for row in rows if row[0][0] in ("loss", "metric", "finite")]
        gradient_rows = [row for row in rows if row[0][0] == "gradient"]
        state_rows = [(("next", i), nexts.get(i, arguments[i])) for i in roles.numbers(*STATE)]
        body = rw.commit()
        applied = roles.applied(main.with_(body=body), [*kept, *state_rows, *gradient_rows])
        return context.with_function(module, applied, rule="roles of results")


def _in(b: Builder, term: Term) -> Term:
    """Return a value of another builder as a term of ``b``."""
    return Term(b, term.value)
