"""The table of translations and the emitter of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from core_compiler.exporters.onnx import dtypes
from core_compiler.exporters.onnx.graph import Graph, Node, Tensor
from core_compiler.exporters.translations import Translations
from core_compiler.ir import DType, Op, Value, dtype

BOOL, F32, I32, I64 = map(dtype, ("i1", "f32", "i32", "i64"))

__all__ = ["TABLE", "Emitter", "NotInOnnx", "core", "in_f32"]


class NotInOnnx(Exception):
    """ONNX does not support this use of an op; the message names the missing feature."""


#: ``add`` for ``core.add`` -> ``handler(emitter, view of op, *operands)``.  It returns the results.
#: Operands of an elementwise op may not be broadcast yet; the result of the ``op`` passed to its
#: handler has the shape that they broadcast to.
TABLE = Translations()
core = TABLE.core


def in_f32(handler):
    """Wrap a handler of several nodes: widen dtypes below f32 once, round the result once."""

    @wraps(handler)
    def wide(g: Emitter, op: Op, *operands: Tensor):
        kind = operands[0].dtype
        if not kind.is_float or kind.bits >= 32:
            return handler(g, op, *operands)
        return g.cast(handler(g, op, *(g.cast(x, F32) for x in operands)), kind)

    return wide


class Emitter:
    """A builder of nodes that knows the opset and the core op being translated.

    ``guards``: also preserve semantics that ONNX leaves to the runtime.
    """

    def __init__(self, opset: int, guards: bool):
        self.opset, self.guards = opset, guards
        self.graph = Graph()
        self.op: Op | None = None
        self.group = ""
        self._constants: dict[Any, Tensor] = {}

    # Facts about values of the IR; the exporter implements these.

    def numbers(self, value: Value) -> np.ndarray | None:
        """Return the values that occur in a constant, each at least once; None for other values."""
        raise NotImplementedError

    def stored(self, value: Value) -> np.ndarray | None:
        """Return the elements of a constant of the module, which broadcast to it; None for others.

        It is known before the value is exported.
        """
        raise NotImplementedError

    def bounds(self, value: Value) -> tuple[float, float] | None:
        """Return the least and the greatest possible element (never NaN); None if unknown."""
        raise NotImplementedError

    def operand(self, value: Value) -> Tensor:
        """Return the tensor of a value with its full shape."""
        raise NotImplementedError

    def compact(self, value: Value) -> tuple[Tensor, tuple[int, ...]]:
        """Return a tensor that broadcasts to the value by NumPy's rules, and its shape."""
        raise NotImplementedError

    # -- nodes -------------------------------------------------------------------------------------

    def has(self, kind: str) -> bool:
        """Return whether the default domain has ``kind`` at this opset."""
        return dtypes.signature(kind, self.opset) is not None

    def takes(self, kind: str, given: DType) -> bool:
        """Return whether ``kind`` accepts ``given`` as its first input without a conversion."""
        held = dtypes.signature(kind, self.opset)
        return held is not None and given in held.allowed[held.inputs[0]]

    def emit(self, kind: str, *inputs: Tensor | None, outputs: int = 1, **attributes: Any) -> Any:
        """Append a node; return its result, or a tuple if ``outputs`` is more than 1.

        An input with a dtype that ``kind`` does not accept is widened, and outputs of its type are
        narrowed again.  Raise NotInOnnx if the opset does not have the op or none that accepts the
        dtype.
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
        made = tuple(Tensor(chosen.get(v) or _single(held.allowed[v])) for v in variables)
        self.node(kind, operands, made, **attributes)
        results = tuple(
            self.cast(t, given.get(v, t.dtype)) for t, v in zip(made, variables, strict=True)
        )
        return results[0] if outputs == 1 else results

    def node(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        **attributes: Any,
    ) -> None:
        """Append a node unchanged; attributes that are None are omitted."""
        known = {name: value for name, value in attributes.items() if value is not None}
        self.graph.nodes.append(
            Node(kind, tuple(inputs), tuple(outputs), known, self.op, self.group)
        )

    def cast(self, x: Tensor, wanted: DType, **attributes: Any) -> Tensor:
        """Convert ``x`` as ONNX's Cast does, if necessary.

        A constant is only ever widened, which is done here.
        """
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
        """Return a constant; equal ones are shared.

        ``key`` identifies the contents of a large array.
        """
        array = np.asarray(array)
        kind, shape = dtype(array.dtype), array.shape
        if key is None:
            key = array.tobytes() if array.nbytes <= 1024 else id(array)
        known = self._constants.get((kind, shape, key))
        if known is None:
            known = Tensor(kind, shape, wanted or _constant_name(array), array)
            self._constants[kind, shape, key] = known
        return known

    def scalar(self, number: Any, kind: DType) -> Tensor:
        """Return a constant of rank 0."""
        return self.constant(np.asarray(number).astype(kind.numpy))

    def ints(self, *values: int) -> Tensor:
        """Return a constant list of sizes, axes or positions."""
        return self.constant(np.array(values, np.int64))

    # -- small patterns ----------------------------------------------------------------------------

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape ``x``; a constant is reshaped here."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.array is not None:
            return self.constant(x.array.reshape(shape), x.wanted)
        made = self.emit("Reshape", x, self.ints(*shape), allowzero=1 if 0 in shape else None)
        made.shape = shape
        return made

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Broadcast ``x`` by NumPy's rules."""
        return x if x.shape == tuple(shape) else self.emit("Expand", x, self.ints(*shape))

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(len(permutation))):
            return x
        return self.emit("Transpose", x, perm=list(permutation))

    def cut(self, x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
        """Slice along one axis."""
        steps = () if step == 1 else (self.ints(step),)
        return self.emit("Slice", x, self.ints(start), self.ints(stop), self.ints(axis), *steps)

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Select ``a`` if ``condition``, else ``b``.

        ui64, which onnxruntime's Where does not support, is selected as i64 of the same bits.
        """
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


def _single(allowed: frozenset[DType]) -> DType:
    (kind,) = allowed
    return kind


def _constant_name(array: np.ndarray) -> str:
    """Return a descriptive name for a small constant: ``f32_0.5``, or ``i64s_2_3`` for a list."""
    if array.size > 4 or array.ndim > 1:
        return "constant"
    kind = dtype(array.dtype).name + "s" * array.ndim
    return "_".join([kind, *(str(v) for v in array.reshape(-1).tolist())])
