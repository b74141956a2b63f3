"""The translation of main to an ONNX graph: one traversal that collects all gaps.

Broadcasts and constants only become nodes if a user needs them: most ONNX ops broadcast their
operands themselves.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.exporters.base import Gap, entry, is_uniform, short, unsupported_ops_error
from core_compiler.exporters.expansion import Expansion, Missing, Vocabulary
from core_compiler.exporters.onnx import dtypes, ops
from core_compiler.exporters.onnx.graph import Graph, Tensor
from core_compiler.exporters.onnx.ranges import Ranges
from core_compiler.exporters.onnx.table import TABLE, Emitter, NotInOnnx
from core_compiler.exporters.translations import is_empty
from core_compiler.ir import Block, Module, Op, Resource, TensorType, Value, as_array
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.builder import broadcast_shape
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.traits import has_trait

#: The reasons why ops are unsupported.
_UNSUPPORTED_REASONS = {
    **dict.fromkeys(
        ("random_bits", "random_uniform", "random_normal"),
        "ONNX specifies no random number generator",
    ),
    **dict.fromkeys(
        ("householder", "reflect", "eigh", "orthogonal_columns"),
        "ONNX specifies no orthogonal factors of matrices",
    ),
}


#: Ops that become nodes only if a user needs them.
_LAZY = frozenset({"constant", "broadcast", "group"})


@dataclass(frozen=True, eq=False)
class Spread:
    """A ``core.broadcast`` that is not a node yet: axis i of ``source`` is axis ``dims[i]``."""

    source: Tensor
    shape: tuple[Any, ...]
    dims: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        """Return the shape of the source with a 1 for each repeated axis, except leading ones."""
        held = self.source.shape or ()
        lead = min(self.dims, default=len(self.shape))
        sizes = [1] * (len(self.shape) - lead)
        for size, axis in zip(held, self.dims, strict=True):
            sizes[axis - lead] = size
        return tuple(sizes)


def to_graph(
    module: Module, inputs: Sequence[str], outputs: Sequence[str], opset: int, guards: bool
) -> Graph:
    """Return the graph of main with its inputs and outputs named.

    Raise UserError with all ops that ONNX does not support.
    """
    body = entry(module, inputs, outputs)
    exporter = Exporter(module, body, opset, guards)
    arguments = [exporter.argument(v) for v in body.arguments]
    exporter.graph.inputs = arguments
    body = exporter.expansion.block(body)
    exporter.block(body)
    if exporter.gaps:
        raise unsupported_ops_error(exporter.gaps, f"ONNX (opset {opset})")
    exporter.graph.outputs = exporter.results(body)
    for held, names in ((exporter.graph.inputs, inputs), (exporter.graph.outputs, outputs)):
        for tensor, name in zip(held, names, strict=True):
            tensor.wanted = name
    return exporter.graph


class Exporter(Emitter):
    """The state of an export; ``env`` maps values to tensors, with a region's on top."""

    def __init__(self, module: Module, body: Block, opset: int, guards: bool):
        super().__init__(opset, guards)
        self.module = module
        self.expansion = Expansion(
            Vocabulary(self.lacks, self.refuses, ops.COMPOSED), module.weights
        )
        self._producers = {v: op for op in body.walk() for v in op.results}
        self.env: ChainMap[Value, Tensor | Spread] = ChainMap()
        self.gaps: list[Gap] = []
        self._groups = 0
        self.ranges = Ranges(self.numbers)

    def argument(self, value: Value) -> Tensor:
        """Return a tensor for an argument of main or of a region."""
        missing = dtypes.missing(value.type.dtype, self.opset)
        if missing and self.op is None:
            stand_in = Op("input", (), (value,))
            self.gaps.append(Gap(stand_in, missing))
        made = Tensor(value.type.dtype, value.type.shape, value.name or "argument")
        self.env[value] = made
        return made

    # -- ops ---------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.visit(op)

    def visit(self, op: Op) -> None:
        """Translate one op; record a gap and continue if it is unsupported."""
        self.ranges.made(op)
        # The nodes of a composition belong to the op that it is of.
        outer, self.op = self.op, self.expansion.of.get(op, op)
        try:
            results = self._translate(op)
        except NotInOnnx as gap:
            self.gaps.append(Gap(*Missing(op, str(gap), self.op).told))
            results = [Tensor(v.type.dtype, v.type.shape) for v in op.results]
        finally:
            self.op = outer
        for value, made in zip(op.results, results, strict=True):
            if isinstance(made, Tensor) and not made.wanted:
                made.shape = value.type.shape
                made.wanted = value.name or short(op)
            self.env[value] = made

    def _translate(self, op: Op) -> Sequence[Tensor | Spread]:
        if op.kind == "core.constant":
            return (self._constant(op),)
        if op.kind == "core.broadcast":
            return (self._spread(op),)
        if op.kind == "core.group":
            return self._group(op)
        missing = self.refuses(op) or self.lacks(op)
        if missing:
            raise NotInOnnx(missing)
        if is_empty(op):
            return [self.constant(np.empty(v.type.shape, v.type.dtype.numpy)) for v in op.results]
        handler = TABLE[short(op)]
        if has_trait(op, "elementwise"):
            return (self._elementwise(op, handler),)
        made = handler(self, view(op), *map(self.operand, op.operands))
        return (made,) if isinstance(made, Tensor) else tuple(made)

    # -- forms of ops ------------------------------------------------------------------------------

    def lacks(self, op: Op) -> str:
        """Return why ONNX does not have this form of an op, or ""."""
        if short(op) in _LAZY or is_empty(op):
            return ""
        return TABLE.lacks(self, op, _UNSUPPORTED_REASONS)

    def refuses(self, op: Op) -> str:
        """Return why the opset has no tensors of the op's dtypes, or ""."""
        kinds = () if short(op) == "group" else (v.type.dtype for v in op.results)
        return next(filter(None, (dtypes.missing(kind, self.opset) for kind in kinds)), "")

    @override
    def stored(self, value: Value) -> np.ndarray | None:
        op = self._producers.get(value)
        if op is None or op.kind not in ("core.constant", "core.broadcast", "core.reshape"):
            return None
        if op.kind == "core.constant":
            return constant_array(op, self.module.weights)
        held = self.stored(op.operands[0])
        if held is None or op.kind == "core.reshape":
            return None if held is None else held.reshape(value.type.shape)
        sizes = [1] * value.type.rank
        for size, axis in zip(held.shape, typed.Broadcast.of(op).dims, strict=True):
            sizes[axis] = size
        return held.reshape(sizes)

    def _elementwise(self, op: Op, handler) -> Tensor | Spread:
        """Compute an elementwise op before its operands are broadcast, if possible."""
        held = [self.compact(v) for v in op.operands]
        whole: TensorType = op.result.type
        shape: tuple[Any, ...] = broadcast_shape(*(shape for _, shape in held))
        if shape != whole.shape:
            op = op.with_(results=(Value(whole.with_(shape=shape, order=None), op.result.name),))
        made = handler(self, view(op), *(tensor for tensor, _ in held))
        if shape == whole.shape:
            return made
        if not made.wanted:
            made.shape, made.wanted = shape, op.result.name or short(op)
        lead = len(whole.shape) - len(shape)
        return Spread(made, whole.shape, tuple(range(lead, len(whole.shape))))

    def _constant(self, op: Op) -> Tensor | Spread:
        held = typed.Constant.of(op).value
        missing = dtypes.missing(held.type.dtype, self.opset)
        if missing:
            raise NotInOnnx(missing)
        key = held.digest if isinstance(held, Resource) else held.data
        array = as_array(held, self.module.weights)
        if not op.result.name and is_uniform(array):
            return Spread(self.constant(array.reshape(-1)[0]), array.shape, ())
        return self.constant(array, op.result.name or "", key)

    def _spread(self, op: Op) -> Tensor | Spread:
        given = typed.Broadcast.of(op)
        shape, dims, held = op.result.type.shape, given.dims, self.env[given.x]
        if isinstance(held, Spread):
            return Spread(held.source, shape, tuple(dims[d] for d in held.dims))
        return held if held.shape == shape else Spread(held, shape, dims)

    def _group(self, op: Op) -> list[Tensor | Spread]:
        outer = self.group
        self._groups += 1
        self.group = str(op.get("name") or f"group {self._groups}")
        try:
            return self._inlined(op.regions[0], op.operands)
        finally:
            self.group = outer

    def _inlined(self, block: Block, operands: Sequence[Value]) -> list[Tensor | Spread]:
        """Translate the ops of a block inline."""
        for argument, value in zip(block.arguments, operands, strict=True):
            self.env[argument] = self.env[value]
            self.ranges.alias(argument, value)
        self.block(block)
        return [self.env[v] for v in block.outputs]

    # -- regions -----------------------------------------------------------------------------------

    @contextmanager
    def region(self, inputs: Sequence[Tensor] = ()) -> Iterator[Graph]:
        """Open a graph for a node's attribute; its ops are not visible outside."""
        self.env = self.env.new_child()
        try:
            with self.inside(Graph(inputs)) as graph:
                yield graph
        finally:
            self.env = self.env.parents

    def results(self, block: Block) -> list[Tensor]:
        """Return the outputs of a block, each a distinct tensor that a node of this graph makes."""
        held = [self.operand(v) for v in block.outputs]
        own = {t for node in self.graph.nodes for t in node.outputs}
        made: list[Tensor] = []
        for tensor, value in zip(held, block.outputs, strict=True):
            if tensor not in own or tensor in made:
                tensor = self.emit("Identity", tensor)
                tensor.shape = value.type.shape
            made.append(tensor)
        return made

    # -- values ------------------------------------------------------------------------------------

    @override
    def operand(self, value: Value) -> Tensor:
        held = self.env[value]
        if isinstance(held, Tensor):
            return held
        made = self._materialised(held)
        self.env[value] = made
        return made

    def _materialised(self, held: Spread) -> Tensor:
        x = self.reshape(held.source, held.padded)
        if x.array is not None and np.prod(held.shape) <= 64:
            return self.constant(np.ascontiguousarray(np.broadcast_to(x.array, held.shape)))
        made = self.emit("Expand", x, self.ints(*held.shape))
        made.shape = held.shape
        return made

    @override
    def compact(self, value: Value) -> tuple[Tensor, tuple[int, ...]]:
        held = self.env[value]
        if isinstance(held, Tensor):
            return held, value.type.shape
        made, shape = self.reshape(held.source, held.padded), held.padded
        lead = len(held.shape) - len(shape)
        self.env[value] = Spread(made, held.shape, tuple(range(lead, len(held.shape))))
        return made, shape

    @override
    def numbers(self, value: Value) -> np.ndarray | None:
        held = self.env[value]
        return (held.source if isinstance(held, Spread) else held).array

    @override
    def bounds(self, value: Value) -> tuple[float, float] | None:
        return self.ranges.of(value)
