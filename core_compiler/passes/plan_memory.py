"""Plan memory: temporaries get offsets in the arena; disjoint live intervals share bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir.target import ALLOC
from core_compiler.passes.base import Pass
from core_compiler.passes.find_lifetimes import LiveInterval, lifetimes
from core_compiler.placement.planner import PLANNERS, plan
from core_compiler.placement.problem import ALIGNMENT, Lifetime
from core_compiler.placement.verify import verify
from core_compiler.support.errors import InternalError, UserError

#: Alignments of buffers in bytes: a cache line, or the widest vector that a kernel moves at an
#: aligned address (four f64 on a GPU).
ALIGNMENTS = (ALIGNMENT, 32)


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Assign offsets in the arena to temporaries by their lifetimes; results stay the caller's.

    ``planner`` names the strategy; the plan reports its lower bound and the gap to it, and an
    independent check proves that no two live buffers overlap.  ``alignment`` (bytes, 64 or 32) is
    the padding of sizes: 32 wastes less on small buffers, two of which may then share a cache line.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"lifetimes"})
    ensures = frozenset({"plan"})
    planner: str = field(default="best", metadata={"choices": tuple(PLANNERS)})
    alignment: int = ALIGNMENT

    @override
    def run(self, module, context):
        if self.alignment not in ALIGNMENTS:
            raise UserError(
                f"unsupported alignment of {self.alignment} bytes",
                f"pass {self.name()}",
                f"choose {' or '.join(map(str, ALIGNMENTS))}",
            )
        ops = module.main.body.ops
        intervals = lifetimes(ops)
        temporaries = [interval for interval in intervals if interval.space == "arena"]
        problem = [
            Lifetime(str(i), interval.size, interval.start, interval.end, self.alignment)
            for i, interval in enumerate(temporaries)
        ]
        made = plan(problem, self.planner)
        problems = verify(made)
        if problems:
            raise InternalError(f"memory plan: {problems}")
        offsets = dict(zip((interval.value for interval in temporaries), made.offsets, strict=True))
        context.facts["plan"] = made
        context.facts["lifetimes"] = [
            (interval, offsets.get(interval.value)) for interval in intervals
        ]

        def edit(rw):
            for interval in intervals:
                if interval.op.kind != ALLOC:
                    continue
                placement = {"size": interval.size, "tier": "dram"}
                if interval.space == "arena":
                    placement["offset"] = int(offsets[interval.value])
                else:
                    placement["output"] = interval.index
                op = interval.op.with_(
                    attributes={**interval.op.attributes, **placement}, origin=None
                )
                rw.replace(
                    interval.op, op, rule="place a buffer", note=_describe(interval, offsets)
                )

        return context.rewrite(module, edit, level="target")


def _describe(interval: LiveInterval, offsets) -> str:
    if interval.space == "output":
        return f"result {interval.index}, {interval.size} bytes"
    offset, steps = offsets[interval.value], f"{interval.start} to {interval.end - 1}"
    return f"{interval.size} bytes at {offset}, steps {steps}"
