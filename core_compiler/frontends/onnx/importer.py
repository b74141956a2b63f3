"""From a ``ModelProto`` to a module: one walk, origins from node names, all gaps reported at once."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.errors import UserError
from core_compiler.frontends.base import Imported, Unsupported, refuse
from core_compiler.frontends.onnx import ops
from core_compiler.frontends.onnx.reading import dtype_of, read_model, to_array
from core_compiler.frontends.onnx.table import TABLE, Context, NotSupported
from core_compiler.ir import Block, FrontendNode, Function, Module, Origin, Value, WeightStore, tensor
from core_compiler.ops.base import TypeRuleError

__all__ = ["import_file", "import_proto", "ops"]

DOMAINS = ("", "ai.onnx")


def import_file(path: Path | str, sizes: Mapping[str, int] | None = None) -> Imported:
    """Import a ``.onnx`` file.  ``sizes`` binds symbolic dimensions (default: each is 1).

    UserError for a damaged file, external data outside the folder, unsupported ops (all at once).
    """
    path = Path(path)
    return import_proto(read_model(path), folder=path.parent, name=str(path), sizes=sizes)


def import_proto(model, *, folder: Path | None = None, name: str = "model", sizes=None) -> Imported:
    """Import a ``ModelProto``; ``folder`` is where its external data may lie."""
    opsets = {o.domain: o.version for o in model.opset_import}
    opset = next((opsets[d] for d in DOMAINS if d in opsets), 0)
    if opset and opset < 9:
        raise UserError(f"opset {opset} is too old", name, "convert it to opset 9 or newer")
    importer = Importer(WeightStore(), opset or 18, folder, sizes or {}, name, model)
    importer.graph(model.graph)
    if importer.unsupported:
        raise refuse(importer.unsupported, name)
    body = Block(tuple(importer.arguments), tuple(importer.ops), tuple(importer.results))
    facts: dict[str, Any] = {
        "frontend": "onnx", "opset": opset, "producer": f"{model.producer_name} {model.producer_version}",
        "bound": dict(importer.bound),
    }  # fmt: skip
    return Imported(
        Module({"main": Function("main", body)}, importer.weights),
        tuple(v.name for v in importer.arguments),
        tuple(o.name for o in model.graph.output),
        {"model.onnx": importer.listing(model.graph)}, facts,
    )  # fmt: skip


class Importer:
    """One import; ``env`` maps tensor names to values, ``made`` values to the ops that make them."""

    def __init__(self, weights, opset: int, folder, sizes, name: str, model):
        self.weights, self.opset, self.folder = weights, opset, folder
        self.sizes, self.name, self.model = sizes, name, model
        self.bound: dict[str, int] = {}
        self.env: dict[str, Value | None] = {"": None}
        self.constants: dict[Value, np.ndarray] = {}
        self.made: dict[Value, Any] = {}
        self.arguments: list[Value] = []
        self.results: list[Value] = []
        self.ops: list = []
        self.unsupported: list[Unsupported] = []
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self._lines = 0

    def graph(self, graph) -> None:
        """The main graph: inputs, initializers, nodes, outputs."""
        stored = {t.name for t in graph.initializer}
        for info in graph.input:
            if info.name not in stored:
                self._input(info)
        for tensor_ in graph.initializer:
            self._initializer(tensor_)
        for node in graph.node:
            self.node(node)
        for info in graph.output:
            value = self.env.get(info.name)
            if value is None and not self.unsupported:
                raise UserError(f"output {info.name!r} is made by no node", self.name, "the file is damaged")
            self.results.append(value)

    def _input(self, info) -> None:
        kind = info.type
        if not kind.HasField("tensor_type"):
            raise UserError(f"input {info.name!r} is no tensor", self.name, "sequences and maps are not supported")
        shape = []
        for d in kind.tensor_type.shape.dim:
            if d.HasField("dim_value"):
                shape.append(d.dim_value)
            else:
                symbol = d.dim_param or f"{info.name}_{len(shape)}"
                self.bound[symbol] = int(self.sizes.get(symbol, 1))
                shape.append(self.bound[symbol])
        if any(d < 0 for d in shape):
            raise UserError(f"input {info.name!r} has shape {shape}", self.name, "the file is damaged")
        value = Value(tensor(shape, dtype_of(kind.tensor_type.elem_type, info.name)), info.name)
        self.arguments.append(value)
        self.env[info.name] = value

    def _initializer(self, held) -> None:
        origin = Origin.root(FrontendNode(held.name, "initializer", scope=scope_of(held.name)))
        builder = Context(self.weights, origin, _Nothing, self.opset, self.made, self)
        self.env[held.name] = builder.constant(to_array(held, self.folder), name=held.name)
        self._take(builder)

    def _take(self, builder: Context) -> None:
        self.ops += builder.ops
        for op in builder.ops:
            for value in op.results:
                self.made[value] = op

    def node(self, node) -> None:
        """Translate one node into ops; a gap is noted and the walk goes on."""
        self._lines += 1
        described = FrontendNode(
            node.name or f"{node.op_type}_{self._lines}", node.op_type, "model.onnx", self._lines,
            scope_of(node.name), metadata_stack(node),
        )  # fmt: skip
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            self._call(function, node)
            return
        context = Context(self.weights, Origin.root(described), node, self.opset, self.made, self)
        try:
            inputs = [self._read(name) for name in node.input]
            key = node.op_type if node.domain in DOMAINS else f"{node.domain}::{node.op_type}"
            handler = TABLE.get(key)
            if handler is None:
                raise NotSupported("no translation")
            made = handler(context, *inputs)
        except (NotSupported, TypeRuleError, ValueError) as reason:
            if not isinstance(reason, _Missing):
                self.unsupported.append(Unsupported(node.op_type, str(reason), described))
            return
        made = made if isinstance(made, tuple | list) else (made,)
        self._take(context)
        for name, value in zip(node.output, made, strict=False):
            if name:
                self.env[name] = value

    def _read(self, name: str) -> Value | None:
        if name not in self.env:
            if self.unsupported:
                raise _Missing
            raise UserError(f"tensor {name!r} is made by no node before it is used", self.name,
                            "the file is damaged or its nodes are not sorted")  # fmt: skip
        return self.env[name]

    def _call(self, function, node) -> None:
        """A local function: its body with the call's tensors and attributes, in place."""
        import onnx

        given = {a.name: a for a in node.attribute}
        defaults = {a.name: a for a in function.attribute_proto}
        outer = self.env
        names = dict(zip(function.input, node.input, strict=False))
        self.env = {"": None, **{inner: outer.get(name) for inner, name in names.items()}}
        for inner in function.input[len(node.input) :]:
            self.env[inner] = None
        for part in function.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(part)
            copy.name = f"{node.name}/{part.name or part.op_type}"
            kept = []
            for attribute in copy.attribute:
                if attribute.ref_attr_name:
                    source = given.get(attribute.ref_attr_name) or defaults.get(attribute.ref_attr_name)
                    if source is None:
                        continue
                    own = onnx.AttributeProto()
                    own.CopyFrom(source)
                    own.name = attribute.name
                    attribute = own
                kept.append(attribute)
            del copy.attribute[:]
            copy.attribute.extend(kept)
            self.node(copy)
        inner_env, self.env = self.env, outer
        for name, inner in zip(node.output, function.output, strict=False):
            if name and inner in inner_env:
                self.env[name] = inner_env[inner]

    @staticmethod
    def listing(graph) -> str:
        """The node list as text: what the source view shows for an ONNX model, a node a line."""
        lines = []
        for node in graph.node:
            outs, ins = ", ".join(node.output), ", ".join(node.input)
            lines.append(f"{outs} = {node.op_type}({ins})")
        return "\n".join(lines) + "\n"


class _Missing(NotSupported):
    """An input of an unsupported node's: only the first gap is worth a line."""


class _Nothing:
    """A node without attributes, for initializers."""

    attribute = ()


def scope_of(name: str) -> str:
    """The module path in a node's or an initializer's name (``/layer1/conv/Conv``, ``layer1.conv.weight``)."""
    if "/" in name:
        return "/".join(p for p in name.split("/")[:-1] if p)
    parts = name.split(".")
    return "/".join(parts[:-1]) if len(parts) > 1 else ""


def metadata_stack(node) -> tuple:
    """The framework's stack trace that torch's exporter leaves in a node's metadata."""
    import re

    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.stack_trace":
            frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n?\s*([^\n]*)', entry.value)
            return tuple((file, int(line), function, text) for file, line, function, text in frames)
    return ()
