"""The lowering from ONNX to tensor ops: each node is translated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from core_compiler.frontends.base import Imported
from core_compiler.frontends.onnx import import_proto
from core_compiler.ir import Op, Origin, Rewrite, Value
from core_compiler.onnx_level.dialect import ABSENT, PREFIX
from core_compiler.onnx_level.write import named
from core_compiler.passes.base import EXAMPLES, IMPORTED, Pass
from core_compiler.support.errors import UserError, one_line


@dataclass(frozen=True)
class ImportOnnx(Pass):
    """Translate nodes into tensor ops.

    ``sizes`` (``batch=4,seq=64``) binds symbolic sizes that the example inputs do not bind.
    """

    sizes: str = ""

    half = "source"
    mandatory = True
    requires = frozenset({"onnx_nodes"})
    ensures = frozenset({"tensor_ops"})
    invalidates = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        proto, names = named(module)
        # A separate origin for each node later identifies the ops that were created from it.
        nodes = {
            name: (op, Origin.derived(_rule(op), (op.origin,)))
            for name, op in _written(proto.graph, module.main.body.ops, names)
        }
        origins = {name: origin for name, (_, origin) in nodes.items()}
        tensors: dict[str, Any] = {}
        ops: dict[str, Sequence[Op]] = {}
        imported = import_proto(
            proto,
            folder=module.weights,
            name=one_line(proto.graph.name, 80) or "model",
            sizes=_sizes(self.sizes),
            inputs=context.facts.get(EXAMPLES),
            origins=origins,
            tensors=tensors,
            ops_by_node=ops,
        )
        context.facts[IMPORTED] = imported
        ops_by_node = {
            v: tensors[name] for v, name in names.items() if isinstance(tensors.get(name), Value)
        }
        left_out = (op for op in module.main.body.ops if op.kind == ABSENT)
        bodies = (f.body.ops for name, f in module.functions.items() if name != "main")
        context.rewrites += [
            *(Rewrite("import a missing input", "", (op,), (), {}) for op in left_out),
            *(Rewrite("import a function", "", (op,), (), {}) for ops in bodies for op in ops),
            *_steps([(op, ops[name]) for name, (op, _) in nodes.items()], imported, ops_by_node),
        ]
        return imported.module


def _rule(op: Op) -> str:
    return f"import {op.kind.removeprefix(PREFIX)}"


def _written(graph, ops: Sequence[Op], names: Mapping[Value, str]) -> Iterator[tuple[str, Op]]:
    """Yield the names of a graph's nodes and initializers, and the ops they were written from."""
    makers = {names[v]: op for op in ops for v in op.results if v in names}
    for held in graph.initializer:
        yield held.name, makers[held.name]
    for node in graph.node:
        op = next((makers[name] for name in node.output if name in makers), None)
        if op is not None:
            yield node.name, op


def _steps(
    nodes: Iterable[tuple[Op, Sequence[Op]]], imported: Imported, ops_by_node: Mapping[Value, Value]
) -> Iterator[Rewrite]:
    """Yield a rewrite for each node, to its ops in the module and the new values of its results."""
    there = set(imported.module.main.body.ops)
    sized = imported.nodes.sized if imported.nodes is not None else {}
    for op, made in nodes:
        values = {old: ops_by_node[old] for old in op.results if old in ops_by_node}
        room = frozenset(v for v in values.values() if v in sized)
        new = tuple(o for o in made if o in there)
        yield Rewrite(_rule(op), "", (op,), new, values, room=room)


def _sizes(text: str) -> dict[str, int]:
    sizes = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, sign, number = part.partition("=")
        if not sign or not number.strip().isdecimal():
            raise UserError(
                f"expected name=number, got {part!r}",
                "import_onnx.sizes",
                "use the form batch=4,seq=64",
            )
        sizes[name.strip()] = int(number)
    return sizes
