"""Differentiate: the backward pass, op by op from the loss to the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from core_compiler.ir import Module, Op, Rewriter, Value, WeightStore
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.decompose import expand
from core_compiler.training.autodiff import differentiate, gradient_rule
from core_compiler.training.roles import Roles


@dataclass(frozen=True)
class Differentiate(Pass):
    """Adds the gradient of the loss for every parameter that it depends on.

    Each op of the forward pass gives the rewrite that adds its gradient, so a gradient op's origin
    is the forward op.  Composites without a rule of their own are taken apart first; a loop that
    says its trips keeps what the loop of its gradient reads.
    """

    mandatory = True
    requires = frozenset({"tensor_ops"})
    ensures = frozenset({"gradients"})

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
        rw.insert(b.ops, rule="the loss's own gradient", reason="differentiation begins with 1")
        found = differentiate(program, {rw.outputs[loss]: seed}, varied.values(), module.weights)
        self._pass_on(rw)
        for value in varied.values():
            if value not in found:
                context.note("warning", f"the loss does not depend on {value.name}: it stays as "
                             "it is")  # fmt: skip
        body = rw.commit()
        rows = zip(roles.results, body.outputs, strict=True)
        kept = [(row, value) for row, value in rows if row[0] != "scaled"]
        gradients = [(("gradient", i), found[v]) for i, v in varied.items() if v in found]
        function = roles.applied(main.with_(body=body), [*kept, *gradients])
        return module.with_function(function)

    def _pass_on(self, rw: Rewriter) -> None:
        """Nothing asks any more where gradients stop."""
        with suppress(RewriteLimit):
            for op in rw.ops:
                if op.kind == "core.stop_gradient":
                    rw.replace(op, (), {op.result: op.operands[0]}, rule="stop_gradient(x) => x")


@dataclass
class _Rewritten:
    """A rewriter as the program that differentiation lets grow."""

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

    def append(self, ops: Sequence[Op], of: Op) -> None:
        if ops:  # a sum's gradient is the sum's own, say
            self.rewriter.insert(ops, rule=gradient_rule(of), of=of)
