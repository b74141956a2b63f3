"""Graphs as a ``ModelProto``: names are assigned, and nodes record the op they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core_compiler import __version__
from core_compiler.exporters import base
from core_compiler.exporters.base import Names, short
from core_compiler.exporters.onnx.dtypes import number
from core_compiler.exporters.onnx.graph import Graph, Node, Tensor
from core_compiler.ir import Op

#: Prefix of a node's ``metadata_props`` keys; ``frontends/onnx/origins.py`` reads them back.
PREFIX = "pkg.core_compiler."
#: The first IR version whose nodes have ``metadata_props``.
_METADATA_SINCE = 10
#: The maximum number of rules from an op's history on a node.
_RULES = 6


@dataclass(frozen=True)
class Unfilled:
    """A model without its weights; ``weights`` pairs each ``TensorProto`` with its array."""

    model: Any
    weights: Sequence[tuple[Any, np.ndarray]]


def to_model(graph: Graph, opset: int, name: str) -> Unfilled:
    """Return the model of a graph whose inputs and outputs have their wanted names."""
    import onnx

    opsets = [onnx.helper.make_opsetid("", opset)]
    version = onnx.helper.find_min_ir_version_for(opsets)
    model = onnx.ModelProto(
        ir_version=version,
        producer_name="compiler-workbench",
        producer_version=__version__,
        opset_import=opsets,
    )
    writer = _Writer(graph, metadata=version >= _METADATA_SINCE)
    writer.fill(model.graph, graph, name or "main")
    return Unfilled(model, tuple(writer.initializers(model.graph, graph)))


class _Writer:
    """A writer that makes the names of tensors and nodes unique in the whole model."""

    def __init__(self, graph: Graph, metadata: bool):
        self.metadata = metadata
        ends = [*graph.inputs, *graph.outputs]
        self._names = {tensor: tensor.wanted for tensor in ends}
        self._tensors = Names(self._names.values(), _utf8)
        self._nodes = Names((), _utf8)

    def name(self, tensor: Tensor, otherwise: str = "constant") -> str:
        found = self._names.get(tensor)
        if found is None:
            found = self._names[tensor] = self._tensors.fresh(tensor.wanted or otherwise)
        return found

    def fill(self, proto, graph: Graph, name: str) -> None:
        """Fill ``proto`` with the inputs, nodes and outputs of ``graph``."""
        proto.name = name
        proto.input.extend(self._typed(t) for t in graph.inputs)
        for node in graph.nodes:
            self._node(proto.node.add(), node)
        proto.output.extend(self._typed(t) for t in graph.outputs)
        ends = {*graph.inputs, *graph.outputs}
        made = (t for node in graph.nodes for t in node.outputs)
        proto.value_info.extend(
            self._typed(t) for t in made if t.shape is not None and t not in ends
        )

    def initializers(self, proto, graph: Graph) -> Iterator[tuple[Any, np.ndarray]]:
        """Add an entry for each constant, without its data."""
        for tensor in graph.constants():
            array: Any = tensor.array
            held = proto.initializer.add()
            held.name, held.data_type = self.name(tensor), number(tensor.dtype)
            held.dims.extend(array.shape)
            yield held, array

    def _typed(self, tensor: Tensor):
        import onnx

        return onnx.helper.make_tensor_value_info(
            self.name(tensor), number(tensor.dtype), tensor.shape
        )

    def _node(self, proto, node: Node) -> None:
        import onnx

        label = _label(node)
        proto.op_type = node.kind
        proto.name = self._nodes.fresh(f"{label}/{node.kind}")
        proto.input.extend("" if t is None else self.name(t) for t in node.inputs)
        part = f"{short(node.op)}.{node.kind}" if node.op else node.kind
        proto.output.extend(self.name(t, part) for t in node.outputs)
        for key, value in node.attributes.items():
            if isinstance(value, Graph):
                held = proto.attribute.add(name=key, type=onnx.AttributeProto.GRAPH)
                self.fill(held.g, value, self._nodes.fresh(f"{label}/{key}"))
            else:
                proto.attribute.append(onnx.helper.make_attribute(key, value))
        if node.op is not None:
            self._origin(proto, node.op, node.group)

    def _origin(self, proto, op: Op, group: str) -> None:
        """Record what a viewer shows for the node: its op, module path, model line and rules."""
        rules = () if op.origin is None else op.origin.rules()[:_RULES]
        history = " <- ".join(rules)
        told = (op.kind, base.scope(op), base.line(op), history)
        proto.doc_string = _utf8("\n".join(filter(None, told)))
        if not self.metadata:
            return
        held = base.nodes(op)
        stack = held[0].stack if len(held) == 1 else ()
        facts = {
            "kind": op.kind,
            "name": held[0].name if held else "",
            "scope": base.scope(op),
            "line": base.line(op),
            "rules": history,
            "group": group,
            "stack_trace": "\n".join(_frame(*row) for row in stack),
        }
        for key, value in facts.items():
            if value:
                proto.metadata_props.add(key=f"{PREFIX}{key}", value=_utf8(value))


def _label(node: Node) -> str:
    """Return the node's label: ``encoder/layer.0/softmax_1``.

    It is the module path and the name of the framework's node, or of the op if it comes from
    several nodes.
    """
    if node.op is None:
        return "main"
    path, held = base.scope(node.op), base.nodes(node.op)
    name = held[0].name.strip("/") if len(held) == 1 else ""
    if name.startswith(f"{path}/"):
        return name
    return "/".join(filter(None, (path, name or short(node.op))))


def _utf8(text: str) -> str:
    """Return text that protobuf accepts: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _frame(file: str, line: int, function: str, text: str) -> str:
    """Return one frame in the format of Python's tracebacks."""
    shown = f'File "{file}", line {line}, in {function or "?"}'
    return f"{shown}\n    {text}" if text else shown
