"""The common part of integer forms: quantised operands, and results that are rescaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from core_compiler.ir import DType, Module, Op, Rewriter, Value, dtype
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array, evaluate
from core_compiler.ops.quantised import fixed_point

I8, I16, I32 = dtype("i8"), dtype("i16"), dtype("i32")
BYTES, WIDE = (8,), (8, 16)
#: The largest magnitude of a byte less its zero point.
CENTRED = 255


@dataclass(frozen=True)
class Stored:
    """A quantised value: integers of one scale and zero point."""

    q: Value
    scale: float
    zero: int

    def centred(self, b: Builder) -> Value:
        """Return the integers less their zero point, in i32."""
        wide = b.cast(self.q, dtype=I32)
        return b.sub(wide, b.scalar_like(self.zero, wide)) if self.zero else wide


def stored_of(
    value: Value, rewriter: Rewriter, module: Module, bits: Sequence[int] = BYTES
) -> Stored | Refusal:
    """Return the integers, of one of ``bits``, that a float value was dequantised from."""
    op = rewriter.producer(value)
    found = typed.Dequantize.match(op)
    if op is None or found is None:
        if op is None:
            return refuse("quantised operands", "an operand is an input that is not quantised")
        return refuse("quantised operands", "{0:value} is not dequantised", op)
    if found.axis is not None:
        return refuse("one scale", "{0:value} has a scale for each channel", op)
    return _stored(found.q, op, rewriter, module, bits)


def stored_by(op: Op, rewriter: Rewriter, module: Module) -> Stored | Refusal:
    """Return the result of a ``quantize`` with its scale and zero point."""
    found = typed.Quantize.of(op)
    if found.axis is not None:
        return refuse("one scale", "{0} has a scale for each channel", op)
    return _stored(op.result, op, rewriter, module, WIDE)


def _stored(
    q: Value, op: Op, rewriter: Rewriter, module: Module, bits: Sequence[int]
) -> Stored | Refusal:
    """Return ``q`` with the scale and zero point that ``op`` is given."""
    arrays = []
    for value in op.operands[1:]:
        maker = rewriter.producer(value)
        if maker is None or maker.kind != "core.constant":
            text = (
                "the parameters of {0} are computed as the model runs: integers need constant ones"
            )
            return refuse("constant parameters", text, op)
        arrays.append(constant_array(maker, module.weights))
    if q.type.dtype.bits not in bits:
        return refuse("bytes", "{0} is of {1}, not of bytes", op, q.type.dtype)
    if not float(arrays[0]) > 0:
        return refuse(
            "a positive scale",
            "the scale of {0} is {1}: quantise it with a positive one",
            op,
            float(arrays[0]),
        )
    zero = int(arrays[1]) if len(arrays) > 1 else 0
    return Stored(q, float(arrays[0]), zero)


@dataclass
class Form:
    """The form of the float ops before ``op``, a ``quantize``: they are noted in ``ops``."""

    op: Op
    result: Stored
    rewriter: Rewriter
    module: Module
    b: Builder
    #: The float ops of the form, from the last.
    ops: list[Op] = field(default_factory=list)

    def replaced(self) -> list[Op]:
        """Return the float ops of the form, in order, as far as it alone reads them."""
        found: list[Op] = []
        for op in self.ops:
            if not self.rewriter.has_one_use(op.result):
                break
            found.insert(0, op)
        return found

    def stored(self, value: Value, bits: Sequence[int] = BYTES) -> Stored | Refusal:
        """Return the integers of an operand."""
        return stored_of(value, self.rewriter, self.module, bits)

    def both(self, maker: Op) -> tuple[Stored, Stored] | Refusal:
        """Return the integers of both operands."""
        left, right = (self.stored(v) for v in maker.operands)
        if isinstance(left, Refusal):
            return left
        return right if isinstance(right, Refusal) else (left, right)

    def room(self, terms: int, largest: int, maker: Op) -> int | Refusal:
        """Return what i32 leaves beside a sum of so many terms, of at most ``largest`` each."""
        room = integer_range(I32)[1] - terms * largest
        if room >= 0:
            return room
        return refuse("sums of 32 bits", "{0} adds {1} terms", maker, terms)

    def limits(self) -> tuple[int, int]:
        """Return the least and the greatest integer of the result."""
        found = typed.Quantize.of(self.op)
        least, most = integer_range(self.op.result.type.dtype)
        low = least if found.low is None else found.low
        return low, most if found.high is None else found.high

    def quantised(self, array: np.ndarray) -> np.ndarray:
        """Return numbers as integers of the result's parameters."""
        makers = [self.rewriter.producer(v) for v in self.op.operands[1:]]
        parameters = [constant_array(m, self.module.weights) for m in makers if m is not None]
        fresh = (Value(self.op.operands[0].type.with_(shape=array.shape)), *self.op.operands[1:])
        result = Value(self.op.result.type.with_(shape=array.shape))
        small = self.op.with_(operands=fresh, results=(result,), origin=None)
        return evaluate(small, [array, *parameters], self.module.weights)[0]

    def rescaled(self, total: Value, factors: np.ndarray, axis: int | None = None):
        """Return a sum times ``factors``, or a refusal, with the result's zero point and limits."""
        kind = self.op.result.type.dtype
        made = self.scaled(total, factors, axis, kind, 0, self.result.zero)
        if isinstance(made, Refusal):
            return made
        low, high = self.limits()
        is_free = (low, high) == integer_range(kind)
        return made if is_free else self.b.clamp(made, low=low, high=high)

    def scaled(
        self,
        x: Value,
        factors: np.ndarray,
        axis: int | None,
        kind: DType,
        input_zero: int,
        output_zero: int,
    ) -> Value | Refusal:
        """Return integers times ``factors``: one number, or one for each position of ``axis``."""
        points = [fixed_point(float(f)) for f in np.atleast_1d(factors)]
        if None in points:
            return refuse(
                "factors of 31 bits", "the scales of {0} are too far apart to rescale", self.op
            )
        multipliers = np.array([p[0] for p in points if p], np.int32)
        shifts = np.array([p[1] for p in points if p], np.int8)
        if axis is None:
            multipliers, shifts = multipliers.reshape(()), shifts.reshape(())
        return self.b.rescale(
            x,
            self.b.constant(multipliers),
            self.b.constant(shifts),
            dtype=kind,
            axis=axis,
            input_zero=input_zero,
            output_zero=output_zero,
        )
