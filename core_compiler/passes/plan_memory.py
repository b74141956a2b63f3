"""Plan memory: temporaries get offsets in the arena; disjoint live intervals share bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.passes.base import Pass
from core_compiler.passes.bufferize import ALLOC
from core_compiler.passes.find_lifetimes import Life, lifetimes
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
        lives = lifetimes(ops)
        temporaries = [life for life in lives if life.space == "arena"]
        problem = [
            Lifetime(str(i), life.size, life.start, life.end, self.alignment)
            for i, life in enumerate(temporaries)
        ]
        made = plan(problem, self.planner)
        clash = verify(made)
        if clash:
            raise InternalError(f"memory plan: {clash}")
        offsets = dict(zip((life.value for life in temporaries), made.offsets, strict=True))
        context.facts["plan"] = made
        context.facts["lifetimes"] = [(life, offsets.get(life.value)) for life in lives]

        def edit(rw):
            for life in lives:
                if life.op.kind != ALLOC:
                    continue
                place = {"size": life.size, "tier": "dram"}
                if life.space == "arena":
                    place["offset"] = int(offsets[life.value])
                else:
                    place["output"] = life.index
                op = life.op.with_(attributes={**life.op.attributes, **place}, origin=None)
                rw.replace(life.op, op, rule="place a buffer", note=_told(life, offsets))

        return context.rewrite(module, edit, level="target")


def _told(life: Life, offsets) -> str:
    if life.space == "output":
        return f"result {life.index}, {life.size} bytes"
    return f"{life.size} bytes at {offsets[life.value]}, steps {life.start} to {life.end - 1}"
