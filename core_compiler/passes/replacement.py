"""Passes that look at one op at a time and replace it by others with the same results."""

from __future__ import annotations

from abc import ABC, abstractmethod

from typing_extensions import override

from core_compiler.ir import Op, Value
from core_compiler.ir.refusal import Refusal
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import reuse_results


class ReplaceOps(Pass, ABC):
    """The base class of such passes: what is left as it is, and what replaces the rest."""

    refusal_arity = 1
    requires = frozenset({"tensor_ops"})

    @abstractmethod
    def refused(self, op: Op) -> Refusal | None:
        """Return why ``op`` is left as it is, or None."""

    @abstractmethod
    def replacement(self, b: Builder, op: Op) -> Value:
        """Build what replaces the result of ``op``."""

    @abstractmethod
    def rule(self, op: Op) -> str:
        """Return what the recording calls the rewrite."""

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if self.refused(op) is None and not context.claims(op):
                    builder = Builder(module.weights)
                    made = self.replacement(builder, op)
                    new, values = reuse_results(op, (made,), builder.ops)
                    rw.replace(op, new, values, rule=self.rule(op))

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        return self.refused(ops[0])
