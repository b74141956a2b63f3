"""The op graph of a stage: what changed in it, groups and kernels as scopes, heat overlays.

Ops inside a fused group or a launch are drawn inside it; edges of buffers go from the launch that
wrote a buffer to the one that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import core_compiler.ops  # noqa: F401  (the declarations that costs come from)
from core_compiler.ir import Module, Op, TensorType, Value
from core_compiler.ir.diff import ModuleDiff
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.text import print_attribute
from core_compiler.ops.base import cost
from core_compiler.passes.outline_kernels import LAUNCH
from core_compiler.training.phases import PHASES
from workbench.state import Sight
from workbench.views import joint
from workbench.views.joint import written
from workbench.views.links import linked
from workbench.views.reading import Run

SAME, ADDED, REMOVED, CHANGED, MOVED = range(5)
#: Ops that are drawn as a label on their user.
_FOLDED = CONSTANTS | {"target.alloc", "core.iota", "onnx.absent"}
_HOLDERS = ("core.group", LAUNCH)
#: Where attributes are longer than this they are cut off (the inspector shows all).
MAX_ATTRIBUTES = 160


def key(run: Run, sight: Sight) -> tuple:
    return run.stage_number(sight.stage), run.version.timings, run.version.checks


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """The ``data`` of the graph view (widgets/README.md)."""
    stage = run.stage_number(sight.stage)
    diff = run.diff(stage - 1, stage) if stage else None
    nodes = flat(run, stage).nodes
    if diff is not None:
        nodes = _with_ghosts(nodes, flat(run, stage - 1).nodes, diff, run)
    record = run.stages()[stage]
    columns = _columns(nodes, run)
    columns["ops"] |= {**_changes(nodes, diff, run), **_joint(nodes, run, stage)}
    return {
        "stage": {"id": str(stage), "title": f"{stage:02d} {record.pass_name}"},
        **columns,
        **({"phases": list(PHASES)} if "phase" in columns["ops"] else {}),
        "overlays": _overlays(run, stage, nodes),
        "total_ops": len(nodes),
    }


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    """What is selected in the graph of the shown stage: an op or a scope."""
    found = linked(run, sight)
    if found.op is None:
        return {"scope": sight.scope} if sight.scope else {}
    scopes = holders(run, found.stage)
    if found.op in scopes:
        return {"scope": scopes[found.op]}
    return {"op": found.op}


def op_of_scope(run: Run, stage: int, scope: str) -> int | None:
    """The group or launch that a scope stands for."""
    table = holders(run, stage)
    return next((op for op, path in table.items() if path == scope), None)


def holders(run: Run, stage: int) -> dict[int, str]:
    return flat(run, stage).holders


def flat(run: Run, stage: int) -> _Flat:
    """The drawn ops of a stage, without those that its pass removed."""

    def make() -> _Flat:
        graph = _Flat(run, stage, joint.joint(run, stage))
        graph.module(run.index(stage).module)
        if graph.joint is not None:
            graph.nodes = _phase_after_phase(graph.nodes)
        return graph

    return run.kept(("flat", stage), make)


@dataclass
class _Node:
    """An op as drawn; ``inputs`` are the nodes (by key) that make what it reads, or None."""

    key: int
    op: Op
    scope: str
    inputs: list[int | None]
    label: str = ""
    ghost: bool = False


@dataclass
class _Flat:
    """The drawn ops of a module in program order."""

    run: Run
    stage: int
    joint: joint.Joint | None
    nodes: list[_Node] = field(default_factory=list)
    holders: dict[int, str] = field(default_factory=dict)
    _makers: dict[Value, int | None] = field(default_factory=dict)
    _allocations: set[int | None] = field(default_factory=set)

    def module(self, module: Module) -> None:
        main = module.main
        self._makers = dict.fromkeys(main.body.arguments)
        self._ops(main.body.ops, "")

    def _ops(self, ops: Iterable[Op], inside: str) -> None:
        for op in ops:
            if op.kind in _HOLDERS and op.regions:
                self._holder(op, inside)
            else:
                self._plain(op, inside)

    def _scope(self, op: Op) -> str:
        path = self.run.kept_scope(op)
        return path if self.joint is None else joint.scope(self.joint, self.stage, op, path)

    def _plain(self, op: Op, inside: str, label: str = "", inputs: Sequence[Value] | None = None):
        number = self.run.op_id(op)
        reads = [self._makers.get(v) for v in (op.uses() if inputs is None else inputs)]
        self.nodes.append(_Node(number, op, inside or self._scope(op), reads, label))
        self._makers.update(dict.fromkeys(op.results, number))
        if op.kind == "target.alloc":
            self._allocations.add(number)

    def _holder(self, op: Op, inside: str) -> None:
        region = op.regions[0]
        writes = written(op)
        reads = op.operands[: len(op.operands) - len(writes)]
        real = [o for o in region.ops if o.kind not in _FOLDED]
        number = self.run.op_id(op)
        name = str(op.get("kernel", "")) or _group_name(real)
        if len(real) <= 1:
            allocations = [v for v in writes if self._is_allocation(v)]
            self._plain(op, inside, name, (*reads, *allocations))
            self._makers.update(dict.fromkeys(writes, number))
            return
        scope = "/".join(
            part
            for part in (inside or self._scope(op), f"{name} {self.run.name_of(number)}")
            if part
        )
        self.holders[number] = scope
        for argument, value in zip(region.arguments, reads, strict=False):
            self._makers[argument] = self._makers.get(value)
        self._ops(region.ops, scope)
        results = op.results or writes
        for value, output in zip(results, region.outputs, strict=False):
            allocation, maker = self._makers.get(value), self._makers.get(output)
            if allocation in self._allocations and maker is not None:
                self._node(maker).inputs.append(allocation)
            self._makers[value] = maker

    def _node(self, key: int) -> _Node:
        return next(node for node in reversed(self.nodes) if node.key == key)

    def _is_allocation(self, value: Value) -> bool:
        return self._makers.get(value) in self._allocations


def _phase_after_phase(nodes: Sequence[_Node]) -> list[_Node]:
    place: dict[int | None, int] = {node.key: i for i, node in enumerate(nodes)}
    inputs = [[place[key] for key in node.inputs if place.get(key, i) < i]
              for i, node in enumerate(nodes)]  # fmt: skip
    return [nodes[i] for i in joint.order([node.scope for node in nodes], inputs)]


def _with_ghosts(
    nodes: Sequence[_Node], before: Sequence[_Node], diff: ModuleDiff, run: Run
) -> list[_Node]:
    """The nodes with those that the pass removed where they stood."""
    partner = {run.op_id(m.old): run.op_id(m.new) for m in diff.changed}
    place = {node.key: i for i, node in enumerate(nodes)}
    gone = {run.op_id(op) for op in diff.removed} - place.keys()
    stand = {node.key for node in before if node.key in gone}
    waiting: dict[int, list[_Node]] = {}
    at = len(nodes)
    for node in reversed(before):
        now = partner.get(node.key, node.key)
        if node.key in stand:
            moved = [partner.get(i, i) if i is not None else None for i in node.inputs]
            inputs = [i if i in place or i in stand else None for i in moved]
            ghost = _Node(node.key, node.op, node.scope, inputs, node.label, True)
            waiting.setdefault(at, []).append(ghost)
        elif now in place:
            at = min(at, place[now])
    merged: list[_Node] = []
    for i in range(len(nodes) + 1):
        merged += reversed(waiting.get(i, ()))
        merged += nodes[i : i + 1]
    return merged


def _group_name(ops: Sequence[Op]) -> str:
    names = list(
        dict.fromkeys(op.kind.rpartition(".")[2] for op in ops if op.kind != "core.broadcast")
    )
    shown = "+".join(names[:3]) or "group"
    return shown + ("+…" if len(names) > 3 else "")


# -- columns --------------------------------------------------------------------------------------


class _Table:
    """Distinct texts with a number for each use."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.column: list[int] = []

    def add(self, text: str) -> None:
        self.column.append(self.texts.setdefault(text, len(self.texts)))

    def numbers(self) -> np.ndarray:
        return np.array(self.column, np.int32)


