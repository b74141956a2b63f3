"""Inline broadcasts: small constants, iotas and broadcasts are copied into their readers."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Rewriter
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import (
    absorb_copies,
    is_copied,
    not_a_unit,
    not_claimed,
    not_copied,
)


@dataclass(frozen=True)
class InlineBroadcasts(Pass):
    """Copy constants of one element, iotas and broadcasts into each op that reads them.

    A broadcast only indexes its operand; as a kernel of its own it would write the repeated values
    to memory.
    """

    half = "implementation"
    requires = frozenset({"no_composites", "tensor_ops"})
    refusal_arity = 2

    @override
    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                group = with_copies(op, rw, context.claims)
                if isinstance(group, Op):
                    rw.replace(op, group, rule="index through the broadcast")
            for op in reversed(rw.ops):
                if is_copied(op) and not any(rw.users(v) or rw.is_output(v) for v in op.results):
                    rw.erase(op, rule=f"{op.kind} is read in place now")

        return context.rewrite(module, edit)

    @override
    def pair(self, one, other):
        for copied, reader in ((one, other), (other, one)):
            held = copied.kind == "core.constant" or is_copied(copied)
            if held and copied.result in reader.uses():
                return copied, reader
        return None

    @override
    def refusal(self, ops, context):
        copied, reader = ops
        refused = not_copied(copied)
        if refused is not None:
            return refused
        group = with_copies(reader, context.rewriter, context.claims)
        return group if isinstance(group, Refusal) else None


def with_copies(op: Op, rewriter: Rewriter, claims) -> Op | Refusal:
    """Return ``op`` as a group with copies of what it reads, or why it is not copied into."""
    if is_copied(op):
        return refuse("a reader", "{0} is itself copied", op)
    return not_a_unit(op) or not_claimed(op, claims) or absorb_copies(op, rewriter)
