"""Pack weights: constants of few bits are stored as bytes that hold several, and unpacked by ops.

Memory has no elements of less than a byte. A byte holds two integers of 4 bits or four of 2; the
first is in the lowest bits. The ops that unpack them are fused into the kernels that read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import DType, Op, Value, dtype
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.kernel_ir.scalars import integer_range, is_narrow_integer
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.passes.base import CONTROL_FLOW, Pass
from core_compiler.passes.computed_weights import LEAST, ComputedWeight, computed_weights

BYTE = dtype("ui8")


@dataclass(frozen=True)
class PackWeights(Pass):
    """Store integers of 4 and 2 bits in as many bits, and unpack them where they are read.

    Constants of such a dtype, and constants of wider integers whose values have as few bits and of
    which arithmetic makes a product's matrix.  The values are the same: exact.
    """

    half = "implementation"
    refusal_arity = 1
    requires = frozenset({"tensor_ops"})

    @override
    def run(self, module, context):
        def edit(rw):
            computed = _computed(rw)
            for op in rw.ops:
                if op not in rw:
                    continue
                found = _packing(op, rw, module.weights, computed, context.claims)
                if isinstance(found, Refusal):
                    continue
                for user in dict.fromkeys(rw.users(op.result)):
                    b = Builder(module.weights)
                    value = found.unpacked(b, op.result.type.dtype)
                    reader = user.substitute({op.result: value}).with_(origin=None)
                    rw.replace(user, [*b.ops, reader], rule="integers of few bits as bytes")
                for dead in reversed(found.ops):
                    rw.erase(dead, rule="a result nobody reads")

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        rw, weights = context.rewriter, context.module.weights
        found = _packing(ops[0], rw, weights, _computed(rw), context.claims)
        return found if isinstance(found, Refusal) else None


@dataclass(frozen=True)
class _Packing:
    """The storage of a constant: integers of ``kind``, ``count`` of them along ``axis`` in a byte.

    ``ops``: the constant, and the view of it that ``array`` is.
    """

    ops: tuple[Op, ...]
    array: np.ndarray
    kind: DType
    axis: int

    @property
    def count(self) -> int:
        return 8 // self.kind.bits

    def unpacked(self, b: Builder, kind: DType) -> Value:
        """Emit the bytes and the ops that make the constant of them, in ``kind``."""
        shape, axis = self.array.shape, self.axis
        parts = (*shape[:axis], shape[axis] // self.count, self.count, *shape[axis + 1 :])
        codes = self.array.astype(np.int64).reshape(parts) & ((1 << self.kind.bits) - 1)
        steps = np.arange(0, 8, self.kind.bits)
        places = steps.reshape(-1, *(1 for _ in shape[axis + 1 :]))
        packed = b.constant((codes << places).sum(axis + 1).astype(np.uint8))
        rest = tuple(i for i in range(len(parts)) if i != axis + 1)
        wide = b.broadcast(packed, shape=parts, dims=rest)
        shifts = b.broadcast(b.constant(steps.astype(np.uint8)), shape=parts, dims=(axis + 1,))
        made = b.cast(b.reshape(b.shr(wide, shifts), shape=shape), dtype=self.kind)
        return made if kind is self.kind else b.cast(made, dtype=kind)


def _computed(rw) -> dict[Op, ComputedWeight]:
    """Return the constants of which products' matrices are computed, by each of their ops."""
    found = [weight for op in rw.ops for weight in computed_weights(op, rw)]
    return {op: weight for weight in found for op in weight.ops}


def _packing(
    op: Op, rw, weights, computed: Mapping[Op, ComputedWeight], claims
) -> _Packing | Refusal:
    """Return how a constant is packed, or why it is stored as it is."""
    if op.kind != "core.constant" and op not in computed:
        return refuse("a constant", "{0} is none", op)
    weight = computed.get(op, ComputedWeight((op,), -1))
    ops, value = weight.ops, weight.value
    if op is not ops[-1]:
        return refuse("a constant", "{0} is packed with its view {1}", op, ops[-1])
    kind = value.type.dtype
    if not (is_narrow_integer(kind) or (kind.is_integer and op in computed)):
        return refuse("integers of few bits", "{0} has {1}", op, kind.name)
    if value.type.elements < LEAST:
        return refuse("many elements", "{0} has {1}", op, value.type.elements)
    users = rw.users(value)
    if rw.is_output(value) or any(u.kind in CONTROL_FLOW or claims(u) for u in users):
        return refuse("readers that unpack", "{0} is read as it is stored", op)
    array = constant_array(ops[0], weights).reshape(value.type.shape)
    narrow = _narrowest(array, kind)
    if narrow is None:
        return refuse("integers of few bits", "{0} has values of more", op)
    axis = _axis(array.shape, 8 // narrow.bits, weight.axis)
    if axis is None:
        return refuse("whole bytes", "no axis of {0} is a multiple of {1}", op, 8 // narrow.bits)
    return _Packing(ops, array, narrow, axis)


def _narrowest(array: np.ndarray, kind: DType) -> DType | None:
    """Return the narrowest dtype of 2 or 4 bits that has all values; ``kind`` itself if narrow."""
    if is_narrow_integer(kind):
        return kind
    low, high = int(array.min()), int(array.max())
    for name in ("ui2", "i2", "ui4", "i4"):
        least, most = integer_range(dtype(name))
        if least <= low and high <= most:
            return dtype(name)
    return None


def _axis(shape, count: int, columns: int) -> int | None:
    """Return the last axis along which elements can share a byte, or None.

    Not that of ``columns`` (-1: none has them), which are computed together, each from its byte.
    """
    axes = reversed(range(len(shape)))
    return next((axis for axis in axes if axis != columns and shape[axis] % count == 0), None)
