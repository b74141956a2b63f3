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
from core_compiler.training.graph.unreached import Stop, UntrainedParameters, find_untrained

#: Number of parameters and ops that a message names.
_MAX_NAMES = 3


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
        untrained = find_untrained(rw.ops, rw.outputs[loss], list(varied.values()), found)
        names = {v: roles.arguments[i][1] for i, v in varied.items()}
        if sum(len(group.parameters) for group in untrained) == len(varied):
            raise _no_gradient_error(untrained)
        self._erase_stop_gradients(rw)
        body = rw.commit()
        rows = zip(roles.results, body.outputs, strict=True)
        kept = [(row, value) for row, value in rows if row[0] != "scaled"]
        gradients = [(("gradient", i), found[v]) for i, v in varied.items() if v in found]
        function = roles.applied(main.with_(body=body), [*kept, *gradients])
        module = context.with_function(module, function, rule="roles of results")
        producers = {v: op for op in module.walk() for v in op.results} if untrained else {}
        for group in untrained:
            severity = "note" if group.is_deliberate else "warning"
            stop = next((producers.get(s.after) for s in group.reported_stops), None)
            context.note(severity, _describe(group, names), stop)
        return module

    def _erase_stop_gradients(self, rw: Rewriter) -> None:
        """Remove the ops that only mark where gradients stop."""
        with suppress(RewriteLimit):
            for op in rw.ops:
                if op.kind == "core.stop_gradient" and (stop := rw.now(op)) is not None:
                    rw.replace(
                        stop, (), {stop.result: stop.operands[0]}, rule="stop_gradient(x) => x"
                    )


def _describe(group: UntrainedParameters, names: Mapping[Value, str]) -> str:
    """Return the message about parameters without a gradient."""
    own = [names[v] for v in group.parameters]
    more = f" and {len(own) - _MAX_NAMES} more" if len(own) > _MAX_NAMES else ""
    listed = ", ".join(own[:_MAX_NAMES]) + more
    effect = "it does not change" if len(own) == 1 else "they do not change"
    if not group.stops:
        return f"the loss does not depend on {listed}: {effect}"
    return f"{listed}: no gradient passes {_stops(group.reported_stops)}; {effect}"


def _stops(stops: Sequence[Stop]) -> str:
    more = f" and {len(stops) - _MAX_NAMES} more" if len(stops) > _MAX_NAMES else ""
    return ", ".join(map(str, stops[:_MAX_NAMES])) + more


def _no_gradient_error(untrained: Sequence[UntrainedParameters]) -> UserError:
    """Return the error for a loss without any gradient."""
    blocked = [g for g in untrained if g.stops and not g.is_deliberate]
    stops = {str(s): s for g in blocked or untrained for s in g.reported_stops}
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
