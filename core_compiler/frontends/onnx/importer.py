"""From a ``ModelProto`` to a module: one walk, origins from node names, all gaps reported at
once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.errors import UserError
from core_compiler.frontends.base import Imported, Unsupported, refuse
from core_compiler.frontends.onnx import ops
from core_compiler.frontends.onnx.functions import inlined
from core_compiler.frontends.onnx.origins import LISTING, describe, listing, scope_of
from core_compiler.frontends.onnx.reading import dtype_of, external_files, read_model, to_array
from core_compiler.frontends.onnx.table import TABLE, Context, NotSupported, TensorSequence
from core_compiler.ir import (
    Block,
    FrontendNode,
    Function,
    Module,
    Origin,
    Value,
    WeightStore,
    tensor,
)
from core_compiler.ops.base import TypeRuleError

__all__ = ["import_file", "import_proto", "ops"]

DOMAINS = ("", "ai.onnx")
#: Ops that know sequences of tensors; loops only where they are unrolled.
TAKE_SEQUENCES = frozenset(
    {"ConcatFromSequence", "Identity", "Loop", "SequenceAt", "SequenceErase", "SequenceInsert",
     "SequenceLength"}
)  # fmt: skip
#: Nodes that one import translates at most (functions and unrolled loops included).
NODES = 500_000


def import_file(
    path: Path | str,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> Imported:
    """Import a ``.onnx`` file; see :func:`import_proto`.

    UserError for a damaged file, external data outside the folder, unsupported ops (all at once).
    """
    path = Path(path)
    model = read_model(path)
    return import_proto(model, folder=path.parent, name=str(path), sizes=sizes, inputs=inputs)


def import_proto(
    model,
    *,
    folder: Path | None = None,
    name: str = "model",
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> Imported:
    """Import a ``ModelProto``.

    ``folder``  where its external data may lie.
    ``sizes``   symbolic dimension -> size.
    ``inputs``  example inputs by name: their shapes bind symbolic dimensions too, and where a shape
                of the model depends on an input's values, these are taken.
    A dimension that neither names is 1.  ``facts["bound"]`` says for each symbol its ``size`` and
    the range ``low`` to ``high`` (-1: unbounded) that the model allows; ``facts["bound_values"]``
    the inputs whose values were taken; ``facts["external_data"]`` the data files' names.
    """
    opsets = {o.domain: o.version for o in model.opset_import}
    opset = next((opsets[d] for d in DOMAINS if d in opsets), 0)
    if opset and opset < 6:
        raise UserError(f"opset {opset} is too old", name, "convert it to opset 6 or newer")
    importer = Importer(model, opset or 18, folder, sizes or {}, inputs or {}, name)
    try:
        importer.graph(model.graph)
    except UserError as error:
        where = error.where if error.where.startswith(name) else f"{name}: {error.where[:200]}"
        raise UserError(error.what[:400], where, error.fix, error.exit_code) from None
    if importer.unsupported:
        raise refuse(importer.unsupported, name)
    body = Block(tuple(importer.arguments), tuple(importer.ops), tuple(importer.results))
    facts: dict[str, Any] = {
        "frontend": "onnx",
        "opset": opset,
        "producer": f"{model.producer_name} {model.producer_version}",
        "bound": {s: {"size": n, "low": 0, "high": -1} for s, n in importer.bound.items()},
        "bound_values": importer.bound_values,
        "external_data": external_files(model),
    }
    return Imported(
        Module({"main": Function("main", body)}, importer.weights),
        tuple(v.name or "" for v in importer.arguments),
        tuple(o.name for o in model.graph.output),
        {LISTING: listing(model.graph)}, facts,
    )  # fmt: skip


class Importer:
    """One import; ``env`` maps tensor names to values, ``made`` values to the ops that make
    them."""

    def __init__(self, model, opset: int, folder, sizes, inputs, name: str):
        self.model, self.opset, self.folder, self.name = model, opset, folder, name
        self.sizes, self.inputs = sizes, inputs
        self.weights = WeightStore()
        self.bound: dict[str, int] = {}
        self.bound_values: dict[str, list] = {}
        self.env: dict[str, Value | TensorSequence | None] = {"": None}
        self.given: dict[Value, np.ndarray] = {}
        self.constants: dict[Value, np.ndarray] = {}
        self.bindings: dict[Value, np.ndarray] = {}
        self.made: dict[Value, Any] = {}
        self.arguments: list[Value] = []
        self.results: list[Value] = []
        self.ops: list = []
        self.unsupported: list[Unsupported] = []
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.calls: list[tuple[str, str]] = []
        self._lines = self._nodes = 0

    # -- the main graph ----------------------------------------------------------------------------

    def graph(self, graph) -> None:
        """The main graph: inputs, initializers, nodes, outputs."""
        stored = {t.name for t in graph.initializer}
        if graph.sparse_initializer:
            raise UserError("sparse weights are not supported", self.name, "store them dense")
        for info in graph.input:
            if info.name not in stored:
                self._input(info)
        for held in graph.initializer:
            self._initializer(held)
        for node in graph.node:
            self._lines += 1
            self.node(node)
        for info in graph.output:
            value = self.env.get(info.name)
            if value is None and not self.unsupported:
                raise UserError(
                    f"output {info.name!r} is made by no node", self.name, "the file is damaged"
                )
            if isinstance(value, TensorSequence):
                raise UserError(f"output {info.name!r} is no tensor", self.name,
                                "give the sequence's tensors out one by one")  # fmt: skip
            if value is not None:
                self.results.append(value)

    def _input(self, info) -> None:
        kind = info.type
        if not kind.HasField("tensor_type"):
            raise UserError(f"input {info.name!r} is no tensor", self.name,
                            "sequences, maps and optional values are not supported")  # fmt: skip
        element = dtype_of(kind.tensor_type.elem_type, f"input {info.name!r}")
        example = self.inputs.get(info.name)
        value = Value(tensor(self._shape(info, example), element), info.name)
        if example is not None:
            if example.dtype != element.numpy:
                raise UserError(
                    f"input {info.name!r} is {example.dtype}, the model wants {element}", self.name
                )
            self.given[value] = example
        self.define(info.name, value)
        self.arguments.append(value)

    def _shape(self, info, example) -> list[int]:
        """The declared shape, symbols bound; checked against the example input where there is
        one."""
        kind = info.type.tensor_type
        if not kind.HasField("shape"):
            if example is None:
                raise UserError(
                    f"input {info.name!r} has no shape", self.name, "give example inputs"
                )
            return list(example.shape)
        declared = list(kind.shape.dim)
        if example is not None and example.ndim != len(declared):
            raise UserError(
                f"input {info.name!r} has rank {example.ndim}, the model wants {len(declared)}",
                self.name,
            )
        shape = []
        for axis, d in enumerate(declared):
            here = example.shape[axis] if example is not None else None
            if d.HasField("dim_value"):
                size = d.dim_value
            else:
                symbol = d.dim_param or f"{info.name}_{axis}"
                size = self.bound.get(
                    symbol, self.sizes.get(symbol, here if here is not None else 1)
                )
                self.bound[symbol] = size = int(size)
            if size < 0:
                raise UserError(f"input {info.name!r} has size {size} on axis {axis}", self.name,
                                "the file is damaged")  # fmt: skip
            if here is not None and here != size:
                raise UserError(
                    f"input {info.name!r} has {here} on axis {axis}, the model wants {size}",
                    self.name,
                    "give inputs of the model's sizes",
                )
            shape.append(size)
        return shape

    def _initializer(self, held) -> None:
        origin = Origin.root(
            FrontendNode(held.name, "initializer", LISTING, 0, scope_of(held.name))
        )
        builder = Context(origin, _Nothing, self)
        value = builder.constant(to_array(held, self.folder), name=held.name)
        self.take(builder)
        self.define(held.name, value)

    # -- nodes -------------------------------------------------------------------------------------

    def define(self, name: str, value: Value | TensorSequence) -> None:
        """Give ``value`` its name in the model; a name is given once."""
        if self.env.get(name) is not None:
            raise UserError(f"tensor {name!r} is made twice", self.name, "the file is damaged")
        self.env[name] = value

    def take(self, builder: Context) -> None:
        """Append the ops of a context, once."""
        self.ops += builder.ops
        for op in builder.ops:
            for value in op.results:
                self.made[value] = op
        builder.ops = []

    def node(self, node) -> None:
        """Translate one node into ops; a gap is noted and the walk goes on."""
        self._nodes += 1
        if self._nodes > NODES:
            raise UserError(f"the model has more than {NODES} nodes", self.name,
                            "unrolled loops and functions count")  # fmt: skip
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            self._call(function, node)
            return
        described = describe(node, self._lines)
        key = node.op_type if node.domain in DOMAINS else f"{node.domain}::{node.op_type}"
        try:
            context = Context(Origin.root(described), node, self)
            handler = TABLE.get(key)
            if handler is None:  # said of nodes behind other gaps, too
                raise NotSupported("no translation")
            inputs = [self._read(name) for name in node.input]
            if node.op_type not in TAKE_SEQUENCES and _holds_sequence(inputs):
                raise NotSupported("it is given a sequence of tensors")
            made = handler(context, *inputs)
        except _Missing:
            return
        except (NotSupported, TypeRuleError, ValueError, UserError) as reason:
            text = reason.what if isinstance(reason, UserError) else str(reason)
            misfit = isinstance(reason, TypeRuleError)
            self.unsupported.append(Unsupported(key, text[:400], described, misfit))
            return
        except (TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
            text = f"it does not fit the op's definition: {type(error).__name__} {error}"
            self.unsupported.append(Unsupported(key, text[:200], described))
            return
        self.take(context)
        made = made if isinstance(made, tuple | list) else (made,)
        for name, value in zip(node.output, made, strict=False):
            if name and isinstance(value, Value | TensorSequence):
                self.define(name, value)

    def _read(self, name: str) -> Value | TensorSequence | None:
        if name not in self.env:
            if self.unsupported:
                raise _Missing
            raise UserError(f"tensor {name!r} is made by no node before it is used", self.name,
                            "the file is damaged or its nodes are not sorted")  # fmt: skip
        return self.env[name]

    def _call(self, function, node) -> None:
        """A local function: its body with the call's tensors and attributes, in place."""
        key = (node.domain, node.op_type)
        if key in self.calls:
            raise UserError(
                f"function {node.op_type} calls itself", self.name, "the file is damaged"
            )
        self.calls.append(key)
        outer = self.env
        self.env = {"": None, **dict.fromkeys(function.input)}
        self.env |= {i: outer.get(n) for i, n in zip(function.input, node.input, strict=False)}
        for part in inlined(function, node):
            self.node(part)
        inner, self.env = self.env, outer
        self.calls.pop()
        for name, own in zip(node.output, function.output, strict=False):
            value = inner.get(own)
            if name and value is not None:
                self.define(name, value)

    def subgraph(self, graph, arguments: list[Value]) -> list[Value]:
        """Translate a graph attribute in place, its inputs bound to ``arguments``; its outputs.

        The body sees the tensors around it.  NotSupported where a node of it has no translation.
        """
        outer, gaps = self.env, len(self.unsupported)
        self.env = dict(outer)
        own = [i.name for i in graph.input]
        made = [t.name for t in graph.initializer] + [n for p in graph.node for n in p.output]
        for name in (*own, *made):
            if name:
                self.env.pop(name, None)
        self.env |= dict(zip(own, arguments, strict=True))
        for held in graph.initializer:
            self._initializer(held)
        for node in graph.node:
            self.node(node)
        inner, self.env = self.env, outer
        if len(self.unsupported) > gaps:
            raise _Missing
        results: list[Any] = []
        for output in graph.output:
            value = inner.get(output.name)
            if value is None:
                raise NotSupported(f"output {output.name!r} of a subgraph is made by no node")
            results.append(value)
        return results

    def region(self, graph, arguments: list[Value]) -> Block:
        """A graph attribute as a region: its ops apart from those around it."""
        outer, self.ops = self.ops, []
        try:
            outputs = self.subgraph(graph, arguments)
            if _holds_sequence(outputs):
                raise NotSupported("a sequence of tensors is a result of a branch or loop")
            return Block(tuple(arguments), tuple(self.ops), tuple(outputs))
        finally:
            self.ops = outer


def _holds_sequence(inputs) -> bool:
    return any(isinstance(value, TensorSequence) for value in inputs)


class _Missing(NotSupported):
    """An input of an unsupported node's: only the first gap is worth a line."""


class _Nothing:
    """A node without attributes, for initializers."""

    attribute = ()
