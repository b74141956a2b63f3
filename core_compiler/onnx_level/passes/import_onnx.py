"""The step from ONNX to tensor ops: each node becomes what it means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.errors import UserError, one_line
from core_compiler.frontends.onnx import import_proto
from core_compiler.ir import Module, Op, Origin, Rewrite, Value
from core_compiler.onnx_level.dialect import PREFIX
from core_compiler.onnx_level.write import named
from core_compiler.passes.base import EXAMPLES, IMPORTED, Pass


@dataclass(frozen=True)
class ImportOnnx(Pass):
    """Translates nodes into tensor ops; ``sizes`` (``batch=4,seq=64``) binds open sizes that the
    example inputs do not."""

    sizes: str = ""

    half = "source"
    mandatory = True
    requires = frozenset({"onnx_nodes"})
    ensures = frozenset({"tensor_ops"})
    ends = frozenset({"onnx_nodes"})

    def run(self, module, context):
        proto, names = named(module)
        # An origin of its own for each node tells afterwards which ops came of which.
        nodes = {name: (op, Origin.derived(_rule(op), (op.origin,)))
                 for name, op in _written(proto.graph, module.main.body.ops, names)}  # fmt: skip
        origins = {name: origin for name, (_, origin) in nodes.items()}
        tensors: dict[str, Any] = {}
        imported = import_proto(
            proto, folder=module.weights, name=one_line(proto.graph.name, 80) or "model",
            sizes=_sizes(self.sizes), inputs=context.facts.get(EXAMPLES), origins=origins,
            tensors=tensors,
        )  # fmt: skip
        context.facts[IMPORTED] = imported
        became = {v: tensors[name] for v, name in names.items()
                  if isinstance(tensors.get(name), Value)}  # fmt: skip
        context.rewrites += _steps(nodes.values(), imported.module, became)
        return imported.module


def _rule(op: Op) -> str:
    return f"import {op.kind.removeprefix(PREFIX)}"


def _written(graph, ops: Sequence[Op], names: Mapping[Value, str]) -> Iterator[tuple[str, Op]]:
    """The names of a graph's nodes and initializers, and the ops that they were written from."""
    makers = {names[v]: op for op in ops for v in op.results if v in names}
    for held in graph.initializer:
        yield held.name, makers[held.name]
    for node in graph.node:
        op = next((makers[name] for name in node.output if name in makers), None)
        if op is not None:
            yield node.name, op


def _steps(
    nodes: Iterable[tuple[Op, Origin]], after: Module, became: Mapping[Value, Value]
) -> list[Rewrite]:
    """A rewrite for each node: the node, the ops that it became, and what its results are now."""
    made: dict[Origin | None, list[Op]] = {}
    for op in after.main.body.ops:
        made.setdefault(op.origin, []).append(op)
    return [
        Rewrite(_rule(op), "", (op,), tuple(made.get(origin, ())),
                {old: became[old] for old in op.results if old in became})
        for op, origin in nodes
    ]  # fmt: skip


def _sizes(text: str) -> dict[str, int]:
    sizes = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, sign, number = part.partition("=")
        if not sign or not number.strip().isdigit():
            raise UserError(f"{part!r} binds no size", "import_onnx.sizes", "write batch=4,seq=64")
        sizes[name.strip()] = int(number)
    return sizes
