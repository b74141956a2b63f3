"""Reuse buffers: an elementwise kernel may write its result over an operand that dies with it."""
from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Op, Value
from core_compiler.ops.base import definition
from core_compiler.passes.base import Pass
from core_compiler.passes.bufferize import ALLOC, VIEW
from core_compiler.passes.grouping import family
from core_compiler.passes.outline_kernels import LAUNCH


@dataclass(frozen=True)
class ReuseBuffers(Pass):
    """Lets a launch write over an operand's buffer where that is the operand's last use and each
    element is read only where it is written.

    Products, convolutions, windows and reductions read what they have written already, so only
    elementwise kernels do this.
    """

    half = "implementation"
    requires = frozenset({"buffers"})

    def run(self, module, context):
        def edit(rw):
            last = last_uses(rw.ops)
            allocs = {op.result: op for op in rw.ops if op.kind == ALLOC}
            roots = root_of(rw.ops)
            outputs = {roots[op.operands[0]] for op in rw.ops if op.kind == "target.output"}
            for op in rw.ops:
                if op.kind != LAUNCH or op not in rw or not in_place(op):
                    continue
                reads = op["reads"]
                for own in op.operands[reads:]:
                    if roots.get(own) is not own or own in outputs:
                        continue
                    taken = self._donor(op, own, allocs, roots, last)
                    if taken is None:
                        continue
                    rw.replace(
                        allocs[own], Op(VIEW, (taken,), (own,), {"reason": "written in place"}),
                        rule="write over an operand that dies here", at=op,
                    )  # fmt: skip
                    roots = {v: roots.get(taken, taken) if r is own else r for v, r in roots.items()}
                    last[roots[own]] = max(last[roots[own]], last.pop(own, 0))
                    op = next(o for o in rw.users(own) if o.kind == LAUNCH and own in o.operands)

        return context.rewrite(module, edit)

    def _donor(self, op: Op, own: Value, allocs, roots, last) -> Value | None:
        """An operand with the same bytes in the same places whose memory dies at this launch."""
        position = last["position"][op]
        for value in op.operands[: op["reads"]]:
            root = roots.get(value)
            if root not in allocs or value.type is not own.type or last[root] != position:
                continue
            if op.operands[: op["reads"]].count(value) == 1:
                return value
        return None


def in_place(launch: Op) -> bool:
    """Whether each element a launch reads from an operand of the result's shape is the one it writes
    in the same step: only elementwise ops, and broadcasts of smaller operands."""
    if family(_as_group(launch)) != "map":
        return False
    block = launch.regions[0]
    allowed = {"core.constant", "core.broadcast", "core.iota"}
    return all(op.kind in allowed or "elementwise" in definition(op).traits for op in block.ops)


def _as_group(launch: Op) -> Op:
    return launch.with_(kind="core.group")


def root_of(ops) -> dict[Value, Value]:
    """For each buffer the buffer whose memory it is (views followed to the end)."""
    roots: dict[Value, Value] = {}
    for op in ops:
        if op.kind == VIEW:
            roots[op.result] = roots[op.operands[0]]
        else:
            for value in op.results:
                roots[value] = value
    return roots


def last_uses(ops) -> dict:
    """Position of the last op that reads or writes each memory; ``position`` maps ops to theirs."""
    roots = root_of(ops)
    last: dict = {"position": {op: i for i, op in enumerate(ops)}}
    for i, op in enumerate(ops):
        if op.kind in (VIEW, ALLOC):
            continue
        for value in op.operands:
            if value in roots:
                last[roots[value]] = i
    return last
