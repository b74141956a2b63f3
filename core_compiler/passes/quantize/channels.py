"""Products whose channels can be scaled: what they read, and their constant weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp

import numpy as np

from core_compiler.ir import Op, Rewriter, Value, dtype
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.quantize.roles import is_constant

#: The largest exponent of a scale: weights and sums stay far from the ends of f32.
MOST_EXPONENT = 8
#: Classes of values for which scaling by powers of two does not keep bits.
EXCEPT_FOR = ("denormals", "largest", "infinities")


def power_of_two(ratio: float) -> int:
    """Return the exponent of the power of two nearest to a positive number, by its logarithm."""
    if not 0 < ratio < float("inf"):
        return 0
    fraction, exponent = frexp(ratio)  # of [1/2, 1)
    nearest = exponent - 1 if fraction * fraction < 0.5 else exponent
    return max(-MOST_EXPONENT, min(MOST_EXPONENT, nearest))


def weights_in_floats(op: Op, rewriter: Rewriter) -> Value | None:
    """Return the constant weights of f32 that a product reads, or None."""
    is_plain = typed.Conv.match(op) or typed.Matmul.match(op)
    if not is_plain or op.result.type.dtype is not dtype("f32"):
        return None
    value = op.operands[1]
    if op.kind == "core.matmul" and value.type.rank != 2:
        return None
    if not is_constant(value, rewriter) or typed.Dequantize.match(rewriter.producer(value)):
        return None
    return value


def input_maxima(op: Op, array: np.ndarray) -> np.ndarray | None:
    """Return the largest weight for each channel of a product's input; None for other groups.

    A convolution has one group, or one for each channel of its input (with one filter each).
    """
    conv = typed.Conv.match(op)
    if conv is None:
        return np.abs(array).max(axis=1)
    if conv.groups == 1:
        return np.abs(array).max(axis=(0, *range(2, array.ndim)))
    is_depthwise = conv.groups == op.operands[0].type.shape[1] == len(array)
    return np.abs(array).max(axis=tuple(range(1, array.ndim))) if is_depthwise else None


def input_axis(op: Op) -> int:
    """Return the axis of a product's weights on which the channels of its input lie."""
    conv = typed.Conv.match(op)
    return 0 if conv is None or conv.groups > 1 else 1


def channel_axis(op: Op) -> int:
    """Return the axis of a product's operand and result on which channels lie."""
    return 1 if op.kind == "core.conv" else op.result.type.rank - 1


def scaled(b: Builder, array: np.ndarray, axis: int, exponents: np.ndarray) -> Value:
    """Emit an array times powers of two, one for each position of an axis, as a constant."""
    factors = np.ldexp(np.float32(1), exponents)
    shape = [-1 if a == axis else 1 for a in range(array.ndim)]
    return b.constant(array * factors.reshape(shape))


def keeps_last_axis(op: Op) -> bool:
    """Return whether an op is a reshape that keeps the last axis."""
    before, after = op.operands[0].type, op.result.type
    return (
        op.kind == "core.reshape"
        and bool(before.rank and after.rank)
        and before.shape[-1] == after.shape[-1]
    )


@dataclass(frozen=True)
class Reader:
    """A product that reads a value, perhaps through reshapes that keep its channels."""

    path: tuple[Op, ...]
    product: Op
    weights: Value


def readers(value: Value, rewriter: Rewriter) -> Sequence[Reader] | None:
    """Return the products with constant weights that read ``value`` on its last axis.

    None if anything else reads it, or nothing does.
    """
    found: list[Reader] = []
    if rewriter.is_output(value):
        return None
    for user in rewriter.users(value):
        if keeps_last_axis(user):
            further = readers(user.result, rewriter)
            if further is None:
                return None
            found += [Reader((user, *r.path), r.product, r.weights) for r in further]
            continue
        weights = weights_in_floats(user, rewriter)
        if weights is None or user.kind != "core.matmul" or user.operands.count(value) != 1:
            return None
        found.append(Reader((), user, weights))
    return found or None
