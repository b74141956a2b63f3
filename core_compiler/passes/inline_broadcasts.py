"""Inline broadcasts: small constants, iotas and broadcasts are copied into their readers."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import absorb_copies, is_copied, is_unit


@dataclass(frozen=True)
class InlineBroadcasts(Pass):
    """Copies constants of one element, iotas and broadcasts into each op that reads them.

    A broadcast is only a way to index its operand; as a kernel of its own it would write the
    repeated values to memory.
    """

    half = "implementation"
    requires = frozenset({"no_composites"})

    def run(self, module, context):
        def edit(rw):
            for op in rw.ops:
                if not is_unit(op) or is_copied(op) or context.claims(op):
                    continue
                group = absorb_copies(op, rw)
                if group is not op:
                    rw.replace(op, group, rule="index through the broadcast")
            for op in reversed(rw.ops):
                if is_copied(op) and not any(rw.users(v) or rw.is_output(v) for v in op.results):
                    rw.erase(op, rule=f"{op.kind} is read in place now")

        return context.rewrite(module, edit)
