"""The step from ONNX to tensor ops: each node becomes what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_compiler.errors import UserError
from core_compiler.frontends.onnx import import_proto
from core_compiler.ir import Module, Op, Origin, Rewrite, Value
from core_compiler.onnx_level.dialect import ABSENT, PREFIX
from core_compiler.onnx_level.write import named
from core_compiler.passes.base import Pass

#: Under which facts of a compile what was imported is found.
IMPORTED = "imported"
#: Under which its example inputs are: sizes that the model leaves open are theirs.
EXAMPLES = "examples"


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
        body = module.main.body
        origins = {
            made.name: op.origin
            for made, op in _pairs(proto.graph, body, names) if op.origin is not None
        }  # fmt: skip
        tensors: dict[str, Any] = {}
        imported = import_proto(
            proto, folder=module.weights, name=proto.graph.name, sizes=_sizes(self.sizes),
            inputs=context.facts.get(EXAMPLES), origins=origins, tensors=tensors,
        )  # fmt: skip
        context.facts[IMPORTED] = imported
        became = {v: tensors[name] for v, name in names.items()
                  if isinstance(tensors.get(name), Value)}  # fmt: skip
        context.rewrites += _steps(module, imported.module, became)
        return imported.module


def _pairs(graph, body, names: dict[Value, str]):
    """The nodes and initializers of a graph with the ops that they were written from."""
    made = {name: node for node in graph.node for name in node.output if name}
    made |= {held.name: held for held in graph.initializer}
    for op in body.ops:
        value = next((v for v in op.results if names.get(v) in made), None)
        if value is not None:
            yield made[names[value]], op


def _steps(before: Module, after: Module, became: Mapping[Value, Value]) -> list[Rewrite]:
    """A rewrite for each node: the node, the ops that it became, and what its results are now."""
    nodes = {op.origin: op for op in reversed(before.main.body.ops) if op.kind != ABSENT}
    made: dict[Origin | None, list[Op]] = {}
    for op in after.main.body.ops:
        made.setdefault(op.origin, []).append(op)
    steps = []
    for origin, node in reversed(nodes.items()):
        values = {old: became[old] for old in node.results if old in became}
        rule = f"import {node.kind.removeprefix(PREFIX)}"
        steps.append(Rewrite(rule, "", (node,), tuple(made.get(origin, ())), values))
    return steps


def _sizes(text: str) -> dict[str, int]:
    sizes = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, sign, number = part.partition("=")
        if not sign or not number.strip().isdigit():
            raise UserError(f"{part!r} binds no size", "import_onnx.sizes", "write batch=4,seq=64")
        sizes[name.strip()] = int(number)
    return sizes
