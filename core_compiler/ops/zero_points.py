"""Bytes minus their zero point: operands of integer products, as they stand in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.kernel_ir import scalars
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.rules import I32

#: The most significant bit of a byte: exchanging it turns an i8 into the ui8 that is 128 larger.
_SIGN = 128


@dataclass(frozen=True)
class Bytes:
    """An operand: ``bytes_`` (of i8 or ui8) minus ``zero`` (i32, None: 0) along ``dims``.

    ``held``: the array of a constant zero point.
    """

    bytes_: Value
    zero: Value | None = None
    dims: tuple[int, ...] = ()
    held: np.ndarray | None = None

    def shifted(self, b: Builder, dtype: str) -> Bytes:
        """Return the operand with bytes of ``dtype``."""
        kind = self.bytes_.type.dtype
        if kind.name == dtype:
            return self
        shape = self.bytes_.type.shape
        sign = b.expand(b.constant(-_SIGN if kind.name == "i8" else _SIGN, kind), shape)
        moved = b.bitcast(b.xor(self.bytes_, sign), dtype=dtype)
        by = np.asarray(_SIGN if dtype == "ui8" else -_SIGN, np.int32)
        held = by if self.zero is None else None if self.held is None else self.held + by
        if held is None:
            assert self.zero is not None
            shift = b.expand(b.constant(by), self.zero.type.shape)
            return Bytes(moved, b.add(self.zero, shift), self.dims)
        return Bytes(moved, b.constant(held), self.dims, held) if held.any() else Bytes(moved)

    def zeros(self, b: Builder, shape: Sequence[int]) -> Value:
        """Return the zero points, broadcast to the shape of the result."""
        assert self.zero is not None
        return b.broadcast(self.zero, shape=shape, dims=self.dims)


def bytes_of(
    value: Value, producer: Callable[[Value], Op | None], array: Callable[[Op], np.ndarray]
) -> Bytes | None:
    """Return an operand's bytes and zero point, or None if it is not bytes minus a zero point.

    ``producer`` returns the op that makes a value, ``array`` that of a constant.
    """
    op = producer(value)
    if op is None:
        return None
    cast = typed.Cast.match(op)
    if cast is not None:
        kind = cast.x.type.dtype
        return Bytes(cast.x) if kind.name in ("i8", "ui8") else None
    if op.kind != "core.sub":
        return None
    whole = bytes_of(op.operands[0], producer, array)
    zero = producer(op.operands[1])
    if whole is None or whole.zero is not None or zero is None:
        return None
    if zero.kind == "core.constant":
        return whole if not array(zero).any() else None
    broadcast = typed.Broadcast.match(zero)
    if broadcast is None:
        return None
    held = _held(broadcast.x, producer, array)
    if held is not None and not held.any():
        return whole
    return Bytes(whole.bytes_, broadcast.x, tuple(broadcast.dims), held)


def _held(
    value: Value, producer: Callable[[Value], Op | None], array: Callable[[Op], np.ndarray]
) -> np.ndarray | None:
    """Return the constant that a zero point in i32 is, also one that is kept in bytes."""
    op = producer(value)
    cast = None if op is None else typed.Cast.match(op)
    if cast is not None and scalars.is_widened(cast.x.type.dtype, I32):
        op = producer(cast.x)
    if op is None or op.kind != "core.constant":
        return None
    return array(op).astype(np.int32)
