"""The translation of main to a torch graph: one traversal that collects all gaps.

Broadcasts and constants only become nodes if a user needs them: most ATen ops broadcast their
operands themselves, and take numbers.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.exporters.base import Gap, entry, is_uniform, short, unsupported_ops_error
from core_compiler.exporters.expansion import Expansion, Missing, Vocabulary
from core_compiler.exporters.pt2 import dtypes, ops
from core_compiler.exporters.pt2.program import Weights, assemble, legal
from core_compiler.exporters.pt2.table import TABLE, Emitter, Node, NotInTorch, shape_of
from core_compiler.exporters.translations import is_empty
from core_compiler.ir import Block, DType, Module, Op, Resource, Value, as_array
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.builder import broadcast_shape
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.traits import has_trait

#: The reasons why ops are unsupported.
_UNSUPPORTED_REASONS = {
    **dict.fromkeys(("if", "while"), "branches and loops are not exported to PyTorch"),
    **dict.fromkeys(
        ("householder", "reflect", "eigh", "orthogonal_columns"),
        "torch leaves the signs of orthogonal factors open",
    ),
}
#: Ops that the exporter itself translates.
_OWN = frozenset({"constant", "broadcast", "group"})
#: Ops whose handlers take operands of every dtype as they are.
_ANY_DTYPE = frozenset({"cast", "bitcast", "quantize", "dequantize", "if", "while"})
#: The first integer that torch's numbers do not hold.
_TOO_LARGE = 1 << 63


def to_program(module: Module, inputs: Sequence[str], outputs: Sequence[str], guards: bool) -> Any:
    """Return the exported program of main; raise UserError with all ops that torch lacks."""
    body = entry(module, inputs, outputs)
    exporter = Exporter(module, body, guards)
    arguments = [exporter.argument(v, name) for v, name in zip(body.arguments, inputs, strict=True)]
    body = exporter.expansion.block(body)
    exporter.block(body)
    if exporter.gaps:
        raise unsupported_ops_error(exporter.gaps, "PyTorch")
    results = [exporter.node(v) for v in body.outputs]
    return assemble(exporter, exporter.weights, arguments, results, outputs)


class Exporter(Emitter):
    """The state of an export; ``env`` maps values to nodes, with a region's on top."""

    def __init__(self, module: Module, body: Block, guards: bool):
        super().__init__(guards)
        self.module = module
        self.expansion = Expansion(
            Vocabulary(self.lacks, self.refuses, ops.COMPOSED), module.weights
        )
        self.weights = Weights(self)
        self.env: ChainMap[Value, Node] = ChainMap()
        self.gaps: list[Gap] = []
        self._producers = {v: op for op in body.walk() for v in op.results}
        self._numbers: dict[Value, int | float | bool] = {}
        self._before_broadcast: dict[Value, Node] = {}

    def argument(self, value: Value, name: str) -> Node:
        """Return a placeholder for an argument of main."""
        gap = dtypes.missing(value.type.dtype)
        if gap:
            self.gaps.append(Gap(Op("input", (), (value,)), gap))
        node = self.placeholder(name, value.type.shape, value.type.dtype)
        self.env[value] = node
        return node

    def placeholder(self, name: str, shape: Sequence[int], kind: DType) -> Node:
        node = self.graph.create_node("placeholder", name, name=legal(name))
        node.target = node.name
        chosen = dtypes.F32 if dtypes.missing(kind) else kind
        with self.fake:
            node.meta["val"] = self.torch.empty(tuple(shape), dtype=dtypes.torch_dtype(chosen))
        return node

    # -- ops ---------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.visit(op)

    def visit(self, op: Op) -> None:
        """Translate one op; record a gap and continue if it is unsupported."""
        self._producers.update(dict.fromkeys(op.results, op))
        # The nodes of a composition belong to the op that it is of.
        outer, self.op = self.op, self.expansion.of.get(op, op)
        self.wanted = (op.results[0].name if op.results else None) or short(op)
        try:
            results = self._translate(op)
        except NotInTorch as gap:
            self.gaps.append(Gap(*Missing(op, str(gap), self.op).told))
            results = [self.full(v.type.shape, 0, _stand_in(v.type.dtype)) for v in op.results]
        finally:
            self.op = outer
        self.env.update(zip(op.results, results, strict=True))

    def _translate(self, op: Op) -> Sequence[Node]:
        missing = self.refuses(op) or self.lacks(op)
        if missing:
            raise NotInTorch(missing)
        if op.kind == "core.constant":
            return (self._constant(op),)
        if op.kind == "core.broadcast":
            return (self._broadcast(op),)
        if op.kind == "core.group":
            return self.inlined(op.regions[0], op.operands)
        if is_empty(op):
            return [self.full(v.type.shape, 0, v.type.dtype) for v in op.results]
        operands = self._operands(op)
        made = TABLE[short(op)](self, view(op), *operands)
        results = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        return [self._as_result(n, v) for n, v in zip(results, op.results, strict=True)]

    def _operands(self, op: Op) -> list[Node]:
        """Return the operands in dtypes that kernels have; those of elementwise ops are compact."""
        nodes = list(map(self.node, op.operands))
        if has_trait(op, "elementwise"):
            compact = [
                self._before_broadcast.get(v, n) for v, n in zip(op.operands, nodes, strict=True)
            ]
            if broadcast_shape(*map(shape_of, compact)) == op.results[0].type.shape:
                nodes = compact
        if short(op) in _ANY_DTYPE:
            return nodes
        if any(v.type.dtype is dtypes.UI64 for v in op.operands) and short(op) not in ops.OF_BITS:
            raise NotInTorch("torch has no kernel for ui64")
        return [self._carried(n) for n in nodes]

    def _carried(self, x: Node) -> Node:
        kind = self.dtype(x)
        if kind is dtypes.UI64:
            return self.bits(x, dtypes.I64)
        return self.cast(x, dtypes.carrier(kind))

    def _as_result(self, node: Node, value: Value) -> Node:
        """Return a result in its dtype."""
        kind = value.type.dtype
        if kind is dtypes.UI64 and self.dtype(node) is dtypes.I64:
            return self.bits(node, kind)
        return self.cast(node, kind)

    def _constant(self, op: Op) -> Node:
        held = typed.Constant.of(op).value
        array, value = as_array(held, self.module.weights), op.result
        name = value.name or ""
        if array.size and not name and (array.ndim == 0 or is_uniform(array)):
            number = _number(array)
            if number is not None:
                self._numbers[value] = number
                scalar = self.scalar(number, value.type.dtype)
                self._before_broadcast[value] = scalar
                return self.expand(scalar, array.shape)
        key = held.digest if isinstance(held, Resource) else (held.type, held.data)
        return self.tensor(array, name, key)

    def _broadcast(self, op: Op) -> Node:
        given = typed.Broadcast.of(op)
        shape, dims, x = op.result.type.shape, given.dims, given.x
        lead = min(dims, default=len(shape))
        sizes = [1] * (len(shape) - lead)
        for size, axis in zip(x.type.shape, dims, strict=True):
            sizes[axis - lead] = size
        before = self.reshape(self.node(x), sizes)
        if x in self._numbers:
            self._numbers[op.result], before = self._numbers[x], self._before_broadcast[x]
        self._before_broadcast[op.result] = before
        return self.expand(before, shape)

    def inlined(self, block: Block, operands: Sequence[Value]) -> list[Node]:
        """Translate the ops of a block here."""
        for argument, value in zip(block.arguments, operands, strict=True):
            self.env[argument] = self.node(value)
            if value in self._numbers:
                self._numbers[argument] = self._numbers[value]
            if value in self._before_broadcast:
                self._before_broadcast[argument] = self._before_broadcast[value]
        self.block(block)
        return [self.node(v) for v in block.outputs]

    # -- forms of ops ------------------------------------------------------------------------------

    def lacks(self, op: Op) -> str:
        """Return why torch does not have this form of an op, or ""."""
        if short(op) in _OWN or is_empty(op):
            return ""
        return TABLE.lacks(self, op, _UNSUPPORTED_REASONS)

    def refuses(self, op: Op) -> str:
        """Return why torch has no tensors of the op's dtypes, or ""."""
        kinds = () if short(op) == "group" else (v.type.dtype for v in op.results)
        return next(filter(None, map(dtypes.missing, kinds)), "")

    # -- values ------------------------------------------------------------------------------------

    @override
    def node(self, value: Value) -> Node:
        return self.env[value]

    @override
    def tensor(self, array: np.ndarray, name: str = "", key: Any = None) -> Node:
        return self.weights.node(array, name, key)

    @override
    def number(self, value: Value) -> int | float | bool | None:
        return self._numbers.get(value)

    @override
    def producer(self, value: Value) -> Op | None:
        return self._producers.get(value)

    @override
    def stored(self, value: Value) -> np.ndarray | None:
        op = self.producer(value)
        if op is None or op.kind != "core.constant":
            return None
        return constant_array(op, self.module.weights)


def _stand_in(kind: DType) -> DType:
    return dtypes.F32 if dtypes.missing(kind) else kind


def _number(array: np.ndarray) -> int | float | bool | None:
    """Return the number that all elements are, or None if torch's scalars do not hold it."""
    found = array.reshape(-1)[0]
    if array.dtype == np.bool_:
        return bool(found)
    if np.issubdtype(array.dtype, np.integer):
        return int(found) if int(found) < _TOO_LARGE else None
    return float(found)