def _columns(nodes: Sequence[_Node], run: Run) -> dict[str, Any]:
    place = {node.key: i for i, node in enumerate(nodes)}
    tables = {name: _Table() for name in ("kind", "type", "scope", "file", "attribute")}
    starts, operands, lines, names = [0], [], [], []
    for node in nodes:
        file, line, type_, attribute = facts(run, node)
        tables["kind"].add(label(node))
        tables["type"].add(type_)
        tables["scope"].add(node.scope)
        tables["file"].add(file)
        tables["attribute"].add(attribute)
        lines.append(line)
        operands += [-1 if i is None else place.get(i, -1) for i in node.inputs]
        starts.append(len(operands))
        names.append(run.kept_of_op("name", node.key, partial(run.name_of, node.key)))
    listed = {"kind": "kinds", "type": "types", "scope": "scopes", "file": "files",
              "attribute": "attributes"}  # fmt: skip
    return {
        **{plural: list(tables[name].texts) for name, plural in listed.items()},
        "ops": {
            "key": np.array([node.key for node in nodes], np.int32),
            "name": names,
            **{name: table.numbers() for name, table in tables.items()},
            "line": np.array(lines, np.int32),
            "operand_start": np.array(starts, np.int32),
            "operand": np.array(operands, np.int32),
            "fold": np.array([node.op.kind in _FOLDED for node in nodes], np.uint8),
        },
    }


def _facts(run: Run, op: Op) -> tuple[str, int, str, str]:
    return (*run.kept_place(op), _type_text(op), _attribute_text(op))


