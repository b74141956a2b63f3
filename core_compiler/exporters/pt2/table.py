"""The table of translations and the emitter of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.metadata import of_node
from core_compiler.exporters.translations import Translations
from core_compiler.ir import DType, Op, Value, dtype
from core_compiler.ir.views import OpView
from core_compiler.support.torch_operators import library

if TYPE_CHECKING:
    from torch.fx import Node
else:
    Node = Any

BOOL, F32, F64, I32, I64 = map(dtype, ("i1", "f32", "f64", "i32", "i64"))

__all__ = ["TABLE", "Emitter", "Node", "NotInTorch", "core", "in_f32", "shape_of"]


class NotInTorch(Exception):
    """Torch does not support this use of an op; the message names the missing feature."""


#: ``add`` for ``core.add`` -> ``handler(emitter, view of op, *operands)``.  It returns the results.
#: Operands of an elementwise op may not be broadcast yet.
TABLE = Translations()
core = TABLE.core


def in_f32(handler):
    """Wrap a handler: widen floats narrower than f32, round the result once."""

    @wraps(handler)
    def wide(g: Emitter, op: OpView, *operands: Node):
        made = op.result.type.dtype
        if not made.is_float or made.bits >= 32:
            return handler(g, op, *operands)
        return g.cast(handler(g, op, *(g.widened(x) for x in operands)), made)

    return wide


def shape_of(node: Node) -> tuple[int, ...]:
    """Return the shape of a node's tensor."""
    return tuple(node.meta["val"].shape)


class Emitter:
    """A builder of nodes that knows the core op being translated.

    Each node is also executed on tensors without memory, which gives its shape and dtype.
    ``guards``: also preserve semantics that torch leaves open.
    """

    def __init__(self, guards: bool):
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.torch: Any = torch
        self.fake: Any = FakeTensorMode()
        self.graph: Any = torch.fx.Graph()
        self.guards = guards
        self.op: Op | None = None
        self.wanted = ""

    # Facts about values of the IR; the exporter implements these.

    def number(self, value: Value) -> int | float | bool | None:
        """Return the number that is each element of a constant; None for other values."""
        raise NotImplementedError

    def stored(self, value: Value) -> np.ndarray | None:
        """Return the elements of a constant of the module; None for other values."""
        raise NotImplementedError

    def producer(self, value: Value) -> Op | None:
        """Return the op that makes a value, or None for an argument."""
        raise NotImplementedError

    def node(self, value: Value) -> Node:
        """Return the node of a value with its full shape."""
        raise NotImplementedError

    def tensor(self, array: np.ndarray, name: str = "") -> Node:
        """Return a constant tensor; ``name`` makes it a parameter or buffer of the program."""
        raise NotImplementedError

    # -- nodes -------------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any, **options: Any) -> Node:
        """Append a call of an operator and return its node.

        ``name``: ``add.Tensor`` of ATen, with the overload ``default`` if none is named, or of
        another library ``library::name.overload``.
        """
        target = self._operator(name)
        node = self.graph.create_node(
            "call_function", target, arguments, options, name=self.wanted or None
        )
        with self.fake, self.torch.no_grad():
            held = [self.torch.fx.node.map_arg(a, _value) for a in (arguments, options)]
            node.meta["val"] = target(*held[0], **held[1])
        node.meta.update(of_node(self.op))
        return node

    def calls(self, name: str, count: int, *arguments: Any, **options: Any) -> list[Node]:
        """Append a call of an operator with several results and return a node for each."""
        import operator

        made = self.call(name, *arguments, **options)
        parts = []
        for place in range(count):
            part = self.graph.create_node("call_function", operator.getitem, (made, place))
            part.meta = {**made.meta, "val": made.meta["val"][place]}
            parts.append(part)
        return parts

    @staticmethod
    def _operator(name: str) -> Any:
        space, _, rest = name.rpartition("::")
        packet, _, overload = rest.partition(".")
        return getattr(getattr(library(space or "aten"), packet), overload or "default")

    def dtype(self, node: Node) -> DType:
        """Return the dtype of a node's tensor."""
        return _FROM_TORCH[str(node.meta["val"].dtype).removeprefix("torch.")]

    # -- small patterns ----------------------------------------------------------------------------

    def cast(self, x: Node, kind: DType) -> Node:
        """Convert as torch does, if necessary."""
        if self.dtype(x) is kind:
            return x
        return self.call("_to_copy", x, dtype=dtypes.torch_dtype(kind))

    def widened(self, x: Node) -> Node:
        """Convert floats narrower than f32 to it."""
        kind = self.dtype(x)
        return self.cast(x, F32) if kind.is_float and kind.bits < 32 else x

    def bits(self, x: Node, kind: DType) -> Node:
        """Read the bits of a tensor as another dtype of the same width."""
        if self.dtype(x) is kind:
            return x
        return self.call("view.dtype", x, dtypes.torch_dtype(kind))

    def full(self, shape: Sequence[int], number: Any, kind: DType) -> Node:
        """Return a tensor whose elements are a number."""
        device = self.torch.device("cpu")
        return self.call("full", list(shape), number, dtype=dtypes.torch_dtype(kind), device=device)

    def scalar(self, number: Any, kind: DType) -> Node:
        """Return a tensor of rank 0."""
        return self.full((), number, kind)

    def count(self, size: int) -> Node:
        """Return 0, 1, ... below ``size``, in i64."""
        cpu = self.torch.device("cpu")
        return self.call("arange", size, dtype=self.torch.int64, device=cpu)

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        return x if shape_of(x) == tuple(shape) else self.call("reshape", x, list(shape))

    def expand(self, x: Node, shape: Sequence[int]) -> Node:
        """Broadcast ``x`` by NumPy's rules."""
        return x if shape_of(x) == tuple(shape) else self.call("expand", x, list(shape))

    def permute(self, x: Node, permutation: Sequence[int]) -> Node:
        if list(permutation) == list(range(len(permutation))):
            return x
        return self.call("permute", x, list(permutation))

    def cut(self, x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
        """Slice along one axis."""
        if (start, stop, step) == (0, shape_of(x)[axis], 1):
            return x
        return self.call("slice.Tensor", x, axis, start, stop, step)

    def where(self, condition: Node, a: Node, b: Node) -> Node:
        return self.call("where.self", condition, a, b)


_FROM_TORCH = {theirs: dtype(ours) for ours, theirs in dtypes.NAMES.items()}


def _value(node: Node) -> Any:
    return node.meta["val"]
