"""Differentiate: add the backward pass, op by op from the loss to the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value, WeightStore
from core_compiler.ir.claims import Gradient
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.decompose import expand
from core_compiler.support.errors import UserError
from core_compiler.training.graph.autodiff import differentiate
from core_compiler.training.graph.program import gradient_rule
from core_compiler.training.graph.roles import Roles
from core_compiler.training.graph.unreached import Stop, Unmoved, unmoved

#: Number of parameters and ops that a message names.
_NAMED = 3


@dataclass(frozen=True)
class Differentiate(Pass):
    """Add the gradient of the loss for every parameter that it depends on.

    Each op of the forward pass has one rewrite that adds its gradient, so the origin of a gradient
    op is the forward op. Composites without a rule of their own are expanded first. A loop with a
    trip count keeps the values that the loop of its gradient reads.
    """

    mandatory = True
    requires = frozenset({"tensor_ops"})
    ensures = frozenset({"gradients", "backward_pass"})

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        scaled = roles.result("scaled")
        loss = roles.result("loss") if scaled is None else scaled
        assert loss is not None
        rw = context.rewriter(main.body)
        program = _Rewritten(rw, module.weights)
        varied = {i: main.arguments[i] for i in roles.numbers("parameter")}
        b = Builder(module.weights)
        seed = b.constant(1, rw.outputs[loss].type.dtype)
        own = Gradient((), (), ((rw.outputs[loss], None, seed),))
        rw.insert(
            b.ops, rule="the loss's own gradient", reason="differentiation begins with 1", claim=own
        )
        found = differentiate(program, {rw.outputs[loss]: seed}, varied.values(), module.weights)
        left = unmoved(rw.ops, rw.outputs[loss], list(varied.values()), found)
        names = {v: roles.arguments[i][1] for i, v in varied.items()}
        if sum(len(group.parameters) for group in left) == len(varied):
            raise _nothing_moves(left)
        self._pass_on(rw)
        body = rw.commit()
        rows = zip(roles.results, body.outputs, strict=True)
        kept = [(row, value) for row, value in rows if row[0] != "scaled"]
        gradients = [(("gradient", i), found[v]) for i, v in varied.items() if v in found]
        function = roles.applied(main.with_(body=body), [*kept, *gradients])
        module = context.with_function(module, function, rule="roles of results")
        makers = {v: op for op in module.walk() for v in op.results} if left else {}
        for group in left:
            severity = "note" if group.on_purpose else "warning"
            stop = next((makers.get(s.after) for s in group.told), None)
            context.note(severity, _told(group, names), stop)
        return module

    def _pass_on(self, rw: Rewriter) -> None:
        """Remove the ops that only mark where gradients stop."""
        with suppress(RewriteLimit):
            for op in rw.ops:
                if op.kind == "core.stop_gradient" and (stop := rw.now(op)) is not None:
                    rw.replace(
                        stop, (), {stop.result: stop.operands[0]}, rule="stop_gradient(x) => x"
                    )


def _told(group: Unmoved, names: Mapping[Value, str]) -> str:
    """Return the message about parameters without a gradient."""
    own = [names[v] for v in group.parameters]
    more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
    listed = ", ".join(own[:_NAMED]) + more
    stay = "it does not change" if len(own) == 1 else "they do not change"
    if not group.stops:
        return f"the loss does not depend on {listed}: {stay}"
    return f"{listed}: no gradient passes {_stops(group.told)}; {stay}"


def _stops(stops: Sequence[Stop]) -> str:
    more = f" and {len(stops) - _NAMED} more" if len(stops) > _NAMED else ""
    return ", ".join(map(str, stops[:_NAMED])) + more


def _nothing_moves(left: Sequence[Unmoved]) -> UserError:
    """Return the error for a loss without any gradient."""
    blocked = [g for g in left if g.stops and not g.on_purpose]
    stops = {str(s): s for g in blocked or left for s in g.told}
    if not stops:
        return UserError(
            "the loss does not depend on any trained parameter",
            "training",
            "let the model return an output that depends on them first, or freeze fewer parameters",
        )
    fix = (
        "compute the loss from its input (such as the scores that argmax reads), or replace it "
        "with a differentiable op"
    )
    return UserError(
        "no parameter gets a gradient: the gradient of the loss stops at "
        f"{_stops(list(stops.values()))}",
        "training",
        fix if blocked else "let gradients pass there (detach and no_grad stop them)",
    )


@dataclass
class _Rewritten:
    """A rewriter as a program that differentiation can extend."""

    rewriter: Rewriter
    weights: WeightStore

    @property
    def ops(self) -> Sequence[Op]:
        return self.rewriter.ops

    def expand(self, op: Op) -> Mapping[Value, Value]:
        assert definition(op).decompose is not None
        expand(op, self.rewriter, self.weights)
        return self.rewriter.events[-1].values

    def replace(self, op: Op, new: Sequence[Op], rule: str, note: str) -> None:
        self.rewriter.replace(op, new, rule=rule, note=note)

    def append(self, ops: Sequence[Op], of: Op, claim: Gradient) -> None:
        note = "" if ops else "the cotangent is passed on unchanged"  # of a sum, for example
        self.rewriter.insert(ops, rule=gradient_rule(of), of=of, note=note, claim=claim)
