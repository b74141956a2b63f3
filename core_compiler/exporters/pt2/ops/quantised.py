"""The ops of PT2E graphs, ``quantized_decomposed``: the borders of a quantised model.

``quantize_per_tensor`` multiplies by 1 / scale, which is rounded, where ``core.quantize`` divides
(unless it is ``reciprocal``): a quotient within a unit in the last place of the middle between two
steps may become the other one.  A note says so to our importer, which divides again.  With
``guards`` such a division is exported as ATen ops.
"""

from __future__ import annotations

from math import frexp

import numpy as np

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.ops.conversion import limits
from core_compiler.exporters.pt2.table import F32, I32, I64, Emitter, Node, core
from core_compiler.ir import DType, Value
from core_compiler.ops import typed
from core_compiler.support.torch_operators import DIVIDES, QUANTISED

_LIBRARY = f"{QUANTISED}::"
#: Dtypes of quantised values that torch has.
_INTEGERS = ("i8", "ui8", "i16", "ui16", "i32")


def _number_in(g: Emitter, value: Value | None) -> float | int | None:
    """Return the number of a scalar constant; 0 for a missing zero point; None for others."""
    if value is None:
        return 0
    held = g.stored(value)
    return None if held is None or held.ndim else held.item()


def _is_known(g: Emitter, op: typed.Quantize | typed.Dequantize) -> bool:
    """Return whether scales of f32 are along an axis, or a number with one for the zero point."""
    if op.scale.type.dtype is not F32:
        return False
    numbers = (_number_in(g, op.scale), _number_in(g, op.zero_point))
    return op.axis is not None or None not in numbers


def _divides_alike(g: Emitter, op: typed.Quantize) -> bool:
    """Return whether a division by the scales is a multiplication by their reciprocals."""
    if op.reciprocal or not g.guards:
        return True
    held = g.stored(op.scale)
    return held is not None and all(frexp(s)[0] == 0.5 for s in held.reshape(-1).tolist())


def _quantizes(g: Emitter, op: typed.Quantize) -> bool:
    is_small = op.dtype.name in _INTEGERS and op.dtype.bits <= 16
    return op.x.type.dtype is F32 and is_small and _is_known(g, op) and _divides_alike(g, op)


def _limits(op: typed.Quantize) -> tuple[int, int]:
    low, high = limits(op.dtype)
    return low if op.low is None else op.low, high if op.high is None else op.high


@core("quantize", when=_quantizes)
def quantize(g, op: typed.Quantize, x, scale, zero=None):
    kind, ends = dtypes.torch_dtype(op.dtype), _limits(op)
    if op.axis is None:
        parameters = _number_in(g, op.scale), _number_in(g, op.zero_point)
        made = g.call(f"{_LIBRARY}quantize_per_tensor", x, *parameters, *ends, kind)
    else:
        zero = _zeros(g, op, zero)
        made = g.call(f"{_LIBRARY}quantize_per_channel", x, scale, zero, op.axis, *ends, kind)
    if not op.reciprocal:
        made.meta["custom"] = dict(DIVIDES)
    return made


def _zeros(g: Emitter, op: typed.Quantize | typed.Dequantize, zero: Node | None) -> Node:
    """Return the zero points along an axis, in i64 as in PyTorch's graphs."""
    held = None if op.zero_point is None else g.stored(op.zero_point)
    if held is not None or zero is None:
        numbers = np.zeros(op.scale.type.shape) if held is None else held
        return g.tensor(numbers.astype(np.int64))
    return g.cast(zero, I64)


def _dequantizes(g: Emitter, op: typed.Dequantize) -> bool:
    """Return whether differences are exact in torch, which computes those of tensors in f32."""
    kind = op.q.type.dtype
    is_exact = kind.bits <= 16 or (kind is I32 and op.zero_point is None)
    return kind.name in _INTEGERS and is_exact and _is_known(g, op)


@core("dequantize", when=_dequantizes)
def dequantize(g, op: typed.Dequantize, q, scale, zero=None):
    kind = op.q.type.dtype
    ends, made = _limits_of(g, op.q, kind), dtypes.torch_dtype(kind)
    if op.axis is None:
        parameters = _number_in(g, op.scale), _number_in(g, op.zero_point)
        return g.call(f"{_LIBRARY}dequantize_per_tensor", q, *parameters, *ends, made)
    zero = _zeros(g, op, zero)
    return g.call(f"{_LIBRARY}dequantize_per_channel", q, scale, zero, op.axis, *ends, made)


def _limits_of(g: Emitter, q: Value, kind: DType) -> tuple[int, int]:
    """Return the limits that quantised values were given; torch only reads them as a note."""
    maker = typed.Quantize.match(g.producer(q))
    return limits(kind) if maker is None else _limits(maker)
