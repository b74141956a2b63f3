"""Rematerialise: a value that is only stored through the memory peak is recomputed later.

The classical trade of work for memory (Briggs, Cooper, Torczon, "Rematerialization", PLDI 1992),
with launches for instructions and the arena for registers.  ``recompute`` does it for the backward
pass of a training step; this pass handles any program of launches.  It is in no default pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op, Origin, Rewriter, Value
from core_compiler.ir.core import clone_block
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ir.target import LAUNCH
from core_compiler.passes.base import Pass
from core_compiler.passes.find_lifetimes import LiveInterval, live_peak, values_alive
from core_compiler.passes.layouts import is_free_view
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.support.errors import UserError


@dataclass(frozen=True)
class Rematerialise(Pass):
    """Launch a kernel again if its result would otherwise wait in memory through the peak.

    Only if that lowers the peak; at most ``launches`` times, the largest value first.
    """

    half = "implementation"
    requires = frozenset({"kernels", "values"})

    launches: int = 4

    @override
    def run(self, module, context):
        if self.launches < 1:
            raise UserError(
                f"expected launches to be 1 or more, got {self.launches}",
                f"pass {self.name()}",
                "pass 1 or more",
            )
        rewriter = context.rewriter(module.main.body)
        before = _peak(rewriter)
        with suppress(RewriteLimit):
            for _ in range(self.launches):
                if not _lower_peak(rewriter):
                    break
        context.note("note", f"the peak is {_peak(rewriter):,} bytes, was {before:,}")
        return module.with_main(rewriter.commit())


def _live_intervals(rewriter: Rewriter, ops=None) -> list[LiveInterval]:
    return values_alive(rewriter.block.with_(ops=tuple(rewriter.ops if ops is None else ops)))


def _peak(rewriter: Rewriter, ops=None) -> int:
    return live_peak(_live_intervals(rewriter, ops))[0]


def _lower_peak(rewriter: Rewriter) -> bool:
    """Recompute one value; return False if that lowers no peak."""
    ops = list(rewriter.ops)
    intervals = _live_intervals(rewriter)
    peak, at = live_peak(intervals)
    for interval in sorted(_candidates(intervals, ops, at), key=lambda each: -each.size):
        first = next(i for i in range(at + 1, len(ops)) if interval.value in ops[i].uses())
        clone = _clone_launch(interval.op)
        change = dict(zip(interval.op.results, clone.results, strict=True))
        later = {
            i: ops[i].substitute(change)
            for i in range(first, len(ops))
            if change.keys() & set(ops[i].uses())
        }
        tried = [*ops[:first], clone, *(later.get(i, ops[i]) for i in range(first, len(ops)))]
        lower = _peak(rewriter, tried)
        if lower < peak:
            for i, op in later.items():
                new = [clone, op] if i == first else [op]
                rewriter.replace(
                    ops[i],
                    new,
                    rule="compute again",
                    note=f"the peak falls by {peak - lower:,} bytes",
                )
            return True
    return False


def _candidates(intervals: list[LiveInterval], ops: list[Op], at: int) -> Iterator[LiveInterval]:
    """Yield values that are live at the op ``at``, unused by it, and recomputable after it."""
    views: dict[Value, Value] = {}
    for op in ops:
        if is_free_view(op):
            views[op.result] = views.get(op.operands[0], op.operands[0])
    here = {views.get(v, v) for v in ops[at].uses()} | set(ops[at].results)
    early = {v for op in ops[: at + 1] for v in op.results if v in views}
    # A view made before the peak and read after it keeps the memory of its operand.
    viewed = {views[v] for op in ops[at + 1 :] for v in op.uses() if v in early}
    for interval in intervals:
        if (
            interval.space != "arena"
            or not interval.start < at < interval.end
            or interval.value in here | viewed
        ):
            continue
        if interval.op.kind == LAUNCH and not is_exchange(interval.op):
            yield interval


def _clone_launch(op: Op) -> Op:
    parents = [] if op.origin is None else [op.origin]
    return op.with_(
        results=tuple(Value(v.type, v.name) for v in op.results),
        regions=tuple(clone_block(block) for block in op.regions),
        origin=Origin.derived("computed again", parents),
    )
