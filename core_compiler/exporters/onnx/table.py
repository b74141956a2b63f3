"""The table of translations and what they emit nodes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from core_compiler.exporters.onnx import dtypes
from core_compiler.exporters.onnx.graph import Graph, Node, Tensor
from core_compiler.ir import DType, Op, Value, dtype

BOOL, F32, I32, I64 = map(dtype, ("i1", "f32", "i32", "i64"))

__all__ = ["TABLE", "Emitter", "NotInOnnx", "core", "in_f32"]


class NotInOnnx(Exception):
    """ONNX has no word for this use of an op; the message says what is missing."""


#: ``add`` of ``core.add`` -> ``handler(emitter, op, *operands)``, which gives the results, or None:
#: the op's declared decomposition is exported.  Operands of an elementwise op may come before they
#: are broadcast; the result of the ``op`` that its handler sees is of the shape that they make.
TABLE: dict[str, Callable[..., Tensor | Sequence[Tensor] | None]] = {}


def core(*names: str):
    """Enter a handler under these ops of ours."""

    def enter(handler):
        for name in names:
            TABLE[name] = handler
        return handler

    return enter


def in_f32(handler):
    """Wrap a handler of several nodes: what is narrower than f32 is widened once, the result
    rounded once."""

    @wraps(handler)
    def wide(g: Emitter, op: Op, *operands: Tensor):
        kind = operands[0].dtype
        if not kind.is_float or kind.bits >= 32:
            return handler(g, op, *operands)
        return g.cast(handler(g, op, *(g.cast(x, F32) for x in operands)), kind)

    return wide


class Emitter:
    """Appends nodes to a graph; knows the opset, and the op of ours that it emits for.

    ``guards``: also emit what keeps our meaning where ONNX leaves it to the runtime.
    """

    def __init__(self, opset: int, guards: bool):
        self.opset, self.guards = opset, guards
        self.graph = Graph()
        self.op: Op | None = None
        self.group = ""
        self._constants: dict[Any, Tensor] = {}

    # What is known of values of the IR; the exporter fills these in.

    def numbers(self, value: Value) -> np.ndarray | None:
        """The numbers that a value is made of, each at least once; None if it is no constant."""
        raise NotImplementedError

    def bounds(self, value: Value) -> tuple[float, float] | None:
        """The least and the greatest that an element can be (then none is NaN); None if nothing is
        known."""
        raise NotImplementedError

    def operand(self, value: Value) -> Tensor:
        """The tensor of a value, of its whole shape."""
        raise NotImplementedError

    def compact(self, value: Value) -> tuple[Tensor, tuple[int, ...]]:
        """A tensor that broadcasts to the value as NumPy's do, and its shape."""
        raise NotImplementedError

    # -- nodes -------------------------------------------------------------------------------------

    def has(self, kind: str) -> bool:
        """Whether the default domain has ``kind`` at this opset."""
        return dtypes.signature(kind, self.opset) is not None

    def takes(self, kind: str, given: DType) -> bool:
        """Whether ``kind`` takes ``given`` as its first input, as it is."""
        held = dtypes.signature(kind, self.opset)
        return held is not None and given in held.allowed[held.inputs[0]]

    def emit(self, kind: str, *inputs: Tensor | None, outputs: int = 1, **attributes: Any) -> Any:
        """Append a node; its result, or a tuple of ``outputs`` results.

        An input of a dtype that ``kind`` does not take is widened, and what has its type comes back
        as narrow.  NotInOnnx where the opset has no such op, or none that takes the dtype.
        """
        held = dtypes.signature(kind, self.opset)
        if held is None:
            raise NotInOnnx(f"opset {self.opset} has no {kind}")
        given: dict[str, DType] = {}
        for place, tensor in enumerate(inputs):
            if tensor is not None:
                given.setdefault(held.variable(place), tensor.dtype)
        chosen = {}
        for variable, own in given.items():
            found = dtypes.carrier(kind, own, held.allowed[variable])
            if found is None:
                raise NotInOnnx(f"{kind} of opset {self.opset} does not support {own.name}")
            chosen[variable] = found
        operands = tuple(
            None if x is None else self.cast(x, chosen[held.variable(i)])
            for i, x in enumerate(inputs)
        )
        variables = held.outputs[:outputs]
        made = tuple(Tensor(chosen.get(v) or _only(held.allowed[v])) for v in variables)
        self.node(kind, operands, made, **attributes)
        results = tuple(
            self.cast(t, given.get(v, t.dtype)) for t, v in zip(made, variables, strict=True)
        )
        return results[0] if outputs == 1 else results

    def node(
        self, kind: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor],
        **attributes: Any,
    ) -> None:  # fmt: skip
        """Append a node as it is; attributes that are None are left out."""
        known = {name: value for name, value in attributes.items() if value is not None}
        self.graph.nodes.append(
            Node(kind, tuple(inputs), tuple(outputs), known, self.op, self.group)
        )

    def cast(self, x: Tensor, wanted: DType, **attributes: Any) -> Tensor:
        """``x`` converted as ONNX's Cast does, if need be.  A constant is only ever widened, which
        is done here."""
        if x.dtype is wanted:
            return x
        for kind in (x.dtype, wanted):
            missing = dtypes.missing(kind, self.opset)
            if missing:
                raise NotInOnnx(missing)
        if x.array is not None and wanted.name in dtypes.WIDER.get(x.dtype.name, ()):
            return self.constant(x.array.astype(wanted.numpy), x.wanted)
        made = Tensor(wanted)
        self.node("Cast", (x,), (made,), to=dtypes.number(wanted), **attributes)
        return made

    def constant(self, array: Any, wanted: str = "", key: Any = None) -> Tensor:
        """A constant; equal ones are one.  ``key`` stands for the contents of a large array."""
        array = np.asarray(array)
        kind, shape = dtype(array.dtype), array.shape
        if key is None:
            key = array.tobytes() if array.nbytes <= 1024 else id(array)
        known = self._constants.get((kind, shape, key))
        if known is None:
            known = Tensor(kind, shape, wanted or _spelled(array), array)
            self._constants[kind, shape, key] = known
        return known

    def scalar(self, number: Any, kind: DType) -> Tensor:
        """A constant of rank 0."""
        return self.constant(np.asarray(number).astype(kind.numpy))

    def ints(self, *values: int) -> Tensor:
        """A constant list of sizes, axes or places."""
        return self.constant(np.array(values, np.int64))

    # -- small patterns ----------------------------------------------------------------------------

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """``x`` under another shape; a constant is reshaped here."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.array is not None:
            return self.constant(x.array.reshape(shape), x.wanted)
        made = self.emit("Reshape", x, self.ints(*shape), allowzero=1 if 0 in shape else None)
        made.shape = shape
        return made

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """``x`` broadcast as NumPy does."""
        return x if x.shape == tuple(shape) else self.emit("Expand", x, self.ints(*shape))

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(len(permutation))):
            return x
        return self.emit("Transpose", x, perm=list(permutation))

    def cut(self, x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
        """A slice along one axis."""
        steps = () if step == 1 else (self.ints(step),)
        return self.emit("Slice", x, self.ints(start), self.ints(stop), self.ints(axis), *steps)

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """``a`` where ``condition``, else ``b``; ui64, which onnxruntime does not choose from, as
        i64 of the same bits."""
        kind = a.dtype
        if kind.name == "ui64":
            a, b = self.cast(a, I64), self.cast(b, I64)
        return self.cast(self.emit("Where", condition, a, b), kind)

    def is_nan(self, x: Tensor) -> Tensor:
        return self.emit("IsNaN", x)

    @contextmanager
    def inside(self, graph: Graph) -> Iterator[Graph]:
        """Emit into ``graph``, which becomes an attribute of a node."""
        outer, self.graph = self.graph, graph
        try:
            yield graph
        finally:
            self.graph = outer


def _only(allowed: frozenset[DType]) -> DType:
    (kind,) = allowed
    return kind


def _spelled(array: np.ndarray) -> str:
    """A name for a small constant that says what it is: ``f32_0.5``, of a list ``i64s_2_3``."""
    if array.size > 4 or array.ndim > 1:
        return "constant"
    kind = dtype(array.dtype).name + "s" * array.ndim
    return "_".join([kind, *(str(v) for v in array.reshape(-1).tolist())])
