"""Plan memory: every temporary gets its bytes in the arena; lifetimes that do not meet share them."""
from __future__ import annotations

from dataclasses import dataclass

from core_compiler.errors import InternalError
from core_compiler.ir import Op, Value
from core_compiler.passes.base import Pass
from core_compiler.passes.bufferize import ALLOC, OUTPUT, VIEW
from core_compiler.passes.reuse_buffers import root_of
from core_compiler.placement.planner import plan
from core_compiler.placement.problem import Lifetime
from core_compiler.placement.verify import verify

ALIGNMENT = 64


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Assigns offsets in the arena to temporaries by their lifetimes; results stay the caller's.

    ``planner`` names the strategy; the plan reports its lower bound and the gap to it, and an
    independent check proves that no two live buffers overlap.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"buffers"})
    ensures = frozenset({"plan"})
    planner: str = "best"
    seconds: float = 1.0

    def run(self, module, context):
        ops = module.main.body.ops
        lives = lifetimes(ops)
        temporaries = [life for life in lives if life.space == "arena"]
        problem = [Lifetime(str(i), life.size, life.start, life.end, ALIGNMENT)
                   for i, life in enumerate(temporaries)]  # fmt: skip
        made = plan(problem, self.planner, seconds=self.seconds)
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

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class Life:
    """Memory with its program positions [start, end) and where it lies: ``arena``, ``output``,
    ``input`` or ``constant``; ``index`` numbers the output or input."""

    value: Value
    op: Op
    size: int
    start: int
    end: int
    space: str
    index: int = -1


def lifetimes(ops) -> list[Life]:
    """The memory of every allocation, input and constant of a bufferized block, in program order."""
    roots = root_of(ops)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    results: dict[Value, int] = {}
    for i, op in enumerate(ops):
        if op.kind == OUTPUT:
            results[roots[op.operands[0]]] = op["index"]
        if op.kind in (ALLOC, VIEW):
            continue
        for value in op.operands:
            if value in roots:
                first.setdefault(roots[value], i)
                last[roots[value]] = i
    lives = []
    for op in ops:
        if op.kind == ALLOC:
            value = op.result
            start, end = first.get(value, 0), last.get(value, 0) + 1
            if value in results:
                lives.append(Life(value, op, value.type.bytes, start, len(ops), "output", results[value]))
            else:
                lives.append(Life(value, op, value.type.bytes, start, end, "arena"))
        elif op.kind in ("target.input", "target.constant"):
            value = op.result
            space = op.kind.split(".")[1]
            index = op["index"] if space == "input" else -1
            lives.append(Life(value, op, value.type.bytes, 0, len(ops), space, index))
    return lives


def _told(life: Life, offsets) -> str:
    if life.space == "output":
        return f"result {life.index}, {life.size} bytes"
    return f"{life.size} bytes at {offsets[life.value]}, steps {life.start} to {life.end - 1}"