def facts(run: Run, node: _Node) -> tuple[str, int, str, str]:
    """File, line, type and attributes of a node, as text."""
    return run.kept_of_op("facts", node.key, lambda: _facts(run, node.op))


def label(node: _Node) -> str:
    return f"{node.op.kind} {node.label}" if node.label else node.op.kind


def _type_text(op: Op) -> str:
    values = op.results or written(op)
    return ", ".join(str(v.type) for v in values)


def _attribute_text(op: Op) -> str:
    if not op.attributes or op.kind == LAUNCH:
        return ""
    text = ", ".join(f"{n} = {_short(v)}" for n, v in op.attributes.items())
    return text if len(text) <= MAX_ATTRIBUTES else text[: MAX_ATTRIBUTES - 1] + "…"


def _short(value: Any) -> str:
    text = print_attribute(value) if not isinstance(value, tuple) else str(list(value))
    return text.removesuffix(" : i64")


def _changes(nodes: Sequence[_Node], diff: ModuleDiff | None, run: Run) -> dict[str, Any]:
    if diff is None:
        return {}
    number = run.op_id
    status = {number(op): ADDED for op in diff.added}
    status |= {number(op): MOVED for op in diff.moved}
    status |= {number(m.new): CHANGED for m in diff.changed}
    guessed = {number(m.new) for m in diff.changed if m.how == "guessed"}
    return {
        "status": np.array(
            [REMOVED if n.ghost else status.get(n.key, SAME) for n in nodes], np.uint8
        ),
        "guessed": np.array([n.key in guessed for n in nodes], np.uint8),
    }


def _joint(nodes: Sequence[_Node], run: Run, stage: int) -> dict[str, Any]:
    """Of a training step: phases, and what links forward, backward and update."""
    phase = joint.phase_column(run, stage, (node.op for node in nodes))
    if phase is None:
        return {}
    drawn = [None if n.ghost or n.op.kind in _FOLDED else n.op for n in nodes]
    return {"phase": phase, **joint.link_columns(run, stage, drawn)}


# -- overlays -------------------------------------------------------------------------------------


def _overlays(run: Run, stage: int, nodes: Sequence[_Node]) -> list[dict[str, Any]]:
    found = []
    work = [_node_cost(run, node) for node in nodes]
    for name, unit, values in (
        ("work", "Mflop", [w[0] / 1e6 for w in work]), ("traffic", "B", [w[1] for w in work]),
    ):  # fmt: skip
        if any(values):
            found.append(_overlay(name, unit, values))
    times = _times(run, stage, nodes)
    if any(times):
        found.insert(0, _overlay("time", "us", times))
    errors = _errors(run, stage)
    if errors:
        found.append({**_overlay("error", "", [errors.get(n.key, 0.0) for n in nodes]),
                      "combine": "max"})  # fmt: skip
    return found


def _overlay(name: str, unit: str, values: Sequence[float]) -> dict[str, Any]:
    return {"name": name, "unit": unit, "values": np.array(values, np.float64), "scale": "linear"}


def _node_cost(run: Run, node: _Node) -> tuple[float, float]:
    return run.kept_of_op("cost", node.key, lambda: _cost(node.op))


def _cost(op: Op) -> tuple[float, float]:
    if op.regions or not op.kind.startswith("core.") or op.kind in _FOLDED:
        return 0.0, 0.0
    if not all(
        isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results)
    ):
        return 0.0, 0.0
    found = cost(op)
    return float(found.flops), float(found.bytes)


def _times(run: Run, stage: int, nodes: Sequence[_Node]) -> list[float]:
    """Microseconds of the launch that an op is, or is inside (there shared by flops)."""
    measured = {t.op: t.median_us or 0.0 for t in run.timings()}
    if not measured:
        return []
    index = run.index(stage)
    inside: dict[int, list[_Node]] = {}
    values = {}
    for node in nodes:
        if node.ghost:
            continue
        if node.key in measured:
            values[node.key] = measured[node.key]
            continue
        outer = index.around.get(node.key)
        if outer is not None and outer in measured and node.op.kind not in _FOLDED:
            inside.setdefault(outer, []).append(node)
    for outer, members in inside.items():
        weights = [max(_node_cost(run, n)[0], 1.0) for n in members]
        total = sum(weights)
        for node, weight in zip(members, weights, strict=True):
            values[node.key] = measured[outer] * weight / total
    return [values.get(node.key, 0.0) for node in nodes]


def _errors(run: Run, stage: int) -> dict[int, float]:
    """The worst relative error of the checked rewrites that made an op."""
    found: dict[int, float] = {}
    for step in run.rewrites(stage) if stage else ():
        error = step.check.worst_error if step.check is not None else 0.0
        if error and error == error:
            for op in step.rewrite.new:
                number = run.op_id(op)
                found[number] = max(found.get(number, 0.0), error)
    return found
