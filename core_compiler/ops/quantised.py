"""Quantised tensors: to and from integers, rescaling of integers, and functions as tables.

A quantised value q stands for the number ``(q - zero point) * scale``. Scales and zero points are
scalars, or vectors along an axis. All of these are composites: their decomposition into exact
integer arithmetic (or f32, between floats and integers) is their meaning on every target.

``rescale`` and ``table`` are RESCALE and TABLE of TOSA 1.0 (https://www.mlplatform.org/tosa).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp
from typing import Any

from core_compiler.ir import DType, Value, dtype
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.composite import along, as_dtype, quantised
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import RANGE
from core_compiler.ops.rules import (
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    need,
    need_axis,
    need_dtype,
    need_same_shape,
    refuse,
    show,
)

#: Bits of the multiplier of ``rescale``, and the shifts that may follow it: TOSA's ranges.
MULTIPLIER_BITS = 31
LEAST_SHIFT, MOST_SHIFT = 2, 62
#: A second rounding, half a unit of the 31st bit, is added for shifts above this.
DOUBLE_FROM = 31

AXIS = Attr(int, None, "axis of x along which scales lie; None: they are scalars")


# -- shapes ----------------------------------------------------------------------------------------


def _need_parameter(name: str, found, x, axis: int | None) -> None:
    """Check that ``found`` is a scalar, or a vector along ``axis`` of ``x``."""
    if axis is None:
        need(found.rank == 0, f"{name} has shape {show(found.shape)}; give axis, or a scalar")
        return
    need_axis(axis, x.rank)
    need(
        found.shape == (x.shape[axis],),
        f"{name} has shape {show(found.shape)}, expected {show((x.shape[axis],))}: "
        f"one for each position of axis {axis}",
    )


def _limits(attributes: Mapping[str, Any], kind: DType) -> tuple[int, int]:
    """Return the limits of quantised values: those given, else the range of the dtype."""
    least, most = integer_range(kind)
    low, high = attributes["low"], attributes["high"]
    low, high = least if low is None else low, most if high is None else high
    need(
        least <= low <= high <= most,
        f"values {low} to {high} are not within the range of {kind.name}, {least} to {most}",
    )
    return low, high


LOW, HIGH = (Attr(int, None, f"{word} value; None: the dtype's") for word in ("least", "greatest"))
RECIPROCAL = Attr(bool, False, "multiply by 1 / scale, rounded, instead of dividing by the scale")


# -- floats to integers and back -------------------------------------------------------------------


def _need_scale(types, attributes) -> None:
    x, scale, *zero = types
    need_dtype("scale", scale, FLOATS)
    for name, each in zip(("scale", "zero_point"), (scale, *zero), strict=False):
        _need_parameter(name, each, x, attributes["axis"])


def _quantize_rule(types, attributes):
    x = types[0]
    need_dtype("x", x, FLOATS)
    need_dtype("dtype", attributes["dtype"], (*INTEGERS, *NARROW))
    _need_scale(types, attributes)
    if len(types) > 2:
        need_dtype("zero_point", types[2], (*INTEGERS, *NARROW))
    _limits(attributes, attributes["dtype"])
    return (x.with_(dtype=attributes["dtype"]),)


#: Integers of fewer than 8 bits, which are stored.
NARROW = tuple(map(dtype, ("i4", "ui4", "i2", "ui2")))


def _quantize(b, op: typed.Quantize):
    x, scale, *zero = op.operands
    kind = op.result.type.dtype
    low, high = _limits({"low": op.low, "high": op.high}, kind)
    scale = as_dtype(b, scale, x.type.dtype)
    made = quantised(b, x, scale, zero[0] if zero else None, op.axis, op.reciprocal)
    made = b.clamp(made, low=float(low), high=float(high))
    return as_dtype(b, b.cast(made, dtype=I32), kind)


def _dequantize_rule(types, attributes):
    q, scale = types[0], types[1]
    need_dtype("q", q, (*INTEGERS, *NARROW))
    _need_scale(types, attributes)
    if len(types) > 2:
        need_dtype("zero_point", types[2], (q.dtype,))
    return (q.with_(dtype=scale.dtype),)


def _wide(x: Value) -> DType:
    """Return the dtype in which a float is computed: f32, or f64."""
    return F64 if x.type.dtype is F64 else F32


def _dequantize(b, op: typed.Dequantize):
    q, scale, *zero = op.operands
    whole = as_dtype(b, q, I32)
    if zero:
        whole = b.sub(whole, along(b, as_dtype(b, zero[0], I32), whole, op.axis))
    wide = _wide(scale)
    number = b.cast(whole, dtype=wide)
    made = b.mul(number, along(b, as_dtype(b, scale, wide), number, op.axis))
    return as_dtype(b, made, op.result.type.dtype)


def _fake_rule(types, attributes):
    need_dtype("x", types[0], FLOATS)
    _need_scale(types, attributes)
    if len(types) > 2:
        need_dtype("zero_point", types[2], (I32,))
    need(
        attributes["low"] <= attributes["high"],
        f"low {attributes['low']} is above high {attributes['high']}",
    )
    return (types[0],)


def _fake(b, op: typed.FakeQuantize):
    x, scale, *zero = op.operands
    dtype_of_x = x.type.dtype
    wide = _wide(x)
    x, scale = as_dtype(b, x, wide), as_dtype(b, scale, wide)
    offset = zero[0] if zero else None
    made = quantised(b, x, scale, offset, op.axis, op.reciprocal)
    made = b.clamp(made, low=float(op.low), high=float(op.high))
    if offset is not None:
        made = b.sub(made, along(b, as_dtype(b, offset, wide), made, op.axis))
    return as_dtype(b, b.mul(made, along(b, scale, made, op.axis)), dtype_of_x)


def _fake_slope(b, op: typed.FakeQuantize):
    """Return x limited to what rounds to integers of low..high."""
    x, scale, *zero = op.operands
    wide = _wide(x)
    step = along(b, b.stop_gradient(as_dtype(b, scale, wide)), x, op.axis)
    steps = b.div(as_dtype(b, x, wide), step)
    for end, limit in ((op.low - 0.5, b.max), (op.high + 0.5, b.min)):
        bound = b.scalar_like(end, steps)
        if zero:
            bound = b.sub(bound, along(b, as_dtype(b, zero[0], wide), x, op.axis))
        steps = limit(steps, bound)
    return as_dtype(b, b.mul(steps, step), x.type.dtype)


declare(
    OpDef(
        "core.quantize",
        "round(x / scale) + zero_point, halves to even, in f32, limited to low..high; NaN gives 0",
        ("x", "scale", "zero_point?"),
        _quantize_rule,
        attributes={
            "dtype": Attr(DType, doc="the result's dtype"),
            "axis": AXIS,
            "low": LOW,
            "high": HIGH,
            "reciprocal": RECIPROCAL,
        },
        decompose=_quantize,
        precision=RANGE,
        gradient=CONSTANT,
    )
)

declare(
    OpDef(
        "core.dequantize",
        "(q - zero_point) * scale: the difference in i32, the product in f32",
        ("q", "scale", "zero_point?"),
        _dequantize_rule,
        attributes={"axis": AXIS},
        decompose=_dequantize,
        precision=RANGE,
    )
)

declare(
    OpDef(
        "core.fake_quantize",
        "the number that x becomes as an integer of low..high: x quantised and back, in f32; the "
        "gradient passes where round(x / scale) + zero_point is within low..high (the "
        'straight-through estimator of Bengio et al., "Estimating or propagating gradients", 2013)',
        ("x", "scale", "zero_point?"),
        _fake_rule,
        attributes={
            "low": Attr(int, doc="least integer"),
            "high": Attr(int, doc="greatest integer"),
            "axis": AXIS,
            "reciprocal": RECIPROCAL,
        },
        decompose=_fake,
        precision=RANGE,
        gradient=RULES["fake_quantize"],
        slope=_fake_slope,
    )
)


# -- integers to integers --------------------------------------------------------------------------


def _rescale_rule(types, attributes):
    x, multiplier, shift = types
    need_dtype("x", x, INTEGERS)
    need_dtype("multiplier", multiplier, (I32,))
    need_dtype("shift", shift, (dtype("i8"),))
    need_same_shape(("multiplier", "shift"), (multiplier, shift))
    _need_parameter("multiplier", multiplier, x, attributes["axis"])
    kind = attributes["dtype"]
    need_dtype("dtype", kind, INTEGERS)
    for name, of in (("input_zero", x.dtype), ("output_zero", kind)):
        low, high = integer_range(of)
        value = attributes[name]
        need(low <= value <= high, f"{name} {value} is out of the range of {of.name}")
        need(value == 0 or of.bits <= 16, f"{name} is {value}; that of {of.name} must be 0")
    return (x.with_(dtype=kind),)


def _rescale(b, op: typed.Rescale):
    x, multiplier, shift = op.operands
    value = as_dtype(b, x, I64)
    if op.input_zero:
        value = b.sub(value, b.scalar_like(op.input_zero, value))
    amount = as_dtype(b, shift, I64)
    one = b.scalar_like(1, amount)
    half = along(b, b.shl(one, b.sub(amount, one)), value, op.axis)
    if op.double_round:
        limit = b.scalar_like(DOUBLE_FROM, amount)
        wide = along(b, b.gt(amount, limit), value, op.axis)
        zero, more = (b.scalar_like(n, value) for n in (0, 1 << (DOUBLE_FROM - 1)))
        signed = b.select(b.ge(value, zero), more, b.neg(more))
        half = b.add(half, b.select(wide, signed, zero))
    factor = along(b, as_dtype(b, multiplier, I64), value, op.axis)
    made = b.shr(b.add(b.mul(value, factor), half), along(b, amount, value, op.axis))
    if op.output_zero:
        made = b.add(made, b.scalar_like(op.output_zero, made))
    kind = op.result.type.dtype
    if kind.bits < 64:
        low, high = integer_range(kind)
        made = b.clamp(made, low=low, high=high)
    return as_dtype(b, made, kind)


def fixed_point(factor: float) -> tuple[int, int] | None:
    """Return (multiplier, shift) with ``multiplier / 2**shift`` nearest to ``factor``, or None.

    Of 31 bits; a factor too small for the greatest shift has fewer. None for a factor that is not
    positive, or of 2**29 or more.
    """
    if not 0 < factor < float(1 << (MULTIPLIER_BITS - LEAST_SHIFT)):
        return None
    fraction, exponent = frexp(factor)
    multiplier = round(fraction * (1 << MULTIPLIER_BITS))
    shift = MULTIPLIER_BITS - exponent
    if multiplier == 1 << MULTIPLIER_BITS:
        multiplier, shift = multiplier >> 1, shift - 1
    if shift > MOST_SHIFT:
        excess = min(shift - MOST_SHIFT, MULTIPLIER_BITS + 1)
        multiplier = (multiplier + (1 << (excess - 1))) >> excess
        shift = MOST_SHIFT
    return (multiplier, shift) if shift >= LEAST_SHIFT else None


declare(
    OpDef(
        "core.rescale",
        "((x - input_zero) * multiplier + 2**(shift - 1)) >> shift, plus output_zero, saturated: "
        "TOSA's RESCALE, in i64",
        ("x", "multiplier", "shift"),
        _rescale_rule,
        attributes={
            "dtype": Attr(DType, doc="the result's dtype"),
            "input_zero": Attr(int, 0, "zero point of x"),
            "output_zero": Attr(int, 0, "zero point of the result"),
            "axis": AXIS,
            "double_round": Attr(
                bool,
                False,
                "for shifts above 31 add 2**30 with the sign of x - input_zero before the shift",
            ),
        },
        decompose=_rescale,
        gradient=CONSTANT,
    )
)

#: Entries of a table of all values of a byte, and of one that is interpolated.
BYTE_TABLE, WIDE_TABLE = 256, 513
#: Bits of a 16-bit index between two entries.
FRACTION = 7


def _table_rule(types, attributes):
    x, table = types
    i8, i16 = dtype("i8"), dtype("i16")
    need_dtype("x", x, (i8, dtype("ui8"), i16))
    need_dtype("table", table, (*INTEGERS,))
    wanted = WIDE_TABLE if x.dtype is i16 else BYTE_TABLE
    need(
        table.shape == (wanted,),
        f"table has shape {show(table.shape)}, expected ({wanted}) for {x.dtype.name}",
    )
    if x.dtype is not i16:
        return (x.with_(dtype=table.dtype),)
    if table.dtype is not i16:
        refuse(f"table is {table.dtype.name}, expected i16: it is interpolated")
    return (x.with_(dtype=I32),)


def _table(b, op: typed.Table):
    x, table = op.operands
    index = as_dtype(b, x, I32)
    if x.type.dtype.bits == 8:
        low, _ = integer_range(x.type.dtype)
        if low:
            index = b.sub(index, b.scalar_like(low, index))
        return b.take(table, index, axis=0)
    bits = b.scalar_like(FRACTION, index)
    first = b.add(b.shr(index, bits), b.scalar_like(BYTE_TABLE, index))
    fraction = b.and_(index, b.scalar_like((1 << FRACTION) - 1, index))
    numbers = b.cast(table, dtype=I32)
    base = b.take(numbers, first, axis=0)
    after = b.take(numbers, b.add(first, b.scalar_like(1, first)), axis=0)
    return b.add(b.shl(base, bits), b.mul(b.sub(after, base), fraction))


declare(
    OpDef(
        "core.table",
        "an entry for each value of x, of 256; for i16 between two of 513, by the last 7 bits: "
        "(a << 7) + (b - a) * bits, in i32 (TOSA's TABLE)",
        ("x", "table"),
        _table_rule,
        decompose=_table,
        gradient=CONSTANT,
    )
)
