"""The ops of a stage as a flat graph: groups and kernels as scopes, edges between buffers.

Ops inside a fused group or a launch are nodes inside it; edges of buffers go from the launch that
wrote a buffer to the one that reads it. The regions of a loop or a branch are scopes before the op
itself, which collects what they yield, so every edge follows program order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core_compiler.ir import Module, Op, Value
from core_compiler.ir.diff import ModuleDiff
from core_compiler.ir.target import ALLOC, LAUNCH
from core_compiler.ops.base import definition
from workbench.queries import joint
from workbench.queries.joint import written
from workbench.queries.op_facts import FOLDED
from workbench.queries.run import Run

SAME, ADDED, REMOVED, CHANGED, MOVED = range(5)


HOLDERS = ("core.group", LAUNCH)


#: Ops that pass their operands to their regions.
_CONTROL = ("core.if", "core.while")


def op_of_scope(run: Run, stage: int, scope: str) -> int | None:
    """Return the group or launch that a scope represents."""
    table = holders(run, stage)
    return next((op for op, path in table.items() if path == scope), None)


def holders(run: Run, stage: int) -> dict[int, str]:
    return flat(run, stage).holders


def flat(run: Run, stage: int) -> Flat:
    """Return the drawn ops of a stage, without those that its pass removed."""

    def make() -> Flat:
        graph = Flat(run, stage, joint.joint(run, stage))
        graph.module(run.index(stage).module)
        if graph.joint is not None:
            graph.nodes = _in_phase_order(graph.nodes)
        return graph

    return run.cached(("flat", stage), make)


@dataclass(slots=True)
class Node:
    """An op as drawn.

    ``inputs``: the nodes (by key) that produce its operands, or None. ``ports``: the index of the
    result that is read (if the node is None: the index of main's argument, or -1).
    """

    key: int
    op: Op
    scope: str
    inputs: list[int | None]
    ports: list[int]
    label: str = ""
    ghost: bool = False


@dataclass
class Flat:
    """The drawn ops of a module in program order.

    ``outputs``: the node and port of each result of main.
    """

    run: Run
    stage: int
    joint: joint.Joint | None
    nodes: list[Node] = field(default_factory=list)
    holders: dict[int, str] = field(default_factory=dict)
    outputs: list[tuple[int | None, int]] = field(default_factory=list)
    _makers: dict[Value, int | None] = field(default_factory=dict)
    _ports: dict[Value, int] = field(default_factory=dict)
    _allocations: set[int | None] = field(default_factory=set)

    def module(self, module: Module) -> None:
        main = module.main
        self._makers = dict.fromkeys(main.body.arguments)
        self._ports = {value: at for at, value in enumerate(main.body.arguments)}
        self._ops(main.body.ops, "")
        self.outputs = [(self._makers.get(v), self._ports.get(v, -1)) for v in main.body.outputs]

    def _ops(self, ops: Iterable[Op], inside: str) -> None:
        for op in ops:
            if op.kind in HOLDERS and op.regions:
                self._holder(op, inside)
            elif op.regions:
                self._control(op, inside)
            else:
                self._plain(op, inside)

    def _scope(self, op: Op) -> str:
        path = self.run.scope_of(op)
        return path if self.joint is None else joint.scope(self.joint, self.stage, op, path)

    def _plain(self, op: Op, inside: str, label: str = "", inputs: Sequence[Value] | None = None):
        number = self.run.op_id(op)
        read = list(op.uses() if inputs is None else inputs)
        makers = [self._makers.get(v) for v in read]
        ports = [self._ports.get(v, -1) for v in read]
        self.nodes.append(Node(number, op, inside or self._scope(op), makers, ports, label))
        self._makes(number, op.results)
        if op.kind == ALLOC:
            self._allocations.add(number)

    def _holder(self, op: Op, inside: str) -> None:
        region = op.regions[0]
        writes = written(op)
        reads = op.operands[: len(op.operands) - len(writes)]
        real = [o for o in region.ops if o.kind not in FOLDED]
        number = self.run.op_id(op)
        name = str(op.get("kernel", "")) or _group_name(real)
        if len(real) <= 1:
            allocations = [v for v in writes if self._is_allocation(v)]
            self._plain(op, inside, name, (*reads, *allocations))
            self._makes(number, writes)
            return
        scope = "/".join(
            part
            for part in (inside or self._scope(op), f"{name} {self.run.name_of(number)}")
            if part
        )
        self.holders[number] = scope
        for argument, value in zip(region.arguments, reads, strict=False):
            self._makers[argument] = self._makers.get(value)
            self._ports[argument] = self._ports.get(value, -1)
        self._ops(region.ops, scope)
        results = op.results or writes
        for value, output in zip(results, region.outputs, strict=False):
            allocation, maker = self._makers.get(value), self._makers.get(output)
            if allocation in self._allocations and maker is not None:
                self._node(maker).inputs.append(allocation)
                self._node(maker).ports.append(0)
            self._makers[value], self._ports[value] = maker, self._ports.get(output, -1)

    def _control(self, op: Op, inside: str) -> None:
        name = f"{op.kind.rpartition('.')[2]} {self.run.name_of(self.run.op_id(op))}"
        scope = "/".join(part for part in (inside or self._scope(op), name) if part)
        branches = op.kind == "core.if"
        passed_values = op.operands[1:] if branches else op.operands
        # A loop-carried value is the loop's result if the body never runs.
        read = list(op.operands[:1] if branches else op.operands)
        for region, region_name in zip(op.regions, _regions(op), strict=True):
            if op.kind in _CONTROL:
                for argument, value in zip(region.arguments, passed_values, strict=True):
                    self._makers[argument] = self._makers.get(value)
                    self._ports[argument] = self._ports.get(value, -1)
            self._ops(region.ops, f"{scope}/{region_name}")
            read += region.outputs
        self._plain(op, scope, inputs=read)

    def _makes(self, number: int, values: Sequence[Value]) -> None:
        self._makers.update(dict.fromkeys(values, number))
        self._ports.update((value, at) for at, value in enumerate(values))

    def _node(self, key: int) -> Node:
        return next(node for node in reversed(self.nodes) if node.key == key)

    def _is_allocation(self, value: Value) -> bool:
        return self._makers.get(value) in self._allocations


def _regions(op: Op) -> Sequence[str]:
    """Return the names of an op's regions."""
    if op.kind in _CONTROL:
        return definition(op.kind).regions
    called = [str(name) for name in op.get("onnx.regions", ())]
    return called if len(called) == len(op.regions) else list(map(str, range(len(op.regions))))


def _in_phase_order(nodes: Sequence[Node]) -> list[Node]:
    index: dict[int | None, int] = {node.key: i for i, node in enumerate(nodes)}
    inputs = [
        [index[key] for key in node.inputs if index.get(key, i) < i] for i, node in enumerate(nodes)
    ]
    return [nodes[i] for i in joint.order([node.scope for node in nodes], inputs)]


def ghosts(run: Run, stage: int) -> frozenset[int]:
    """Return the drawn ops (by key) that the pass of a stage removed."""

    def make() -> frozenset[int]:
        removed_keys = {run.op_id(op) for op in run.diff(stage - 1, stage).removed}
        removed_keys -= {node.key for node in flat(run, stage).nodes}
        return frozenset(
            node.key for node in flat(run, stage - 1).nodes if node.key in removed_keys
        )

    return run.cached(("ghosts", stage), make) if stage else frozenset()


def with_ghosts(nodes: Sequence[Node], diff: ModuleDiff, run: Run, stage: int) -> list[Node]:
    """Return the nodes with those that the pass removed, at their former positions."""
    partner = {run.op_id(m.old): run.op_id(m.new) for m in diff.changed}
    index = {node.key: i for i, node in enumerate(nodes)}
    ghost_keys = ghosts(run, stage)
    ghosts_before: dict[int, list[Node]] = {}
    at = len(nodes)
    for node in reversed(flat(run, stage - 1).nodes):
        current = partner.get(node.key, node.key)
        if node.key in ghost_keys:
            renamed = [partner.get(i, i) if i is not None else None for i in node.inputs]
            inputs = [i if i in index or i in ghost_keys else None for i in renamed]
            ghost = Node(node.key, node.op, node.scope, inputs, node.ports, node.label, True)
            ghosts_before.setdefault(at, []).append(ghost)
        elif current in index:
            at = min(at, index[current])
    merged: list[Node] = []
    for i in range(len(nodes) + 1):
        merged += reversed(ghosts_before.get(i, ()))
        merged += nodes[i : i + 1]
    return merged


def _group_name(ops: Sequence[Op]) -> str:
    names = list(
        dict.fromkeys(op.kind.rpartition(".")[2] for op in ops if op.kind != "core.broadcast")
    )
    shown = "+".join(names[:3]) or "group"
    return shown + ("+…" if len(names) > 3 else "")


def label(node: Node) -> str:
    return f"{node.op.kind} {node.label}" if node.label else node.op.kind
