"""The common parts of decompositions.

A composite's decomposition is its meaning: the bits of its result are those of these ops. Floats
narrower than f32 are widened once at the start and rounded once at the end, and everything between
runs in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod

from core_compiler.ir import Op, Value
from core_compiler.ops.base import TypeRuleError
from core_compiler.ops.rules import F32, F64

#: sqrt(2 / pi) and the cubic's factor of the tanh form of gelu, as in PyTorch.
GELU_BETA = 0.7978845608028654
GELU_KAPPA = 0.044715
#: Klambauer et al., "Self-Normalizing Neural Networks" (2017).
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def in_f32(rule: Callable) -> Callable:
    """Wrap ``rule(b, op, *operands)``: 16-bit float operands are widened, the results narrowed."""

    @wraps(rule)
    def decompose(b, op: Op):
        operands = [widened(b, v) for v in op.operands]
        results = rule(b, op, *operands)
        results = (results,) if isinstance(results, Value) else tuple(results)
        pairs = zip(results, op.results, strict=True)
        return tuple(as_dtype(b, made, declared.type.dtype) for made, declared in pairs)

    return decompose


def widened(b, x: Value) -> Value:
    """Return ``x`` in f32 if it is a narrower float, else ``x``."""
    narrow = x.type.dtype.is_float and x.type.dtype.bits < 32
    return b.cast(x, dtype=F32) if narrow else x


def as_dtype(b, x: Value, dtype) -> Value:
    """Return ``x`` cast to ``dtype``, or ``x`` if it has it."""
    return x if x.type.dtype is dtype else b.cast(x, dtype=dtype)


def size_of(x: Value, axes) -> int:
    """Return the number of elements along ``axes``; symbolic sizes must be bound first."""
    sizes = [x.type.shape[a] for a in axes]
    for size in sizes:
        if isinstance(size, str):
            raise TypeRuleError(f"symbolic size {size!r}: bind it before decomposing")
    return prod(sizes)


def spread(b, x: Value, like: Value, kept) -> Value:
    """Return ``x``, with the axes ``kept`` of ``like``, broadcast along the others."""
    if x.type.shape == like.type.shape:
        return x
    return b.broadcast(x, shape=like.type.shape, dims=tuple(kept))


def others(rank: int, axes) -> tuple[int, ...]:
    """Return the axes of ``rank`` that are not in ``axes``."""
    return tuple(a for a in range(rank) if a not in axes)


def along(b, v: Value, x: Value, axis: int | None) -> Value:
    """Return a scalar, or a vector along ``axis``, broadcast over ``x``."""
    return b.broadcast(v, shape=x.type.shape, dims=() if axis is None else (axis,))


def quantised(
    b, x: Value, scale: Value, zero: Value | None, axis: int | None, reciprocal: bool
) -> Value:
    """Return ``round(x / scale) + zero point`` in f32 (f64 of f64), not yet limited to a range.

    With ``reciprocal``, ``x`` is multiplied by 1 / scale.
    """
    if reciprocal:
        scaled = b.mul(x, along(b, b.div(b.scalar_like(1, scale), scale), x, axis))
    else:
        scaled = b.div(x, along(b, scale, x, axis))
    made = b.round(scaled if scaled.type.dtype is F64 else as_dtype(b, scaled, F32))
    if zero is None:
        return made
    return b.add(made, along(b, as_dtype(b, zero, made.type.dtype), made, axis))
