"""Conversion: a pass that rebuilds a whole block in program order, op by op.

The counterpart of the rewriter for passes that change every op (from one level to the next): each
old op is replaced by new ones, every replacement is an event with its value map, and origins are
set here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.ir.core import Block, Op, Value
from core_compiler.ir.origin import Origin
from core_compiler.ir.rewriter import Rewrite


@dataclass
class Conversion:
    """The new ops of ``block``; ``events`` receives one rewrite per replacement."""

    block: Block
    events: list[Rewrite]
    function: str = "main"
    ops: list[Op] = field(default_factory=list)
    _clock: float = field(default_factory=time.perf_counter)

    def replace(
        self,
        old: Op | None,
        new: Sequence[Op],
        values: Mapping[Value, Value] | None = None,
        *,
        rule: str,
        reason: str = "",
        note: str = "",
    ) -> None:
        """Append ``new`` as the replacement of ``old`` (None: no source, for ``reason``)."""
        if old is not None and old.origin is not None:
            same = len(new) == 1 and new[0].kind == old.kind
            origin = old.origin if same else Origin.derived(rule, [old.origin])
        else:
            origin = Origin.synthetic(rule, reason or f"made by {rule}")
        placed = tuple(op if op.origin is not None else op.with_(origin=origin) for op in new)
        self.ops += placed
        now = time.perf_counter()
        elapsed, self._clock = (now - self._clock) * 1e6, now
        self.events.append(
            Rewrite(
                rule,
                "",
                (old,) if old is not None else (),
                placed,
                dict(values or {}),
                self.function,
                None,
                note,
                elapsed,
            )
        )

    def keep(self, op: Op) -> None:
        """Keep an old op unchanged."""
        self.ops.append(op)

    def finish(self, outputs: Sequence[Value]) -> Block:
        """Return the new block."""
        return Block(self.block.arguments, tuple(self.ops), tuple(outputs))
