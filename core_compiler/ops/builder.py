"""Construction of ops: type inference, constants, and conveniences for the declared ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.ir import Block, Op, Origin, Value, WeightStore, dtype, tensor
from core_compiler.ops.base import definition, infer
from core_compiler.support.errors import InternalError


class Builder:
    """Appends type-checked ops to a list.

    ``b.add(x, y)``, ``b.reshape(x, shape=(2, 3))`` for any declared op (``b.if_``, ``b.and_`` for
    Python keywords) return the result value, or a tuple of several. ``origin`` is set on every new
    op (None lets the rewriter set it). ``weights`` receives constants too large to be stored in the
    IR.
    """

    def __init__(self, weights: WeightStore | None = None, origin: Origin | None = None):
        self.ops: list[Op] = []
        self.weights, self.origin = weights, origin

    def op(
        self,
        kind: str,
        operands: Sequence[Value],
        names: Sequence[str | None] = (),
        regions: Sequence[Block] = (),
        **attributes,
    ):
        """Append ``kind`` and return its result (a tuple if it has several).

        Attributes may be lists, NumPy scalars and dtype names; the op stores plain values with
        defaults filled in, so that ``op["axis"]`` is always defined. Raise TypeRuleError if the
        type rule is violated.
        """
        types = infer(kind, [v.type for v in operands], attributes, regions)
        names = tuple(names) + (None,) * (len(types) - len(names))
        results = tuple(Value(t, n) for t, n in zip(types, names, strict=True))
        normalised = definition(kind).normalise(attributes)
        self.ops.append(Op(kind, operands, results, normalised, regions, self.origin))
        return results[0] if len(results) == 1 else results

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        kind = f"core.{name.rstrip('_')}"
        definition(kind)
        return lambda *operands, **options: self.op(kind, operands, **options)

    def constant(self, array, dtype_=None, name: str | None = None) -> Value:
        """Return a constant from a NumPy array or Python number (which needs ``dtype_``)."""
        array = np.asarray(array, dtype=None if dtype_ is None else dtype(dtype_).numpy)
        store = self.weights if self.weights is not None else WeightStore()
        value = Value(tensor(array.shape, array.dtype), name)
        held = {"value": store.add(array)}
        self.ops.append(Op("core.constant", (), (value,), held, (), self.origin))
        return value

    def scalar_like(self, number, like: Value) -> Value:
        """Return ``number`` in ``like``'s dtype, broadcast to its shape."""
        return self.expand(self.constant(number, like.type.dtype), like.type.shape)

    def expand(self, x: Value, shape) -> Value:
        """Return ``x`` broadcast to ``shape`` by NumPy's rules, aligned at the last axis."""
        shape = tuple(shape)
        if x.type.shape == shape:
            return x
        lead = len(shape) - x.type.rank
        return self.op("core.broadcast", (x,), shape=shape, dims=tuple(range(lead, len(shape))))

    def cut(self, x: Value, axis: int, start: int, limit: int, step: int = 1) -> Value:
        """Return a slice along one axis."""
        rank, shape = x.type.rank, x.type.shape
        return self.op(
            "core.slice",
            (x,),
            starts=tuple(start if i == axis else 0 for i in range(rank)),
            limits=tuple(limit if i == axis else d for i, d in enumerate(shape)),
            strides=tuple(step if i == axis else 1 for i in range(rank)),
        )

    def broadcast_together(self, *values: Value) -> tuple[Value, ...]:
        """Return the values broadcast to their common shape by NumPy's rules."""
        shape = broadcast_shape(*(v.type.shape for v in values))
        return tuple(self.expand(v, shape) for v in values)


def broadcast_shape(*shapes) -> tuple:
    """Return the common shape under NumPy broadcasting; ValueError if there is none."""
    rank = max(map(len, shapes))
    out = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        wide = [d for d in sizes if d != 1]
        if any(d != wide[0] for d in wide):
            raise ValueError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        out.append(wide[0] if wide else 1)
    return tuple(out)


def decomposed(op: Op) -> Block:
    """Return the declared decomposition of a composite op, as a block over its operands.

    Its outputs have the shapes and dtypes of ``op``'s results, row-major.
    """
    arguments = tuple(Value(v.type, v.name) for v in op.operands)
    builder, formula = Builder(), definition(op).decompose
    if formula is None:
        raise InternalError(f"{op.kind} has no decomposition")
    outputs = tuple(formula(builder, op.with_(operands=arguments)))
    return Block(arguments, tuple(builder.ops), outputs)
