"""The table of translations, the context of a translation, and shared helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.frontends.pytorch.tensors import dtype_of, element_of
from core_compiler.frontends.run_time_sizes import RunTimeNumber, SizedBuilder
from core_compiler.ir import DType, Value, dtype
from core_compiler.ops.builder import broadcast_shape

#: ``packet`` or ``packet.overload`` -> handler(context, *arguments of the ATen schema).
TABLE: dict[str, Callable] = {}


class NotSupported(Exception):
    """This use of an op has no translation; the message states the reason."""


class Misfit(NotSupported):
    """The result of a translation differs from torch's description: the translation is wrong."""


class Crashed(NotSupported):
    """A translation raised an error of Python's: the translation is wrong."""


class Refused(NotSupported):
    """This use is rejected intentionally: torch's decomposition would hide its meaning."""


#: Torch converts values that exceed these to infinity, or NaN if they have none; for f8E4M3FN it
#: uses the largest finite number.
OVERFLOWING = frozenset({"f8E5M2", "f8E5M2FNUZ", "f8E4M3FNUZ"})


class Context(SizedBuilder):
    """A builder that knows the fx node being translated: its shapes and dtypes in torch."""

    def __init__(self, weights, origin, node, symbols, sizes):
        super().__init__(weights, origin)
        self.node, self.symbols, self.sizes = node, symbols, sizes

    @property
    def meta(self):
        """Return torch's description of the result (a fake tensor, or a list of them)."""
        return self.node.meta.get("val")

    @property
    def dtype(self) -> DType:
        """Return torch's dtype of the (first) result; for complex numbers that of their parts."""
        meta = self.meta[0] if isinstance(self.meta, list | tuple) else self.meta
        return element_of(meta.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.symbols.number(d) for d in self.meta.shape)

    def uses(self, result: int) -> bool:
        """Return whether this result of the op is used."""
        return any(
            "getitem" in str(user.target) and user.args[1] == result and user.users
            for user in self.node.users
        )

    def only_first(self, what: str) -> None:
        """Raise NotSupported if a result of the op other than the first is used."""
        if isinstance(self.meta, list | tuple) and any(map(self.uses, range(1, len(self.meta)))):
            raise NotSupported(f"{what} is used")

    def to(self, x: Value, wanted: DType) -> Value:
        """Return ``x`` cast to ``wanted`` (by torch's conversion rules), or ``x`` itself."""
        if x.type.dtype is wanted:
            return x
        return self.cast(x, dtype=wanted, saturate=wanted.name not in OVERFLOWING)

    def value(self, x, wanted: DType) -> Value:
        """Return a value or a Python number in the dtype ``wanted``."""
        if isinstance(x, Value):
            return self.to(x, wanted)
        if isinstance(x, RunTimeNumber):
            if x.count is None:
                raise NotSupported("a number computed from a size that depends on data")
            return self.to(x.count, wanted)
        return self.constant(np.asarray(x).astype(wanted.numpy))

    def pair(self, a, b, wanted: DType) -> tuple[Value, Value]:
        """Return two operands (values or numbers) in one dtype, broadcast to their common shape."""
        first, second = self.broadcast_together(self.value(a, wanted), self.value(b, wanted))
        return first, second

    def common(self, *operands) -> DType:
        """Return torch's promoted dtype of values and Python numbers."""
        import torch

        def stand_in(x):
            if not isinstance(x, Value):
                return x
            name = {v: k for k, v in _TORCH_NAMES.items()}[x.type.dtype.name]
            return torch.empty((1,) * x.type.rank, dtype=getattr(torch, name), device="meta")

        result = stand_in(operands[0])
        kind = torch.result_type(result, result)
        for operand in operands[1:]:
            kind = torch.result_type(result, stand_in(operand))
            result = torch.empty((1,) * max(_rank(o) for o in operands), dtype=kind, device="meta")
        return dtype_of(kind)

    def keep(self, x: Value, axes: Sequence[int], keepdim: bool, like: Value) -> Value:
        """Restore reduced axes as 1 if torch's ``keepdim`` is set."""
        if not keepdim:
            return x
        return self.reshape(
            x, shape=tuple(1 if i in axes else d for i, d in enumerate(like.type.shape))
        )

    def bias(self, x: Value, bias: Value | None, axis: int) -> Value:
        """Add one number along ``axis`` to ``x``."""
        if bias is None:
            return x
        return self.add(x, self.broadcast(bias, shape=x.type.shape, dims=(axis,)))


_TORCH_NAMES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "bool": "i1",
}

BOOL = dtype("i1")
I64 = dtype("i64")
F32 = dtype("f32")


def _rank(x) -> int:
    return x.type.rank if isinstance(x, Value) else 0


def aten(*names: str):
    """Register a handler in the table under these names."""

    def enter(handler):
        for name in names:
            TABLE[name] = handler
        return handler

    return enter


def leaves(held) -> list:
    """Return all values in nested tuples, lists and dicts."""
    if isinstance(held, dict):
        held = tuple(held.values())
    if isinstance(held, list | tuple):
        return [leaf for part in held for leaf in leaves(part)]
    return [held]


def axis_of(axis: int, rank: int) -> int:
    """Return a non-negative axis.

    Torch counts negative ones from the end; rank 0 has axes 0 and -1.
    """
    return axis + max(rank, 1) if axis < 0 else axis


def axes_of(axes, rank: int) -> tuple[int, ...]:
    """Return ascending non-negative axes; None or () means all."""
    if axes is None or (isinstance(axes, list | tuple) and not axes):
        return tuple(range(rank))
    axes = (axes,) if isinstance(axes, int) else axes
    return tuple(sorted(axis_of(a, rank) for a in axes))


def per_axis(x, count: int) -> tuple[int, ...]:
    """Return a torch size argument (a number or a list, maybe of one entry) for ``count`` axes."""
    if isinstance(x, int):
        return (x,) * count
    x = tuple(int(v) for v in x)
    return x * count if len(x) == 1 else x


def wide(b: Context, x: Value) -> Value:
    """Return ``x``, narrow floats in f32, which torch's kernels use if they round once."""
    return b.to(x, F32) if x.type.dtype.is_float and x.type.dtype.bits < 32 else x


__all__ = [
    "BOOL",
    "F32",
    "I64",
    "TABLE",
    "Context",
    "NotSupported",
    "Refused",
    "aten",
    "axes_of",
    "axis_of",
    "broadcast_shape",
    "leaves",
    "per_axis",
    "wide",
]
